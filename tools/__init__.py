"""Tools for developers: they generate dashboards and the protocol page, and check commit messages."""

if __name__ != "holdfast.tools":  # the checkout is on the path, too: one module, one name
    raise ImportError("import holdfast.tools")
