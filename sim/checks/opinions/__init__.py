"""Second opinions: rules worked out once more from what a core has heard."""
