"""What happens to a simulated cluster, and how much of it may happen at once."""
