"""What a member of the quorum decides: pure modules; `raft.driver` feeds them events."""
