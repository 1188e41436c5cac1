"""The broker's life with the controllers: registration, heartbeats, metadata."""
