"""Ledgers as Arrow streams say what the same JSON lines say; a cut end claims nothing, damage is named."""

import io
import json
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra `spark`")

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadAllAvailable

from holdfast.client.core.arrow_rows import ArrowRows
from holdfast.client.core.history import RowWriter, SentFields
from holdfast.client.core.outcomes import DeliveryOutcome
from holdfast.client.ledger import JsonRows
from holdfast.durability import ledger_source
from holdfast.durability.arrow_ledger import CutTail, _Source, read_batches, run_of, whole_end
from holdfast.durability.digest_jobs import ledger_sums
from holdfast.durability.ledger import line_of, topics_named
from holdfast.durability.ledger_files import (
    FIELDS,
    UnreadableLedger,
    ledger_files,
    passed_over,
    sound_rows,
    text_bytes,
)
from holdfast.durability.ledger_lines import COMPLETE, INVOKE, PAIR, PROBLEM, TORN, LedgerRange, read_rows
from holdfast.durability.ledger_source import LedgerStreamReader, plan
from tests.unit.durability.arrow_files import COLUMNS, arrow_batches, write_arrow

ROWS = RowWriter("run", "p")
SENDS = [ROWS.invoke(n, "t", 0, 1000 + n, -1, 10 + n) for n in range(4)]
ANSWERS = [ROWS.complete([n], "t", 0, DeliveryOutcome.OK, 50 + n, 3, None, 20 + n) for n in range(4)]
PAIRS = [line for pair in zip(SENDS, ANSWERS, strict=True) for line in pair]


def rows_of(path: Path) -> list[dict[str, Any]]:
    run = run_of(str(path)) if path.suffix == ".arrows" else "run"
    wanted = LedgerRange(str(path), 0, path.stat().st_size, run)
    rows = [row for batch in read_rows([wanted]) for row in batch.to_pylist()]
    return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))


def said(path: Path, kind: int) -> list[str]:
    return [row["run"] for row in rows_of(path) if row["kind"] == kind]


def fill(rows: Any) -> bytes:
    """What producers write of a run in which everything happens, in two writes."""
    place = ("t", 0)
    whole, bare = SentFields(5, 6, 7), SentFields(5)
    first = [
        rows.invoke(0, *place, 100, -1, 10, whole),
        rows.invoke(1, *place, 101, -1, 11, bare),
        rows.invoke(2, "t", 1, 102, 1, 12, bare),
        rows.complete([0, 1], *place, DeliveryOutcome.OK, 50, 3, None, 20, bytes(15) + b"\x07"),
    ]
    second = [
        rows.invoke(3, *place, 103, -1, 13),
        rows.invoke(4, "u", 0, 104, -1, 14, bare),
        rows.invoke(5, "u", 0, 105, 0, 14, bare),
        rows.complete([2], "t", 1, DeliveryOutcome.OK1, 9, 3, None, 21),
        rows.complete([3], *place, DeliveryOutcome.INFO, -1, -1, "REQUEST_TIMED_OUT", 22),
        rows.complete([4], "u", 0, DeliveryOutcome.FAIL, -1, -1, "NOT_LEADER_OR_FOLLOWER", 23),
    ]
    return bytes(rows.joined(first) + rows.joined(second))


def test_both_formats_say_the_same(tmp_path: Path) -> None:
    lines, batches = tmp_path / "a.jsonl", tmp_path / "a.arrows"
    lines.write_bytes(fill(JsonRows("run", "p")))
    batches.write_bytes(fill(ArrowRows("run", "p")))
    assert rows_of(batches) == rows_of(lines)
    assert topics_named([str(batches)]) == {"t", "u"}
    sums = [ledger_sums(None, {str(path): path.stat().st_size}) for path in (lines, batches)]
    assert sums[0] == sums[1]


def test_rows_of_any_writer_of_arrow_are_read(tmp_path: Path) -> None:
    lines = tmp_path / "a.jsonl"
    lines.write_text("".join(PAIRS))
    assert rows_of(write_arrow(tmp_path / "a.arrows", PAIRS, len(PAIRS))) == rows_of(lines)


