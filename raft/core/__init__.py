"""What a member of the quorum decides: pure, fed by `raft.driver`."""
