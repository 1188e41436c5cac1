"""Requests of clients and followers: produce, fetch, and the purgatory where both wait."""
