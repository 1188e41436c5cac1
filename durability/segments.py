"""Reads replica segment files without the broker's help: a second decoder of Kafka's v2 batch (D4).

Shares no code with `protocol` or `storage` on purpose, so that a mistake there cannot hide itself here.
Reads only; what cannot be read is reported and passed over, no error.
"""

import math
import mmap
import os
import struct
import zlib
from collections.abc import Collection, Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import google_crc32c

_HEADER = struct.Struct(">qiibIhiqqqhii")
_HEADER_BYTES = 61
#: bytes of base offset and length, which the length does not count
_PREFIX_BYTES = 12
_CRC_COVERS_FROM = 21
_MAGIC = 2
_MAGIC_AT = 16
_MAGIC_BYTE = bytes((_MAGIC,))
_BASE_OFFSET = struct.Struct(">q")
_LENGTH = struct.Struct(">i")
#: Offsets of one segment lie no further apart.
_RELATIVE_OFFSET_MAX = (1 << 31) - 1
_COMPRESSION_BITS = 0x07
_CONTROL_BIT = 0x20
#: Small segments are read as a copy: a follower that truncates a file takes the pages of a map away, which
#: ends the process.
_COPIED_BYTES_MAX = 2 << 20
#: Most bytes that one compressed batch may unpack to: brokers take none that gives more.
UNPACKED_BYTES_MAX = 64 << 20

#: Folder of the metadata log, which is no topic.
METADATA_FOLDER = "__cluster_metadata-0"
HIGH_WATERMARKS = "replication-offset-checkpoint"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
#: Holdfast's, and Kafka's.
_CLEAN_STOPS = (".holdfast_cleanshutdown", ".kafka_cleanshutdown")
#: Beside the segments of a log of which compaction has removed something.
_COMPACTED = "cleaner-offset-checkpoint"


class Undecodable(ValueError):
    """The records of a batch cannot be read. The text says why."""


@dataclass(frozen=True, slots=True)
class SegmentBatch:
    """One batch as it stands in a file."""

    base_offset: int
    #: inclusive
    last_offset: int
    leader_epoch: int
    crc: int
    crc_ok: bool
    record_count: int
    is_control: bool
    base_timestamp_ms: int
    compression: int
    #: byte position in the segment file
    position: int
    size_bytes: int
    #: record bytes behind the header, still compressed
    payload: bytes


@dataclass(frozen=True, slots=True)
class Torn:
    """Bytes that are no batch, up to the next one or the segment's end: a write that was cut, or damage."""

    position: int
    reason: str


@dataclass(frozen=True, slots=True)
class Gone:
    """A segment that the broker has deleted since its folder was listed."""

    #: the first offset of the segment behind it
    end_offset: int


