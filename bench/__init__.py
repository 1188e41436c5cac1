"""Load generators beside the machine's own limits (design D13). Tools, never tests: nothing here passes or
fails by time."""

if __name__ != "holdfast.bench":  # the checkout is on the path, too: one module, one name
    raise ImportError("import holdfast.bench")
