"""What clients and operators of a simulated cluster do."""
