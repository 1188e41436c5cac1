"""`format("holdfast.segments")`: replica segment files as a table, one row a record or a batch.

Options: `path` (comma list of `replica:<id>=<log dir>`, `<id>=<log dir>` or log dirs), `rows` (records or
batches), `topics` (comma list, all by default), `minPartitions` (tasks, as far as there are replicas);
`folders` (lines, all by default): of the replicas' folders only these.
Decoding is `durability.segments`, which shares nothing with the broker. What cannot be read is a row with a
`problem`, so that it is reported and nothing else suffers.
"""

import functools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from heapq import heapreplace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from holdfast.durability.files_on_workers import check_log_dir
from holdfast.durability.flushed import Flushed, FlushedLogs, LogDirOf
from holdfast.durability.log_dir_files import log_start, was_compacted
from holdfast.durability.read_options import check_names
from holdfast.durability.segments import (
    Gone,
    ReplicaFolder,
    SegmentBatch,
    SegmentRow,
    Torn,
    Undecodable,
    batch_records,
    parse_log_dirs,
    read_log,
    replica_folders,
    segment_bytes,
    segment_paths,
)

RECORD_SCHEMA = (
    "broker int, topic string, partition int, offset long, leader_epoch int, key binary, value binary, "
    "crc_ok boolean, segment string, position long, problem string"
)
BATCH_SCHEMA = (
    "broker int, topic string, partition int, base_offset long, last_offset long, leader_epoch int, "
    "crc long, crc_ok boolean, damaged boolean, records int, segment string, position long, problem string"
)
_TYPES = {
    "int": pa.int32(),
    "long": pa.int64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
}
_CRC_PROBLEM = "crc does not hold"
_DELETED = "the segment was deleted while the log was read"
#: Leader epoch and crc, and whether that holds.
_NO_BATCH = (None, None, None)
#: Rows of one Arrow batch.
_ROWS_MAX = 10_000


def arrow_schema(text: str) -> pa.Schema:
    """The Arrow schema of a Spark schema of plain columns."""
    return pa.schema([(name, _TYPES[kind]) for name, kind in (item.split() for item in text.split(", "))])


#: A task reads no more, unless one replica is larger.
_TASK_BYTES_MAX = 256 << 20
_OPTIONS = ("path", "rows", "topics", "folders", "minPartitions")


@dataclass
class SegmentPartition(InputPartition):
    """One Spark partition: the segments of some replicas."""

    folders: tuple[ReplicaFolder, ...]


class SegmentsSource(DataSource):
    """Batch reads of log dirs."""

    @classmethod
    def name(cls) -> str:
        return "holdfast.segments"

    def schema(self) -> str:
        return BATCH_SCHEMA if self._by_batch() else RECORD_SCHEMA

    def reader(self, schema: Any) -> "SegmentsReader":
        check_names({key.lower(): "" for key in self.options}, _OPTIONS, {})
        topics = self.options.get("topics")
        wanted = frozenset(topics.split(",")) if topics else None
        path = self.options.get("path")
        if not path:
            raise ValueError("option path is needed: ID=DIR[,ID=DIR], as in load('1=/data/b1,2=/data/b2')")
        tasks = self.options.get("minPartitions", str(2 * (os.cpu_count() or 1)))
        if not tasks.isdecimal():
            raise ValueError(f"option minPartitions: expected a number from 0, got {tasks!r}")
        folders = self.options.get("folders")
        only = None if folders is None else frozenset(folders.splitlines())
        return SegmentsReader(path, self._by_batch(), wanted, only, int(tasks))

    def _by_batch(self) -> bool:
        rows = self.options.get("rows", "records")
        if rows not in ("records", "batches"):
            raise ValueError(f"option rows: expected records or batches, got {rows!r}")
        return rows == "batches"


class SegmentsReader(DataSourceReader):
    """Folders must be reachable from every worker."""

    def __init__(
        self,
        path: str,
        by_batch: bool,
        topics: frozenset[str] | None,
        only: frozenset[str] | None,
        min_partitions: int,
    ) -> None:
        self._only = only
        self._path = path
        self._by_batch = by_batch
        self._topics = topics
        self._min_partitions = min_partitions

    def partitions(self) -> list[SegmentPartition]:
        folders = [
            folder
            for folder in replica_folders(parse_log_dirs(self._path), self._topics)
            if self._only is None or folder.path in self._only
        ]
        sizes = {folder: segment_bytes(folder.path) for folder in folders}
        # Spark needs one partition at least
        return [SegmentPartition(group) for group in grouped(sizes, self._min_partitions) or [()]]

    def read(self, partition: SegmentPartition) -> Iterator[pa.RecordBatch]:
        schema = arrow_schema(BATCH_SCHEMA if self._by_batch else RECORD_SCHEMA)
        rows: list[tuple[Any, ...]] = []
        # once for each log dir: with some thousand replicas each look would be at some thousand lines
        dir_of = functools.cache(FlushedLogs.of)
        for folder in partition.folders:
            check_log_dir(folder.path)
            for row in folder_rows(folder, by_batch=self._by_batch, dir_of=dir_of):
                rows.append(row)
                if len(rows) >= _ROWS_MAX:
                    yield _to_arrow(rows, schema)
                    rows = []
        if rows:
            yield _to_arrow(rows, schema)


