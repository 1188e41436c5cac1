"""What writes files of this repository: dashboards and the protocol page. For developers."""

if __name__ != "holdfast.tools":  # the checkout is on the path, too: one module, one name
    raise ImportError("import holdfast.tools")
