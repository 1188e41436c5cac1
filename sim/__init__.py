"""The simulator: real nodes and clients on simulated time, network and disks, from one seed."""

if __name__ != "holdfast.sim":  # the checkout is on the path, too: one module, one name
    raise ImportError("import holdfast.sim")
