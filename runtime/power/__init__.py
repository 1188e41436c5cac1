"""Real files, and what of them would not survive a power loss."""