@dataclass(frozen=True, slots=True)
class SegmentRow:
    """One record of a batch."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True, order=True)
class ReplicaFolder:
    """The folder of one replica of one partition."""

    broker: int
    topic: str
    partition: int
    path: str


def read_segment(data: bytes | mmap.mmap, base_offset: int = 0) -> Iterator[SegmentBatch | Torn]:
    """The batches of one segment in file order, and what between or behind them cannot be read.

    `base_offset`: no batch of the segment begins before it.
    """
    position: int | None = 0
    next_offset = base_offset
    while position is not None and position < len(data):
        found = _batch_at(data, position)
        yield found
        if isinstance(found, SegmentBatch):
            next_offset = max(next_offset, found.last_offset + 1)
            position += found.size_bytes
        else:
            position = _next_batch(data, position + 1, next_offset)


def _batch_at(data: bytes | mmap.mmap, position: int) -> SegmentBatch | Torn:
    left = len(data) - position
    if left < _HEADER_BYTES:
        return Torn(position, f"{left} bytes are shorter than a header")
    (base, length, epoch, magic, crc, attributes, last_delta, base_timestamp, _, _, _, _, count) = (
        _HEADER.unpack_from(data, position)
    )
    size = _PREFIX_BYTES + length
    if magic != _MAGIC or size < _HEADER_BYTES or last_delta < 0 or count < 0:
        return Torn(position, f"no batch header: magic {magic}, length {length}, {count} records")
    if size > left:
        return Torn(position, f"a batch of {size} bytes of which {left} are there")
    body = data[position + _CRC_COVERS_FROM : position + size]
    return SegmentBatch(
        base_offset=base,
        last_offset=base + last_delta,
        leader_epoch=epoch,
        crc=crc,
        crc_ok=google_crc32c.value(body) == crc,
        record_count=count,
        is_control=bool(attributes & _CONTROL_BIT),
        base_timestamp_ms=base_timestamp,
        compression=attributes & _COMPRESSION_BITS,
        position=position,
        size_bytes=size,
        payload=body[_HEADER_BYTES - _CRC_COVERS_FROM :],
    )


def batch_at(path: Path, position: int) -> SegmentBatch | None:
    """The batch that begins at this byte of a segment file, whole and with a crc that holds; None when there
    is none, or no such file."""
    try:
        with path.open("rb") as file:
            file.seek(position)
            head = file.read(_PREFIX_BYTES)
            length = _LENGTH.unpack(head[_BASE_OFFSET.size :])[0] if len(head) == _PREFIX_BYTES else -1
            found = _batch_at(head + file.read(length), 0) if length > 0 else None
    except OSError:
        return None
    return found if isinstance(found, SegmentBatch) and found.crc_ok else None


def _next_batch(data: bytes | mmap.mmap, position: int, next_offset: int) -> int | None:
    """Where, from `position` on, the next batch begins whose crc holds and whose offsets can follow."""
    at = data.find(_MAGIC_BYTE, position + _MAGIC_AT)
    while at >= 0:
        start = at - _MAGIC_AT
        (base,) = _BASE_OFFSET.unpack_from(data, start)
        if 0 <= base - next_offset <= _RELATIVE_OFFSET_MAX:
            found = _batch_at(data, start)
            if isinstance(found, SegmentBatch) and found.crc_ok:
                return start
        at = data.find(_MAGIC_BYTE, at + 1)
    return None


def batch_records(batch: SegmentBatch) -> list[SegmentRow]:
    """The records of a data batch whose crc holds. Raises: Undecodable."""
    data = _unpack(batch.payload, batch.compression)
    rows = []
    position = 0
    try:
        for _ in range(batch.record_count):
            length, position = _varint(data, position)
            end = position + length
            timestamp_delta, position = _varint(data, position + 1)  # behind the unused attributes
            offset_delta, position = _varint(data, position)
            key, position = _bytes(data, position)
            value, position = _bytes(data, position)
            if position > end or end > len(data):
                raise Undecodable(f"record of {length} bytes runs over its end")
            timestamp_ms = batch.base_timestamp_ms + timestamp_delta
            rows.append(SegmentRow(batch.base_offset + offset_delta, timestamp_ms, key, value))
            position = end  # headers are of no use to a verdict
    except IndexError:
        raise Undecodable("records run over the end of their batch") from None
    return rows


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """A zigzag varint: (value, position behind it)."""
    byte = data[position]
    position += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position
    result, shift = byte & 0x7F, 7
    while True:
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (result >> 1) ^ -(result & 1), position
        shift += 7
        if shift > 63:
            raise Undecodable("varint of more than ten bytes")


def _bytes(data: bytes, position: int) -> tuple[bytes | None, int]:
    length, position = _varint(data, position)
    if length < 0:
        return None, position
    return data[position : position + length], position + length


def _unpack(payload: bytes, compression: int) -> bytes:
    """The record bytes. Kafka's numbers: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.

    Never holds more than UNPACKED_BYTES_MAX of them. Raises: Undecodable.
    """
    if compression == 0:
        return payload
    import cramjam

    try:
        if compression == 1:
            return _unpack_gzip(payload)
        if compression == 2:
            return _unpack_snappy(payload)
        return _unpack_frame(payload, compression)
    except (zlib.error, struct.error, cramjam.DecompressionError) as error:
        raise Undecodable(f"compressed records cannot be unpacked: {error}") from error


def _check_size(size_bytes: int) -> None:
    if size_bytes > UNPACKED_BYTES_MAX:
        raise Undecodable(f"compressed records unpack to more than {UNPACKED_BYTES_MAX} bytes")


def _unpack_gzip(payload: bytes) -> bytes:
    """The members of a gzip file, of which there is one as a rule."""
    parts: list[bytes] = []
    size_bytes = 0
    while payload:
        member = zlib.decompressobj(wbits=31)
        parts.append(member.decompress(payload, UNPACKED_BYTES_MAX - size_bytes + 1))
        size_bytes += len(parts[-1])
        _check_size(size_bytes)
        if not member.eof:
            raise Undecodable("compressed records cannot be unpacked: gzip is cut short")
        payload = member.unused_data
    return b"".join(parts)


def _unpack_frame(payload: bytes, compression: int) -> bytes:
    import cramjam

    codec: Any = {3: cramjam.lz4, 4: cramjam.zstd}.get(compression)
    if codec is None:
        raise Undecodable(f"unknown compression {compression}")
    # pages of it are there once they are written to; the codec stops where it ends
    with mmap.mmap(-1, UNPACKED_BYTES_MAX) as room:
        return room[: codec.decompress_into(payload, room)]


_XERIAL_MAGIC = b"\x82SNAPPY\x00"


def _unpack_snappy(payload: bytes) -> bytes:
    """Raw snappy, or the blocks of snappy-java that Kafka's own clients write."""
    import cramjam

    blocks = [payload]
    if payload.startswith(_XERIAL_MAGIC):
        blocks, position = [], 16
        while position < len(payload):
            (size,) = struct.unpack_from(">i", payload, position)
            if size < 0:
                raise Undecodable(f"compressed records cannot be unpacked: a block of {size} bytes")
            blocks.append(payload[position + 4 : position + 4 + size])
            position += 4 + size
    _check_size(sum(cramjam.snappy.decompress_raw_len(block) for block in blocks))
    return b"".join(bytes(cramjam.snappy.decompress_raw(block)) for block in blocks)


