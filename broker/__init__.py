"""The broker: leads and follows partitions, serves clients (rules 2.6, 2.9, 2.10, R29)."""

if __name__ != "holdfast.broker":  # the checkout is on the path, too: one module, one name
    raise ImportError("import holdfast.broker")
