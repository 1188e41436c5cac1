"""The history of a run, and the page that shows it."""

if __name__ != "holdfast.report":  # the checkout is on the path, too: one module, one name
    raise ImportError("import holdfast.report")
