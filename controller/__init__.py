"""The controller: what the active controller decides, and the node that runs it."""

if __name__ != "holdfast.controller":  # the checkout is on sys.path too: one name per module
    raise ImportError("import holdfast.controller")
