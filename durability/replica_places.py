"""What replicas have where a lost record should be, out of their segment files.

Reads with the validator's own decoder, of each replica only the segment in which the place lies and the last
one. Files of a running broker change and go: what is not there any more is no place.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from holdfast.client.core.history import parse_value
from holdfast.durability.foreign_lines import PRODUCER, number_of_value
from holdfast.durability.segments import (
    ReplicaFolder,
    SegmentBatch,
    Torn,
    Undecodable,
    batch_records,
    parse_log_dirs,
    read_segment,
    replica_folders,
    segment_paths,
)


class Has(Enum):
    """What a replica has in a place."""

    RECORD = "the record itself"
    OTHER = "another record"
    UNREADABLE = "bytes that cannot be read"
    HOLE = "nothing, and the log goes on behind it"
    LATER = "nothing, as the log begins behind it"
    ENDS = "nothing, as the log ends before it"


@dataclass(frozen=True, slots=True)
class Found:
    """What one replica has where the record should be."""

    broker: int
    has: Has
    #: file and byte, of what is there
    where: str = ""
    #: leader epoch of what is there, where it can be read
    epoch: int | None = None
    #: where the log goes on, begins or ends, where nothing is there
    offset: int = 0


class ReplicaPlaces:
    """Looks into the log dirs of brokers, which one asks for one partition after the other."""

    def __init__(self, log_dirs: Mapping[int, str]) -> None:
        """`log_dirs` is {broker id: log dir, or several separated by commas}."""
        self._log_dirs = log_dirs
        self._folders: dict[str, list[ReplicaFolder]] = {}
        #: {replica's folder: (segment, what is in it)}, the last one that was read
        self._read: dict[str, tuple[Path, list[SegmentBatch | Torn]]] = {}
        self._place = ("", -1)

    def found(self, topic: str, partition: int, offset: int, producer: str, pseq: int) -> list[Found]:
        """By broker. Raises: OSError, ValueError for a log dir that is not there."""
        if self._place != (topic, partition):
            self._place = (topic, partition)
            self._read.clear()
        return [
            self._look(folder, offset, producer, pseq)
            for folder in self._folders_of(topic)
            if folder.partition == partition
        ]

    def _folders_of(self, topic: str) -> list[ReplicaFolder]:
        if topic not in self._folders:
            self._folders[topic] = [
                folder
                for broker, dirs in sorted(self._log_dirs.items())
                for folder in replica_folders(
                    parse_log_dirs(",".join(f"{broker}={path}" for path in dirs.split(","))),
                    frozenset((topic,)),
                )
            ]
        return self._folders[topic]

    def _look(self, folder: ReplicaFolder, offset: int, producer: str, pseq: int) -> Found:
        paths = segment_paths(folder.path)
        before = [path for path in paths if int(path.stem) <= offset]
        if not before:
            if not paths or int(paths[0].stem) == 0:
                return Found(folder.broker, Has.ENDS)
            return Found(folder.broker, Has.LATER, offset=int(paths[0].stem))
        path = before[-1]
        end, torn = int(path.stem), None
        for batch in self._batches(folder.path, path):
            if isinstance(batch, Torn) or not batch.crc_ok:
                torn = torn or batch
            elif batch.base_offset > offset:
                return self._missing(folder.broker, path, torn, batch.base_offset)
            elif batch.last_offset < offset:
                end, torn = max(end, batch.last_offset + 1), None
            else:
                has = Has.RECORD if _holds(batch, offset, producer, pseq) else Has.OTHER
                where = f"{path} at byte {batch.position}"
                return Found(folder.broker, has, where, batch.leader_epoch)
        if path != paths[-1]:
            return self._missing(folder.broker, path, torn, int(paths[len(before)].stem))
        return self._missing(folder.broker, path, torn, None, end)

    def _missing(
        self, broker: int, path: Path, torn: SegmentBatch | Torn | None, goes_on: int | None, end: int = 0
    ) -> Found:
        """Of a log that goes on at an offset behind the place, or ends before it."""
        if torn is not None:
            return Found(broker, Has.UNREADABLE, f"{path} at byte {torn.position}")
        if goes_on is not None:
            return Found(broker, Has.HOLE, offset=goes_on)
        return Found(broker, Has.ENDS, offset=end)

    def _batches(self, folder: str, path: Path) -> list[SegmentBatch | Torn]:
        if folder not in self._read or self._read[folder][0] != path:
            # a copy: a follower that truncates a file would take the pages of a map away
            self._read[folder] = (path, list(read_segment(path.read_bytes(), int(path.stem))))
        return self._read[folder][1]


def _holds(batch: SegmentBatch, offset: int, producer: str, pseq: int) -> bool:
    """The record at this offset bears this name."""
    try:
        rows = batch_records(batch)
    except Undecodable:
        return False
    for row in rows:
        if row.offset == offset and row.value is not None:
            if producer == PRODUCER and number_of_value(row.value) == pseq:
                return True
            name = parse_value(row.value)
            return name is not None and (name.producer, name.pseq) == (producer, pseq)
    return False
