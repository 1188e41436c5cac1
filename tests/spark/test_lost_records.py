"""Lost records are told apart by the elections that lost them, and each loss has a sample."""

from typing import Any

import pytest

from holdfast.durability.lost_records import find_lost
from holdfast.durability.rules import VIOLATIONS_SCHEMA
from holdfast.durability.verdict import SAMPLES_MAX

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark session"), pytest.mark.timeout(300)]

SENDS = (
    "topic string, partition int, offset long, run string, producer string, pseq long, leader_epoch int, "
    "t0 long, t1 long"
)


def judged(spark: Any, sends: list[tuple[str, int, int, int | None]], lost: set[int]) -> None:
    """Views as a judge leaves them. A send is (topic, partition, offset, leader epoch), its number its place
    in the list; `lost`: numbers."""
    rows = [
        (topic, partition, offset, "run", "p", pseq, epoch, pseq, 1000 + pseq)
        for pseq, (topic, partition, offset, epoch) in enumerate(sends)
    ]
    spark.createDataFrame(rows, SENDS).createOrReplaceTempView("sends")
    gone = [
        ("lost", *row[:6], "no record bears its name", None, None, None) for row in rows if row[5] in lost
    ]
    spark.createDataFrame(gone, VIOLATIONS_SCHEMA).createOrReplaceTempView("violations")


def test_records_of_one_epoch_are_told_apart_by_the_epoch_in_which_their_offsets_were_given_again(
    spark: Any,
) -> None:
    sends: list[tuple[str, int, int, int | None]] = [("t", 0, offset, 0) for offset in range(10)]
    sends += [("t", 0, offset, 1) for offset in range(7, 12)]  # 7 to 9 were lost before epoch 1
    sends += [("t", 0, offset, 3) for offset in range(2, 5)]  # and 2 to 11 before epoch 3
    lost = set(range(2, 15))
    judged(spark, sends, lost)
    losses, samples = find_lost(spark)
    found = [(*one.row.values(), None if one.first is None else one.first.record.given_in) for one in losses]
    assert found == [
        ("t", 0, 0, 2, 6, 5, 3),
        ("t", 0, 0, 7, 9, 3, 1),
        ("t", 0, 1, 7, 11, 5, 3),
    ]
    assert [one.first.record.outlived for one in losses if one.first] == [1, None, None]
    assert len(samples) == len(lost)
    assert {one.record.pseq for one in samples[:3]} == {2, 7, 10}
    assert samples[0].row["detail"] == "no record bears its name"


def test_a_loss_of_few_records_has_a_sample_beside_one_of_many(spark: Any) -> None:
    sends: list[tuple[str, int, int, int | None]] = [("t", 0, offset, 0) for offset in range(200)]
    sends += [("t", 1, 5, None), ("u", 0, 5, 4)]
    judged(spark, sends, set(range(202)))
    losses, samples = find_lost(spark)
    assert [(one.row["topic"], one.row["records"]) for one in losses] == [("t", 200), ("t", 1), ("u", 1)]
    assert len(samples) == SAMPLES_MAX
    assert [(one.record.topic, one.record.partition, one.record.leader_epoch) for one in samples[:3]] == [
        ("t", 0, 0),
        ("t", 1, -1),
        ("u", 0, 4),
    ]
