"""Holdfast: a replicated log cluster that keeps what it acknowledged."""
