"""Consumer groups: who is a member, who gets which partitions, how far each group has read."""
