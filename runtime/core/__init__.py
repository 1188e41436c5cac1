"""Decisions of the runtime: no clock, files, sockets or tasks."""
