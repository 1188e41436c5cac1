"""The HTTP endpoint of every node: who may come in, and what is answered."""
