"""What replicas have where a lost record should be, out of their segment files.

Reads with the validator's own decoder, of each replica only the segment in which the place lies and the last
one. Files of a running broker change and go: what is not there any more is no place.
"""

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from holdfast.client.core.history import parse_value
from holdfast.durability.foreign_lines import PRODUCER, number_of_value
from holdfast.durability.segments import (
    ReplicaFolder,
    SegmentBatch,
    Undecodable,
    Window,
    batch_at,
    batch_records,
    parse_log_dirs,
    read_segment,
    replica_folders,
    segment_paths,
)

#: Of one batch in `_batches`.
_NUMBERS = 5


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
        #: {replica's folder: (segment, its `_batches`)}, the last one that was read
        self._read: dict[str, tuple[Path, array[int]]] = {}
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
        for base, last, position, epoch, crc in self._batches_of(folder.path, path):
            if base < 0:
                torn = position if torn is None else torn
            elif base > offset:
                return self._missing(folder.broker, path, torn, base)
            elif last < offset:
                end, torn = max(end, last + 1), None
            else:
                batch = batch_at(path, position)
                if batch is None or batch.crc != crc:
                    torn = position  # the file was changed meanwhile
                    break
                has = Has.RECORD if _holds(batch, offset, producer, pseq) else Has.OTHER
                return Found(folder.broker, has, f"{path} at byte {position}", epoch)
        if path != paths[-1]:
            return self._missing(folder.broker, path, torn, int(paths[len(before)].stem))
        return self._missing(folder.broker, path, torn, None, end)

    def _missing(self, broker: int, path: Path, torn: int | None, goes_on: int | None, end: int = 0) -> Found:
        """Of a log that goes on at an offset behind the place, or ends before it; `torn`: the byte from which
        on something cannot be read there."""
        if torn is not None:
            return Found(broker, Has.UNREADABLE, f"{path} at byte {torn}")
        if goes_on is not None:
            return Found(broker, Has.HOLE, offset=goes_on)
        return Found(broker, Has.ENDS, offset=end)

    def _batches_of(self, folder: str, path: Path) -> Iterator[tuple[int, ...]]:
        if folder not in self._read or self._read[folder][0] != path:
            self._read[folder] = (path, _batches(path))
        numbers = iter(self._read[folder][1])
        return zip(*[numbers] * _NUMBERS, strict=True)


def _batches(path: Path) -> "array[int]":
    """Of each batch of a segment in file order, which may have millions: base and last offset, byte, leader
    epoch, crc; of what cannot be read the byte, and -1."""
    found = array("q")
    with path.open("rb") as file:
        for one in read_segment(Window.of(file), int(path.stem)):
            if isinstance(one, SegmentBatch) and one.crc_ok:
                found.extend((one.base_offset, one.last_offset, one.position, one.leader_epoch, one.crc))
            else:
                found.extend((-1, -1, one.position, -1, -1))
    return found


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
