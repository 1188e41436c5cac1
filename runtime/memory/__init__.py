"""The runtime of unit tests: a clock moved by hand, a network and a disk in memory."""
