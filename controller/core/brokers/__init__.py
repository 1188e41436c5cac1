"""Decisions about brokers: registration, heartbeats, fencing, and what a stop would cost."""
