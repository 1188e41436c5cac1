"""Drivers that cut the power of a node's disk."""
