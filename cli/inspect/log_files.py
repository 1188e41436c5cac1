"""Reads the files of a partition folder as they lie on disk, for `holdfast dump-log`.

Owns the rows: one for each batch, record, index entry or line, and one for each thing that is wrong. Files
are opened read-only and nothing is believed; a segment ends at its first invalid batch, as recovery would end
it (A-22).
"""

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, BinaryIO

from holdfast.metadata.snapshot_records import decode_snapshot_record
from holdfast.protocol.id_text import encode_id
from holdfast.protocol.record_batch import (
    GZIP,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    NO_COMPRESSION,
    BatchHeader,
    CorruptBatch,
    Record,
    check_batch,
    decode_records,
    parse_header,
)
from holdfast.protocol.schema.fields import SchemaError
from holdfast.raft.core.control_records import decode_leader_change, decode_snapshot_control, decode_voters
from holdfast.raft.core.snapshot_format import CorruptSnapshot, SnapshotDecoder, SnapshotId, parse_name
from holdfast.storage import checkpoint, clean_shutdown, snapshots
from holdfast.storage.core import files

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

_INDEX_ENTRY = struct.Struct(">II")
_TIME_ENTRY = struct.Struct(">qI")


@dataclass(frozen=True, slots=True)
class LogFileRow:
    """One thing that was found; `problem` says what is wrong with it."""

    kind: str
    fields: dict[str, Any]
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Depth:
    """How much of a segment is shown."""

    is_deep: bool = False
    has_data: bool = False
    is_metadata: bool = False
    max_bytes: int | None = None


def rows_of(path: Path, depth: Depth) -> Iterator[LogFileRow]:
    """What is in a file, by its name."""
    if path.suffix == files.LOG_SUFFIX:
        yield from segment_rows(path, depth)
    elif (snapshot := parse_name(path.name)) is not None:
        yield from metadata_snapshot_rows(path, snapshot, depth)
    elif path.suffix == files.INDEX_SUFFIX:
        yield from index_rows(path)
    elif path.suffix == files.TIME_INDEX_SUFFIX:
        yield from time_index_rows(path)
    elif path.suffix == files.SNAPSHOT_SUFFIX:
        yield from snapshot_rows(path)
    elif path.name == clean_shutdown.FILE_NAME:
        yield from clean_shutdown_rows(path)
    elif path.name == files.LEADER_EPOCH_CHECKPOINT:
        yield from checkpoint_rows(path, ("epoch", "startOffset"))
    elif path.name == files.CLEANER_CHECKPOINT:
        yield from checkpoint_rows(path, ("cleanOffset", "changedOffset"))
    elif path.name in (
        files.RECOVERY_POINT_CHECKPOINT,
        files.HIGH_WATERMARK_CHECKPOINT,
        files.LOG_START_CHECKPOINT,
        files.CEILING_CHECKPOINT,
    ):
        yield from checkpoint_rows(path, ("topic", "partition", "offset"))
    elif path.name in (files.PARTITION_METADATA, files.META_PROPERTIES):
        yield LogFileRow("text", {"text": path.read_text(errors="backslashreplace").strip()})
    else:
        yield LogFileRow(
            "unknown", {}, f"{path.name} is no file of a log; expected .log, .index, .checkpoint, ..."
        )


# --- segments ------------------------------------------------------------------------------------------


