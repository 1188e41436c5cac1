"""`holdfast watch`: the live page of a node in a terminal."""
