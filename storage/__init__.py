"""The log of one partition on disk: segments, indexes, epochs, producer state, checkpoints and their
recovery."""