# --- folders -------------------------------------------------------------------------------------------


def parse_log_dirs(text: str) -> dict[str, int]:
    """`replica:1=/a,2=/b,/c` as {folder: broker id}; without an id, `meta.properties` of the folder says it.

    Raises: ValueError when a folder or its id cannot be found.
    """
    found = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        head, equals, folder = item.partition("=")
        head = head.removeprefix("replica:")
        if equals and head.isdecimal():
            broker, path = int(head), folder
        else:
            broker, path = _node_id(item), item
        if not Path(path).is_dir():
            raise ValueError(f"log dir {path}: no such folder")
        found[path] = broker
    if not found:
        raise ValueError("no log dir given: expected ID=DIR[,ID=DIR]")
    return found


def _node_id(folder: str) -> int:
    said = node_properties(folder)
    number = said.get("node.id", said.get("broker.id", ""))
    if not number.isdecimal():
        raise ValueError(f"{folder}: its meta.properties say no node.id; give it as ID={folder}")
    return int(number)


def replica_folders(log_dirs: dict[str, int], topics: frozenset[str] | None = None) -> list[ReplicaFolder]:
    """The partition folders in `log_dirs` (of `topics`, when given), sorted."""
    found = []
    for log_dir, broker in sorted(log_dirs.items()):
        for folder in sorted(Path(log_dir).iterdir()):
            topic, dash, index = folder.name.rpartition("-")
            # `t-00` is no broker's
            is_number = index.isdecimal() and index == str(int(index))
            if not dash or not is_number or not folder.is_dir() or folder.name == METADATA_FOLDER:
                continue
            if topics is None or topic in topics:
                found.append(ReplicaFolder(broker, topic, int(index), str(folder)))
    return found


def has_replicas(log_dir: str, topics: Collection[str]) -> bool:
    """Some replica of these topics is in the log dir, or may be; False without such a folder."""
    try:
        return Path(log_dir).is_dir() and bool(replica_folders({log_dir: 0}, frozenset(topics)))
    except OSError:
        return True  # it cannot be listed


def segment_paths(folder: str) -> list[Path]:
    """The segment files of a partition folder in offset order; [] when there is no such folder any more."""
    try:
        files = list(Path(folder).iterdir())
    except FileNotFoundError:
        return []
    return sorted(path for path in files if path.suffix == ".log" and path.stem.isdecimal())


