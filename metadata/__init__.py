"""Cluster metadata: records, immutable images, and the deltas between them. Pure."""

if __name__ != "holdfast.metadata":  # the checkout is on sys.path too: one name per module
    raise ImportError("import holdfast.metadata")
