"""Which files are a ledger's, which lines are lines of it, and what makes all of them no proof (D11).

The one place of these rules: for `holdfast validate`, which reads with Arrow and Spark, and for the plain
check of tests, which has neither. Owns the fields of a line; the format is `client.core.history`'s.
"""

import gzip
import json
import os
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

from holdfast.client.core.poll_rows import SUFFIX as POLLS_SUFFIX

#: What a ledger file of lines is called; `.gz` may follow.
SUFFIXES = (".jsonl", ".ndjson", ".json")
#: What one is called that is an Arrow IPC stream (durability.arrow_ledger).
ARROW_SUFFIX = ".arrows"
#: Words of `outcome`.
OUTCOMES = ("ok", "ok1", "info", "fail")
#: {field of a line: bits of the number beside its sign, 0 for text}; others are ignored.
FIELDS = {
    "kind": 0,
    "run": 0,
    "producer": 0,
    "pseq": 63,
    "topic": 0,
    "partition": 31,
    "value_crc32c": 63,
    "acks": 31,
    "offset": 63,
    "leader_epoch": 31,
    "t0": 63,
    "t1": 63,
    "outcome": 0,
    "topic_id": 0,
    "timestamp_ms": 63,
    "key_crc32c": 63,
    "headers_crc32c": 63,
}
#: Of what a record need not have; only beside `timestamp_ms`, which says that the line tells of them.
OPTIONAL_CRCS = ("key_crc32c", "headers_crc32c")
CRC_MAX = (1 << 32) - 1
#: How many times as large as an Arrow or a packed ledger its rows are as JSON lines, where that matters.
_SAVES = 8
#: Files passed over that are named.
_FILES_MAX = 5
_NAMES = ", ".join(f"*{suffix}" for suffix in (*SUFFIXES, ARROW_SUFFIX))
PACKING_ERRORS = (EOFError, zlib.error, gzip.BadGzipFile)


class UnreadableLedger(Exception):
    """The ledger proves nothing as it is. The text says which part and why."""


class NoLedger(UnreadableLedger):
    """There is no ledger file, or none yet."""


# --- files --------------------------------------------------------------------------------------------


def ledger_files(path: str) -> list[str]:
    """The ledger files at `path`, a file or a folder that is searched all the way down; sorted.

    Raises: NoLedger; UnreadableLedger when they cannot be looked for.
    """
    root = Path(path)
    try:
        found = [root] if root.is_file() else sorted(root.rglob("*"))
        files = [file for file in found if file.is_file() and (file == root or _is_ledger(file))]
    except OSError as error:
        raise UnreadableLedger(f"{path}: cannot be looked into: {error}") from error
    if not files:
        raise NoLedger(f"{path}: no ledger file ({_NAMES}) there")
    return [str(file) for file in files]


def passed_over(path: str) -> list[str]:
    """What in the ledger folder may hold something and is not read: other files, links to folders, links to
    nothing, folders that may not be looked into. What they say is not known."""
    root = Path(path)
    if not root.is_dir():
        return []
    return [str(file) for file in sorted(root.rglob("*")) if _is_passed_over(file)]


def poll_files(path: str) -> list[str]:
    """Files in the ledger folder that say what consumers were given (`durability.poll_files`); sorted.

    Raises: UnreadableLedger when they cannot be looked for.
    """
    root = Path(path)
    try:
        if not root.is_dir():
            return []
        return [str(file) for file in sorted(root.rglob("*")) if file.is_file() and _is_of_polls(file)]
    except OSError as error:
        raise UnreadableLedger(f"{path}: cannot be looked into: {error}") from error


def _is_passed_over(file: Path) -> bool:
    if file.is_dir():
        return file.is_symlink() or not os.access(file, os.R_OK | os.X_OK)
    try:
        if file.is_file():
            return not (_is_ledger(file) or _is_of_polls(file)) and file.stat().st_size > 0
        return bool(file.lstat())
    except FileNotFoundError:
        return False  # it has got another name meanwhile


def _is_ledger(file: Path) -> bool:
    is_of_lines = file.name.removesuffix(".gz").endswith(SUFFIXES) and not _is_of_polls(file)
    return is_of_lines or is_arrow(file.name)


def _is_of_polls(file: Path) -> bool:
    return is_polls(file.name)


