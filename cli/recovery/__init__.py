"""`holdfast unclean-recovery` (KIP-1275): compare the logs of leaderless partitions, elect the best."""