def test_every_cut_leaves_the_whole_batches_and_the_cut_one_is_named(tmp_path: Path) -> None:
    """As `kill -9` in a write, or a power loss, leaves a file: at any byte."""
    parts = arrow_batches(PAIRS, 4)
    data, path = b"".join(parts), tmp_path / "a.arrows"
    ends = [sum(map(len, parts[:count])) for count in range(len(parts) + 1)]
    for size in range(len(data) + 1):
        path.write_bytes(data[:size])
        whole = sum(end <= size for end in ends) - 1
        cut = "" if size in ends else f"{path}, batch at byte {ends[whole]}"
        assert positions(path) == (ends[1:-1][: max(0, whole - 1)], cut), size
        assert whole_end(str(path), 0) == (ends[whole] if whole > 1 else 0), size


def positions(path: Path) -> tuple[list[int], str]:
    """(bytes at which whole batches begin, where a cut one does)."""
    found: list[int] = []
    try:
        found.extend(batch.position for batch in read_batches(str(path)))
    except CutTail as error:
        return found, str(error)
    return found, ""


def test_a_cut_batch_is_said_and_the_others_are_read(tmp_path: Path) -> None:
    parts, path = arrow_batches(PAIRS, 2), tmp_path / "a.arrows"
    path.write_bytes(b"".join(parts)[:-9])
    assert [row["pseq"] for row in rows_of(path) if row["kind"] == PAIR] == [0, 1, 2]
    place = f"{path}, batch at byte {sum(map(len, parts[:-1]))}"
    assert (said(path, TORN), said(path, PROBLEM)) == ([place], [])


def test_a_batch_that_was_not_whole_when_the_size_was_looked_up_is_cut(tmp_path: Path) -> None:
    """A closer look, at a ledger that grows, sees no more than the first."""
    parts, path = arrow_batches(PAIRS, 2), tmp_path / "a.arrows"
    path.write_bytes(b"".join(parts))
    size = sum(map(len, parts[:3]))
    wanted = LedgerRange(str(path), 0, size + 9, "run")
    rows = [row for batch in read_rows([wanted]) for row in batch.to_pylist()]
    assert [row["pseq"] for row in rows if row["kind"] == PAIR] == [0, 1]
    assert [row["run"] for row in rows if row["kind"] == TORN] == [f"{path}, batch at byte {size}"]


@pytest.mark.parametrize("whole", [0, 3])
def test_a_message_that_becomes_whole_while_it_is_read_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: int
) -> None:
    parts, path = arrow_batches(PAIRS, 2), tmp_path / "a.arrows"
    size = sum(map(len, parts[:whole]))
    path.write_bytes(b"".join(parts)[: size + 99])
    read = _Source.read

    def read_and_grow(source: _Source, wanted: int) -> bytes:
        data = read(source, wanted)
        if source.is_short:
            path.write_bytes(b"".join(parts))
        return data

    monkeypatch.setattr(_Source, "read", read_and_grow)
    found, cut = positions(path)
    assert (len(found), cut) == (max(0, whole - 1), f"{path}, batch at byte {size}")


def after(data: bytes) -> Callable[[list[bytes]], bytes]:
    return lambda parts: b"".join(parts) + data


def in_third(start: int, data: bytes, end: int | None = None) -> Callable[[list[bytes]], bytes]:
    """Other bytes in the second batch."""
    return lambda parts: b"".join([*parts[:2], parts[2][:start] + data + parts[2][end:], *parts[3:]])


def one_schema(**columns: pa.DataType) -> Callable[[list[bytes]], bytes]:
    names = {"run": b"run", "producer": b"p"}
    schema = pa.schema(list((COLUMNS | columns).items()), metadata=names)
    return lambda parts: b"".join([schema.serialize().to_pybytes(), *parts[1:]])


