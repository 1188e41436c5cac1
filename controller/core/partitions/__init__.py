"""Decisions about partitions: who leads, who is in sync, who is eligible, where replicas lie."""
