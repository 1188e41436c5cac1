"""The only layer that touches clock, randomness, sockets, files and tasks."""
