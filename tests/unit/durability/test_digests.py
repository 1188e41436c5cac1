"""Sums of a ledger and of a log are equal if and only if each send is in its place once, as it was sent."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra `spark`")

import pyarrow as pa

from holdfast.durability.digest_jobs import SMALL_BYTES, ledger_sums
from holdfast.durability.digests import LedgerSums, LogSums
from holdfast.durability.even_lines import read_even_lines

Line = dict[str, Any]
COUNT = 12
TIMESTAMP_MS = 1_700_000_000_000
LOG = pa.schema(
    [
        *(("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("state", pa.string())),
        *(("producer", pa.string()), ("pseq", pa.int64()), ("value_crc32c", pa.int64())),
        *(("timestampMs", pa.int64()), ("timestampType", pa.int32())),
        *(("key_crc32c", pa.int64()), ("headers_crc32c", pa.int64())),
    ]
)


def ledger_lines(producer: str = "a", run: str = "r", first: int = 0) -> list[Line]:
    """Each number from `first` on is sent and acknowledged, in two partitions."""
    lines = []
    for pseq in range(first, first + COUNT):
        name = {"run": run, "producer": producer, "pseq": pseq, "topic": "t", "partition": pseq % 2}
        sent = {"value_crc32c": 100 + pseq, "acks": -1, "t0": 1, "timestamp_ms": TIMESTAMP_MS + pseq}
        answer = {"outcome": "ok", "offset": pseq // 2, "leader_epoch": 0, "error": None, "t1": 2}
        lines += [{"kind": "invoke", **name, **sent}, {"kind": "complete", **name, **answer}]
    return lines


def log_rows(lines: list[Line]) -> list[Line]:
    """What the log has when all goes well."""
    offsets = {(line["producer"], line["pseq"]): line["offset"] for line in lines if "offset" in line}
    return [
        {
            **{name: line[name] for name in ("topic", "partition", "producer", "pseq", "value_crc32c")},
            **{"offset": offsets[line["producer"], line["pseq"]], "state": "good", "timestampType": 0},
            **{name: line.get(name) for name in ("key_crc32c", "headers_crc32c")},
            "timestampMs": line.get("timestamp_ms", 5),
        }
        for line in lines
        if line["kind"] == "invoke"
    ]


def sums_of_ledger(folder: Path, *ledgers: list[Line]) -> LedgerSums:
    sizes = {}
    for number, lines in enumerate(ledgers):
        path = folder / f"{number}.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        sizes[str(path)] = path.stat().st_size
    assert sum(sizes.values()) <= SMALL_BYTES
    return ledger_sums(None, sizes)[0]


def sums_of_log(rows: list[Line], *, with_fields: bool = True) -> LogSums:
    """As two readers see it that have half of the records each."""
    found = LogSums()
    for half in (rows[::2], rows[1::2]):
        table = pa.Table.from_pylist(half, schema=LOG)
        part = LogSums()
        for batch in (table if with_fields else table.select(LOG.names[:7])).to_batches():
            part.add(batch)
        found.take(part)
    return found


def test_a_log_that_has_each_send_once_in_its_place_is_as_the_ledger(tmp_path: Path) -> None:
    ledgers = (ledger_lines("a"), ledger_lines("b", first=7))
    sums = sums_of_ledger(tmp_path, *ledgers)
    assert sums.is_settled
    assert sums.is_as(sums_of_log(log_rows(ledgers[0]) + log_rows(ledgers[1])))


LOG_FAULTS: dict[str, Callable[[list[Line]], object]] = {
    "a record is missing": lambda rows: rows.pop(3),
    "the last one is missing": lambda rows: rows.pop(),
    "a record is there twice": lambda rows: rows.append(rows[3] | {"offset": 900}),
    "a record is at another offset": lambda rows: rows[3].update(offset=900),
    "a record is in another partition": lambda rows: rows[3].update(partition=0),
    "another value": lambda rows: rows[3].update(value_crc32c=1),
    "another key": lambda rows: rows[3].update(key_crc32c=0),
    "other headers": lambda rows: rows[3].update(headers_crc32c=0),
    "another timestamp": lambda rows: rows[3].update(timestampMs=1),
    "a timestamp of the broker's": lambda rows: rows[3].update(timestampType=1),
    "a record that was never sent": lambda rows: rows.append(rows[3] | {"pseq": COUNT, "offset": 900}),
    "a number below zero": lambda rows: rows.append(rows[3] | {"pseq": -1, "offset": 900}),
    "a producer without a ledger": lambda rows: rows.append(rows[3] | {"producer": "x", "offset": 900}),
    "a record of no ledger": lambda rows: rows.append(rows[3] | {"state": "foreign", "producer": None}),
    "a record is damaged": lambda rows: rows[3].update(state="damaged", producer=None, pseq=None),
    "two have changed places": lambda rows: (rows[3].update(offset=2), rows[5].update(offset=1)),
    "two have changed values": lambda rows: (
        rows[3].update(value_crc32c=105),
        rows[5].update(value_crc32c=103),
    ),
    "one is there twice and another is missing": lambda rows: rows[3].update(pseq=5),
    "there is nothing": lambda rows: rows.clear(),
}


@pytest.mark.parametrize("plant", LOG_FAULTS.values(), ids=LOG_FAULTS)
def test_a_log_with_anything_odd_is_not_as_the_ledger(tmp_path: Path, plant: Callable[[Any], object]) -> None:
    lines = ledger_lines()
    rows = log_rows(lines)
    sums = sums_of_ledger(tmp_path, lines)
    assert sums.is_as(sums_of_log(rows))
    plant(rows)
    assert not sums.is_as(sums_of_log(rows))


def test_fields_of_the_log_say_nothing_where_the_ledger_does_not_tell_them(tmp_path: Path) -> None:
    lines = [
        {name: value for name, value in line.items() if name != "timestamp_ms"} for line in ledger_lines()
    ]
    sums = sums_of_ledger(tmp_path, lines)
    assert sums.is_settled
    assert sums.is_as(sums_of_log(log_rows(lines)))
    assert sums.is_as(sums_of_log(log_rows(lines), with_fields=False))


LEDGER_FAULTS: dict[str, Callable[[list[Line]], object]] = {
    "a send is not answered": lambda lines: lines.pop(),
    "an answer to no send": lambda lines: lines.pop(-2),
    "a send is written down twice": lambda lines: lines.append(lines[0]),
    "a send is answered twice": lambda lines: lines.append(lines[1]),
    "a number is missing": lambda lines: lines.__delitem__(slice(4, 6)),
    "one is there twice and another is missing": lambda lines: lines.__setitem__(slice(4, 6), lines[:2]),
    "acks=1": lambda lines: lines[0].update(acks=1),
    "acks=1, and all that goes with it": lambda lines: (
        lines[0].update(acks=1),
        lines[1].update(outcome="ok1"),
    ),
    "a refusal": lambda lines: lines[1].update(outcome="fail", offset=-1),
    "no definite answer": lambda lines: lines[1].update(outcome="info", offset=-1),
    "only some tell their timestamp": lambda lines: lines[0].pop("timestamp_ms"),
}


@pytest.mark.parametrize("plant", LEDGER_FAULTS.values(), ids=LEDGER_FAULTS)
def test_a_ledger_with_anything_odd_is_not_settled(tmp_path: Path, plant: Callable[[Any], object]) -> None:
    lines = ledger_lines()
    plant(lines)
    assert not sums_of_ledger(tmp_path, lines).is_settled


def test_two_runs_with_one_name_are_not_settled(tmp_path: Path) -> None:
    assert not sums_of_ledger(tmp_path, ledger_lines(run="r"), ledger_lines(run="s", first=COUNT)).is_settled


@pytest.mark.parametrize("key", [None, 77])
def test_lines_that_are_read_at_once_add_up_to_the_same(tmp_path: Path, key: int | None) -> None:
    lines = ledger_lines()
    for line in lines[::2] if key is not None else ():
        line["key_crc32c"] = key
    by_row = sums_of_ledger(tmp_path, lines)
    path = tmp_path / "even.jsonl"
    path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in in_their_order(lines)))
    assert read_even_lines(path.read_bytes()) is not None
    at_once, _ = ledger_sums(None, {str(path): path.stat().st_size})
    assert (at_once.sums, at_once.extents) == (by_row.sums, by_row.extents)


def in_their_order(lines: list[Line]) -> list[Line]:
    """With the fields of a line in the order of `client.core.history`."""
    heads = ("kind", "run", "producer", "pseq", "outcome")
    return [
        {name: line[name] for name in heads if name in line}
        | {name: value for name, value in line.items() if name not in heads}
        for line in lines
    ]
