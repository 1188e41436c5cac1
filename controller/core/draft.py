"""Draft: the records of one event and the state after them, before anything is written.

Each record is replayed into a scratch image when it is added. So later steps of the same event see it, and a
record that contradicts the state never reaches raft (D7).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise

from holdfast.controller.core.decisions import DecisionEntry
from holdfast.controller.core.partitions.partition_change import InvariantBroken
from holdfast.metadata.delta import MetadataDelta
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.image import MetadataImage
from holdfast.metadata.records import RECORD_VERSIONS, MetadataRecord
from holdfast.runtime.stats import Level, LogLine

#: Log lines kept per event; fencing one broker may move ten thousand leaders.
NOTES_MAX = 200


class Draft:
    """Collects records on top of `image`; the first one gets `base_offset`."""

    __slots__ = (
        "_begins",
        "_delta",
        "_image",
        "_notes_left_out",
        "_whole_from",
        "base_offset",
        "confirms",
        "decisions",
        "notes",
        "raft_epoch",
        "record_version",
        "records",
    )

    def __init__(self, image: MetadataImage, base_offset: int, raft_epoch: int) -> None:
        self.base_offset = base_offset
        self.raft_epoch = raft_epoch
        #: all records are written in the version of the level before them, also one of another level (K31)
        self.record_version = RECORD_VERSIONS[image.metadata_version]
        self.records: list[MetadataRecord] = []
        self.notes: list[LogLine] = []
        #: the decisions behind the partition changes, in order
        self.decisions: list[DecisionEntry] = []
        #: the answer confirms a state, which must be true while this controller leads (K20)
        self.confirms = False
        #: numbers of the records at which a batch may begin, ascending
        self._begins: list[int] = []
        #: number of the first record of a part that must not be cut; None outside of one
        self._whole_from: int | None = None
        self._delta = MetadataDelta(image)
        self._image: MetadataImage | None = image
        self._notes_left_out = 0

    @property
    def image(self) -> MetadataImage:
        """The state after the records so far."""
        if self._image is None:
            self._image = self._delta.apply()
        return self._image

    @property
    def next_offset(self) -> int:
        """Offset of the next record."""
        return self.base_offset + len(self.records)

    @property
    def changed_partitions(self) -> tuple[PartitionId, ...]:
        """(topic_id, partition_index) of the partitions that the records touch."""
        return self._delta.changed_keys

    def write(self, record: MetadataRecord) -> None:
        """Add a record. Raises: InvariantBroken when it contradicts the state."""
        self._delta.replay(record, self.next_offset, self.raft_epoch, self.record_version)
        if self._delta.violations:
            raise InvariantBroken(f"{record}: {'; '.join(self._delta.violations)}")
        if self._whole_from in (None, len(self.records)):
            self._begins.append(len(self.records))
        self.records.append(record)
        self._image = None

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Records written inside go into one batch: a part of them is never committed alone (K21)."""
        outer = self._whole_from
        self._whole_from = len(self.records) if outer is None else outer
        try:
            yield
        finally:
            self._whole_from = outer

    def parts(self) -> Iterator[Sequence[MetadataRecord]]:
        """The records in parts that must not be cut; the first parts may be committed without the rest."""
        for begin, end in pairwise((*self._begins, len(self.records))):
            yield self.records[begin:end]

    def has_room_for_note(self) -> bool:
        """True while another line is kept; otherwise it is counted and need not be built."""
        if len(self.notes) < NOTES_MAX:
            return True
        self._notes_left_out += 1
        return False

    def note(self, text: str, level: Level = Level.INFO) -> None:
        """Add a line about a transition."""
        self.notes.append(LogLine(level, text))

    def all_notes(self) -> list[LogLine]:
        """The lines, and the number of lines left out."""
        if not self._notes_left_out:
            return self.notes
        text = f"... and {self._notes_left_out} more transitions, each with its cause in the metadata log"
        return [*self.notes, LogLine(Level.INFO, text)]
