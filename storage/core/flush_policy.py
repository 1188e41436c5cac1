"""When a log must be flushed: on every write, every n records, every n ms, or on roll only (F29).

Owns the counts since the last flush started; never flushes. With neither limit, a log is flushed on roll and
on a clean stop only. With `flush_messages` = 1 nothing counts before it is durable.
"""


class FlushPolicy:
    """One log's policy, and what was appended since the last flush started."""

    __slots__ = ("_deadline_ms", "_unflushed_records", "flush_messages", "flush_ms")

    def __init__(self, flush_messages: int | None = None, flush_ms: int | None = None) -> None:
        assert flush_messages is None or flush_messages > 0
        assert flush_ms is None or flush_ms >= 0
        #: records after which a flush must start; None for no limit
        self.flush_messages = flush_messages
        #: age of the oldest unflushed append at which a flush must start; None for no limit
        self.flush_ms = flush_ms
        self._unflushed_records = 0
        self._deadline_ms: int | None = None

    @property
    def is_every_write(self) -> bool:
        """Only durable records count: the high watermark uses flushed offsets (D6)."""
        return self.flush_messages == 1

    @property
    def deadline_ms(self) -> int | None:
        """When a flush must start at the latest; None while everything appended is covered by a flush."""
        return self._deadline_ms

    def appended(self, record_count: int, now_ms: int) -> bool:
        """Count an append; True when a flush must start now."""
        if self.flush_ms is not None and self._deadline_ms is None:
            self._deadline_ms = now_ms + self.flush_ms
        self._unflushed_records += record_count
        return self.flush_messages is not None and self._unflushed_records >= self.flush_messages

    def is_due(self, now_ms: int) -> bool:
        """True when the oldest unflushed append has reached its age."""
        return self._deadline_ms is not None and now_ms >= self._deadline_ms

    def flush_started(self) -> None:
        """A flush that covers everything counted so far has started (A-21)."""
        self._unflushed_records = 0
        self._deadline_ms = None
