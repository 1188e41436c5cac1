"""A consumer as a member of a group: what it decides, shares and says to other members."""
