"""Settings of one log, with Kafka's topic key names in underscores. `None` means without limit.

Owns the allowed ranges only; where a value comes from (topic, broker, default) is the caller's business.
"""

from dataclasses import dataclass

#: Positions in an index are 32 bits wide, and Kafka keeps the sign bit free.
SEGMENT_BYTES_MAX = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class LogConfig:
    """How one log rolls, indexes, flushes and forgets. Frozen: a change is a new value given to
    `Log.config`."""

    segment_bytes: int = 1 << 30
    segment_ms: int | None = 604_800_000
    index_interval_bytes: int = 4096
    retention_ms: int | None = 604_800_000
    retention_bytes: int | None = None
    #: flush after this many records; 1 is the policy "every write" (D6)
    flush_messages: int | None = None
    #: flush when the oldest unflushed append is this old
    flush_ms: int | None = None
    #: forget a producer this long after its last batch (R94)
    producer_id_expiration_ms: int = 86_400_000

    def __post_init__(self) -> None:
        assert 0 < self.segment_bytes <= SEGMENT_BYTES_MAX
        assert self.index_interval_bytes >= 0
        for limit in (self.segment_ms, self.flush_messages):
            assert limit is None or limit > 0
        for bound in (self.flush_ms, self.retention_ms, self.retention_bytes):
            assert bound is None or bound >= 0