END = b"\xff\xff\xff\xff" + bytes(4)
DAMAGE: dict[str, tuple[Callable[[list[bytes]], bytes], int, str]] = {
    "nothing": (after(b""), 0, ""),
    "the end of a stream": (after(END), 0, ""),
    "zeros behind it": (after(bytes(64)), TORN, "batch at byte "),
    "zeros behind the end": (after(END + bytes(64)), PROBLEM, "the stream has ended there, and goes on"),
    "a batch behind the end": (
        lambda parts: b"".join([*parts[:-1], END, parts[-1]]), PROBLEM,
        "the stream has ended there, and goes on",
    ),
    "other bytes behind it": (after(b"what is this?"), PROBLEM, "batch at byte "),
    "a few other bytes behind it": (after(b"x"), PROBLEM, "batch at byte "),
    "zeros in the middle": (in_third(0, bytes(64), 64), PROBLEM, "batch at byte "),
    "a piece in the middle": (in_third(0, b"", 16), PROBLEM, "batch at byte "),
    "an end that is missing in the middle": (in_third(-16, b""), PROBLEM, "batch at byte "),
    "an odd number of bytes missing": (in_third(-13, b""), PROBLEM, "batch at byte "),
    "a longer description in the middle": (
        in_third(4, (1 << 15).to_bytes(4, "little"), 8), PROBLEM, "and a whole one is behind it at byte ",
    ),
    "a description longer than any": (in_third(4, b"\xff\xff\xff\x0f", 8), PROBLEM, "batch at byte "),
    "no schema": (lambda parts: b"".join(parts[1:]), PROBLEM, "does not begin as an Arrow stream"),
    "text": (lambda parts: "".join(PAIRS).encode(), PROBLEM, "batch at byte 0: "),
    "other columns": (
        lambda parts: pa.schema([("kind", pa.int8())]).serialize().to_pybytes(), PROBLEM,
        "its columns are not those of a ledger",
    ),
    "a column of another type": (
        one_schema(acks=pa.int64()), PROBLEM, "its columns are not those of a ledger",
    ),
    "no names": (
        lambda parts: b"".join([pa.schema(list(COLUMNS.items())).serialize().to_pybytes(), *parts[1:]]),
        PROBLEM, "its schema does not name run and producer",
    ),
    "a second schema": (lambda parts: b"".join([*parts, parts[0]]), PROBLEM, "is not RecordBatch"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGE)
def test_what_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    damage, kind, text = DAMAGE[name]
    path = tmp_path / "a.arrows"
    path.write_bytes(damage(arrow_batches(PAIRS, 2)))
    found = {one: said(path, one) for one in (TORN, PROBLEM)}
    assert [len(found[one]) for one in (TORN, PROBLEM)] == [kind == TORN, kind == PROBLEM]
    assert all(one.startswith(str(path)) and text in one for texts in found.values() for one in texts), found


def with_field(line: str, **fields: Any) -> str:
    return json.dumps(json.loads(line) | fields)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (with_field(SENDS[1], kind="sent"), "kind None: expected invoke or complete"),
        (with_field(SENDS[1], kind=None), "kind None"),
        (with_field(SENDS[1], pseq=None), "no pseq"),
        (with_field(SENDS[1], pseq=-1), "pseq -1 cannot be"),
        (with_field(SENDS[1], topic=None), "no topic"),
        (with_field(SENDS[1], partition=None), "no partition"),
        (with_field(SENDS[1], partition=-1), "partition -1 cannot be"),
        (with_field(SENDS[1], acks=None), "acks None: expected -1, 0 or 1"),
        (with_field(SENDS[1], acks=2), "acks 2: expected -1, 0 or 1"),
        (with_field(SENDS[1], value_crc32c=None), "value_crc32c None cannot be"),
        (with_field(SENDS[1], value_crc32c=1 << 32), "value_crc32c 4294967296 cannot be"),
        (with_field(SENDS[1], key_crc32c=7), "key_crc32c without timestamp_ms"),
        (with_field(ANSWERS[0], outcome="acked"), "outcome None: expected one of ok, ok1, info, fail"),
        (with_field(ANSWERS[0], offset=None), "acknowledged without an offset"),
        (with_field(ANSWERS[0], offset=-1), "acknowledged without an offset"),
        (with_field(ANSWERS[0], outcome="ok1", offset=-7), "offset -7 cannot be"),
        (with_field(ANSWERS[0], outcome="info"), "outcome info with offset 50"),
    ],
)
def test_a_row_that_is_none_is_named_and_the_others_are_read(tmp_path: Path, line: str, problem: str) -> None:
    lines = [SENDS[3], SENDS[0], line, SENDS[2], ANSWERS[2]]
    path = write_arrow(tmp_path / "a.arrows", lines, 5)
    (found,) = said(path, PROBLEM)
    start = len(arrow_batches(lines)[0])
    assert found.startswith(f"{path}, row 3 of the batch at byte {start}: {problem}"), found
    sends = [row["pseq"] for row in rows_of(path) if row["kind"] in (INVOKE, PAIR)]
    assert sorted(sends) == [0, 2, 3]


# --- as a stream ---------------------------------------------------------------------------------------


