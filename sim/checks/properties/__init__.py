"""Properties by area, a class each."""
