"""The only layer that touches clock, randomness, sockets, files and tasks."""

if __name__ != "holdfast.runtime":  # the checkout is on the path, too: one module, one name
    raise ImportError("import holdfast.runtime")
