"""Clients of a cluster: producer, consumer, admin and the ledger. Pure decisions, thin asyncio shells."""

if __name__ != "holdfast.client":  # the checkout is on the path, too: one module, one name
    raise ImportError("import holdfast.client")
