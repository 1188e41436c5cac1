"""Opens the segments of a log: trusts, scans and truncates them (R86).

Owns which bytes of a log folder are kept. After a clean stop, and below the recovery point, a segment is
trusted if its index is valid. Everything else is read batch by batch, and the log keeps exactly the prefix
before the first invalid batch: bad crc, zeros, cut short, wrong offset, falling epoch (A-22). It never
searches for valid batches after that one: what follows a hole was not reported as flushed. What is kept is
durable on return, so that a second crash cannot lose it. All that was for bytes that may never have reached
the disk: an invalid batch or a missing segment in what was flushed is damage. Then nothing is cut, and the
log is refused: CorruptLog. A segment that lies within the one before it was merged into that one by the
cleaner, and is deleted; one that begins there and goes on behind it, or whose leader epochs are not those of
that place, is damage, which no crash leaves.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast.protocol.frames import FRAME_MAX_BYTES
from holdfast.protocol.record_batch import HEADER_SIZE, CorruptBatch, check_batch, parse_header
from holdfast.runtime.api import Disk, DiskError, File
from holdfast.storage import snapshots
from holdfast.storage.core.config import LogConfig
from holdfast.storage.core.faults import CorruptLog
from holdfast.storage.core.files import (
    CLEANED_SUFFIX,
    INDEX_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    offset_path,
    parse_offset_name,
)
from holdfast.storage.core.leader_epoch_cache import EpochEntry
from holdfast.storage.segment import Segment, segment_paths
from holdfast.storage.turn import next_turn

#: Bytes that a scan reads at once; the event loop gets a turn after each read.
SCAN_BYTES = 1 << 20
#: A longer batch does not fit into a frame: its length field is damaged.
BATCH_MAX_BYTES = FRAME_MAX_BYTES

_log = logging.getLogger("holdfast.storage")


@dataclass(slots=True)
class RecoveryReport:
    """What opening a log found and did; for log lines and tests."""

    scanned_bytes: int = 0
    #: bytes removed after the last valid batch, including dropped segments
    dropped_bytes: int = 0
    dropped_segments: int = 0
    #: why the log ends where it does; None when every byte was valid
    reason: str | None = None
    #: names in the folder that are none of its segments and indexes
    other_names: tuple[str, ...] = ()


@dataclass(slots=True)
class RecoveredSegments:
    """All segments of a log in order, without gaps; at least one."""

    segments: list[Segment]
    report: RecoveryReport
    #: base offsets of the segments that were scanned
    scanned: list[int] = field(default_factory=list)
    #: (epoch, first offset in it) of the scanned segments, an entry at each change within a segment
    scanned_epochs: list[EpochEntry] = field(default_factory=list)
    #: no segment could be kept
    is_new: bool = False


async def open_segments(
    disk: Disk,
    folder: str,
    config: LogConfig,
    *,
    clean: bool,
    recovery_point: int,
    log_start_offset: int,
    history_start: int = -1,
    durable_offset: int = 0,
    may_begin_later: bool = False,
) -> RecoveredSegments:
    """Open every segment of a folder. Without segments, or when all of them end below `log_start_offset`, the
    log begins there, empty: a reset was interrupted. Segments that end at or below `history_start`, the first
    offset in the leader epochs (-1 for none), were being deleted. A log that would end below `durable_offset`
    is damaged, and is not touched; so is one whose first segment is missing, unless it `may_begin_later`, for
    the caller to judge. Raises: DiskError, CorruptLog (no file is open then)."""
    must_hold = max(recovery_point, durable_offset)
    bases, other_names = await _base_offsets(disk, folder)
    found = RecoveredSegments([], RecoveryReport(other_names=other_names))
    merged: list[int] = []
    try:
        names_changed = await _drop_cleaned(disk, folder, other_names)
        names_changed |= await _finish_deletion(disk, folder, bases, history_start)
        if clean or not may_begin_later or history_start < recovery_point:
            _check_beginning(folder, bases, clean=clean, history_start=history_start)
        for base_offset in tuple(bases):
            number = len(found.segments)
            expected = found.segments[-1].next_offset if found.segments else base_offset
            if await _was_merged(disk, folder, base_offset, found, clean, must_hold):
                merged.append(base_offset)
                bases.remove(base_offset)
                continue
            if base_offset != expected:
                found.report.reason = f"segment {base_offset} should begin at {expected}"
                if clean or base_offset < expected or expected < must_hold:
                    raise CorruptLog(folder, 0, found.report.reason)
                break
            segment = await Segment.open(disk, folder, base_offset, config.index_interval_bytes)
            found.segments.append(segment)
            # `<`: a flush up to this segment's end does not include its index, a flush after the roll does.
            is_flushed = clean or (number + 1 < len(bases) and bases[number + 1] < recovery_point)
            if is_flushed and segment.adopt():
                continue
            await _scan(found, segment, None if clean else must_hold)
            if found.report.reason is not None:
                break
        end_offset = found.segments[-1].next_offset if found.segments else 0
        if end_offset < durable_offset:
            story = f"ends at offset {end_offset}: {found.report.reason or 'its tail is cut off'}"
            raise CorruptLog(folder, 0, story)
        is_below = bool(found.segments) and found.segments[-1].next_offset < log_start_offset
        if is_below and clean:
            story = f"ends at {found.segments[-1].next_offset}, below its start {log_start_offset}"
            raise CorruptLog(folder, 0, story)
    except DiskError:
        for segment in found.segments:
            await segment.close()
        raise
    for base_offset in merged:
        await _unlink(disk, folder, base_offset)
        names_changed = True
    dropped = bases[len(found.segments) :]
    if is_below:
        dropped = bases
        for segment in found.segments:
            await segment.close()
        found.segments.clear()
        found.scanned.clear()
        found.scanned_epochs.clear()
    if dropped:
        await _drop(disk, folder, dropped, found.report)
        names_changed = True
    if not found.segments:
        await _forget_history(disk, folder)
        found.is_new = True
        found.segments.append(await Segment.open(disk, folder, log_start_offset, config.index_interval_bytes))
        names_changed = True
    await _make_durable(disk, folder, found, names_changed)
    return found


def _check_beginning(folder: str, bases: list[int], *, clean: bool, history_start: int) -> None:
    """Retention stores the epochs before it deletes the segments below, and a reset deletes the first segment
    last, so the first segment begins no later than they say; a log that was closed with records has a
    segment. Raises: CorruptLog."""
    if bases and bases[0] > history_start >= 0:
        raise CorruptLog(folder, 0, f"begins at {bases[0]}, its segment at {history_start} is missing")
    if clean and not bases and history_start >= 0:
        raise CorruptLog(folder, 0, "all its segments are missing")


async def _base_offsets(disk: Disk, folder: str) -> tuple[list[int], tuple[str, ...]]:
    """Base offsets of all segments, and the names of other files; deletes index files without a log file."""
    names = await disk.listdir(folder)
    bases = [base for name in names if (base := parse_offset_name(name, LOG_SUFFIX)) is not None]
    known = frozenset(bases)
    for name in names:
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            base = parse_offset_name(name, suffix)
            if base is not None and base not in known:
                await disk.unlink(f"{folder}/{name}")
    segments = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX)
    return sorted(bases), tuple(name for name in names if not name.endswith(segments))


async def _drop_cleaned(disk: Disk, folder: str, names: tuple[str, ...]) -> bool:
    """Delete what a cleaning has left that did not come to its end; True when there was something."""
    left = [name for name in names if name.endswith(CLEANED_SUFFIX)]
    for name in left:
        await disk.unlink(f"{folder}/{name}")
    return bool(left)


async def _finish_deletion(disk: Disk, folder: str, bases: list[int], history_start: int) -> bool:
    """Finish a deletion by retention that a stop interrupted, also across a gap; True when there was one."""
    is_some = False
    while len(bases) > 1 and bases[1] <= history_start:
        await _unlink(disk, folder, bases.pop(0))
        is_some = True
    return is_some


async def _unlink(disk: Disk, folder: str, base_offset: int) -> None:
    """Delete what there is of a segment."""
    for path in segment_paths(folder, base_offset):
        if await disk.exists(path):
            await disk.unlink(path)


def _holds_others(segment: Segment) -> bool:
    """It ends where it seems to: its last batch, whose crc covers how many offsets it has, says so. Then what
    begins within it was merged into it. Raises: DiskError."""
    position = segment.position_of(segment.next_offset - 1)
    try:
        check_batch(segment.log.read_at(position, segment.size - position))
    except CorruptBatch:
        return False
    return True


async def _was_merged(
    disk: Disk, folder: str, base_offset: int, found: RecoveredSegments, clean: bool, must_hold: int
) -> bool:
    """A segment lies within the last one so far as a whole, and may be of the same log by its epochs. What is
    no batch counts for none from `must_hold` on, as it may never have reached the disk, but not after a clean
    stop; below, the segment might have gone on. Raises: DiskError."""
    before = found.segments[-1] if found.segments else None
    if before is None or base_offset >= before.next_offset or not _holds_others(before):
        return False
    file = await disk.open(offset_path(folder, base_offset, LOG_SUFFIX), create=False)
    try:
        inner, is_whole = await _spans_of(file, 0, base_offset)
        end_offset = inner[-1].end_offset if inner else base_offset
        position = before.position_of(base_offset)
        # Epochs only rise: what lies behind the first batch there is of no lower one.
        outer, _ = await _spans_of(before.log, position, before.base_offset, end_offset)
    except DiskError:
        await file.close()
        raise
    await file.close()
    if end_offset > before.next_offset or not may_be_of_one_log(inner, outer):
        return False
    return is_whole or (not clean and end_offset >= must_hold)


class EpochSpan(NamedTuple):
    """Batches behind each other in a file that are of one leader epoch."""

    epoch: int
    start_offset: int
    end_offset: int


def may_be_of_one_log(some: Iterable[EpochSpan], others: Sequence[EpochSpan]) -> bool:
    """No offset of an epoch lies behind one of a later epoch."""
    return all(
        one.epoch == other.epoch
        or (
            (one.end_offset <= other.start_offset) == (one.epoch < other.epoch)
            and (other.end_offset <= one.start_offset) == (other.epoch < one.epoch)
        )
        for one in some
        for other in others
    )


async def _spans_of(
    file: File, position: int, next_offset: int, last_offset: int | None = None
) -> tuple[list[EpochSpan], bool]:
    """The batches from a position on, none of which begins below `next_offset`, by their headers, up to the
    first one that begins at or behind `last_offset`; and that nothing else is there. Raises: DiskError."""
    spans: list[EpochSpan] = []
    file_size = file.size
    try:
        while position < file_size:
            await next_turn()
            chunk, at = file.read_at(position, SCAN_BYTES), 0
            while at < len(chunk) and (at == 0 or at + HEADER_SIZE <= len(chunk)):
                header = parse_header(chunk, at)
                if header.base_offset < next_offset or position + at + header.size_bytes > file_size:
                    return spans, False
                at += header.size_bytes
                start_offset, next_offset = header.base_offset, header.next_offset
                if spans and spans[-1].epoch == header.leader_epoch:
                    start_offset = spans.pop().start_offset
                spans.append(EpochSpan(header.leader_epoch, start_offset, next_offset))
                if last_offset is not None and header.base_offset >= last_offset:
                    return spans, True
            position += at
    except CorruptBatch:
        return spans, False
    return spans, True


async def _forget_history(disk: Disk, folder: str) -> None:
    """Delete snapshots and epochs of an earlier log, whose reset was interrupted. A snapshot may lie at just
    the offset where the new log begins (R94). Durable before the new log exists."""
    await snapshots.drop_all(disk, folder)
    epochs = f"{folder}/{LEADER_EPOCH_CHECKPOINT}"
    if await disk.exists(epochs):
        await disk.unlink(epochs)
        await disk.sync_folder(folder)


async def _scan(found: RecoveredSegments, segment: Segment, must_hold: int | None) -> None:
    """Read a segment from its beginning, record every valid batch, cut the file after the last one. Raises:
    CorruptLog when a batch below `must_hold` is invalid, with None at any offset."""
    await segment.restart()
    # Only what is on the disk counts, not what the page cache shows: the last process may have ended after a
    # failed flush, whose pages look written since then. This also flushes: valid bytes may be in the
    # page cache only, if the process ended and not the machine.
    await segment.log.drop_cache()
    file_size = segment.log.size
    last_epoch = found.segments[-2].last_epoch if len(found.segments) > 1 else -1
    found.scanned.append(segment.base_offset)
    epoch_in_segment = None
    chunk, chunk_start = b"", 0
    try:
        while segment.size < file_size:
            at = segment.size - chunk_start
            if not _holds_batch(chunk, at):
                # A batch may be longer than a chunk; then all of it is read.
                await next_turn()
                chunk_start, at = segment.size, 0
                chunk = segment.log.read_at(chunk_start, SCAN_BYTES)
                size_bytes = parse_header(chunk).size_bytes
                if size_bytes > min(BATCH_MAX_BYTES, file_size - segment.size):
                    raise CorruptBatch(f"has {size_bytes} bytes, {file_size - segment.size} are left")
                if size_bytes > len(chunk):
                    chunk = segment.log.read_at(chunk_start, size_bytes)
            header = check_batch(chunk, at)
            if header.base_offset != segment.next_offset:
                raise CorruptBatch(f"offset {header.base_offset}, expected {segment.next_offset}")
            if header.leader_epoch < last_epoch:
                raise CorruptBatch(f"epoch {header.leader_epoch} after {last_epoch}")
            last_epoch = header.leader_epoch
            if last_epoch != epoch_in_segment:
                epoch_in_segment = last_epoch
                found.scanned_epochs.append(EpochEntry(last_epoch, header.base_offset))
            segment.note_as_it_is(header)
    except CorruptBatch as error:
        if must_hold is None or segment.next_offset < must_hold:
            raise segment.broken(str(error), segment.size) from error
        found.report.reason = f"{segment.log.path} at byte {segment.size}: {error}"
        found.report.dropped_bytes += file_size - segment.size
    found.report.scanned_bytes += segment.size
    if segment.size < file_size:
        await segment.cut_file()
        await segment.log.flush()
    segment.flushed_size = segment.size


def _holds_batch(chunk: bytes, at: int) -> bool:
    """True when the chunk holds the whole batch at `at`, according to its header."""
    try:
        return at + parse_header(chunk, at).size_bytes <= len(chunk)
    except CorruptBatch:
        return False


async def _drop(disk: Disk, folder: str, bases: list[int], report: RecoveryReport) -> None:
    """Unlink whole segments, the newest first, so that a crash in between leaves a log without gaps; the last
    one when the others are gone durably, as it may be the log's first."""
    for base_offset in reversed(bases):
        if base_offset == bases[0] and len(bases) > 1:
            await disk.sync_folder(folder)
        _log.warning(
            "%s: dropping segment %d: %s", folder, base_offset, report.reason or "below the log start"
        )
        report.dropped_segments += 1
        for path in segment_paths(folder, base_offset):
            if not await disk.exists(path):
                continue
            if path.endswith(LOG_SUFFIX):
                file = await disk.open(path, create=False)
                report.dropped_bytes += file.size
                await file.close()
            await disk.unlink(path)


async def _make_durable(disk: Disk, folder: str, found: RecoveredSegments, names_changed: bool) -> None:
    """Make names and indexes durable; the scan has flushed the logs (R86). The last segment's index is
    flushed when that is rolled or closed, as usual."""
    scanned = frozenset(found.scanned)
    for segment in found.segments[:-1]:
        if segment.base_offset in scanned:
            await segment.flush_whole()
    if names_changed or scanned:
        await disk.sync_folder(folder)
