"""Requests and answers over connections: matching, limits, back pressure. Knows no API's meaning."""
