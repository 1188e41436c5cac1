"""What properties look at: taps, views, and the observer that calls the properties."""
