"""The metadata quorum: Raft in KRaft's pull form (D7, rules §3), for voters and observers."""
