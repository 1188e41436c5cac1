"""Settings of one log, named like Kafka's topic keys with underscores. `None` means no limit.

Owns the valid ranges; the caller decides where a value comes from (topic, broker, default).
"""

from dataclasses import dataclass

#: Positions in an index have 32 bits, of which Kafka leaves the sign bit free.
SEGMENT_BYTES_MAX = (1 << 31) - 1
#: Offsets that a segment may span before a batch is added: 2^31 - 1 without those of a largest batch.
SEGMENT_OFFSETS_MAX = (1 << 31) - 1 - (1 << 24)


@dataclass(frozen=True, slots=True)
class LogConfig:
    """How one log rolls, indexes, flushes and deletes, and what it takes from producers. Frozen: assign a new
    value to `Log.config` to change it."""

    segment_bytes: int = 1 << 30
    segment_ms: int | None = 604_800_000
    index_interval_bytes: int = 4096
    #: size of an index at which its segment is rolled
    index_max_bytes: int = 10 << 20
    retention_ms: int | None = 604_800_000
    retention_bytes: int | None = None
    #: flush after this many records; 1 flushes every write (D6)
    flush_messages: int | None = None
    #: flush when the oldest unflushed append is this old
    flush_ms: int | None = None
    #: superseded records are removed (`cleanup.policy` has `compact`); then each record needs a key
    compacts: bool = False
    #: share of dirty bytes above which the log is compacted
    min_cleanable_dirty_ratio: float = 0.5
    #: a tombstone stays this long after the first cleaning that met it
    delete_retention_ms: int = 86_400_000
    #: records younger than this stay, whether superseded or not
    min_compaction_lag_ms: int = 0
    #: a dirty record as old as this lets its log be compacted; None: the ratio alone does
    max_compaction_lag_ms: int | None = None
    #: drop a producer this long after its last batch (R94)
    producer_id_expiration_ms: int = 86_400_000
    #: how far a producer's timestamps may lie behind the broker's clock, and ahead of it
    message_timestamp_before_max_ms: int = (1 << 63) - 1
    message_timestamp_after_max_ms: int = 3_600_000
    #: a producer's records are read before they are appended
    validate_records: bool = True

    def __post_init__(self) -> None:
        assert 0 < self.segment_bytes <= SEGMENT_BYTES_MAX
        assert self.index_interval_bytes >= 0
        assert self.index_max_bytes > 0
        assert 0 <= self.min_cleanable_dirty_ratio <= 1
        assert self.min_compaction_lag_ms >= 0
        for limit in (self.segment_ms, self.flush_messages):
            assert limit is None or limit > 0
        for bound in (self.flush_ms, self.retention_ms, self.retention_bytes):
            assert bound is None or bound >= 0
