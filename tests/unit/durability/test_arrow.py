"""Fetched batches as Arrow: the range asked for, the columns asked for, and damage that cannot be read."""

import pytest

pytest.importorskip("pyarrow", reason="needs the extra `spark`")

from holdfast.client.core.fetcher_effects import FetchedBatch
from holdfast.client.core.history import headers_crc32c, key_crc32c, make_value, value_crc32c
from holdfast.durability.arrow import Columns, to_arrow
from holdfast.protocol.record_batch import CorruptBatch, Record, encode_batch, parse_header
from tests.unit.client.test_decoding import poisoned

PARSED = Columns(payload=False, leader_epoch=False, parsed=True)


def fetched(base_offset: int, values: list[bytes | None], *, damage: bool = False) -> FetchedBatch:
    records = [
        Record(base_offset + index, 1_000 + index, b"k", value, (("h", b"x"),))
        for index, value in enumerate(values)
    ]
    data = encode_batch(records, base_offset=base_offset, leader_epoch=5)
    if damage:
        data = data[:-1] + bytes([data[-1] ^ 1])
    return FetchedBatch("t", 2, base_offset, parse_header(data), memoryview(data), -1)


def test_records_outside_the_range_are_left_out() -> None:
    batches = [fetched(0, [b"a"] * 4), fetched(4, [b"b"] * 4), fetched(8, [b"c"] * 4)]
    (made,) = to_arrow(batches, "t", 2, 3, 9, Columns())
    assert made.column("offset").to_pylist() == [3, 4, 5, 6, 7, 8]
    assert made.column("value").to_pylist() == [b"a", b"b", b"b", b"b", b"b", b"c"]


def test_the_columns_are_those_of_sparks_kafka_source_and_what_was_asked_for() -> None:
    (made,) = to_arrow([fetched(7, [b"v", None])], "t", 2, 0, 99, Columns(headers=True))
    row = made.to_pylist()[0]
    assert row["timestamp"].timestamp() == 1.0
    assert row["headers"] == [{"key": "h", "value": b"x"}]
    assert (row["key"], row["value"], row["topic"], row["partition"], row["offset"]) == (
        b"k",
        b"v",
        "t",
        2,
        7,
    )
    assert (row["timestampType"], row["leaderEpoch"]) == (0, 5)
    assert made.to_pylist()[1]["value"] is None
    assert [item.split()[0] for item in Columns(headers=True).spark_schema().split(", ")][:3] == [
        "key",
        "value",
        "topic",
    ]
    assert "key" not in PARSED.spark_schema()


def test_checksums_of_key_and_headers_are_made_where_they_are_named() -> None:
    bare = encode_batch([Record(8, 1, None, b"v")], base_offset=8, leader_epoch=1)
    batches = [fetched(7, [b"v"]), FetchedBatch("t", 2, 8, parse_header(bare), memoryview(bare), -1)]
    (made,) = to_arrow(batches, "t", 2, 0, 99, Columns(only=("key_crc32c", "headers_crc32c")))
    assert made.to_pylist() == [
        {"key_crc32c": key_crc32c(b"k"), "headers_crc32c": headers_crc32c([("h", b"x")])},
        {"key_crc32c": None, "headers_crc32c": None},
    ]


def test_each_record_has_the_crc_of_its_batch_where_that_is_named() -> None:
    batches = [fetched(7, [b"v", b"w"]), fetched(9, [b"x"])]
    first, second = (batch.header.crc for batch in batches)
    assert first != second
    (made,) = to_arrow(batches, "t", 2, 8, 99, Columns(only=("offset", "batch_crc32c")))
    assert made.to_pylist() == [
        {"offset": 8, "batch_crc32c": first},
        {"offset": 9, "batch_crc32c": second},
    ]


def test_any_timestamp_is_a_row_and_the_milliseconds_are_those_of_the_record() -> None:
    odd = [(1 << 63) - 1, -(1 << 63), -5, -1, 0, 253_402_300_799_999, 253_402_300_800_000]
    batches = []
    for offset, stamp in enumerate(odd):
        data = encode_batch([Record(offset, stamp, None, b"v")], base_offset=offset, leader_epoch=1)
        batches.append(FetchedBatch("t", 2, offset, parse_header(data), memoryview(data), -1))
    made = to_arrow(batches, "t", 2, 0, 9, Columns(timestamp_ms=True))[0]
    assert made.column("timestampMs").to_pylist() == odd
    assert [value is None for value in made.column("timestamp").to_pylist()] == [
        *(True, True, False, False, False, False, True),
    ]


def test_only_the_columns_of_a_schema_are_made_in_its_order() -> None:
    (made,) = to_arrow([fetched(0, [b"a"] * 2)], "t", 2, 0, 9, Columns(only=("offset", "partition")))
    assert made.to_pylist() == [{"offset": 0, "partition": 2}, {"offset": 1, "partition": 2}]


def test_a_damaged_batch_says_why_it_cannot_be_read() -> None:
    columns = Columns(problem=True)
    good, damaged = to_arrow(
        [fetched(0, [b"a"]), fetched(1, [b"b"], damage=True)], "t", 2, 0, 9, columns, keeps_damaged=True
    )
    assert good.column("problem").to_pylist() == [None]
    assert "crc" in damaged.column("problem").to_pylist()[0]


