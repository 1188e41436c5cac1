"""What a follower keeps of each partition that it fetches, and of each broker that it fetches from.

`broker.core.replicas.fetcher` changes them; only there is it known when.
"""

from enum import Enum

from holdfast.broker.core.replicas.partition import Partition
from holdfast.metadata.ids import PartitionId


class RowState(Enum):
    """State of a followed partition's row."""

    READY = "ready"
    OPEN = "open"
    BUSY = "busy"
    PAUSED = "paused"
    HELD = "held"


class FollowedRow:
    """One followed partition."""

    __slots__ = (
        "failures",
        "has_refused",
        "is_behind",
        "leader_end",
        "leader_epoch",
        "leader_high_watermark",
        "leader_start",
        "listed_flushed_offset",
        "listed_start_offset",
        "listed_in",
        "partition",
        "resume_ms",
        "start_asked",
        "state",
    )

    def __init__(self, partition: Partition, state: RowState) -> None:
        self.partition = partition
        #: leader epoch in which the partition is followed
        self.leader_epoch = partition.leader_epoch
        self.state = state
        #: session epoch of the request that listed it last, and flushed offset and log start in that request
        self.listed_in = 0
        self.listed_flushed_offset = self.listed_start_offset = 0
        #: where the log is to begin, at the latest; -1 when that was not asked for yet
        self.start_asked = -1
        #: end of the leader's log in the answer whose records are being appended; -1 for none
        self.leader_end = -1
        #: high watermark in the same answer, -1 when the leader does not know it
        self.leader_high_watermark = -1
        #: where the leader's log begins in the same answer
        self.leader_start = -1
        #: errors in a row
        self.failures = 0
        #: the log refused the last records: the leader is to check its own before it sends again
        self.has_refused = False
        #: the log ends below the high watermark of the leader's last answer, or there was none yet
        self.is_behind = True
        #: when a pause ends
        self.resume_ms = 0


class Source:
    """One broker that this one fetches from."""

    __slots__ = (
        "failures",
        "forgotten",
        "host",
        "in_flight",
        "open_count",
        "port",
        "ready",
        "resume_ms",
        "rows",
        "session_epoch",
        "session_id",
        "silent_since_ms",
        "source_id",
    )

    def __init__(self, source_id: int, host: str, port: int) -> None:
        self.source_id = source_id
        self.host = host
        self.port = port
        self.rows: dict[PartitionId, FollowedRow] = {}
        #: rows to be listed in the next request, in order
        self.ready: dict[PartitionId, FollowedRow] = {}
        #: rows that wait for the leader's answer
        self.open_count = 0
        #: rows removed since the last request
        self.forgotten: dict[PartitionId, None] = {}
        #: 0 while no session is open
        self.session_id = 0
        #: number of the next request
        self.session_epoch = 0
        #: numbers of the unanswered requests, ascending
        self.in_flight: list[int] = []
        #: connection failures in a row
        self.failures = 0
        #: no new session before this time
        self.resume_ms = 0
        #: since when requests have had no answer, None while none waits for one
        self.silent_since_ms: int | None = None
