"""Drills: each runs one failure on a real cluster under load, and Spark gives the verdict."""

if __name__ != "holdfast.drills":  # the checkout is on the path, too: one module, one name
    raise ImportError("import holdfast.drills")