def test_values_say_who_wrote_them() -> None:
    good = make_value("p1", 42, 100)
    values: list[bytes | None] = [good, good[:-1] + b"?", b"foreign", None]
    (made,) = to_arrow([fetched(0, values)], "t", 2, 0, 4, PARSED)
    assert made.column("state").to_pylist() == ["good", "damaged", "foreign", "foreign"]
    assert made.column("producer").to_pylist() == ["p1", None, None, None]
    assert made.column("pseq").to_pylist() == [42, None, None, None]
    assert made.column("value_crc32c").to_pylist()[0] == value_crc32c(good)


def test_a_damaged_batch_is_an_error_for_readers_and_rows_for_the_verdict() -> None:
    batches = [fetched(0, [b"a"]), fetched(1, [b"b"] * 3, damage=True)]
    with pytest.raises(CorruptBatch):
        to_arrow(batches, "t", 2, 0, 4, Columns())
    good, damaged = to_arrow(batches, "t", 2, 0, 3, PARSED)
    assert good.column("offset").to_pylist() == [0]
    assert damaged.column("offset").to_pylist() == [1, 2]
    assert set(damaged.column("state").to_pylist()) == {"damaged"}


def test_readers_that_must_not_fail_get_rows_for_what_cannot_be_read() -> None:
    batches = [fetched(0, [b"a"]), fetched(1, [b"b"] * 2, damage=True)]
    good, damaged = to_arrow(batches, "t", 2, 0, 3, Columns(headers=True), keeps_damaged=True)
    assert good.column("timestampType").to_pylist() == [0]
    assert [row["offset"] for row in damaged.to_pylist()] == [1, 2]
    assert [row["timestampType"] for row in damaged.to_pylist()] == [-1, -1]
    assert {row[name] for row in damaged.to_pylist() for name in ("key", "value", "timestamp")} == {None}


@pytest.mark.parametrize(
    ("timestamp_ms", "is_known"),
    [
        (-1, True),
        (0, True),
        (253_402_300_799_999, True),
        (253_402_300_800_000, False),
        ((1 << 63) - 1, False),
        (-(1 << 63), False),
    ],
)
def test_a_timestamp_that_spark_cannot_express_is_null(timestamp_ms: int, is_known: bool) -> None:
    data = encode_batch([Record(0, timestamp_ms, None, b"v")], base_offset=0, leader_epoch=5)
    batch = FetchedBatch("t", 2, 0, parse_header(data), memoryview(data), -1)
    (made,) = to_arrow([batch], "t", 2, 0, 1, Columns(parsed=True))
    (row,) = made.to_pylist()
    assert (row["timestamp"] is not None) is is_known
    assert (row["value"], row["state"]) == (b"v", "foreign")


def test_so_is_a_batch_whose_crc_holds_but_that_does_not_unpack() -> None:
    data = poisoned(4, b"no zstd frame")
    batch = FetchedBatch("t", 2, 0, parse_header(data), memoryview(data), -1)
    (made,) = to_arrow([batch], "t", 2, 0, 1, PARSED)
    assert made.column("state").to_pylist() == ["damaged"]


def test_a_whole_value_whose_number_no_ledger_has_is_foreign() -> None:
    body = b"p:99999999999999999999:"
    value = b"%08x:%b" % (value_crc32c(body), body)
    (made,) = to_arrow([fetched(0, [value])], "t", 2, 0, 9, PARSED)
    (row,) = made.to_pylist()
    assert (row["state"], row["producer"], row["pseq"]) == ("foreign", None, None)


TRUSTED = Columns(payload=False, leader_epoch=False, parsed=True, trusts_values=True)
ODD_VALUES = {
    "no value": None,
    "no value of a ledger": b"hello",
    "a number that is none": b"12345678:p:x:",
    "a number that is too large": b"12345678:p:99999999999999999999:",
    "a number below 0": b"12345678:p:-1:",
    "no name": b"12345678::1:",
    "a name that is no text": b"12345678:\xff:1:",
    "too few colons": b"12345678:p:1",
}


def test_values_that_are_trusted_have_the_names_of_those_that_are_checked() -> None:
    values: list[bytes | None] = [make_value("p", 7, 60), make_value("other.p", 123_456_789, 5), b"0:p:0::"]
    trusted, checked = (
        to_arrow([fetched(0, values[:count])], "t", 2, 0, 9, columns)[0].to_pylist()
        for count, columns in ((3, TRUSTED), (2, PARSED))
    )
    assert trusted[:2] == checked
    assert (trusted[2]["state"], trusted[2]["producer"], trusted[2]["pseq"]) == ("good", "p", 0)


@pytest.mark.parametrize("odd", ODD_VALUES.values(), ids=ODD_VALUES)
def test_none_is_trusted_beside_an_odd_one(odd: bytes | None) -> None:
    batches = [fetched(0, [make_value("p", 7, 60), b"0:p:0::", odd])]
    (trusted,), (checked,) = (to_arrow(batches, "t", 2, 0, 9, columns) for columns in (TRUSTED, PARSED))
    assert trusted.to_pylist() == checked.to_pylist()
    assert checked.column("state").to_pylist()[0] == "good"
