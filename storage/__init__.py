"""The log of one partition on disk: segments, indexes, leader epochs, producer state, checkpoints,
recovery."""

if __name__ != "holdfast.storage":  # the checkout is on sys.path too: one name per module
    raise ImportError("import holdfast.storage")
