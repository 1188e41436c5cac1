"""A simulated cluster: real brokers and controllers on simulated machines."""
