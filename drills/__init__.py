"""Drills: one story of a failure on a real cluster, with load, and Spark's verdict at the end."""
