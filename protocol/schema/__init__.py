"""Field declarations, their types, their compiler, and the page that is made of them."""
