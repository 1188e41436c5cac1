"""What the active controller decides: pure modules; `controller.server` feeds them events."""
