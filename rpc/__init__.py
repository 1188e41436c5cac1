"""Requests and answers over connections: matching, limits, back pressure. Knows no API's meaning."""

if __name__ != "holdfast.rpc":  # the checkout is on the path, too: one module, one name
    raise ImportError("import holdfast.rpc")
