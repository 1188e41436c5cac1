"""`holdfast sim`: whole clusters out of a seed."""
