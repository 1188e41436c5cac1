"""Chaos scenarios: TOML files that say what is broken, under which load, and what must come out of it."""
