"""Each line of a ledger becomes part of a send, or is named with its file and number; none disappears."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra `spark`")

import pyarrow as pa

from holdfast.client.core.history import RowWriter, SentFields
from holdfast.client.core.outcomes import DeliveryOutcome
from holdfast.durability import ledger_lines
from holdfast.durability.ledger_files import first_run
from holdfast.durability.ledger_lines import (
    COMPLETE,
    INVOKE,
    ORDER,
    PAIR,
    PROBLEM,
    TOPIC_ID,
    TORN,
    LedgerRange,
    read_lines,
    read_rows,
    surely_in_order,
)

ROWS = RowWriter("run", "p")
SENDS = [ROWS.invoke(n, "t", 0, 1000 + n, -1, 10 + n) for n in range(4)]
ANSWERS = [ROWS.complete([n], "t", 0, DeliveryOutcome.OK, 50 + n, 3, None, 20 + n) for n in range(4)]


def rows_of(path: Path, *cuts: int) -> list[dict[str, Any]]:
    """The rows of a file that is read in ranges which end at `cuts`."""
    ends = [*cuts, path.stat().st_size]
    run = first_run(str(path))
    return [
        row
        for start, end in zip([0, *ends[:-1]], ends, strict=True)
        for batch in read_rows([LedgerRange(str(path), start, end, run)])
        for row in batch.to_pylist()
        if row["kind"] != ORDER
    ]


def is_in_order(path: Path, *cuts: int) -> bool:
    ends = [*cuts, path.stat().st_size]
    run = first_run(str(path))
    return surely_in_order(
        row["run"]
        for start, end in zip([0, *ends[:-1]], ends, strict=True)
        for batch in read_rows([LedgerRange(str(path), start, end, run)])
        for row in batch.to_pylist()
        if row["kind"] == ORDER
    )


def answer(pseq: int, offset: int, partition: int = 0, rows: RowWriter = ROWS) -> str:
    return rows.complete([pseq], "t", partition, DeliveryOutcome.OK, offset, 3, None, 2)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], True),
        ([answer(0, 5), answer(1, 6), answer(3, 9)], True),
        ([answer(1, 6), answer(0, 5)], True),
        ([answer(0, 6), answer(1, 5)], False),
        ([answer(0, 5), answer(1, 5)], False),
        ([answer(0, 5), answer(0, 6)], False),
        ([answer(0, 6), answer(1, 5, 1), answer(2, 7)], True),
        ([answer(0, 6), answer(1, 5, 1), answer(2, 4, 1)], False),
        ([answer(0, 6), ROWS.complete([1], "t", 0, DeliveryOutcome.INFO, -1, -1, "E", 2)], True),
    ],
)
def test_the_order_of_answers_is_known_without_a_sort_of_all_sends(
    tmp_path: Path, lines: list[str], expected: bool
) -> None:
    path = written(tmp_path, "".join(lines))
    assert is_in_order(path) is expected
    if lines:
        assert is_in_order(path, len(lines[0])) is expected, "each range says its part"


def written(folder: Path, text: str) -> Path:
    path = folder / "run.p.jsonl"
    path.write_text(text)
    return path


def test_a_send_and_its_answer_are_one_row(tmp_path: Path) -> None:
    (row,) = rows_of(written(tmp_path, SENDS[2] + ANSWERS[2]))
    assert row == {
        "kind": PAIR, "run": "run", "producer": "p", "pseq": 2, "topic": "t", "partition": 0,
        "value_crc32c": 1002, "acks": -1, "outcome": 1, "offset": 52, "leader_epoch": 3, "t0": 12, "t1": 22,
        "timestamp_ms": None, "key_crc32c": None, "headers_crc32c": None,
    }  # fmt: skip
    told = ROWS.invoke(2, "t", 0, 1002, -1, 12, SentFields(5, 6, 7))
    assert rows_of(written(tmp_path, told + ANSWERS[2])) == [
        row | {"timestamp_ms": 5, "key_crc32c": 6, "headers_crc32c": 7}
    ]


@pytest.mark.parametrize("packed", [False, True])
def test_every_cut_of_a_file_gives_every_line_once(tmp_path: Path, packed: bool) -> None:
    text = "".join(send + answer for send, answer in zip(SENDS, ANSWERS, strict=True)) + SENDS[3].replace(
        '"pseq":3', '"pseq":9'
    )
    if packed:
        path = tmp_path / "run.p.jsonl.gz"
        path.write_bytes(gzip.compress(text.encode()))
        cuts: list[tuple[int, ...]] = [()]
    else:
        path = written(tmp_path, text)
        cuts = [(cut,) for cut in range(1, len(text), 7)]
    for cut in cuts:
        rows = rows_of(path, *cut)
        sends = sorted(row["pseq"] for row in rows if row["kind"] in (INVOKE, PAIR))
        answers = sorted(row["pseq"] for row in rows if row["kind"] in (COMPLETE, PAIR))
        assert (sends, answers) == ([0, 1, 2, 3, 9], [0, 1, 2, 3]), cut
        assert {row["kind"] for row in rows} <= {INVOKE, COMPLETE, PAIR}


@pytest.mark.parametrize(
    "lines",
    [
        SENDS[0] + SENDS[0] + ANSWERS[0],
        SENDS[0] + ANSWERS[0] + ANSWERS[0],
        SENDS[0] + ANSWERS[0].replace('"partition":0', '"partition":1'),
        SENDS[0] + ANSWERS[0].replace('"topic":"t"', '"topic":"u"'),
    ],
)
def test_lines_that_repeat_or_disagree_stay_apart(tmp_path: Path, lines: str) -> None:
    kinds = [row["kind"] for row in rows_of(written(tmp_path, lines))]
    assert PAIR not in kinds
    assert len(kinds) == lines.count("\n")


def with_field(line: str, **fields: Any) -> str:
    row = json.loads(line) | fields
    return json.dumps({name: value for name, value in row.items() if value is not ...}) + "\n"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("no line\n", "no JSON: no line"),
        ("[1]\n", "no JSON object"),
        ("17\n", "no JSON object"),
        ('{"kind":"invoke",\n', "no JSON"),
        ("\0\0\0\n", "no JSON"),
        (SENDS[1].replace('"acks":-1', '"acks":-1,"acks":1'), "says acks twice"),
        (with_field(SENDS[1], kind="sent"), "kind 'sent': expected invoke or complete"),
        (with_field(SENDS[1], kind=...), "kind None"),
        (with_field(SENDS[1], run="other"), "is of run other, the file begins with run run"),
        (with_field(SENDS[1], key_crc32c=7), "key_crc32c without timestamp_ms"),
        (with_field(SENDS[1], timestamp_ms=1, headers_crc32c=-1), "headers_crc32c -1 cannot be"),
        (with_field(SENDS[1], timestamp_ms="now"), "timestamp_ms is no whole number of 64 bits"),
        (with_field(SENDS[1], pseq=...), "no pseq"),
        (with_field(SENDS[1], pseq="1"), "pseq is no whole number of 64 bits"),
        (with_field(SENDS[1], pseq=1.5), "pseq is no whole number"),
        (with_field(SENDS[1], pseq=-1), "pseq -1 cannot be"),
        (with_field(SENDS[1], topic=None), "no topic"),
        (with_field(SENDS[1], topic=""), "no topic"),
        (with_field(SENDS[1], producer=""), "no producer"),
        (with_field(ANSWERS[1], leader_epoch=-2), "leader_epoch -2 cannot be"),
        (with_field(SENDS[1], topic=7), "topic is no text"),
        (with_field(SENDS[1], partition=-1), "partition -1 cannot be"),
        (with_field(SENDS[1], partition=1 << 31), "partition is no whole number of 32 bits"),
        (with_field(SENDS[1], acks=...), "acks None: expected -1, 0 or 1"),
        (with_field(SENDS[1], acks="all"), "acks is no whole number"),
        (with_field(SENDS[1], acks=2), "acks 2: expected -1, 0 or 1"),
        (with_field(SENDS[1], value_crc32c=...), "value_crc32c None cannot be"),
        (with_field(SENDS[1], value_crc32c=1 << 32), "value_crc32c 4294967296 cannot be"),
        (with_field(ANSWERS[0], outcome="acked"), "outcome 'acked': expected one of ok, ok1, info, fail"),
        (with_field(ANSWERS[0], outcome=...), "outcome None"),
        (with_field(ANSWERS[0], offset=-1), "acknowledged without an offset"),
        (with_field(ANSWERS[0], offset=...), "acknowledged without an offset"),
        (with_field(ANSWERS[0], outcome="ok1", offset=-7), "offset -7 cannot be"),
        (with_field(ANSWERS[0], outcome="info"), "outcome info with offset 50"),
        (with_field(ANSWERS[0], outcome="fail"), "outcome fail with offset 50"),
        (with_field(ANSWERS[0], partition=...), "no partition"),
    ],
)
def test_a_line_that_is_none_is_named_and_the_others_are_read(
    tmp_path: Path, line: str, problem: str
) -> None:
    path = written(tmp_path, SENDS[0] + line + SENDS[2] + ANSWERS[2])
    rows = rows_of(path)
    (found,) = [row["run"] for row in rows if row["kind"] == PROBLEM]
    assert found.startswith(f"{path}, line 2: {problem}"), found
    assert sorted(row["pseq"] for row in rows if row["kind"] in (INVOKE, PAIR)) == [0, 2]


NO_UTF_8 = {"a byte": b"\xff", "half a pair as bytes": b"\xed\xa0\x80"}
NO_TEXT = NO_UTF_8 | {"half a pair, escaped": b"\\ud800"}


@pytest.mark.parametrize("end", [b"\n", b""], ids=["within", "at the end of the file"])
@pytest.mark.parametrize("field", ["run", "producer", "topic"])
@pytest.mark.parametrize("text", NO_TEXT.values(), ids=NO_TEXT)
@pytest.mark.parametrize("line", [SENDS[1], ANSWERS[1]], ids=["a send", "an answer"])
def test_a_line_whose_text_is_no_unicode_is_named(
    tmp_path: Path, line: str, text: bytes, field: str, end: bytes
) -> None:
    path = tmp_path / "run.p.jsonl"
    head = f'"{field}":"'.encode()
    path.write_bytes(SENDS[0].encode() + line.encode().rstrip().replace(head, head + text) + end)
    (found,) = [row["run"] for row in rows_of(path) if row["kind"] == PROBLEM]
    reason = "no JSON: " if text in NO_UTF_8.values() else "half a surrogate pair in its text: "
    assert found.startswith(f"{path}, line 2: {reason}"), found


@pytest.mark.parametrize("text", NO_TEXT.values(), ids=NO_TEXT)
def test_a_ledger_all_of_whose_text_is_no_unicode_is_named(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "run.p.jsonl"
    path.write_bytes("".join(SENDS + ANSWERS).encode().replace(b'"run":"run"', b'"run":"' + text + b'"'))
    run = first_run(str(path))
    assert run is None
    for read in (read_rows, read_lines):
        (found,) = read([LedgerRange(str(path), 0, path.stat().st_size, run)])
        assert isinstance(found, pa.RecordBatch)
        assert found.column("kind").to_pylist() == [PROBLEM] * 8


def test_a_name_that_is_no_unicode_may_be_said_twice(tmp_path: Path) -> None:
    text = SENDS[1].replace('"acks":', r'"\ud800":1,"\ud800":2,"acks":')
    (found,) = [row["run"] for row in rows_of(written(tmp_path, SENDS[0] + text)) if row["kind"] == PROBLEM]
    assert r"line 2: says \ud800 twice: " in found


def test_text_beyond_the_first_plane_may_be_escaped(tmp_path: Path) -> None:
    line = SENDS[1].replace('"producer":"p"', r'"producer":"\ud83d\ude00"')
    assert [row["producer"] for row in rows_of(written(tmp_path, SENDS[0] + line))] == ["p", "\U0001f600"]


def test_two_objects_on_one_line_are_both_read(tmp_path: Path) -> None:
    rows = rows_of(written(tmp_path, SENDS[0] + SENDS[1].rstrip() + ANSWERS[1]))
    assert [(row["kind"], row["pseq"]) for row in rows] == [(PAIR, 1), (INVOKE, 0)]


@pytest.mark.parametrize(
    ("tail", "is_torn"),
    [
        ('{"kind":"comp', True),
        ("\0" * 20, True),
        ('{"kind":"\0\0', True),
        ('{"long":"' + "x" * 10_000, True),
        ("  ", False),
        ("", False),
        (ANSWERS[0].rstrip("\n"), False),
    ],
)
def test_only_the_end_of_a_file_may_be_cut(tmp_path: Path, tail: str, is_torn: bool) -> None:
    path = written(tmp_path, SENDS[0] + tail)
    assert [row["run"] for row in rows_of(path) if row["kind"] == TORN] == [f"{path}, line 2"] * is_torn
    rows = rows_of(written(tmp_path, SENDS[0] + tail + "\n" + SENDS[1]))
    assert [row["run"].partition(": ")[0] for row in rows if row["kind"] == PROBLEM] == (
        [f"{path}, line 2"] * is_torn
    )


@pytest.mark.parametrize("tail", ["17", "[]", "rubbish", '[{"kind":"invoke"', f"[{ANSWERS[0].rstrip()}]"])
def test_a_last_line_that_no_crash_leaves_is_named(tmp_path: Path, tail: str) -> None:
    path = written(tmp_path, SENDS[0] + tail)
    (found,) = [row["run"] for row in rows_of(path) if row["kind"] in (PROBLEM, TORN)]
    assert found.startswith(f"{path}, line 2: no JSON")


def test_lines_are_counted_from_the_beginning_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_lines, "BLOCK_BYTES", 300)
    path = written(tmp_path, "".join(SENDS) + "\n" + "".join(ANSWERS) + "nothing\n" + SENDS[0])
    (found,) = [row["run"] for row in rows_of(path, 250) if row["kind"] == PROBLEM]
    assert found == f"{path}, line 10: no JSON: nothing"


def test_packed_bytes_that_end_too_early_are_no_cut_line(tmp_path: Path) -> None:
    """The rest of them may be any number of lines."""
    path = tmp_path / "run.p.jsonl.gz"
    path.write_bytes(gzip.compress("".join(SENDS).encode())[:-12])
    (found,) = [row["run"] for row in rows_of(path) if row["kind"] == PROBLEM]
    assert found.startswith(f"{path}: cannot be unpacked from byte 0 of its text on: ")


def test_a_topic_id_is_said_once(tmp_path: Path) -> None:
    answers = [
        ROWS.complete([n], "t", 0, DeliveryOutcome.OK, n, 3, None, 9, topic_id=bytes(15) + b"\x07")
        for n in (0, 1)
    ]
    rows = rows_of(written(tmp_path, SENDS[0] + SENDS[1] + "".join(answers)))
    assert [(row["topic"], row["run"]) for row in rows if row["kind"] == TOPIC_ID] == [
        ("t", "AAAAAAAAAAAAAAAAAAAABw")
    ]


# --- many files ----------------------------------------------------------------------------------------


def write_many(folder: Path, count: int, run: str = "run") -> list[Path]:
    """Files of a producer each, with two sends and their answers."""
    made = []
    for number in range(count):
        rows, path = RowWriter(run, f"p{number}"), folder / f"{run}.p{number}.jsonl"
        sends = [rows.invoke(pseq, "t", pseq, 1000 + number, -1, 10) for pseq in range(2)]
        path.write_text("".join(sends + [answer(pseq, number, pseq, rows) for pseq in range(2)]))
        made.append(path)
    return made


def range_of(path: Path) -> LedgerRange:
    return LedgerRange(str(path), 0, path.stat().st_size, first_run(str(path)))


def sums_of(row: dict[str, Any]) -> tuple[int, int, int]:
    """(sends, answers, offsets)."""
    return row["kind"] in (INVOKE, PAIR), row["kind"] in (COMPLETE, PAIR), row["offset"] or 0


@pytest.mark.parametrize("read", [read_rows, read_lines])
def test_small_files_are_parsed_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Any) -> None:
    blocks: list[bytes] = []
    parse = ledger_lines._parsed

    def parsed(data: bytes) -> Any:
        blocks.append(data)
        return parse(data)

    monkeypatch.setattr(ledger_lines, "_parsed", parsed)
    files = [*write_many(tmp_path, 30), *write_many(tmp_path, 30, "other")]
    rows = [row for batch in read([range_of(path) for path in files]) for row in batch.to_pylist()]
    found = [row for row in rows if row["kind"] in (INVOKE, COMPLETE, PAIR)]
    assert len(blocks) == 2, "one for each run"
    assert [sum(item) for item in zip(*map(sums_of, found), strict=True)] == [120, 120, 120 * 29 // 2]


@pytest.mark.parametrize("read", [read_rows, read_lines])
def test_what_is_wrong_with_one_of_many_small_files_is_told_of_that_file(tmp_path: Path, read: Any) -> None:
    files = write_many(tmp_path, 5)
    with files[1].open("a") as file:
        file.write("nothing\n")
    with files[3].open("a") as file:
        file.write('{"kind":"comp')
    rows = [row for batch in read([range_of(path) for path in files]) for row in batch.to_pylist()]
    assert [row["run"] for row in rows if row["kind"] == PROBLEM] == [f"{files[1]}, line 5: no JSON: nothing"]
    assert [row["run"] for row in rows if row["kind"] == TORN] == [f"{files[3]}, line 5"]
    producers = {row["producer"] for row in rows if row["kind"] in (INVOKE, COMPLETE, PAIR)}
    assert producers == {f"p{number}" for number in range(5)}


@pytest.mark.parametrize("read", [read_rows, read_lines])
@pytest.mark.parametrize(("offset", "expected"), [(7, True), (5, False), (4, False)])
def test_lines_of_several_producers_tell_of_each_whether_it_is_in_order(
    tmp_path: Path, offset: int, expected: bool, read: Any
) -> None:
    other = RowWriter("run", "q")
    lines = [answer(0, 5), answer(0, 90, rows=other), answer(1, 6, 1, other), answer(2, offset), answer(3, 8)]
    path = written(tmp_path, "".join(lines))
    rows = [row for batch in read([range_of(path)]) for row in batch.to_pylist()]
    assert surely_in_order(row["run"] for row in rows if row["kind"] == ORDER) is expected


def test_what_is_said_of_the_order_of_many_blocks_is_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_lines, "BLOCK_BYTES", 300)
    monkeypatch.setattr(ledger_lines, "_FEW_BYTES", 0)
    path = written(tmp_path, "".join(answer(n, n) for n in range(50)))
    (said,) = [
        row["run"]
        for batch in read_rows([range_of(path)])
        for row in batch.to_pylist()
        if row["kind"] == ORDER
    ]
    assert json.loads(said) == [["p", "t", 0, 0, 49, 0, 49, True]]
