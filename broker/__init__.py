"""The broker: leads and follows partitions and serves clients (R29)."""

if __name__ != "holdfast.broker":  # the checkout is on sys.path too: one name per module
    raise ImportError("import holdfast.broker")
