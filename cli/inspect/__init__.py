"""Commands that look into logs: `explain` and `dump-log`."""