def segment_bytes(folder: str) -> int:
    """What the segments of a partition folder have; those that are deleted meanwhile have nothing."""
    found = 0
    for path in segment_paths(folder):
        with suppress(FileNotFoundError):
            found += path.stat().st_size
    return found


def was_compacted(folder: str) -> bool:
    """Compaction has removed something of this log: it may lack records anywhere."""
    return (Path(folder) / _COMPACTED).exists()


def read_log(folder: str) -> Generator[tuple[Path, SegmentBatch | Torn | Gone | None], None, None]:
    """What is in the segments of a partition folder in log order, None for an empty one.

    Compaction writes neighbours as one segment, and deletes the others after that: a crash in between leaves
    them, until the next start finds them. They are passed over here as there. A last segment that is deleted
    meanwhile was truncated, and never was.
    """
    before: Path | None = None
    end = 0
    paths = segment_paths(folder)
    for path, following in zip_longest(paths, paths[1:]):
        last: SegmentBatch | Torn | None = None
        try:
            if before is not None and int(path.stem) < end and _is_within(path, before, end):
                continue
            for last in _read_file(path):
                yield path, last
        except FileNotFoundError:
            if os.path.lexists(path):
                raise  # a link to nothing
            if following is not None:
                yield path, Gone(int(following.stem))
            continue
        before = path
        # only a last batch that is whole says where a segment ends
        end = last.last_offset + 1 if isinstance(last, SegmentBatch) and last.crc_ok else 0


def _read_file(path: Path) -> Iterator[SegmentBatch | Torn | None]:
    with path.open("rb") as file:
        size_bytes = os.fstat(file.fileno()).st_size
        if size_bytes == 0:
            yield None
        elif size_bytes <= _COPIED_BYTES_MAX:
            yield from read_segment(file.read(), int(path.stem))
        else:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                yield from read_segment(data, int(path.stem))


def _is_within(path: Path, before: Path, end: int) -> bool:
    """The segment was merged into the one `before` it, which ends at `end`: what it holds is there, or was
    changed or removed by compaction, which keeps the leader epochs of what it leaves. Anything else that lies
    over another segment is no merge's."""
    changed_end = _changed_end(path.parent)
    copies: set[tuple[int, int, int]] = set()
    #: leader epoch -> first and last offset
    places: dict[int, tuple[int, int]] = {}
    for one in _read_file(path):
        if one is None:
            continue
        if isinstance(one, Torn) or not one.crc_ok or one.last_offset >= end:
            return False
        if one.base_offset >= changed_end:
            copies.add(_identity(one))
        first, _ = places.get(one.leader_epoch, (one.base_offset, 0))
        places[one.leader_epoch] = (first, one.last_offset)
    for one in _read_file(before) if places else ():
        if isinstance(one, SegmentBatch) and one.crc_ok:
            copies.discard(_identity(one))
            if any(not _fits(one, epoch, *place) for epoch, place in places.items()):
                return False
    return not copies


def _fits(batch: SegmentBatch, epoch: int, first_offset: int, last_offset: int) -> bool:
    """The batch may be of one log with others of this epoch."""
    if epoch < batch.leader_epoch:
        return last_offset < batch.base_offset
    return epoch == batch.leader_epoch or batch.last_offset < first_offset


def _identity(batch: SegmentBatch) -> tuple[int, int, int]:
    return batch.base_offset, batch.leader_epoch, batch.crc


def _changed_end(folder: Path) -> float:
    """Compaction has changed no batch that begins at this offset or behind it: 0 for a log that was never
    compacted. The broker says so before it changes one."""
    path = folder / _COMPACTED
    if not path.exists():
        return 0
    rows = _rows_of_two(path)
    return rows[0][1] if rows is not None and len(rows) == 1 else math.inf


def high_watermarks(log_dir: str) -> dict[tuple[str, int], int] | None:
    """{(topic, partition): high watermark} as the broker last wrote it to its checkpoint; None without one.

    A cut checkpoint is none, as for the broker.
    The checkpoint lags behind the truth, which is safe: below it everything is committed.
    """
    return _checkpoint(Path(log_dir) / HIGH_WATERMARKS)


