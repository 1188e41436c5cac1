"""The log of one partition on disk: segments, indexes, epochs, producer state, checkpoints and their
recovery."""

if __name__ != "holdfast.storage":  # the checkout is on the path, too: one module, one name
    raise ImportError("import holdfast.storage")
