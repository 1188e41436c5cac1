"""Clusters on one machine, for tools and tests: local processes, compose, nodes, power."""

if __name__ != "holdfast.localcluster":  # the checkout is on the path, too: one module, one name
    raise ImportError("import holdfast.localcluster")