def read_on(folder: Path, start: dict[str, int]) -> tuple[dict[str, int], list[Any]]:
    """(the next offset, numbers of sends and texts of problems up to there)."""
    reader = LedgerStreamReader(str(folder))
    end: dict[str, Any] = json.loads(json.dumps(reader.latestOffset(start, ReadAllAvailable())))
    rows = [
        row
        for part in reader.partitions(start, end)
        for batch in reader.read(part)
        for row in batch.to_pylist()
    ]
    return end, [row["run"] if row["kind"] == PROBLEM else row["pseq"] for row in rows if row["pseq"] != -7]


def test_a_batch_is_followed_once_and_when_it_is_whole(tmp_path: Path) -> None:
    parts, path = arrow_batches(SENDS, 1), tmp_path / "run.p.1.arrows"
    path.write_bytes(b"")
    offset, found = read_on(tmp_path, {})
    assert (offset, found) == ({}, [])
    seen: list[Any] = []
    for size in range(1, sum(map(len, parts)) + 1, 50):
        path.write_bytes(b"".join(parts)[:size])
        offset, found = read_on(tmp_path, offset)
        seen += found
    path.write_bytes(b"".join(parts))
    offset, found = read_on(tmp_path, offset)
    assert seen + found == [0, 1, 2, 3]
    assert read_on(tmp_path, offset) == (offset, [])


def test_damage_is_told_to_who_follows(tmp_path: Path) -> None:
    parts, path = arrow_batches(SENDS, 1), tmp_path / "run.p.1.arrows"
    path.write_bytes(b"".join([*parts[:2], parts[2][:-16], *parts[3:]]))
    offset, found = read_on(tmp_path, {})
    assert found[0] == 0 or found[-1] == 0
    assert [one for one in found if isinstance(one, str)] != []
    assert read_on(tmp_path, offset) == (offset, [])


@pytest.mark.parametrize("is_longer", [False, True])
def test_another_file_in_place_of_the_one_that_was_read_is_followed_no_further(
    tmp_path: Path, is_longer: bool
) -> None:
    path = write_arrow(tmp_path / "run.p.1.arrows", SENDS, 1)
    offset, _ = read_on(tmp_path, {})
    write_arrow(path, PAIRS if is_longer else SENDS[:2], 2)
    text = "it is not the file of which" if is_longer else "bytes of it were read, and it has"
    with pytest.raises(UnreadableLedger, match=rf"run\.p\.1\.arrows: .*{text}"):
        read_on(tmp_path, offset)


# --- files ---------------------------------------------------------------------------------------------


def test_arrow_files_are_ledgers_and_places_in_them_are_found(tmp_path: Path) -> None:
    path = write_arrow(tmp_path / "a.arrows", PAIRS, 2)
    (tmp_path / "b.arrows.gz").write_bytes(b"packed")
    assert ledger_files(str(tmp_path)) == [str(path)]
    assert passed_over(str(tmp_path)) == [str(tmp_path / "b.arrows.gz")]
    parts = arrow_batches(PAIRS, 2)
    place = f"{path}, row 2 of the batch at byte {len(parts[0]) + len(parts[1])}"
    assert line_of([str(path)], "run", "p", 1, "t") == place
    assert line_of([str(path)], "run", "p", 9, "t") == str(path)
    assert run_of(str(path)) == "run"


def test_what_an_arrow_ledger_would_take_as_lines_is_more_than_it_takes(tmp_path: Path) -> None:
    batches, lines = write_arrow(tmp_path / "a.arrows", PAIRS), tmp_path / "a.jsonl"
    lines.write_text("".join(PAIRS))
    sizes = {str(path): path.stat().st_size for path in (lines, batches)}
    assert text_bytes({str(lines): sizes[str(lines)]}) == sizes[str(lines)]
    assert text_bytes(sizes) > sizes[str(lines)] + 2 * sizes[str(batches)]


# --- large files ---------------------------------------------------------------------------------------


@pytest.fixture
def _small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_source, "RANGE_BYTES_MIN", 1 << 13)


def planned(path: Path) -> list[tuple[int, int]]:
    ranges = [wanted for part in plan({str(path): path.stat().st_size}, 1000) for wanted in part]
    return [(wanted.start, wanted.end) for wanted in ranges]


