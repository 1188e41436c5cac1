"""`leader-epoch-checkpoint`: the leader epoch cache on disk, and how it is reconciled with the log (R85).

Owns the file. Where they differ, the batches win. The cache is truncated to the log's end, uses the scan's
epochs where segments were scanned, is compared with the first and last batch of every other segment and with
the batches on both sides of each change, and is rebuilt from all headers when anything differs (D8). The
epoch of the record right below the log start is stored only here; its row comes first and twice, which no two
entries can. Never truncates a log.
"""

from bisect import bisect_right
from collections.abc import Iterable
from itertools import pairwise

from holdfast.protocol.record_batch import BatchHeader
from holdfast.runtime.api import Disk
from holdfast.storage import checkpoint
from holdfast.storage.core.files import LEADER_EPOCH_CHECKPOINT
from holdfast.storage.core.leader_epoch_cache import EpochEntry, LeaderEpochCache
from holdfast.storage.recovery import RecoveredSegments
from holdfast.storage.segment import Segment
from holdfast.storage.turn import next_turn

_COLUMNS = 2
#: Headers read before the event loop gets a turn.
_HEADERS_PER_TURN = 1000


async def store_epochs(disk: Disk, folder: str, cache: LeaderEpochCache) -> None:
    """Replace the file durably. Raises: DiskError."""
    text = checkpoint.encode_rows(_rows(cache))
    await checkpoint.write_atomically(disk, f"{folder}/{LEADER_EPOCH_CHECKPOINT}", text)


async def read_epochs(disk: Disk, folder: str) -> list[EpochEntry]:
    """The rows of the file; none when it is missing or unreadable. Raises: DiskError."""
    text = await checkpoint.read_text(disk, f"{folder}/{LEADER_EPOCH_CHECKPOINT}")
    rows = checkpoint.decode_numbers(text, _COLUMNS) if text is not None else None
    return [EpochEntry(*row) for row in rows or ()]


async def load_epochs(
    disk: Disk, folder: str, in_file: list[EpochEntry], found: RecoveredSegments
) -> LeaderEpochCache:
    """The cache that agrees with the log, stored again if the file differed. Raises: DiskError."""
    below, entries = _divided(in_file)
    if found.is_new or (below is not None and below.start_offset != found.segments[0].base_offset):
        below = None
    cache = _merge(entries, below, found)
    if cache is None or not _agrees(cache, found.segments):
        cache = await _rebuild(found.segments, below)
    if _rows(cache) != in_file:
        await store_epochs(disk, folder, cache)
    return LeaderEpochCache(cache.entries, cache.below)


def _rows(cache: LeaderEpochCache) -> list[EpochEntry]:
    below = [cache.below] * 2 if cache.below is not None else []
    return [*below, *cache.entries]


def _divided(rows: list[EpochEntry]) -> tuple[EpochEntry | None, list[EpochEntry]]:
    if len(rows) > 1 and rows[0] == rows[1]:
        return rows[0], rows[2:]
    return None, rows


def _merge(
    in_file: Iterable[EpochEntry], below: EpochEntry | None, found: RecoveredSegments
) -> LeaderEpochCache | None:
    """The file's entries up to where the scan began and the scan's after that; None when they do not rise.

    Entries below the first segment belong to another log: retention stores the log start before it deletes,
    and a reset (R83) may be interrupted before the file is written.
    """
    begin = found.segments[0].base_offset
    end = found.scanned[0] if found.scanned else found.segments[-1].next_offset
    entries = [entry for entry in in_file if begin <= entry.start_offset < end]
    for entry in found.scanned_epochs:
        if not entries or entries[-1].epoch != entry.epoch:
            entries.append(entry)
    for before, after in pairwise(entries):
        if after.epoch <= before.epoch or after.start_offset <= before.start_offset:
            return None
    return LeaderEpochCache(entries, below)


def _agrees(cache: LeaderEpochCache, segments: list[Segment]) -> bool:
    """Each segment begins and ends in the epoch of the cache, and each epoch begins at a batch of its own,
    behind a batch of the one before: as epochs never fall, all others agree then. Raises: DiskError."""
    return all(_agrees_at_ends(cache, segment) for segment in segments) and all(
        _begins_there(entry, before, segments)
        for entry, before in zip(cache.entries, [None, *cache.entries], strict=False)
    )


def _agrees_at_ends(cache: LeaderEpochCache, segment: Segment) -> bool:
    first = segment.first_header()
    if first is None:
        return True
    return (
        cache.epoch_at(first.base_offset) == first.leader_epoch
        and cache.epoch_at(segment.next_offset - 1) == segment.last_epoch
    )


def _begins_there(entry: EpochEntry, before: EpochEntry | None, segments: list[Segment]) -> bool:
    header = _header_of(entry.start_offset, segments)
    if header is not None and (header.base_offset, header.leader_epoch) != (entry.start_offset, entry.epoch):
        return False
    last = None if before is None else _header_of(entry.start_offset - 1, segments)
    return last is None or before is None or last.leader_epoch == before.epoch


def _header_of(offset: int, segments: list[Segment]) -> BatchHeader | None:
    """The header of the batch that holds an offset; None outside the log."""
    if not segments[0].base_offset <= offset < segments[-1].next_offset:
        return None
    bases = [segment.base_offset for segment in segments]
    return segments[bisect_right(bases, offset) - 1].header_of(offset)


async def _rebuild(segments: list[Segment], below: EpochEntry | None) -> LeaderEpochCache:
    """From the headers. Raises: DiskError, CorruptLog for segments that are whole and not of one log
    (I-18)."""
    cache = LeaderEpochCache(below=below)
    seen, last_epoch = 0, -1
    for segment in segments:
        for position, header in segment.headers(0, segment.size):
            if header.leader_epoch < last_epoch:
                story = (
                    f"epoch {header.leader_epoch} at offset {header.base_offset} falls behind {last_epoch}"
                )
                raise segment.broken(story, position)
            last_epoch = header.leader_epoch
            cache.assign(header.leader_epoch, header.base_offset)
            seen += 1
            if seen % _HEADERS_PER_TURN == 0:
                await next_turn()
    return cache
