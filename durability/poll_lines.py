"""Lines of files of polls, one row a record that a consumer was given, and every line that is none of one.

The format is `client.core.poll_rows`'. Knows nothing of Arrow, which the plain check of tests does without.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from holdfast.durability.ledger_files import (
    CRC_MAX,
    PACKING_ERRORS,
    first_run,
    is_cut,
    is_number,
    is_packed,
    object_of,
    opened,
    problem_of_kinds,
)

#: What a row is that is no record: a line that is none, and a last one that a crash has cut.
PROBLEM, CUT = "problem", "cut"
#: {field of a line: bits}, as in `ledger_files.FIELDS`.
_FIELDS = {
    "kind": 0,
    "run": 0,
    "consumer": 0,
    "session": 0,
    "poll": 63,
    "topic": 0,
    "topic_id": 0,
    "partition": 31,
    "high_watermark": 63,
    "t1": 63,
}
_SHOWN_CHARS = 120


def rows_of_polls(path: str, size: int, start: int = 0) -> Iterator[tuple[Any, ...]]:
    """The rows of a file, columns of `poll_files.POLL_SCHEMA`, in its order; of one that is not packed those
    of its bytes [start, size). Lines behind `start` get numbers above it: they rise through the file.

    Raises: OSError.
    """
    lines = _Lines(first_run(path))
    number = start
    try:
        for number, line in enumerate(_lines_in(path, start, size), start + 1):
            if not line.strip():
                continue
            found = lines.take(line)
            if not isinstance(found, str):
                yield from ((path, number, nth, *row, None, None) for nth, row in enumerate(found))
            elif not line.endswith(b"\n") and is_cut(line):
                yield _said(path, number, CUT, f"{path}, line {number}")
            else:
                shown = line[:_SHOWN_CHARS].decode(errors="replace").rstrip("\n")
                place = f"line {number}" if not start else f"line {number - start} from byte {start}"
                yield _said(path, number, PROBLEM, f"{path}, {place}: {found}: {shown}")
    except PACKING_ERRORS as error:
        yield _said(path, number, PROBLEM, f"{path}: cannot be unpacked: {error}")


def _said(path: str, number: int, remark: str, text: str) -> tuple[Any, ...]:
    return (path, number, *[None] * 15, remark, text)


def _lines_in(path: str, start: int, size: int) -> Iterator[bytes]:
    with opened(path) as file:
        file.seek(start)
        left = size - start
        for line in file:
            if not is_packed(path):
                line = line[:left]
                left -= len(line)
            if line:
                yield line
            if not left and not is_packed(path):
                return


class _Lines:
    """The lines of one file, one after the other."""

    def __init__(self, run: str | None) -> None:
        self._run = run
        #: the last line's, and those before
        self._session: tuple[str, str] | None = None
        self._ended: set[tuple[str, str]] = set()
        self._poll = -1

    def take(self, line: bytes) -> list[tuple[Any, ...]] | str:
        """The columns of its records from `run` to `pseq`; or why it is none of a file of polls."""
        row = object_of(line)
        if isinstance(row, str):
            return row
        if (problem := problem_of_kinds(row, _FIELDS) or _problem_of(row, self._run)) is not None:
            return problem
        session = row["consumer"], row["session"]
        if session != self._session:
            if session in self._ended:
                return f"session {row['session']} goes on behind another one"
            if self._session is not None:
                self._ended.add(self._session)
            self._session, self._poll = session, -1
        if row["poll"] < self._poll:
            return f"poll {row['poll']} after poll {self._poll} of its session"
        self._poll = row["poll"]
        shared = tuple(row.get(name) for name in ("run", "consumer", "session", "poll", "topic", "topic_id"))
        shared += (row["partition"], row.get("high_watermark"), row.get("t1"))
        return [(*shared, *record, *(None,) * (5 - len(record))) for record in row["records"]]


def _problem_of(row: Mapping[str, Any], run: str | None) -> str | None:
    """Why fields of the right kinds are none of a line of this run; None when they are."""
    if row.get("kind") != "poll":
        return f"kind {row.get('kind')!r}: expected poll"
    for name in ("run", "consumer", "session", "poll", "topic", "partition"):
        if row.get(name) is None or row[name] == "":
            return f"no {name}"
    for name, least in (("poll", 0), ("partition", 0), ("high_watermark", -1)):
        number = row.get(name)
        if number is not None and number < least:
            return f"{name} {number} cannot be"
    if run is not None and row["run"] != run:
        return f"is of run {row['run']}, the file begins with run {run}"
    records = row.get("records")
    if not isinstance(records, list):
        return "no records"
    return next((f"record {one!r} cannot be" for one in records if not _is_record(one)), None)


def _is_record(found: Any) -> bool:
    """True of [offset, leader_epoch, value_crc32c], perhaps with producer and pseq behind them."""
    if not isinstance(found, list) or len(found) not in (3, 5):
        return False
    offset, leader_epoch, crc, *name = found
    if not (is_number(offset, 63) and offset >= 0 and is_number(leader_epoch, 31) and leader_epoch >= -1):
        return False
    if crc is None:
        return not name
    if not (is_number(crc, 63) and 0 <= crc <= CRC_MAX):
        return False
    return not name or (
        isinstance(name[0], str) and name[0] != "" and is_number(name[1], 63) and name[1] >= 0
    )
