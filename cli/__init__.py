"""The commands of `holdfast`: thin over client, broker and controller."""

if __name__ != "holdfast.cli":  # the checkout is on the path, too: one module, one name
    raise ImportError("import holdfast.cli")
