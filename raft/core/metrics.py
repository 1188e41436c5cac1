"""Metrics of a member of the quorum, under the names of Kafka's raft metrics."""

from collections import deque

from holdfast.raft.core.member import Snapshot
from holdfast.raft.core.roles import LEGAL_MOVES
from holdfast.runtime.stats import Histogram, MetricFamily, MetricKind, Sample, counter, gauge

_BOUNDS_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_STATES = tuple(sorted(role.__name__ for role in LEGAL_MOVES))
#: Most appends whose commit is timed at once.
_TIMED_MAX = 10_000


class RaftMetrics:
    """Counters and durations; everything else comes from a snapshot."""

    def __init__(self) -> None:
        #: (end offset, time of the append) of batches that are not committed
        self._pending: deque[tuple[int, int]] = deque()
        self._commit_seconds = Histogram(_BOUNDS_SECONDS)
        self._election_seconds = Histogram(_BOUNDS_SECONDS)
        self._appended_records = 0
        self._leader_lost_ns: int | None = None

    def appended(self, record_count: int, end_offset: int, now_ns: int) -> None:
        """The leader has appended a batch that ends there (exclusive)."""
        self._appended_records += record_count
        if len(self._pending) < _TIMED_MAX:
            self._pending.append((end_offset, now_ns))

    def committed(self, committed_offset: int, now_ns: int) -> None:
        """The high watermark moved."""
        while self._pending and self._pending[0][0] <= committed_offset:
            self._commit_seconds.observe((now_ns - self._pending.popleft()[1]) / 1e9)

    def leader_changed(self, leader_id: int | None, now_ns: int) -> None:
        """The leader has become known or unknown."""
        self._pending.clear()
        if leader_id is None:
            self._leader_lost_ns = self._leader_lost_ns or now_ns
        elif self._leader_lost_ns is not None:
            self._election_seconds.observe((now_ns - self._leader_lost_ns) / 1e9)
            self._leader_lost_ns = None

    def families(self, node: Snapshot, voter_count: int) -> list[MetricFamily]:
        """All families as of now, with the voters at the log's end."""
        states = tuple(Sample(int(state == node.role), (("state", state.lower()),)) for state in _STATES)
        return [
            MetricFamily("kafka_raft_current_state", MetricKind.GAUGE, "1 for the present role.", states),
            gauge("kafka_raft_current_leader", "Leader, -1 when unknown.", _or_none(node.leader_id)),
            gauge("kafka_raft_current_epoch", "Raft epoch.", node.raft_epoch),
            gauge("kafka_raft_current_vote", "Vote in this epoch, -1 for none.", _or_none(node.voted_for)),
            gauge("kafka_raft_high_watermark", "End of the committed part, exclusive.", node.high_watermark),
            gauge("kafka_raft_log_end_offset", "End of the metadata log, exclusive.", node.log_end_offset),
            gauge("kafka_raft_number_of_voters", "Voters at the end of this node's log.", voter_count),
            counter("kafka_raft_append_records_total", "Records appended as leader.", self._appended_records),
            MetricFamily(
                "kafka_raft_commit_latency_seconds",
                MetricKind.HISTOGRAM,
                "Seconds from a leader's append to its commit.",
                (Sample(self._commit_seconds.value()),),
            ),
            MetricFamily(
                "kafka_raft_election_latency_seconds",
                MetricKind.HISTOGRAM,
                "Seconds without a known leader.",
                (Sample(self._election_seconds.value()),),
            ),
        ]


def snapshot_families(offset: int, size_bytes: int, age_ms: int) -> list[MetricFamily]:
    """Of the newest snapshot; 0 before the first."""
    name = "kafka_server_snapshot_emitter_latest_snapshot_generated"
    return [
        gauge(f"{name}_offset", "End of the newest metadata snapshot, exclusive.", offset),
        gauge(f"{name}_bytes", "Bytes of the newest metadata snapshot.", size_bytes),
        gauge(f"{name}_age_seconds", "Seconds since the newest metadata snapshot was made.", age_ms / 1000),
    ]


def _or_none(node_id: int | None) -> int:
    return -1 if node_id is None else node_id
