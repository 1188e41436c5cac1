"""What the active controller decides: pure, fed by `controller.server`."""
