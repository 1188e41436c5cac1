"""Small files that are old or new, never half: written beside, flushed, renamed, folder synced (R87).

Owns that order and Kafka's line format (version, number of rows, rows), with a crc32c in one more line: these
files are derived, and one whose bytes have changed is read as unreadable. Does not decide what an unreadable
file means: readers get `None` and assume the worst.
"""

import posixpath
from collections.abc import Iterable, Mapping, Sequence

import google_crc32c

from holdfast.runtime.api import Disk, DiskError, File, FileMissing, OutOfResources
from holdfast.storage.shortage import stored
from holdfast.storage.turn import next_turn

#: Ending of the file that is written before it is renamed to the real one.
TEMPORARY_SUFFIX = ".tmp"
#: Version of the line format, in the first line of each file.
FORMAT_VERSION = 0
#: Largest small file that is read; a bigger one is not one of these.
SMALL_FILE_MAX_BYTES = 64 << 20

OFFSETS_COLUMNS = 3
#: Rows of offsets that are encoded before the event loop gets a turn.
ROWS_PER_TURN = 4_000
#: First word of the last line; the second is the crc32c of all bytes before that line.
_CRC_WORD = "crc32c"


async def write_atomically(disk: Disk, path: str, text: str) -> None:
    """Replace the file at `path`, so that after a power loss it has either the old or the new text.

    Durable on return. Calls for one path must not overlap. Raises: DiskError.
    """
    await replace(disk, path, text)
    await disk.sync_folder(posixpath.dirname(path))


async def replace(disk: Disk, path: str, text: str) -> None:
    """Like `write_atomically`, but the new file survives a power loss only after its folder was synced.
    Raises: DiskError."""
    temporary = path + TEMPORARY_SUFFIX
    file = await disk.open(temporary, create=True)
    try:
        if file.size:  # a stop interrupted an earlier write
            await file.truncate(0)
        content = text.encode()
        await stored(file, lambda: file.append([content]))
        await file.flush()
    except DiskError:
        await file.close()
        raise
    await file.close()
    await disk.rename(temporary, path)


async def read_text(disk: Disk, path: str) -> str | None:
    """The text of the file; None when it is missing, not UTF-8 or too large. Raises: DiskError."""
    try:
        file = await disk.open(path, create=False)
    except FileMissing:
        return None
    size = file.size
    try:
        content = await _content(file, size) if size <= SMALL_FILE_MAX_BYTES else None
    except DiskError:
        await file.close()
        raise
    await file.close()
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


async def _content(file: File, size: int) -> bytes:
    try:
        return file.read_at(0, size)
    except OutOfResources:
        return await file.read_aside(0, size)  # which waits for a handle


def encode_rows(rows: Iterable[Sequence[object]]) -> str:
    """Encode rows in Kafka's line format: version, count, one row per line, words separated by a blank; then
    the crc."""
    return _text([" ".join(map(str, row)) for row in rows])


def _text(lines: Sequence[str]) -> str:
    text = "\n".join([str(FORMAT_VERSION), str(len(lines)), *lines]) + "\n"
    return f"{text}{_crc_line(text)}\n"


def decode_rows(text: str, columns: int) -> list[list[str]] | None:
    """The words of each row; None when the text is not what `encode_rows` writes. A text without the crc was
    written by an earlier build, or by Kafka."""
    lines = text.split("\n")
    if len(lines) > 1 and lines[-2].startswith(_CRC_WORD):
        crc_line = lines.pop(-2)
        if crc_line != _crc_line("\n".join(lines)):
            return None
    if len(lines) < 3 or lines[0] != str(FORMAT_VERSION) or lines[-1] or lines[1] != str(len(lines) - 3):
        return None
    rows = [line.split(" ") for line in lines[2:-1]]
    return rows if all(len(row) == columns for row in rows) else None


def _crc_line(text: str) -> str:
    return f"{_CRC_WORD} {google_crc32c.value(text.encode()):08x}"


def decode_numbers(text: str, columns: int) -> list[tuple[int, ...]] | None:
    """Rows of numbers; None when the text has anything else."""
    rows = decode_rows(text, columns)
    if rows is None:
        return None
    try:
        return [tuple(map(int, row)) for row in rows]
    except ValueError:
        return None


async def write_offsets(disk: Disk, path: str, offsets: Mapping[tuple[str, int], int]) -> None:
    """Store `{(topic, partition_index): offset}`, one line `topic partition offset` each. Raises:
    DiskError."""
    rows = sorted(offsets.items())
    lines: list[str] = []
    for start in range(0, len(rows), ROWS_PER_TURN):
        if start:
            await next_turn()
        part = rows[start : start + ROWS_PER_TURN]
        lines += [f"{topic} {partition} {offset}" for (topic, partition), offset in part]
    await write_atomically(disk, path, _text(lines))


async def read_offsets(disk: Disk, path: str) -> dict[tuple[str, int], int]:
    """Read what `write_offsets` stored; empty when the file is missing or unreadable, so that nothing counts
    as flushed. Raises: DiskError."""
    text = await read_text(disk, path)
    rows = decode_rows(text, OFFSETS_COLUMNS) if text is not None else None
    offsets: dict[tuple[str, int], int] = {}
    try:
        for topic, partition, offset in rows or ():
            offsets[topic, int(partition)] = int(offset)
    except ValueError:
        return {}
    return offsets
