"""The metadata quorum's state machine: what the active controller decides, and the node that runs it."""

if __name__ != "holdfast.controller":  # the checkout is on the path, too: one module, one name
    raise ImportError("import holdfast.controller")
