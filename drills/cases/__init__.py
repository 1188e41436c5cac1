"""The drills, a module each; comments quote the texts that describe them."""
