"""What the quorum has committed, record by record: the one truth that images of nodes are compared with.

Reads the log of whichever voter knows first that more is committed, replays each record on its own, and keeps
the image at every end of a batch.
"""

from collections.abc import Iterator
from typing import NamedTuple

from holdfast.controller.core.decisions import UNSTATED, Decision
from holdfast.controller.core.partitions.elr import SetsRule
from holdfast.metadata.delta import MetadataDelta
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.image import MetadataImage
from holdfast.metadata.records import MetadataRecord, PartitionChangeRecord, decode_record
from holdfast.protocol.record_batch import decode_records, iter_batches
from holdfast.sim.checks.observe.batches import BatchMark, mark_of
from holdfast.sim.checks.observe.views import Change
from holdfast.storage.log import Log

_UNSTATED = Decision(UNSTATED, None, (), SetsRule.ELR_OFF)


class CommittedBatch(NamedTuple):
    """A batch of the metadata log with its records: (offset, value)."""

    mark: BatchMark
    values: list[tuple[int, bytes]]


class QuorumLog:
    """The committed part of the metadata log."""

    def __init__(self) -> None:
        self.end_offset = 0
        self.image = MetadataImage()
        #: before the record that was replayed last
        self.before = self.image
        self.batches: list[BatchMark] = []
        #: images by offset, at the ends of batches
        self.images: dict[int, MetadataImage] = {0: self.image}
        #: by base offset
        self.by_offset: dict[int, BatchMark] = {}

    def read(self, log: Log, end_offset: int) -> list[CommittedBatch]:
        """The batches that are new, up to `end_offset`."""
        found: list[CommittedBatch] = []
        offset = self.end_offset
        while offset < end_offset and log.failure is None:
            for header, view in iter_batches(log.read(offset, 1 << 30, end_offset)):
                mark = mark_of(header)
                records = [] if header.is_control else decode_records(view)
                found.append(CommittedBatch(mark, [(r.offset, r.value or b"") for r in records]))
                offset = mark.last_offset + 1
        return found

    def replay(
        self, batch: CommittedBatch
    ) -> Iterator[tuple[int, MetadataRecord, tuple[PartitionId, Change] | None]]:
        """Each record, after it was replayed, and what it changed of a partition that was there before."""
        mark = batch.mark
        for offset, value in batch.values:
            record = decode_record(value)
            self.before = self.image
            delta = MetadataDelta(self.image)
            delta.replay(record, offset, mark.leader_epoch)
            self.image = delta.apply()
            yield offset, record, self._change(offset, record)
        self.image = MetadataDelta(self.image).apply(mark.last_offset + 1)
        self.end_offset = mark.last_offset + 1
        self.images[self.end_offset] = self.image
        self.batches.append(mark)
        self.by_offset[mark.base_offset] = mark

    def _change(self, offset: int, record: MetadataRecord) -> tuple[PartitionId, Change] | None:
        if type(record) is not PartitionChangeRecord:
            return None
        key = PartitionId(record.topic_id, record.partition_index)
        before, after = self.before.partition(*key), self.image.partition(*key)
        if before is None or after is None:
            return None
        stored = record.decision
        decision = None if stored is None else Decision.from_stored(stored)
        return (key, Change(offset, before, after, decision or _UNSTATED, self.before, key))
