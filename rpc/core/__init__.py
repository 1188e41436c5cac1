"""Which answer belongs to which request, and what requests cost: pure."""
