"""One partition that a consumer reads: where it stands, and what was fetched ahead.

Owns its state only; `client.core.fetcher` decides.
"""

from collections import deque

from holdfast.client.core.errors import ClientError
from holdfast.client.core.fetcher_effects import FetchedBatch
from holdfast.protocol.topic_names import TopicPartition


class PartitionFetch:
    """One assigned partition."""

    __slots__ = (
        "buffer",
        "buffered_bytes",
        "deleted_at",
        "epochs",
        "error",
        "failures",
        "fetch_offset",
        "high_watermark",
        "hold_until_ms",
        "log_start_offset",
        "lookup",
        "position",
        "request_id",
        "sent_epoch",
        "stale_epoch",
        "topic_id",
        "topic_partition",
    )

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        #: of which topic of this name the position and all epochs are; None: of whichever is met first
        self.topic_id: bytes | None = None
        #: next offset to hand out; None until it was looked up
        self.position: int | None = None
        #: next offset to fetch, behind everything in `buffer`
        self.fetch_offset = -1
        #: (leader epoch, first offset read in it) of what was read without gap up to `fetch_offset`, rising
        self.epochs: list[tuple[int, int]] = []
        #: timestamp of ListOffsets that gives the position, None when it is known
        self.lookup: int | None = None
        #: where reading had come to when the lookup became necessary since what comes there was deleted;
        #: -1 for a lookup with another reason, and for none
        self.deleted_at = -1
        self.buffer: deque[FetchedBatch] = deque()
        self.buffered_bytes = 0
        #: the request that may answer for it; answers to others are too late
        self.request_id: int | None = None
        #: leader epoch that request was sent under
        self.sent_epoch = -1
        self.hold_until_ms = 0
        self.failures = 0
        #: leader epoch that failed, -1 when there was no leader; None: the leader is fine
        self.stale_epoch: int | None = None
        #: highest heard of, -1 for unknown
        self.high_watermark = -1
        self.log_start_offset = -1
        #: raised at the next poll; nothing is fetched before
        self.error: ClientError | None = None

    @property
    def fetch_epoch(self) -> int:
        """Leader epoch of the batch before `fetch_offset`, -1 when it was not read here."""
        return self.epochs[-1][0] if self.epochs else -1

    def epoch_before(self, offset: int) -> int:
        """Leader epoch of the record before `offset`, -1 when it was not read here."""
        return next((epoch for epoch, start in reversed(self.epochs) if start < offset), -1)

    def end_of_epoch(self, epoch: int) -> int:
        """Where what was read in `epoch` or before it ends (R81)."""
        return next((start for later, start in self.epochs if later > epoch), self.fetch_offset)

    def drop_buffer(self) -> int:
        """Forget what was fetched ahead; its bytes."""
        dropped = self.buffered_bytes
        self.buffer.clear()
        self.buffered_bytes = 0
        return dropped
