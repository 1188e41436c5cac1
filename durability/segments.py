"""Reads replica segment files without the broker's help: a second decoder of Kafka's v2 batch (D4).

Shares no code with `protocol` or `storage` on purpose, so that a mistake there cannot hide itself here.
Reads only; what cannot be read is reported and passed over, no error.
"""

import mmap
import os
import struct
import zlib
from collections.abc import Collection, Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, BinaryIO

import google_crc32c

from holdfast.durability.log_dir_files import changed_end, node_properties

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
#: Of a segment file that are read at once: it may have a gigabyte.
WINDOW_BYTES = 1 << 20
#: What a device writes as a whole, and how many zeros at its end are no part of a record.
_SECTOR_BYTES, _BLANK_BYTES = 512, 32
#: Most bytes that one compressed batch may unpack to: brokers take none that gives more.
UNPACKED_BYTES_MAX = 64 << 20

#: Folder of the metadata log, which is no topic.
METADATA_FOLDER = "__cluster_metadata-0"


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
    #: record bytes behind the header, still compressed; none when the crc does not hold
    payload: bytes
    #: as of `Torn`, of one whose crc does not hold
    is_blank: bool = False


@dataclass(frozen=True, slots=True)
class Torn:
    """Bytes that are no batch, up to the next one or the segment's end: a write that was cut, or damage."""

    position: int
    reason: str
    #: a power cut may leave it: of what was written zeros are there, up to the end of a sector
    is_blank: bool = False


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


class Window:
    """The bytes of a segment file, some of them at a time. No map: a broker may truncate the file meanwhile,
    which takes the pages of a map away and ends the process. The file ends here where it did when it was
    opened, or where it ends since."""

    __slots__ = ("_data", "_descriptor", "_start", "size_bytes")

    def __init__(self, data: bytes, descriptor: int | None = None, size_bytes: int = 0) -> None:
        """Of the bytes alone, or of an open file whose first ones they are."""
        self._data = data
        self._start = 0
        self._descriptor = descriptor
        self.size_bytes = len(data) if descriptor is None else size_bytes

    @classmethod
    def of(cls, file: BinaryIO) -> "Window":
        """Of an open file."""
        return cls(b"", file.fileno(), os.fstat(file.fileno()).st_size)

    def around(self, position: int, size_bytes: int) -> tuple[bytes, int]:
        """Bytes of the file, and the index in them of this position, from which on there are so many, or all
        up to the file's end."""
        data, index = self._data, position - self._start
        if index >= 0 and (index + size_bytes <= len(data) or self._start + len(data) >= self.size_bytes):
            return data, index
        self._data = self._read(position, max(size_bytes, WINDOW_BYTES))
        self._start = position
        return self._data, 0

    def pieces(self, position: int, end: int) -> Iterator[bytes]:
        """What lies between these places, a window at a time, which is not kept."""
        while position < min(end, self.size_bytes):
            if self._descriptor is None:
                piece = self._data[position : min(end, position + WINDOW_BYTES)]
            else:
                piece = self._read(position, min(end - position, WINDOW_BYTES))
            position += len(piece)
            yield piece

    def _read(self, position: int, size_bytes: int) -> bytes:
        assert self._descriptor is not None
        wanted = min(size_bytes, self.size_bytes - position)
        data = os.pread(self._descriptor, wanted, position)
        while data and len(data) < wanted:
            more = os.pread(self._descriptor, wanted - len(data), position + len(data))
            if not more:
                break
            data += more
        if len(data) < wanted:
            self.size_bytes = position + len(data)
        return data


def read_segment(data: bytes | Window, base_offset: int = 0) -> Iterator[SegmentBatch | Torn]:
    """The batches of one segment in file order, and what between or behind them cannot be read.

    `base_offset`: no batch of the segment begins before it.
    """
    window = data if isinstance(data, Window) else Window(data)
    position: int | None = 0
    next_offset = base_offset
    while position is not None and position < window.size_bytes:
        found = _batch_at(window, position)
        if position >= window.size_bytes:
            return  # truncated there meanwhile
        if isinstance(found, SegmentBatch):
            end = position + found.size_bytes
            yield found if found.crc_ok else replace(found, is_blank=_is_blank(window, position, end))
            next_offset = max(next_offset, found.last_offset + 1)
            position = end
        else:
            following = _next_batch(window, position + 1, next_offset)
            end = window.size_bytes if following is None else following
            yield replace(found, is_blank=_is_blank(window, position, end))
            position = following


def _is_blank(window: Window, begin: int, end: int) -> bool:
    """Somewhere between these places zeros reach up to the end of a sector."""
    for sector_end in range(begin - begin % _SECTOR_BYTES + _SECTOR_BYTES, end + 1, _SECTOR_BYTES):
        begin_of_zeros = max(begin, sector_end - _BLANK_BYTES)
        data, at = window.around(begin_of_zeros, sector_end - begin_of_zeros)
        if not any(data[at : at + sector_end - begin_of_zeros]):
            return True
    return False


