"""Wrong code on purpose: what the simulator must notice, and how fast it does."""
