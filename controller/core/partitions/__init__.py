"""Decisions about partitions: leader, ISR, eligible replicas, placement."""
