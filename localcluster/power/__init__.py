"""Ways to take the power from a node's disk."""