def read_in_ranges(path: Path) -> list[dict[str, Any]]:
    parts = plan({str(path): path.stat().st_size}, 1000)
    rows = [
        row for part in parts for wanted in part for batch in read_rows([wanted]) for row in batch.to_pylist()
    ]
    of_lines = [row for row in rows if row["kind"] in (INVOKE, COMPLETE, PAIR, TORN, PROBLEM)]
    return sorted(of_lines, key=lambda row: json.dumps(row, sort_keys=True))


@pytest.mark.usefixtures("_small_ranges")
@pytest.mark.parametrize("codec", [None, "lz4"])
def test_a_large_file_is_cut_where_batches_begin_and_says_the_same(tmp_path: Path, codec: str | None) -> None:
    path, sink = tmp_path / "a.arrows", io.BytesIO(b"".join(arrow_batches(PAIRS * 40, 70)))
    reader = pa.ipc.open_stream(sink)
    with pa.ipc.new_stream(path, reader.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as stream:
        for batch in reader:
            stream.write_batch(batch)
    ranges = planned(path)
    assert len(ranges) >= 3
    assert ranges == [*pairwise([0, *(start for start, _ in ranges[1:]), path.stat().st_size])]
    assert {start for start, _ in ranges[1:]} <= set(positions(path)[0])
    expected = [row for row in rows_of(path) if row["kind"] in (INVOKE, COMPLETE, PAIR)]
    assert read_in_ranges(path) == expected


@pytest.mark.usefixtures("_small_ranges")
@pytest.mark.parametrize("place", ["marker", "size", "description", "body", "cut", "gone", "zeros"])
def test_damage_in_a_large_file_is_told_as_in_a_small_one(tmp_path: Path, place: str) -> None:
    parts, path = arrow_batches(PAIRS * 5, 2), tmp_path / "a.arrows"
    at, data = sum(map(len, parts[:11])), bytearray(b"".join(parts))
    if place == "cut":
        del data[-9:]
    elif place == "zeros":
        data[at:] = bytes(len(data) - at)
    elif place == "gone":
        del data[at + 300 : at + 400]
    else:
        where = at + {"marker": 1, "size": 6, "description": 40, "body": len(parts[11]) - 60}[place]
        data[where : where + 8] = b"\x99" * 8
    path.write_bytes(bytes(data))

    def told(rows: list[dict[str, Any]]) -> list[tuple[int, str]]:
        return [(row["kind"], row["run"]) for row in rows if row["kind"] in (TORN, PROBLEM)]

    assert len(planned(path)) >= 3
    assert told(read_in_ranges(path)) == told(rows_of(path))


# --- the plain reader ----------------------------------------------------------------------------------


def test_the_plain_reader_reads_the_same_rows(tmp_path: Path) -> None:
    lines, batches = tmp_path / "a.jsonl", tmp_path / "a.arrows"
    lines.write_bytes(fill(JsonRows("run", "p")))
    batches.write_bytes(fill(ArrowRows("run", "p")))

    def plain(path: Path) -> list[dict[str, Any]]:
        rows = [{name: row.get(name) for name in FIELDS} for _, row in sound_rows(str(path))]
        return sorted(rows, key=lambda row: (row["pseq"], row["kind"]))

    assert plain(batches) == plain(lines)


def test_the_plain_reader_takes_a_cut_end_and_refuses_damage(tmp_path: Path) -> None:
    parts, path = arrow_batches(PAIRS, 2), tmp_path / "a.arrows"
    path.write_bytes(b"".join(parts)[:-9])
    assert [row["pseq"] for _, row in sound_rows(str(path))] == [0, 0, 1, 1, 2, 2]
    path.write_bytes(b"".join(parts) + b"what is this?")
    with pytest.raises(UnreadableLedger, match=rf"a\.arrows, batch at byte {len(b''.join(parts))}: "):
        list(sound_rows(str(path)))
    write_arrow(path, [SENDS[0], with_field(ANSWERS[0], offset=None)])
    with pytest.raises(
        UnreadableLedger, match=r"row 2 of the batch at byte \d+: acknowledged without an off"
    ):
        list(sound_rows(str(path)))


def test_the_plain_reader_without_pyarrow_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_arrow(tmp_path / "a.arrows", PAIRS)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "holdfast.durability.arrow_ledger")
    with pytest.raises(UnreadableLedger, match=r"a\.arrows: an Arrow ledger needs pyarrow"):
        list(sound_rows(str(path)))
