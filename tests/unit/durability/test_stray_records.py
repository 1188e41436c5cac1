"""Records of single batches, by the places that they were found at."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra `spark`")

import pyarrow as pa

from holdfast.client.core.history import key_crc32c, make_value, value_crc32c
from holdfast.durability import stray_records
from holdfast.durability.foreign_lines import PRODUCER, numbers_of_value
from holdfast.durability.segments import SegmentBatch, read_segment
from holdfast.durability.stray_records import StrayReader, Strays
from holdfast.protocol.record_batch import Record, encode_batch

VALUE = make_value("p", 7, 64)
BROKEN = VALUE[:-1] + b"!"
VALUES = (VALUE, BROKEN, b"hello", None)
SEGMENT = f"{20:020}.log"


def planted(folder: Path) -> tuple[dict[int, str], dict[str, Any]]:
    """(log dirs, the place of a batch in the second one of broker 2)."""
    records = [Record(20 + number, 1, b"k", value) for number, value in enumerate(VALUES)]
    data = encode_batch(records, base_offset=20, leader_epoch=3)
    (batch,) = read_segment(data)
    assert isinstance(batch, SegmentBatch)
    (folder / "b" / "t-1").mkdir(parents=True)
    (folder / "b" / "t-1" / SEGMENT).write_bytes(data)
    place = {"broker": 2, "topic": "t", "partition": 1, "segment": SEGMENT, "position": 0}
    return {2: f"{folder}/a,{folder}/b"}, place | {"base_offset": 20, "crc": batch.crc}


def test_records_are_named_as_those_of_the_served_log_are(tmp_path: Path) -> None:
    dirs, place = planted(tmp_path)
    found = StrayReader(dirs, is_foreign=False).read([place]).to_pylist()
    assert [row["offset"] for row in found] == [20, 21, 22, 23]
    assert [row["state"] for row in found] == ["good", "damaged", "foreign", "foreign"]
    assert {row["producer"] for row in found[1:]} == {None}
    del found[0]["state"]
    names = ("broker", "topic", "partition", "segment", "position")
    assert found[0] == {name: place[name] for name in names} | {
        "offset": 20,
        "producer": "p",
        "pseq": 7,
        "value_crc32c": value_crc32c(VALUE),
        "key_crc32c": key_crc32c(b"k"),
    }


def test_records_of_another_client_are_named_by_their_values(tmp_path: Path) -> None:
    dirs, place = planted(tmp_path)
    *named, last = StrayReader(dirs, is_foreign=True).read([place]).to_pylist()
    assert [(row["producer"], row["pseq"], row["value_crc32c"]) for row in named] == [
        (PRODUCER, *numbers_of_value(value)) for value in VALUES if value is not None
    ]
    assert last["state"] == "foreign"


def test_a_batch_that_is_not_there_any_more_is_passed_over(tmp_path: Path) -> None:
    dirs, place = planted(tmp_path)
    reader = StrayReader(dirs, is_foreign=False)
    gone = ({"crc": 1}, {"base_offset": 19}, {"position": 1}, {"segment": "gone.log"}, {"broker": 3})
    assert reader.read([place | change for change in gone]).num_rows == 0


class Rows:
    """The rows of STRAYS_SQL."""

    def __init__(self, *rows: Mapping[str, Any]) -> None:
        self.rows = rows

    def where(self, condition: str) -> "Rows":
        assert condition == "base_offset < served_end"
        return Rows(*(row for row in self.rows if row["base_offset"] < row["served_end"]))

    def limit(self, count: int) -> "Rows":
        return Rows(*self.rows[:count])

    def toArrow(self) -> pa.Table:
        return pa.Table.from_pylist(list(self.rows))


@pytest.mark.parametrize(
    ("served_end", "told", "offsets"),
    [(20, [True, True], [20, 21, 22, 23]), (20, [False], []), (21, [False], [20, 21, 22, 23])],
    ids=["nothing came in", "something came in", "something came in, behind it"],
)
def test_what_came_in_since_is_not_even_read(
    tmp_path: Path, served_end: int, told: list[bool], offsets: list[int]
) -> None:
    dirs, place = planted(tmp_path)
    answers = iter([*told, told[0]])
    strays = Strays(StrayReader(dirs, is_foreign=False), lambda rows: rows, lambda: next(answers))
    found = strays(Rows(place | {"served_end": served_end, "records": 4})).to_pylist()
    assert [row["offset"] for row in found] == offsets
    assert {row["is_told"] for row in found} <= {told[0]}


def test_the_ledger_may_grow_while_records_are_read(tmp_path: Path) -> None:
    dirs, place = planted(tmp_path)
    answers = iter([True, False])
    strays = Strays(StrayReader(dirs, is_foreign=False), lambda rows: rows, lambda: next(answers))
    found = strays(Rows(place | {"served_end": 20, "records": 4})).to_pylist()
    assert [row["is_told"] for row in found] == [False] * 4


def test_more_records_than_one_process_should_read_are_a_doubt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stray_records, "RECORDS_MAX", 7)
    dirs, place = planted(tmp_path)
    strays = Strays(StrayReader(dirs, is_foreign=False), lambda rows: rows, lambda: True)
    row = place | {"served_end": 20, "records": 4}
    assert strays(Rows(row)).num_rows == 4
    assert strays.doubts == []
    assert strays(Rows(row, row)).num_rows == 4
    assert strays.doubts == ["replicas hold more than 7 records that are not served: not all were looked at"]
