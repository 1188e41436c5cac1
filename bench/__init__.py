"""Load generators beside the machine's own limits (design D13). Tools, never tests: nothing here passes or
fails by time."""
