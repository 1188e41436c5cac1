"""The demo: producers write while processes are killed; Spark says what survived."""
