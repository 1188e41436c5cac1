"""What the cluster has agreed on: records, immutable images, and the deltas between them. Pure."""

if __name__ != "holdfast.metadata":  # the checkout is on the path, too: one module, one name
    raise ImportError("import holdfast.metadata")