def recovery_points(log_dir: str) -> dict[tuple[str, int], int] | None:
    """{(topic, partition): offset}: what lies below was flushed; empty without a checkpoint, None when there
    is one that is not whole."""
    path = Path(log_dir) / RECOVERY_POINTS
    return _checkpoint(path) if path.exists() else {}


def was_stopped_cleanly(log_dir: str) -> bool:
    """The broker of the log dir has flushed everything, and does not run."""
    return any((Path(log_dir) / name).exists() for name in _CLEAN_STOPS)


def node_properties(log_dir: str) -> dict[str, str]:
    """What `meta.properties` of a log dir says; {} without such a file."""
    try:
        lines = (Path(log_dir) / "meta.properties").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return {}
    pairs = (line.partition("=") for line in lines if not line.startswith("#"))
    return {key.strip(): value.strip() for key, equals, value in pairs if equals}


def topic_id_of(folder: str) -> str | None:
    """The topic id that `partition.metadata` of a replica says, as Kafka writes it; None without one."""
    try:
        lines = (Path(folder) / "partition.metadata").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    ids = [line.removeprefix("topic_id:").strip() for line in lines if line.startswith("topic_id:")]
    return ids[0] if len(ids) == 1 and ids[0] else None


def has_batches(folder: str) -> bool:
    """Some segment of the folder is not empty, or was deleted meanwhile."""
    try:
        return any(path.stat().st_size for path in segment_paths(folder))
    except FileNotFoundError:
        return True


def log_start(folder: str) -> int | None:
    """Where the leader epochs of a log say that it begins; None without a whole checkpoint of them, and when
    there are none.

    The broker stores them before it deletes segments: read this after the names of the segments.
    """
    rows = _epoch_rows(folder)
    return rows[0][1] if rows else None


def leader_epochs(folder: str) -> list[tuple[int, int]] | None:
    """(leader epoch, first offset) of a replica's checkpoint, rising; None without a whole one. A first row
    that stands there twice is of the record below the log's beginning, and left out."""
    rows = _epoch_rows(folder)
    return rows[2:] if rows is not None and len(rows) > 1 and rows[0] == rows[1] else rows


def _epoch_rows(folder: str) -> list[tuple[int, int]] | None:
    """All rows of the checkpoint as they stand there; None without a whole one."""
    return _rows_of_two(Path(folder) / "leader-epoch-checkpoint")


def _rows_of_two(path: Path) -> list[tuple[int, int]] | None:
    """The rows of a checkpoint of two numbers each; None without a whole one."""
    try:
        version, count, *lines = _sound_lines(path.read_text(encoding="utf-8"))
        rows = [(int(first), int(second)) for first, second in (line.split(" ") for line in lines[:-1])]
    except (FileNotFoundError, ValueError):
        return None
    return rows if version == "0" and int(count) == len(rows) and lines[-1:] == [""] else None


def _checkpoint(path: Path) -> dict[tuple[str, int], int] | None:
    """The rows behind version and number of rows; None when the file is missing, cut, no checkpoint or
    not to be read."""
    try:
        version, count, *lines = _sound_lines(path.read_text(encoding="utf-8"))
        rows = [line.rsplit(" ", 2) for line in lines[:-1]]
        offsets = {(topic, int(partition)): int(offset) for topic, partition, offset in rows}
        is_whole = version == "0" and int(count) == len(rows) and lines[-1:] == [""]
    except (OSError, ValueError):
        return None
    # no broker writes these; one that stands for nothing known counts for no checkpoint
    is_odd = len(offsets) < len(rows) or min(offsets.values(), default=0) < 0
    return offsets if is_whole and not is_odd else None


def _sound_lines(text: str) -> list[str]:
    """The lines before `crc32c ########`, which covers them; older builds and Kafka write none.

    Raises: ValueError for another crc.
    """
    lines = text.split("\n")
    if len(lines) > 1 and lines[-2].startswith("crc32c "):
        crc = lines.pop(-2).removeprefix("crc32c ")
        if int(crc, 16) != google_crc32c.value("\n".join(lines).encode()):
            raise ValueError("the crc does not match")
    return lines