def grouped(sizes: Mapping[ReplicaFolder, int], min_groups: int) -> list[tuple[ReplicaFolder, ...]]:
    """Replicas as groups of about the same size: starting a task costs more than reading a small replica."""
    count = max(min_groups, -(-sum(sizes.values()) // _TASK_BYTES_MAX), 1)
    heap: list[tuple[int, int, list[ReplicaFolder]]] = [(0, index, []) for index in range(count)]
    for folder in sorted(sizes, key=lambda folder: (-sizes[folder], folder)):
        size, index, group = heap[0]
        group.append(folder)
        heapreplace(heap, (size + sizes[folder] + 1, index, group))
    return [tuple(sorted(group)) for _, _, group in sorted(heap, key=lambda item: item[1]) if group]


def folder_rows(
    folder: ReplicaFolder,
    *,
    by_batch: bool,
    dir_of: LogDirOf = FlushedLogs.of,
) -> Iterator[tuple[Any, ...]]:
    """The rows of one replica in log order."""
    if not folder.path:
        return
    place = (folder.broker, folder.topic, folder.partition)
    if by_batch:
        # first: what is flushed from now on is none of ours
        before = _Stored.of(folder, dir_of)
        yield from _missing_head(place, folder)
        is_compacted = was_compacted(folder.path)
        yield from _batch_rows(place, read_log(folder.path), before, is_compacted=is_compacted)
    else:
        for path, found in read_log(folder.path):
            yield from _record_rows(place, found, path.name)


@dataclass(frozen=True, slots=True)
class _Stored:
    """What a broker says that the disk has of a replica, and what of it is there."""

    flushed: Flushed
    #: names, sizes and times of the segments, by which it is seen whether they were at rest
    files: tuple[tuple[str, int, int], ...]
    is_at_rest: bool = True

    @classmethod
    def of(cls, folder: ReplicaFolder, dir_of: LogDirOf = FlushedLogs.of) -> "_Stored":
        return cls(Flushed.of(folder, dir_of), _files(folder.path))

    def still(self) -> "_Stored":
        """What of it is true all the time."""
        folder = self.flushed.folder.path
        flushed, files = self.flushed.still(), _files(folder)
        return _Stored(flushed, files, files == self.files and Path(folder).is_dir())

    def has(self, offset: int) -> bool:
        """It was flushed there."""
        return self.flushed.is_closed or offset < self.flushed.until


def _files(folder: str) -> tuple[tuple[str, int, int], ...]:
    files = []
    for path in segment_paths(folder):
        with suppress(FileNotFoundError):
            found = path.stat()
            files.append((path.name, found.st_size, found.st_mtime_ns))
    return tuple(files)


@dataclass(frozen=True, slots=True)
class _Unreadable:
    """Bytes of a segment that are no batch, or one whose crc does not hold, as columns of a row."""

    #: the offset first
    of_batch: tuple[Any, ...]
    rest: tuple[Any, ...]
    is_blank: bool


def _missing_head(place: tuple[Any, ...], folder: ReplicaFolder) -> Iterator[tuple[Any, ...]]:
    """A damaged row where the log should begin, when its first segments or batches are gone and were not
    deleted. What was deleted within a batch or a segment is still in its file, or lies below the start."""
    first = _first_kept(folder.path)
    start = log_start(folder.path)  # behind the files: it is stored before any of them is deleted
    if first is not None and start is not None and start < first[1]:
        problem = f"the log begins at {first[1]}, its leader epochs say at {start}"
        yield (*place, start, None, None, None, None, True, None, first[0].name, 0, problem)


def _first_kept(folder: str) -> tuple[Path, int] | None:
    """(segment, offset) where the files begin: at the first batch, or where the first segment's name says
    when that batch cannot be read, there is none, or compaction may have removed it. None without files."""
    paths = segment_paths(folder)
    if not paths:
        return None
    if not was_compacted(folder):
        with closing(read_log(folder)) as log:
            for path, found in log:
                if isinstance(found, SegmentBatch) and found.crc_ok:
                    return path, found.base_offset
                if found is not None and not isinstance(found, Gone):
                    break
    return paths[0], int(paths[0].stem)


def _batch_rows(
    place: tuple[Any, ...],
    log: Iterator[tuple[Path, SegmentBatch | Torn | Gone | None]],
    stored: _Stored,
    *,
    is_compacted: bool,
) -> Iterator[tuple[Any, ...]]:
    """A row for each batch, unreadable stretch and empty segment. What cannot be read is *damaged* when a
    batch behind it can, NULL when a power cut may leave it so, as an empty segment far behind the log's end.
    *damaged* is also a segment whose name is not where its
    first batch begins, unless that batch is missing: brokers find batches by the names."""
    unreadable: list[_Unreadable] = []
    end = 0
    before: Path | None = None
    #: where the readable log ends, in which segment, at which byte
    held: tuple[int, str | None, int] | None = None
    for path, found in log:
        if path != before and isinstance(found, SegmentBatch) and found.crc_ok:
            named, begins = int(path.stem), found.base_offset
            is_cut = named < begins and (before is None or named == end or is_compacted)
            if named != begins and not is_cut:
                misnamed = f"the segment's name says {named}, its first batch begins at {begins}"
                yield (*place, begins, None, None, None, None, True, None, path.name, 0, misnamed)
        before = path
        end = max(end, int(path.stem))
        held = held or (end, path.name, 0)
        if isinstance(found, Gone):
            yield (*place, end, found.end_offset - 1, *_NO_BATCH, False, 0, path.name, 0, _DELETED)
            continue
        if found is None:
            is_far = end > held[0] and not is_compacted
            yield (*place, end, None, None, None, None, None if is_far else False, 0, path.name, 0, None)
            if is_compacted:
                held = (end, path.name, 0)  # the batches before it may be gone
            continue
        if isinstance(found, Torn):
            of_batch: tuple[Any, ...] = (end, None, None, None, None)
            rest: tuple[Any, ...] = (None, path.name, found.position, found.reason)
            unreadable.append(_Unreadable(of_batch, rest, found.is_blank))
            continue
        of_batch = (found.base_offset, found.last_offset, found.leader_epoch, found.crc, found.crc_ok)
        rest = (found.record_count, path.name, found.position, None if found.crc_ok else _CRC_PROBLEM)
        if not found.crc_ok:
            unreadable.append(_Unreadable(of_batch, rest, found.is_blank))
            continue
        yield from _rows_before_a_batch(place, unreadable, stored)
        unreadable.clear()
        yield (*place, *of_batch, False, *rest)
        end = max(end, found.last_offset + 1)
        readable = max(found.last_offset + 1, held[0])  # batches may be out of order
        held = (readable, path.name, found.position + found.size_bytes)
    if unreadable:
        yield from _rows_at_the_end(place, unreadable, stored)
    else:
        yield from _missing_tail(place, held or (0, None, 0), stored)


def _rows_before_a_batch(
    place: tuple[Any, ...], unreadable: Sequence[_Unreadable], stored: _Stored
) -> Iterator[tuple[Any, ...]]:
    """Of what cannot be read and has a readable batch behind it."""
    last = stored.still() if any(one.is_blank for one in unreadable) else stored
    for one in unreadable:
        is_sure = not one.is_blank or last.has(one.of_batch[0])
        yield (*place, *one.of_batch, True if is_sure else None, *one.rest)


def _rows_at_the_end(
    place: tuple[Any, ...], unreadable: Sequence[_Unreadable], stored: _Stored
) -> Iterator[tuple[Any, ...]]:
    """Of what cannot be read and has nothing behind it: the tail that a power cut leaves and the next start
    truncates, unless it was flushed."""
    last = stored.still()
    for one in unreadable:
        yield (*place, *one.of_batch, last.has(one.of_batch[0]), *one.rest)


def _missing_tail(
    place: tuple[Any, ...], held: tuple[int, str | None, int], stored: _Stored
) -> Iterator[tuple[Any, ...]]:
    """A row where the log ends, when more of it was flushed: damaged after a clean stop, else NULL, as a log
    that began anew when its broker was killed may look so."""
    end, segment, position = held
    if end >= stored.flushed.until:
        return
    last = stored.still()
    if end < last.flushed.until and last.is_at_rest:
        problem = f"the log ends at {end}, and was flushed up to {last.flushed.until}"
        is_damaged = True if last.flushed.is_closed else None
        yield (*place, end, None, None, None, None, is_damaged, None, segment, position, problem)


def _record_rows(
    place: tuple[Any, ...], found: SegmentBatch | Torn | Gone | None, segment: str
) -> Iterator[tuple[Any, ...]]:
    if isinstance(found, Torn):
        yield (*place, None, None, None, None, None, segment, found.position, found.reason)
        return
    if found is None or isinstance(found, Gone) or found.is_control:
        return
    problem: str | None = None
    rows: Iterable[SegmentRow] = ()
    if found.crc_ok:
        try:
            rows = batch_records(found)
        except Undecodable as error:
            problem = str(error)
    else:
        problem = _CRC_PROBLEM
    if problem is not None:
        offsets = range(found.base_offset, found.last_offset + 1)
        # one by one: a damaged header may say millions
        rows = (SegmentRow(offset, found.base_timestamp_ms, None, None) for offset in offsets)
    for row in rows:
        yield (
            *place, row.offset, found.leader_epoch, row.key, row.value,
            found.crc_ok, segment, found.position, problem,
        )  # fmt: skip


def _to_arrow(rows: list[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(list(column), field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
