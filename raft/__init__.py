"""The metadata quorum: Raft in KRaft's pull form (D7), for voters and observers."""

if __name__ != "holdfast.raft":  # the checkout is on sys.path too: one name per module
    raise ImportError("import holdfast.raft")