def is_polls(path: str) -> bool:
    """True for a file of what a consumer was given, by its name."""
    return path.removesuffix(".gz").endswith(POLLS_SUFFIX)


def doubts_of_files(ledger: str) -> tuple[str, ...]:
    """Of what was passed over, and of what cannot be looked into, as a verdict says it."""
    try:
        others = passed_over(ledger)
    except OSError as error:
        return (f"ledger: cannot be looked into: {error}",)
    if not others:
        return ()
    more = f" and {len(others) - _FILES_MAX} more" if len(others) > _FILES_MAX else ""
    named = ", ".join(others[:_FILES_MAX])
    return (f"ledger: files that are no ledgers by their names were passed over: {named}{more}",)


def first_run(path: str) -> str | None:
    """The run of the file's first line, None when it has none to say. Raises: OSError."""
    try:
        with opened(path) as file:
            row = object_of(file.readline(1 << 20))
    except PACKING_ERRORS:
        return None
    return row["run"] if isinstance(row, dict) and isinstance(row.get("run"), str) else None


def is_packed(path: str) -> bool:
    """True for a file that gzip has packed, by its name."""
    return path.endswith(".gz")


def is_arrow(path: str) -> bool:
    """True for an Arrow IPC stream, by its name."""
    return path.endswith(ARROW_SUFFIX)


def text_bytes(sizes: Mapping[str, int]) -> int:
    """About how many bytes ledgers, {file: bytes}, would take as JSON lines."""
    return sum(size * weight_of(path) for path, size in sizes.items())


def weight_of(path: str) -> int:
    """How many bytes of JSON lines a byte of this file stands for, about."""
    return _SAVES if is_arrow(path) or is_packed(path) else 1


def opened(path: str) -> IO[bytes]:
    """The text of a file, unpacked. Raises: OSError."""
    file: IO[bytes] = gzip.open(path) if is_packed(path) else Path(path).open("rb")  # type: ignore[assignment]
    return file


# --- lines --------------------------------------------------------------------------------------------


