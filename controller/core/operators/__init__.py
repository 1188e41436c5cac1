"""Requests of operators: topics, configuration, features."""
