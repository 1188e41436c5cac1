"""The simulated machine: event loop, network, disks, free choices, and the trace of a run."""
