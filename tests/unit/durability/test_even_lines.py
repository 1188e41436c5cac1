"""Lines of undisturbed sends are read as a JSON reader has them; a block with another line is left to it."""

import json
from collections.abc import Callable

import pytest

pytest.importorskip("pyspark", reason="needs the extra `spark`")

from holdfast.client.core.history import RowWriter, SentFields
from holdfast.client.core.outcomes import DeliveryOutcome
from holdfast.durability.even_lines import EvenLines, read_even_lines

ROWS = RowWriter("run-1", "p.a")
TOPIC_ID = bytes(range(16))
NUMBERS = (0, 7, 10, 123_456_789)
COLUMNS = {"sends": ("pseq", "partition", "value_crc32c"), "answers": ("pseq", "partition", "offset")}


def sends(fields: SentFields | None = None) -> list[str]:
    return [ROWS.invoke(n, "t", n % 12, 5 * n, -1, 9 + n, fields) for n in NUMBERS]


def answers() -> list[str]:
    ok = DeliveryOutcome.OK
    return [
        ROWS.complete([7, 8], "t", 3, ok, 99, 2, None, 10, TOPIC_ID),
        ROWS.complete([0], "t", 11, ok, 0, 0, None, 1_000_000_000_000_000),
    ]


def text(*lines: str) -> bytes:
    return "".join(lines).encode()


def rows(found: EvenLines) -> list[tuple[object, ...]]:
    return [
        (part, *values)
        for part, names in COLUMNS.items()
        for values in zip(*(getattr(found, part)[name].tolist() for name in names), strict=True)
    ]


@pytest.mark.parametrize("fields", [None, SentFields(1_700_000_000_000), SentFields(17, 4_294_967_295)])
def test_numbers_are_those_of_the_lines(fields: SentFields | None) -> None:
    data = text(sends(fields)[0], *answers(), *sends(fields)[1:])
    found = read_even_lines(data)
    assert found is not None
    assert (found.run, found.producer, found.topic) == ("run-1", "p.a", "t")
    kinds = {"invoke": "sends", "complete": "answers"}
    expected = [
        (kinds[row["kind"]], *(row[name] for name in COLUMNS[kinds[row["kind"]]]))
        for row in map(json.loads, data.splitlines())
    ]
    assert rows(found) == sorted(expected, key=lambda row: row[0], reverse=True)
    assert len(found.topic_ids) == 1
    told = {
        name: found.sends[name].tolist() for name in ("timestamp_ms", "key_crc32c") if name in found.sends
    }
    assert told == {} if fields is None else told["timestamp_ms"] == [fields.timestamp_ms] * len(NUMBERS)


def test_a_block_may_have_only_sends_or_only_answers() -> None:
    only_sends, only_answers = read_even_lines(text(*sends())), read_even_lines(text(*answers()))
    assert only_sends is not None
    assert only_sends.answers == {}
    assert only_answers is not None
    assert only_answers.sends == {}


def changed(old: str, new: str) -> Callable[[str], str]:
    return lambda line: line.replace(old, new, 1)


ODD = {
    "another outcome": changed('"outcome":"ok"', '"outcome":"info"'),
    "another acks": changed('"acks":-1', '"acks":1'),
    "another topic": changed('"topic":"t"', '"topic":"u"'),
    "another producer": changed('"p.a"', '"p.b"'),
    "another run": changed('"run-1"', '"run-2"'),
    "an error": changed('"error":null', '"error":"x"'),
    "a name twice": changed('"t1":', '"pseq":1,"t1":'),
    "another order": changed('"kind":"complete","run":"run-1"', '"run":"run-1","kind":"complete"'),
    "a space": changed(",", ", "),
    "a number that is none": changed('"offset":9', '"offset":x'),
    "a number below zero": changed('"offset":9', '"offset":-9'),
    "a leading zero": changed('"offset":9', '"offset":09'),
    "no number": changed('"offset":99', '"offset":'),
    "a number that is too long": changed('"offset":9', '"offset":1234567890123456789'),
    "an epoch that is too long": changed('"leader_epoch":2', '"leader_epoch":22222222222'),
    "a topic id that is none": changed('"topic_id":"', '"topic_id":"!'),
    "something more": changed("}\n", ',"more":1}\n'),
    "no brace": changed("}\n", "\n"),
    "an empty line": lambda line: line + "\n",
    "a line that is cut": lambda line: line[:-9],
    "no JSON": lambda _: "oops\n",
    "a short line": lambda _: "{}\n",
}


@pytest.mark.parametrize("change", ODD.values(), ids=ODD)
def test_a_block_with_another_line_is_not_read(change: Callable[[str], str]) -> None:
    good = [*sends(), *answers()]
    unlike = {line: change(line) for line in good if change(line) != line}
    assert unlike
    for line, odd in unlike.items():
        assert read_even_lines(text(*(odd if one == line else one for one in good))) is None


def test_headers_are_not_read() -> None:
    assert read_even_lines(text(*sends(SentFields(1, None, 5)))) is None


def test_sends_that_tell_different_things_are_not_read() -> None:
    assert read_even_lines(text(*sends(), *sends(SentFields(1)))) is None


@pytest.mark.parametrize("data", [b"", b"\n", b"{", b'{"kind":"invoke"}\n'])
def test_other_bytes_are_not_read(data: bytes) -> None:
    assert read_even_lines(data) is None