def sound_rows(path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(place for people, row) of a file, but for a last line, or batch, that a crash has cut.

    Raises: UnreadableLedger, also for an Arrow ledger without pyarrow; OSError.
    """
    if is_arrow(path):
        try:
            from holdfast.durability.arrow_ledger import sound_batch_rows
        except ImportError as error:
            raise UnreadableLedger(
                f"{path}: an Arrow ledger needs pyarrow (extra `spark`): {error}"
            ) from error
        yield from sound_batch_rows(path)
        return
    run = first_run(path)
    with opened(path) as file:
        try:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                place = f"{path}, line {number}"
                if (problem := problem_of(line, run)) is None:
                    yield place, json.loads(line)
                elif line.endswith(b"\n") or not is_cut(line):
                    raise UnreadableLedger(f"{place}: {problem}")
        except PACKING_ERRORS as error:
            raise UnreadableLedger(f"{path}: cannot be unpacked: {error}") from error


def is_cut(line: bytes) -> bool:
    """True for what a crash may leave of a last line: the beginning of an object, zeros, or both. JSON that
    is whole was not cut, as what it says may be, and no producer begins a line with anything else."""
    text = line.strip(b"\0 \t\r\n")
    if text and not text.startswith(b"{"):
        return False
    try:
        json.loads(line.decode(errors="replace"))
    except RecursionError:
        return False
    except ValueError:
        return True
    return False


def problem_of(line: bytes, run: str | None = None) -> str | None:
    """Why a line is none of a ledger (of this run); None when it is one."""
    row = object_of(line)
    if isinstance(row, str):
        return row
    return problem_of_kinds(row, FIELDS) or problem_of_row(row, run)


def problem_of_kinds(row: Mapping[str, Any], fields: Mapping[str, int]) -> str | None:
    """Which of these fields, as FIELDS has them, is of another kind; None when none is."""
    for name, value in row.items():
        if value is None:
            continue
        bits = fields.get(name)
        if bits == 0 and not isinstance(value, str):
            return f"{name} is no text"
        if bits and not is_number(value, bits):
            return f"{name} is no whole number of {bits + 1} bits"
    return None


def object_of(line: bytes) -> dict[str, Any] | str:
    """The object that a line is, or why it is none."""
    try:
        # of bytes `json` takes half a surrogate pair for text
        row = json.loads(line.decode(), object_pairs_hook=_once)
    except _Twice as error:
        return f"says {_told(str(error))} twice"
    except RecursionError:
        return "JSON that is nested too deeply"
    except ValueError:
        return "no JSON"
    if b"\\u" in line and not _is_unicode(json.dumps(row, ensure_ascii=False)):
        return "half a surrogate pair in its text"
    return row if isinstance(row, dict) else "no JSON object"


def _is_unicode(text: str) -> bool:
    return text.encode(errors="replace").decode() == text


def _told(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()


class _Twice(ValueError):
    """A name occurs twice in an object."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise _Twice(next(name for name in names if names.count(name) > 1))
    return found


def is_number(value: Any, bits: int) -> bool:
    """True of a whole number that so many bits beside its sign can hold."""
    return isinstance(value, int) and not isinstance(value, bool) and -(1 << bits) <= value < 1 << bits


def problem_of_row(row: dict[str, Any], run: str | None = None) -> str | None:
    """Why fields of the right kinds are none of a line, or of one of this run; None when they are."""
    kind = row.get("kind")
    if kind not in ("invoke", "complete"):
        return f"kind {kind!r}: expected invoke or complete"
    for name in ("run", "producer", "pseq", "topic", "partition"):
        if row.get(name) is None or row[name] == "":
            return f"no {name}"
    for name in ("pseq", "partition"):
        if row[name] < 0:
            return f"{name} {row[name]} cannot be"
    if run is not None and row["run"] != run:
        return f"is of run {row['run']}, the file begins with run {run}"
    return _problem_of_send(row) if kind == "invoke" else _problem_of_answer(row)


def _problem_of_send(row: dict[str, Any]) -> str | None:
    if row.get("acks") not in (-1, 0, 1):
        return f"acks {row.get('acks')!r}: expected -1, 0 or 1"
    crc = row.get("value_crc32c")
    if crc is None or not 0 <= crc <= CRC_MAX:
        return f"value_crc32c {crc!r} cannot be"
    for name in OPTIONAL_CRCS:
        crc = row.get(name)
        if crc is not None and row.get("timestamp_ms") is None:
            return f"{name} without timestamp_ms"
        if crc is not None and not 0 <= crc <= CRC_MAX:
            return f"{name} {crc} cannot be"
    return None


def _problem_of_answer(row: dict[str, Any]) -> str | None:
    outcome, offset = row.get("outcome"), row.get("offset")
    if outcome not in OUTCOMES:
        return f"outcome {outcome!r}: expected one of {', '.join(OUTCOMES)}"
    if outcome == "ok" and (offset is None or offset < 0):
        return "acknowledged without an offset"
    if outcome in ("info", "fail") and offset is not None and offset >= 0:
        return f"outcome {outcome} with offset {offset}"
    for name in ("offset", "leader_epoch"):
        number = row.get(name)
        if number is not None and number < -1:
            return f"{name} {number} cannot be"
    return None


# --- lines together -----------------------------------------------------------------------------------


def check_writers(writers: list[tuple[str, str, int, int, str]]) -> None:
    """Values name (producer, pseq) but no run, so two runs must not share names in a topic. `writers` is
    [(topic, producer, first and last pseq, run)]. Raises: UnreadableLedger."""
    for before, after in pairwise(sorted(writers)):
        if before[:2] == after[:2] and after[2] <= before[3]:
            raise UnreadableLedger(
                f"producer {before[1]} has the same numbers in runs {before[4]} and {after[4]}, and values "
                "do not say their run: give producers other names, or each run a topic of its own"
            )


def check_topic_ids(written: Mapping[str, Collection[str]], now: Mapping[str, str]) -> None:
    """`written`: {topic: ids that acknowledged}; `now`: {topic: its id}, in Kafka's text.

    Raises: UnreadableLedger for a ledger of another topic of that name.
    """
    for name, topic_id in sorted(now.items()):
        others = sorted(one for one in written.get(name, ()) if one != topic_id)
        if others:
            raise UnreadableLedger(why_made_again(name, others, topic_id))


def why_made_again(topic: str, written: Iterable[str], now: str) -> str:
    """Why nothing is said of a topic whose id is another now."""
    return (
        f"topic {topic} was deleted and created again: the ledger is of topic id {', '.join(written)}, "
        f"the cluster's is {now}, whose log began anew"
    )
