"""The broker: leads and follows partitions, serves clients (R29, R50-R56, R80-R95)."""

if __name__ != "holdfast.broker":  # the checkout is on the path, too: one module, one name
    raise ImportError("import holdfast.broker")
