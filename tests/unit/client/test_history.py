"""The ledger's rows and the values that tell who wrote them (D11)."""

import json

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.client.core.history import (
    ParsedValue,
    RowWriter,
    SentFields,
    headers_crc32c,
    key_crc32c,
    make_value,
    parse_row,
    parse_value,
    value_crc32c,
)
from holdfast.client.core.outcomes import DeliveryOutcome


def test_rows_hold_the_fields_that_checkers_join_on() -> None:
    rows = RowWriter("run-1", "p0")
    assert parse_row(rows.invoke(5, "t", 2, 77, -1, 1234)) == {
        "kind": "invoke",
        "run": "run-1",
        "producer": "p0",
        "pseq": 5,
        "topic": "t",
        "partition": 2,
        "value_crc32c": 77,
        "acks": -1,
        "t0": 1234,
    }
    lines = rows.complete([5, 6, 9], "t", 2, DeliveryOutcome.OK, 40, 3, None, 99).splitlines()
    assert [(row["pseq"], row["offset"]) for row in map(parse_row, lines)] == [(5, 40), (6, 41), (9, 42)]
    assert parse_row(lines[0]) == {
        "kind": "complete",
        "run": "run-1",
        "producer": "p0",
        "pseq": 5,
        "outcome": "ok",
        "topic": "t",
        "partition": 2,
        "offset": 40,
        "leader_epoch": 3,
        "error": None,
        "t1": 99,
    }


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        (SentFields(0), {"timestamp_ms": 0}),
        (SentFields(9, 0), {"timestamp_ms": 9, "key_crc32c": 0}),
        (SentFields(9, 8, 7), {"timestamp_ms": 9, "key_crc32c": 8, "headers_crc32c": 7}),
    ],
)
def test_a_row_tells_what_a_record_has_beside_its_value(fields: SentFields, told: dict[str, int]) -> None:
    rows = RowWriter("r", "p")
    known = parse_row(rows.invoke(5, "t", 2, 77, -1, 1234))
    assert parse_row(rows.invoke(5, "t", 2, 77, -1, 1234, fields)) == known | told


def test_checksums_tell_keys_and_headers_apart() -> None:
    assert (key_crc32c(None), key_crc32c(b""), key_crc32c(b"123456789")) == (None, 0, 0xE3069283)
    assert headers_crc32c([]) is None
    some: list[list[tuple[str, bytes | None]]] = [
        [("a", b"b")], [("a", b"")], [("a", None)], [("", b"ab")], [("a", b"b"), ("c", b"d")],
        [("c", b"d"), ("a", b"b")],
    ]  # fmt: skip
    assert len({headers_crc32c(headers) for headers in some}) == len(some)
    assert headers_crc32c([("trace", b"7"), ("empty", None)]) == google_crc32c.value(b"5:trace1:75:empty-1:")


def test_rows_without_acknowledgement_have_no_offset_but_a_reason() -> None:
    line = RowWriter("r", "p").complete([1, 2], "t", 0, DeliveryOutcome.INFO, -1, -1, "REQUEST_TIMED_OUT", 9)
    rows = [parse_row(one) for one in line.splitlines()]
    assert [(row["outcome"], row["offset"], row["error"]) for row in rows] == [
        ("info", -1, "REQUEST_TIMED_OUT")
    ] * 2


@pytest.mark.parametrize("name", ["", 'a"b', "a b", "x" * 65, "_a", ".a", "-a"])
def test_names_that_need_escapes_or_make_hidden_files_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        RowWriter("run", name)
    with pytest.raises(ValueError, match="expected"):
        RowWriter(name, "p")


@pytest.mark.parametrize("line", ['{"kind":"invoke","run":', "[1]", json.dumps({"kind": "other"})])
def test_cut_and_foreign_lines_are_no_rows(line: str) -> None:
    with pytest.raises(ValueError):
        parse_row(line)


@pytest.mark.slow
@given(
    st.from_regex(r"[A-Za-z0-9._-]{1,64}", fullmatch=True),
    st.integers(0, 2**40),
    st.sampled_from([0, 64, 1_024, 50_000]),
)
def test_a_value_tells_who_wrote_it_and_has_the_size_asked_for(producer: str, pseq: int, size: int) -> None:
    value = make_value(producer, pseq, size)
    assert parse_value(value) == ParsedValue(producer, pseq)
    assert len(value) == max(size, 11 + len(producer) + len(str(pseq)))


@given(st.integers(0, 199), st.integers(1, 255))
def test_any_damaged_byte_is_noticed(position: int, flip: int) -> None:
    value = bytearray(make_value("p", 1, 200))
    value[position] ^= flip
    found = parse_value(bytes(value))
    # Upper and lower case digits of the crc mean the same.
    assert found is None or bytes(value).lower() == make_value("p", 1, 200)


def _whole(body: bytes) -> bytes:
    return b"%08x:%b" % (value_crc32c(body), body)


@pytest.mark.parametrize(
    "value",
    [
        *(b"", b"hello", b"00000000:a:1:", bytes(100)),
        # what no ledger can say, and no column of a table holds
        *map(_whole, (b"a:99999999999999999999:", b"a:-1:", b":1:")),
    ],
)
def test_foreign_values_belong_to_no_producer(value: bytes) -> None:
    assert parse_value(value) is None


def test_values_differ_between_records_and_so_do_their_checksums() -> None:
    crcs = {value_crc32c(make_value("p", pseq, 1_024)) for pseq in range(500)}
    assert len(crcs) == 500
