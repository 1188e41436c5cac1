"""The wire: error codes, schemas, messages, frames, record batches. Pure; imports nothing of ours."""

if __name__ != "holdfast.protocol":  # the checkout is on the path, too: one module, one name
    raise ImportError("import holdfast.protocol")
