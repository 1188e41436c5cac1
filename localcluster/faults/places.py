"""Which file of a node is meant, by the part that it plays; deterministic by seed. Changes nothing."""

import random
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from holdfast.localcluster.nodes import ClusterError, Node
from holdfast.localcluster.processes import LocalCluster
from holdfast.protocol.record_batch import CorruptBatch, parse_header
from holdfast.storage import clean_shutdown
from holdfast.storage.core import files

QUORUM_STATE = "quorum-state"


class NoSuchFile(ClusterError):
    """The node has no file of this part, or none with a bit to flip: the log is too short yet."""


class Part(Enum):
    """The part that a file plays, as options spell it."""

    CLOSED_SEGMENT = "closed-segment"
    #: the first of several segments
    FIRST_SEGMENT = "first-segment"
    ACTIVE_SEGMENT = "active-segment"
    INDEX = "index"
    TIME_INDEX = "timeindex"
    SNAPSHOT = "snapshot"
    LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
    PARTITION_METADATA = "partition-metadata"
    HIGH_WATERMARK_CHECKPOINT = "high-watermark-checkpoint"
    RECOVERY_POINT_CHECKPOINT = "recovery-point-checkpoint"
    CLEAN_SHUTDOWN_FILE = "clean-shutdown-file"
    META_PROPERTIES = "meta-properties"
    METADATA_LOG = "metadata-log"
    QUORUM_STATE = "quorum-state"


_OF_LOG_DIR = {
    Part.HIGH_WATERMARK_CHECKPOINT: files.HIGH_WATERMARK_CHECKPOINT,
    Part.RECOVERY_POINT_CHECKPOINT: files.RECOVERY_POINT_CHECKPOINT,
    Part.CLEAN_SHUTDOWN_FILE: clean_shutdown.FILE_NAME,
    Part.META_PROPERTIES: files.META_PROPERTIES,
}
_OF_PARTITION = {
    Part.LEADER_EPOCH_CHECKPOINT: files.LEADER_EPOCH_CHECKPOINT,
    Part.PARTITION_METADATA: files.PARTITION_METADATA,
}
_BY_OFFSET = {
    Part.INDEX: files.INDEX_SUFFIX,
    Part.TIME_INDEX: files.TIME_INDEX_SUFFIX,
    Part.SNAPSHOT: files.SNAPSHOT_SUFFIX,
}


class Field(Enum):
    """Where in a batch a bit is flipped: (first byte, byte after the last)."""

    BASE_OFFSET = "base-offset"
    LENGTH = "length"
    LEADER_EPOCH = "leader-epoch"
    #: what the CRC covers: from attributes to the last record
    PAYLOAD = "payload"


_FIELDS = {
    Field.BASE_OFFSET: (0, 8),
    Field.LENGTH: (8, 12),
    Field.LEADER_EPOCH: (12, 16),
}
#: the CRC covers a batch from its attributes on
_COVERED_FROM = 21


@dataclass(frozen=True, slots=True)
class Place:
    """A part of one node's files."""

    part: Part
    #: `topic-partition`, for the parts of a partition
    partition: str = ""

    def __str__(self) -> str:
        return f"{self.part.value} of {self.partition}" if self.partition else self.part.value


def find(cluster: LocalCluster, node: Node, place: Place, seed: int) -> Path:
    """The file; of several that match the seed draws one. Raises: NoSuchFile."""
    candidates = [path for path in _candidates(cluster, node, place) if path.exists()]
    if not candidates:
        raise NoSuchFile(f"{node.name} has no {place}")
    return random.Random(f"{seed}:{node.name}:{place}").choice(sorted(candidates))


def bit_in_file(path: Path, field: Field | None, seed: int) -> tuple[int, int]:
    """(position, bit) of a bit to flip; `field`: of a batch of this segment file, None: anywhere.

    Raises: NoSuchFile for an empty file and for a segment without a whole batch.
    """
    chance = random.Random(f"{seed}:{path.name}:{field}")
    if field is None:
        first, end = 0, path.stat().st_size
        if end == 0:
            raise NoSuchFile(f"{path} is empty: it has no bit to flip")
    else:
        start, size = chance.choice(_batches(path))
        within = _FIELDS.get(field, (_COVERED_FROM, size))
        first, end = start + within[0], start + within[1]
    return chance.randrange(first, end), chance.randrange(8)


def _batches(path: Path) -> list[tuple[int, int]]:
    """(position, size) of every batch up to the first that is not whole. Raises: NoSuchFile."""
    data = memoryview(path.read_bytes())
    found = []
    position = 0
    while position < len(data):
        try:
            size = parse_header(data, position).size_bytes
        except CorruptBatch:
            break
        if position + size > len(data):
            break
        found.append((position, size))
        position += size
    if not found:
        raise NoSuchFile(f"{path} has no whole batch")
    return found


def _candidates(cluster: LocalCluster, node: Node, place: Place) -> list[Path]:
    part = place.part
    if part is Part.QUORUM_STATE:
        return [cluster.metadata_folder(node) / QUORUM_STATE]
    if part is Part.METADATA_LOG:
        return _segments(cluster.metadata_folder(node))[-1:]
    if part is Part.META_PROPERTIES and node.role == "controller":
        return [cluster.metadata_folder(node).parent / files.META_PROPERTIES]
    if part in _OF_LOG_DIR:
        return [folder / _OF_LOG_DIR[part] for folder in cluster.log_dirs(node)]
    if not place.partition:
        raise ClusterError(f"the {part.value} of which partition? name it as t-0")
    return [
        path for log_dir in cluster.log_dirs(node) for path in _of_partition(log_dir / place.partition, part)
    ]


def _of_partition(folder: Path, part: Part) -> list[Path]:
    segments = _segments(folder)
    match part:
        case Part.CLOSED_SEGMENT:
            return segments[1:-1] or segments[:-1]
        case Part.FIRST_SEGMENT:
            return segments[:-1][:1]
        case Part.ACTIVE_SEGMENT:
            return segments[-1:]
        case Part.INDEX | Part.TIME_INDEX | Part.SNAPSHOT:
            return [path for path in folder.glob(f"*{_BY_OFFSET[part]}") if path.stat().st_size]
        case _:
            return [folder / _OF_PARTITION[part]]


def _segments(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"*{files.LOG_SUFFIX}"))
