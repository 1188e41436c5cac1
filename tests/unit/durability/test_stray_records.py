"""Records of single batches, by the places that they were found at."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra `spark`")

from holdfast.client.core.history import key_crc32c, make_value, value_crc32c
from holdfast.durability.foreign_lines import PRODUCER, numbers_of_value
from holdfast.durability.segments import SegmentBatch, read_segment
from holdfast.durability.stray_records import StrayReader
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
