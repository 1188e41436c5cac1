"""Where one replica's log ends, as its broker tells it (GetReplicaLogInfo, R61)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReplicaLog:
    """One replica's log when its broker answered."""

    #: of the incarnation that answered, -1 for one that is not registered
    broker_epoch: int
    #: of the last batch, -1 for an empty log (R66)
    last_epoch: int
    #: of the partition, as the broker knows it
    leader_epoch: int
    end_offset: int
    flushed_offset: int
    #: -1 when not known
    high_watermark: int