def _batch_at(window: Window, position: int) -> SegmentBatch | Torn:
    data, at = window.around(position, _HEADER_BYTES)
    left = window.size_bytes - position
    if left < _HEADER_BYTES:
        return Torn(position, f"{left} bytes are shorter than a header")
    (base, length, epoch, magic, crc, attributes, last_delta, base_timestamp, _, _, _, _, count) = (
        _HEADER.unpack_from(data, at)
    )
    size = _PREFIX_BYTES + length
    if magic != _MAGIC or size < _HEADER_BYTES or last_delta < 0 or count < 0:
        return Torn(position, f"no batch header: magic {magic}, length {length}, {count} records")
    if size > left:
        return Torn(position, f"a batch of {size} bytes of which {left} are there")
    body = _covered(window, position, size, crc)
    if position + size > window.size_bytes:
        return Torn(position, f"a batch of {size} bytes of which {window.size_bytes - position} are there")
    return SegmentBatch(
        base_offset=base,
        last_offset=base + last_delta,
        leader_epoch=epoch,
        crc=crc,
        crc_ok=body is not None,
        record_count=count,
        is_control=bool(attributes & _CONTROL_BIT),
        base_timestamp_ms=base_timestamp,
        compression=attributes & _COMPRESSION_BITS,
        position=position,
        size_bytes=size,
        payload=b"" if body is None else body[_HEADER_BYTES - _CRC_COVERS_FROM :],
    )


def _covered(window: Window, position: int, size: int, crc: int) -> bytes | None:
    """What the crc of a batch covers; None when it does not hold. A length that cannot be right takes no
    memory."""
    begin, end = position + _CRC_COVERS_FROM, position + size
    if size > WINDOW_BYTES:
        found = 0
        for piece in window.pieces(begin, end):
            found = google_crc32c.extend(found, piece)
        return b"".join(window.pieces(begin, end)) if found == crc else None
    data, at = window.around(position, size)
    body = data[at + _CRC_COVERS_FROM : at + size]
    return body if google_crc32c.value(body) == crc else None


def batch_at(path: Path, position: int) -> SegmentBatch | None:
    """The batch that begins at this byte of a segment file, whole and with a crc that holds; None when there
    is none, or no such file."""
    try:
        with path.open("rb") as file:
            file.seek(position)
            head = file.read(_PREFIX_BYTES)
            length = _LENGTH.unpack(head[_BASE_OFFSET.size :])[0] if len(head) == _PREFIX_BYTES else -1
            found = _batch_at(Window(head + file.read(length)), 0) if length > 0 else None
    except OSError:
        return None
    return found if isinstance(found, SegmentBatch) and found.crc_ok else None


def _next_batch(window: Window, position: int, next_offset: int) -> int | None:
    """Where, from `position` on, the next batch begins whose crc holds and whose offsets can follow."""
    while position + _HEADER_BYTES <= window.size_bytes:
        data, at = window.around(position, _HEADER_BYTES)
        begin = position - at
        magic_at = data.find(_MAGIC_BYTE, at + _MAGIC_AT)
        while magic_at >= 0:
            at = magic_at - _MAGIC_AT
            (base,) = _BASE_OFFSET.unpack_from(data, at)
            if 0 <= base - next_offset <= _RELATIVE_OFFSET_MAX:
                found = _batch_at(window, begin + at)
                if isinstance(found, SegmentBatch) and found.crc_ok:
                    return begin + at
            magic_at = data.find(_MAGIC_BYTE, magic_at + 1)
        # a header that begins in the last bytes may go on behind them
        position = max(position + 1, begin + len(data) - _MAGIC_AT)
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
        window = Window.of(file)
        if window.size_bytes == 0:
            yield None
        yield from read_segment(window, int(path.stem))


def _is_within(path: Path, before: Path, end: int) -> bool:
    """The segment was merged into the one `before` it, which ends at `end`: what it holds is there, or was
    changed or removed by compaction, which keeps the leader epochs of what it leaves. Anything else that lies
    over another segment is no merge's."""
    unchanged_from = changed_end(path.parent)
    copies: set[tuple[int, int, int]] = set()
    #: leader epoch -> first and last offset
    places: dict[int, tuple[int, int]] = {}
    for one in _read_file(path):
        if one is None:
            continue
        if isinstance(one, Torn) or not one.crc_ok or one.last_offset >= end:
            return False
        if one.base_offset >= unchanged_from:
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


def has_batches(folder: str) -> bool:
    """Some segment of the folder is not empty, or was deleted meanwhile."""
    try:
        return any(path.stat().st_size for path in segment_paths(folder))
    except FileNotFoundError:
        return True
