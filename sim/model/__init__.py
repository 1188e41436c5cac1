"""The protocol as plain Python: state, actions, rules and properties; nothing of the production code."""
