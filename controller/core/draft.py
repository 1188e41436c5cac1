"""Draft: the records of one event, and the state that they lead to, before anything is written.

Every record is replayed into a scratch image as it is added, so later steps of the same event see it, and
what must not be is found before it reaches raft (D7).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise

from holdfast.controller.core.decisions import DecisionEntry
from holdfast.controller.core.partitions.partition_change import InvariantBroken
from holdfast.metadata.delta import MetadataDelta
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.image import MetadataImage
from holdfast.metadata.records import MetadataRecord
from holdfast.runtime.stats import Level, LogLine

#: Notes of one event that are kept; a fenced broker may move ten thousand leaders.
NOTES_MAX = 200


class Draft:
    """Collects records on top of `image`; the first one will stand at `base_offset`."""

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
        "records",
    )

    def __init__(self, image: MetadataImage, base_offset: int, raft_epoch: int) -> None:
        self.base_offset = base_offset
        self.raft_epoch = raft_epoch
        self.records: list[MetadataRecord] = []
        self.notes: list[LogLine] = []
        #: why the partitions changed that these records change, in order
        self.decisions: list[DecisionEntry] = []
        #: somebody will be told that a thing is as it was asked for: true while this controller leads (K20)
        self.confirms = False
        #: numbers of the records with which a batch may begin, ascending
        self._begins: list[int] = []
        #: number of the first record of what is being written whole
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
        """Where the next record will stand."""
        return self.base_offset + len(self.records)

    @property
    def changed_partitions(self) -> tuple[PartitionId, ...]:
        """(topic_id, partition_index) of the partitions that the records touch."""
        return self._delta.changed_keys

    def write(self, record: MetadataRecord) -> None:
        """Add a record. Raises: InvariantBroken when replay would complain about it."""
        self._delta.replay(record, self.next_offset, self.raft_epoch)
        if self._delta.violations:
            raise InvariantBroken(f"{record}: {'; '.join(self._delta.violations)}")
        if self._whole_from in (None, len(self.records)):
            self._begins.append(len(self.records))
        self.records.append(record)
        self._image = None

    @contextmanager
    def whole(self) -> Iterator[None]:
        """What is written inside goes into one batch: a part of it alone is never committed (K21)."""
        outer = self._whole_from
        self._whole_from = len(self.records) if outer is None else outer
        try:
            yield
        finally:
            self._whole_from = outer

    def parts(self) -> Iterator[Sequence[MetadataRecord]]:
        """The records in parts that must not be cut; the first ones may be committed without the rest."""
        for begin, end in pairwise((*self._begins, len(self.records))):
            yield self.records[begin:end]

    def has_room_for_note(self) -> bool:
        """True while a further line would be kept; else it is counted, and need not be composed."""
        if len(self.notes) < NOTES_MAX:
            return True
        self._notes_left_out += 1
        return False

    def note(self, text: str, level: Level = Level.INFO) -> None:
        """Add a line about a transition."""
        self.notes.append(LogLine(level, text))

    def all_notes(self) -> list[LogLine]:
        """The lines, and how many were left out."""
        if not self._notes_left_out:
            return self.notes
        text = f"... and {self._notes_left_out} more transitions, each with its cause in the metadata log"
        return [*self.notes, LogLine(Level.INFO, text)]