def segment_rows(path: Path, depth: Depth) -> Iterator[LogFileRow]:
    """The batches of a segment and, when deep, their records."""
    base_offset = files.parse_offset_name(path.name, files.LOG_SUFFIX)
    yield LogFileRow("segment", {"logStartingOffset": base_offset})
    flushed_offset = _recovery_point(path)
    is_boundary_shown = flushed_offset is None
    next_offset, epoch = base_offset, -1
    with path.open("rb") as file:
        for position, batch, problem in _batches(file, depth.max_bytes):
            if problem is not None:
                yield LogFileRow("invalid", {"position": position, "size": len(batch)}, problem)
                return
            header = parse_header(batch)
            if not is_boundary_shown and flushed_offset is not None and header.base_offset >= flushed_offset:
                yield LogFileRow("boundary", {"recoveryPoint": flushed_offset})
                is_boundary_shown = True
            if next_offset is not None and header.base_offset != next_offset:
                problem = f"offset {header.base_offset}, expected {next_offset}"
            elif header.leader_epoch < epoch:
                problem = f"epoch {header.leader_epoch} after {epoch}"
            yield LogFileRow("batch", batch_fields(header, position, problem is None), problem)
            if problem is not None:
                return
            next_offset, epoch = header.next_offset, header.leader_epoch
            if depth.is_deep:
                yield from _record_rows(header, batch, depth)


def metadata_snapshot_rows(path: Path, id: SnapshotId, depth: Depth) -> Iterator[LogFileRow]:
    """The batches of a snapshot of the metadata and, when deep, their records. The last row says when it is
    not whole, so that a start refuses it."""
    yield LogFileRow("metadata-snapshot", {"endOffset": id.offset, "epoch": id.epoch})
    decoder = SnapshotDecoder(id)
    with path.open("rb") as file:
        for position, batch, problem in _batches(file, depth.max_bytes):
            try:
                decoder.feed(batch)
            except CorruptSnapshot as error:
                problem = problem or str(error)
            if problem is not None:
                yield LogFileRow("invalid", {"position": position, "size": len(batch)}, problem)
                return
            header = parse_header(batch)
            yield LogFileRow("batch", batch_fields(header, position, True))
            if depth.is_deep:
                yield from _record_rows(header, batch, depth)
    if depth.max_bytes is None:
        try:
            decoder.finish()
        except CorruptSnapshot as error:
            yield LogFileRow("invalid", {"position": path.stat().st_size, "size": 0}, str(error))


def _batches(file: BinaryIO, max_bytes: int | None) -> Iterator[tuple[int, bytes, str | None]]:
    """Position and bytes of each batch; the last one with a story when it is invalid."""
    position = 0
    size = file.seek(0, 2)
    while position < size and (max_bytes is None or position < max_bytes):
        file.seek(position)
        head = file.read(HEADER_SIZE)
        try:
            length = parse_header(head).size_bytes
            if length > size - position:
                raise CorruptBatch(f"has {length} bytes, {size - position} are left")
            batch = head + file.read(length - HEADER_SIZE)
            check_batch(batch)
        except CorruptBatch as error:
            file.seek(position)
            rest = file.read(size - position)
            is_zero = not rest.strip(b"\0")
            yield position, rest, f"{len(rest)} zero bytes at the end" if is_zero else str(error)
            return
        yield position, batch, None
        position += length


def batch_fields(header: BatchHeader, position: int, is_valid: bool) -> dict[str, Any]:
    """A batch in the words of Kafka's DumpLogSegments."""
    time_name = "LogAppendTime" if header.attributes & LOG_APPEND_TIME else "CreateTime"
    return {
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "count": header.record_count,
        "baseSequence": header.base_sequence,
        "lastSequence": header.last_sequence,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "partitionLeaderEpoch": header.leader_epoch,
        "isTransactional": header.is_transactional,
        "isControl": header.is_control,
        "position": position,
        time_name: header.max_timestamp,
        "size": header.size_bytes,
        "magic": header.magic,
        "compresscodec": CODECS[header.compression] if header.compression < len(CODECS) else "unknown",
        "crc": header.crc,
        "isvalid": is_valid,
    }


