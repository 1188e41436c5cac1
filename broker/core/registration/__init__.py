"""The broker and the controllers: registration, heartbeats, metadata."""
