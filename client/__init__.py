"""Clients of a cluster: producer, consumer, admin and the ledger. Pure decisions, thin asyncio shells."""
