"""The broker: leads and follows partitions, serves clients (rules 2.6, 2.9, 2.10, R29)."""