def _record_rows(header: BatchHeader, batch: bytes, depth: Depth) -> Iterator[LogFileRow]:
    try:
        records = decode(header, batch)
    except ValueError as error:
        yield LogFileRow("record", {"offset": header.base_offset}, f"records cannot be decoded: {error}")
        return
    for record in records:
        sequence = header.base_sequence
        shown: dict[str, Any] = {
            "offset": record.offset,
            "CreateTime": record.timestamp_ms,
            "keySize": -1 if record.key is None else len(record.key),
            "valueSize": -1 if record.value is None else len(record.value),
            "sequence": sequence + record.offset - header.base_offset if sequence >= 0 else -1,
            "headerKeys": [name for name, _ in record.headers],
        }
        problem = None
        if depth.is_metadata:
            try:
                shown["payload"] = metadata_value(record, header.is_control)
            except (SchemaError, ValueError) as error:
                problem = f"no metadata record: {error}"
        elif depth.has_data:
            shown["key"] = _text(record.key)
            shown["payload"] = _text(record.value)
        yield LogFileRow("record", shown, problem)


def decode(header: BatchHeader, batch: bytes) -> list[Record]:
    """The records of a batch in any compression. Raises: ValueError."""
    if header.compression in (NO_COMPRESSION, GZIP):
        return decode_records(batch)
    from aiokafka.record.default_records import DefaultRecordBatch

    from holdfast.client.core.decoding import UNDECODABLE
    from holdfast.protocol.compression import unpack_batch

    try:
        return [
            Record(found.offset, found.timestamp, found.key, found.value, tuple(found.headers))
            for found in DefaultRecordBatch(unpack_batch(batch))
        ]
    except UNDECODABLE as error:
        raise ValueError(str(error)) from error


def metadata_value(record: Record, is_control: bool) -> dict[str, Any]:
    """A record of the metadata log as plain values. Raises: SchemaError, ValueError."""
    if is_control:
        change, voters = decode_leader_change(record), decode_voters(record)
        kind = "LeaderChange" if change else "Voters" if voters else "control"
        if (of_snapshot := decode_snapshot_control(record)) is not None:
            return {"type": type(of_snapshot).__name__.removesuffix("Record"), "data": _plain(of_snapshot)}
        return {"type": kind, "data": _plain(change or voters)}
    value = decode_snapshot_record(record.value or b"")
    return {"type": type(value).__name__, "data": _plain(value)}


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    return encode_id(value) if isinstance(value, bytes) else value


def _text(content: bytes | None) -> str | None:
    return None if content is None else content.decode(errors="backslashreplace")


def _recovery_point(path: Path) -> int | None:
    """Where the log dir says that flushing had got to; None when it does not."""
    partition = files.parse_folder_name(path.resolve().parent.name)
    stored = path.resolve().parent.parent / files.RECOVERY_POINT_CHECKPOINT
    if partition is None or not stored.is_file():
        return None
    rows = checkpoint.decode_rows(stored.read_text(errors="replace"), checkpoint.OFFSETS_COLUMNS) or []
    return next(
        (int(row[2]) for row in rows if (row[0], row[1]) == (partition.topic, str(partition.partition))),
        None,
    )


# --- indexes -------------------------------------------------------------------------------------------


def _entries(path: Path, entry: struct.Struct) -> Iterator[tuple[tuple[int, ...], str | None]]:
    content = path.read_bytes()
    whole = len(content) // entry.size * entry.size
    before: tuple[int, ...] | None = None
    for found in entry.iter_unpack(content[:whole]):
        rises = before is None or (found[0] >= before[0] and found[1] > before[1])
        yield found, None if rises else "entries do not rise"
        before = found
    if whole < len(content):
        yield (), f"{len(content) - whole} bytes behind the last whole entry"


