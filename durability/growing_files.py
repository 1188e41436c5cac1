"""Files that are read as they grow, by streams: ledgers and what consumers were given.

Owns which bytes of which file are new, and which files are none that can be followed; what the bytes say is
the sources' business.
"""

from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql.datasource import DataSourceStreamReader

from holdfast.durability.arrow_ledger import may_go_on_at, whole_end
from holdfast.durability.ledger_files import UnreadableLedger, is_arrow, is_packed

#: Enough for some lines.
_TAIL_BYTES = 64 << 10


class GrowingFilesReader(DataSourceStreamReader):
    """Follows files as they are written, and those that appear; a line, or batch, is read when it is whole.

    An offset is {file: bytes}. Packed files are whole already: they are read once, when they appear. A file
    that was read and is gone, is shorter, or has no line's end (an Arrow one: no batch) where reading
    stopped, and a packed one of another size, is none that can be followed. A longer file with a line's end
    (a batch) at that very byte is not told from one that has grown.
    """

    def initialOffset(self) -> dict[str, int]:
        return {}

    def latestOffset(self, start: dict[str, int], limit: object) -> dict[str, int]:
        """Raises: UnreadableLedger, OSError."""
        there: set[str] = set()
        ends = dict(start)
        for files in self.files():
            there.update(files)
            for path in files:
                was_read = start.get(path, 0)
                _check_read(path, was_read)
                if (size := whole_lines_end(path, was_read)) > 0:
                    ends[path] = size
        for path in sorted(start.keys() - there):
            raise UnreadableLedger(f"{path}: it was read, and is not there any more")
        return ends

    @abstractmethod
    def files(self) -> Iterator[list[str]]:
        """Those that there are now, by kind; ends of one kind are asked for before the next is looked for.
        Raises: UnreadableLedger."""


def news(start: dict[str, int], end: dict[str, int]) -> list[tuple[str, int, int]]:
    """(file, first byte, end) of what is new."""
    return [
        (path, start.get(path, 0), size) for path, size in sorted(end.items()) if size > start.get(path, 0)
    ]


def _check_read(path: str, was_read: int) -> None:
    """Raises: UnreadableLedger when the file is not the one of which so many bytes were read; OSError."""
    if not was_read:
        return
    size = Path(path).stat().st_size
    if size != was_read if is_packed(path) else size < was_read:
        raise UnreadableLedger(f"{path}: {was_read} bytes of it were read, and it has {size} now")
    if is_packed(path):
        return
    if not (may_go_on_at(path, was_read) if is_arrow(path) else _is_line_end(path, was_read - 1)):
        raise UnreadableLedger(f"{path}: it is not the file of which {was_read} bytes were read")


def _is_line_end(path: str, position: int) -> bool:
    with Path(path).open("rb") as file:
        file.seek(position)
        return file.read(1) == b"\n"


def whole_lines_end(path: str, start: int) -> int:
    """The byte behind the last whole line, or Arrow batch, of a file, `start` when none was added. Raises:
    OSError."""
    if is_arrow(path):
        return whole_end(path, start)
    size = Path(path).stat().st_size
    if is_packed(path):
        return size
    with Path(path).open("rb") as file:
        at = size
        while at > start:
            begin = max(start, at - _TAIL_BYTES)
            file.seek(begin)
            found = file.read(at - begin).rfind(b"\n")
            if found >= 0:
                return begin + found + 1
            at = begin
    return start
