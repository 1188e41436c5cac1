"""What the cluster has agreed on: records, immutable images, and the deltas between them. Pure."""
