"""The pure cores alone, driven by readable text files: controller, partition, raft."""

if __name__ != "holdfast.scenario":  # the checkout is on the path, too: one module, one name
    raise ImportError("import holdfast.scenario")
