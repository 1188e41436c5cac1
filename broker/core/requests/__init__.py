"""Requests of clients and followers: produce, fetch, and where both wait."""