def index_rows(path: Path) -> Iterator[LogFileRow]:
    """The entries of an offset index, each compared with the batch that it points at."""
    base_offset = files.parse_offset_name(path.name, files.INDEX_SUFFIX) or 0
    log_path = path.with_suffix(files.LOG_SUFFIX)
    if not log_path.is_file():
        yield LogFileRow("index", {}, f"{log_path.name} is missing")
        return
    with log_path.open("rb") as log:
        for entry, problem in _entries(path, _INDEX_ENTRY):
            if not entry:
                yield LogFileRow("index", {}, problem)
                continue
            offset, position = base_offset + entry[0], entry[1]
            log.seek(position)
            try:
                found = parse_header(log.read(HEADER_SIZE)).base_offset
                if found != offset:
                    problem = problem or f"the batch at {position} has offset {found}"
            except CorruptBatch:
                problem = problem or f"no batch begins at {position}"
            yield LogFileRow("index", {"offset": offset, "position": position}, problem)


def time_index_rows(path: Path) -> Iterator[LogFileRow]:
    """The entries of a time index, each compared with the batches before it."""
    base_offset = files.parse_offset_name(path.name, files.TIME_INDEX_SUFFIX) or 0
    largest: dict[int, int] = {}
    log_path = path.with_suffix(files.LOG_SUFFIX)
    if not log_path.is_file():
        yield LogFileRow("timeindex", {}, f"{log_path.name} is missing")
        return
    with log_path.open("rb") as log:
        timestamp = -1
        for _, batch, problem in _batches(log, None):
            if problem is None:
                header = parse_header(batch)
                largest[header.base_offset] = timestamp
                if header.record_count:
                    timestamp = max(timestamp, header.max_timestamp)
    for entry, problem in _entries(path, _TIME_ENTRY):
        if not entry:
            yield LogFileRow("timeindex", {}, problem)
            continue
        offset = base_offset + entry[1]
        expected = largest.get(offset)
        if expected is None:
            problem = problem or f"no batch begins at offset {offset}"
        elif expected != entry[0]:
            problem = problem or f"the largest timestamp before offset {offset} is {expected}"
        yield LogFileRow("timeindex", {"timestamp": entry[0], "offset": offset}, problem)


# --- small files ---------------------------------------------------------------------------------------


def snapshot_rows(path: Path) -> Iterator[LogFileRow]:
    """The producers in a snapshot."""
    offset = files.parse_offset_name(path.name, files.SNAPSHOT_SUFFIX)
    state = snapshots.decode(path.read_text(errors="replace"), -1 if offset is None else offset)
    if state is None:
        yield LogFileRow("snapshot", {}, "no readable snapshot; recovery does without it")
        return
    for producer_id, epoch, batches in state.rows():
        first, last, first_offset, last_offset, timestamp = batches[-1]
        yield LogFileRow(
            "snapshot",
            {
                "producerId": producer_id,
                "producerEpoch": epoch,
                "batches": len(batches),
                "firstSequence": first,
                "lastSequence": last,
                "firstOffset": first_offset,
                "lastOffset": last_offset,
                "lastTimestamp": timestamp,
            },
        )


def checkpoint_rows(path: Path, columns: tuple[str, ...]) -> Iterator[LogFileRow]:
    """The lines of a checkpoint file."""
    rows = checkpoint.decode_rows(path.read_text(errors="replace"), len(columns))
    if rows is None:
        yield LogFileRow("checkpoint", {}, "unreadable; a start takes it for missing")
        return
    for row in rows:
        yield LogFileRow("checkpoint", dict(zip(columns, row, strict=True)))


def clean_shutdown_rows(path: Path) -> Iterator[LogFileRow]:
    """What a clean stop left: the broker epoch, and a row a log that it vouches for."""
    text = path.read_text(errors="replace")
    mark = clean_shutdown.decode(text)
    if mark is None:
        yield LogFileRow("clean-shutdown", {"text": text}, "proves nothing; a start takes it for missing")
        return
    version = json.loads(text)["version"]
    directory = encode_id(mark.directory_id)
    yield LogFileRow(
        "clean-shutdown", {"version": version, "brokerEpoch": mark.broker_epoch, "directoryId": directory}
    )
    for name, digest in mark.logs.items():
        yield LogFileRow("clean-shutdown-log", {"log": name, "digest": digest})
