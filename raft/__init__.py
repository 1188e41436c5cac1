"""The metadata quorum: Raft in KRaft's pull form (D7, K1-K16), for voters and observers."""

if __name__ != "holdfast.raft":  # the checkout is on the path, too: one module, one name
    raise ImportError("import holdfast.raft")
