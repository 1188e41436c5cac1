"""Snapshots of producer state beside the segments, so that a start need not read the whole log (R94).

Owns `<offset>.snapshot`: the state of the log below that offset, as JSON. Each segment has one at its
beginning, so that the state of a truncated log can be rebuilt although older segments are deleted. A snapshot
that is unreadable, has another crc than its bytes or lies above the log's end is ignored; the state is then
built from an older one, or from the log alone.
"""

import json
from collections.abc import Container, Mapping, Sequence

import google_crc32c

from holdfast.runtime.api import Disk
from holdfast.storage import checkpoint
from holdfast.storage.core.files import SNAPSHOT_SUFFIX, offset_path, parse_offset_name
from holdfast.storage.core.producer_state import ProducerState
from holdfast.storage.segment import Segment
from holdfast.storage.turn import next_turn

SNAPSHOT_VERSION = 0
#: Headers applied before the event loop gets a turn.
HEADERS_PER_TURN = 1000


def encode(state: ProducerState, offset: int) -> str:
    """The text of a snapshot of everything below `offset`."""
    content = {
        "version": SNAPSHOT_VERSION,
        "offset": offset,
        "whole": state.is_whole,
        "producers": state.rows(),
    }
    text = _text(content)
    return f'{text[:-1]},"crc32c":{_crc(text)}}}'


def decode(text: str | None, offset: int) -> ProducerState | None:
    """The state in a snapshot's text; None when it was not written by `encode`. A text of an earlier build
    has no crc."""
    try:
        content = json.loads(text) if text is not None else None
        if not isinstance(content, dict):
            return None
        if content.get("version") != SNAPSHOT_VERSION or content.get("offset") != offset:
            return None
        if "crc32c" in content and content.pop("crc32c") != _crc(_text(content)):
            return None
        # Older builds did not store whether they had dropped producers.
        return ProducerState.from_rows(content["producers"], is_whole=content.get("whole") is True)
    except (KeyError, TypeError, ValueError):
        return None


def _text(content: Mapping[str, object]) -> str:
    return json.dumps(content, separators=(",", ":"))


def _crc(text: str) -> int:
    return int(google_crc32c.value(text.encode()))


async def offsets(disk: Disk, folder: str) -> list[int]:
    """Offsets of all snapshots in the folder, ascending. Raises: DiskError."""
    names = await disk.listdir(folder)
    return sorted(
        offset for name in names if (offset := parse_offset_name(name, SNAPSHOT_SUFFIX)) is not None
    )


async def write(disk: Disk, folder: str, offset: int, text: str, bases: Container[int]) -> None:
    """Store a snapshot durably; then delete older ones that are not at a segment's beginning (`bases`).

    Raises: DiskError.
    """
    await checkpoint.write_atomically(disk, offset_path(folder, offset, SNAPSHOT_SUFFIX), text)
    for old in await offsets(disk, folder):
        if old < offset and old not in bases:
            await disk.unlink(offset_path(folder, old, SNAPSHOT_SUFFIX))


async def drop_above(disk: Disk, folder: str, offset: int) -> bool:
    """Unlink snapshots above `offset`; True when there were some. Does not sync the folder."""
    above = [found for found in await offsets(disk, folder) if found > offset]
    for found in above:
        await disk.unlink(offset_path(folder, found, SNAPSHOT_SUFFIX))
    return bool(above)


async def drop_all(disk: Disk, folder: str) -> None:
    """Unlink every snapshot durably, before a log starts again. Raises: DiskError."""
    if await drop_above(disk, folder, -1):
        await disk.sync_folder(folder)


async def drop_below(disk: Disk, folder: str, offset: int) -> None:
    """Unlink snapshots of deleted segments. Does not sync the folder. Raises: DiskError."""
    for found in await offsets(disk, folder):
        if found < offset:
            await disk.unlink(offset_path(folder, found, SNAPSHOT_SUFFIX))


async def load(disk: Disk, folder: str, segments: Sequence[Segment]) -> ProducerState:
    """The state of the whole log: the newest usable snapshot, and the headers of the batches after it.

    Raises: DiskError.
    """
    start, end = segments[0].base_offset, segments[-1].next_offset
    state, built_to = ProducerState(is_whole=start == 0), start
    for offset in reversed(await offsets(disk, folder)):
        if start <= offset <= end:
            text = await checkpoint.read_text(disk, offset_path(folder, offset, SNAPSHOT_SUFFIX))
            found = decode(text, offset)
            if found is not None:
                state, built_to = found, offset
                break
    applied = 0
    for segment in segments:
        if segment.next_offset <= built_to:
            continue
        position = segment.position_of(max(built_to, segment.base_offset))
        for _, header in segment.headers(position, segment.size):
            state.apply(header, header.base_offset)
            applied += 1
            if applied % HEADERS_PER_TURN == 0:
                await next_turn()
    return state
