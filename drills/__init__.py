"""Drills: one story of a failure on a real cluster, with load, and Spark's verdict at the end."""

if __name__ != "holdfast.drills":  # the checkout is on the path, too: one module, one name
    raise ImportError("import holdfast.drills")
