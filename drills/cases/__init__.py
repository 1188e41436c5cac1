"""The stories, a module each, told in the words of their sources."""
