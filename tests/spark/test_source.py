"""`format("holdfast")` reads what a node serves over the wire, in Spark's own worker processes."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.errors import PySparkException

from holdfast.client.consumer import Consumer
from holdfast.client.core.errors import ClientError
from holdfast.durability import range_reader
from holdfast.durability.core.positions import DataLost
from holdfast.durability.core.pushdown import Bounds
from holdfast.durability.range_reader import RangePartition, read_partition
from holdfast.durability.read_options import BadOption, Mode, OffsetRange, ReadOptions, parse_options
from holdfast.durability.source import plan_ranges
from holdfast.protocol.record_batch import Record, encode_batch
from holdfast.protocol.topic_names import OFFSETS_TOPIC
from holdfast.runtime.api import Runtime
from tests.spark.planted_log import NODE_ID, PlantedLogs, damaged

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark session")]


def batches(base_offset: int, count: int, size: int = 10) -> list[bytes]:
    """`count` batches of `size` records `value <offset>`."""
    made = []
    for start in range(base_offset, base_offset + count * size, size):
        records = [
            Record(o, 1_700_000_000_000 + o, None, b"value %d" % o, (("h", b"x"),))
            for o in range(start, start + size)
        ]
        made.append(encode_batch(records, base_offset=start, leader_epoch=3))
    return made


@pytest.fixture(scope="module")
def node() -> Iterator[PlantedLogs]:
    broken = batches(0, 3)
    logs = {
        ("t", 0): batches(0, 10),
        ("t", 1): batches(50, 3),
        ("t", 2): [],
        ("other", 0): batches(0, 1),
        (OFFSETS_TOPIC, 0): batches(0, 1),
        ("broken", 0): [broken[0], damaged(broken[1]), broken[2]],
    }
    with PlantedLogs(logs) as node:
        yield node


def read(spark: Any, node: PlantedLogs, **options: str) -> Any:
    reader = spark.read.format("holdfast").option("kafka.bootstrap.servers", node.address)
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load()


def test_a_topic_is_a_table_with_the_columns_of_sparks_kafka_source(spark: Any, node: PlantedLogs) -> None:
    table = read(spark, node, subscribe="t", includeHeaders="true")
    assert table.columns == [
        *(
            "key",
            "value",
            "topic",
            "partition",
            "offset",
            "timestamp",
            "timestampType",
            "headers",
            "leaderEpoch",
        ),
    ]
    rows = {(row.partition, row.offset): row for row in table.collect()}
    assert sorted(rows) == [(0, o) for o in range(100)] + [(1, o) for o in range(50, 80)]
    row = rows[1, 57]
    assert (row.key, row.value, row.topic, row.leaderEpoch) == (None, bytearray(b"value 57"), "t", 3)
    assert row.headers[0].key == "h"
    assert row.timestamp.timestamp() == pytest.approx(1_700_000_000.057)


def test_offset_ranges_and_min_partitions_cut_without_loss_or_overlap(spark: Any, node: PlantedLogs) -> None:
    table = read(
        spark,
        node,
        assign='{"t":[0,1]}',
        startingOffsets='{"t":{"0":7,"1":-2}}',
        endingOffsets='{"t":{"0":93,"1":-1}}',
        minPartitions="5",
    )
    rows = sorted((row.partition, row.offset) for row in table.select("partition", "offset").collect())
    assert rows == [(0, o) for o in range(7, 93)] + [(1, o) for o in range(50, 80)]
    assert table.rdd.getNumPartitions() >= 5


def test_offsets_below_the_log_are_loss_unless_that_is_allowed(spark: Any, node: PlantedLogs) -> None:
    options = {"assign": '{"t":[1]}', "startingOffsets": json.dumps({"t": {"1": 40}})}
    with pytest.raises(PySparkException, match="t-1 has no offset 40"):
        read(spark, node, **options).count()
    assert read(spark, node, failOnDataLoss="false", **options).count() == 30


def test_offsets_that_the_log_does_not_have_are_named(node: PlantedLogs) -> None:
    def planned(fails: bool, **options: str) -> list[tuple[int, int]]:
        chosen = {"kafka.bootstrap.servers": node.address, **options}
        ranges = plan_ranges(parse_options({**chosen, "failOnDataLoss": str(fails)}))
        return [(item.start, item.end) for item in ranges]

    for option, partition, begin, offset, kept in (
        ("startingOffsets", 0, 0, 101, (100, 100)),
        ("endingOffsets", 0, 0, 130, (0, 100)),
        ("endingOffsets", 1, 50, 49, (50, 50)),
    ):
        named = {"assign": f'{{"t":[{partition}]}}', option: json.dumps({"t": {str(partition): offset}})}
        words = f"{option}: t-{partition} has no offset {offset}: its log begins at {begin}"
        with pytest.raises(DataLost, match=words):
            planned(True, **named)
        assert planned(False, **named) == [kept]


def test_a_filter_on_time_leaves_out_nothing_of_a_replica(node: PlantedLogs) -> None:
    """What the leader knows of times is of its own records."""
    young = Bounds().narrowed("timestamp", ">=", datetime.fromtimestamp(1_700_000_000.055, UTC))
    for read_from, begin in (("leader", 50), (f"replica:{NODE_ID}", 0)):
        chosen = {"kafka.bootstrap.servers": node.address, "assign": '{"t":[0]}', "readFrom": read_from}
        assert [item.start for item in plan_ranges(parse_options(chosen), young)] == [begin]


def test_timestamps_say_where_to_begin_and_end(node: PlantedLogs) -> None:
    def planned(**options: str) -> list[tuple[int, int]]:
        chosen = {"kafka.bootstrap.servers": node.address, "assign": '{"t":[0,1]}', **options}
        return [(item.start, item.end) for item in plan_ranges(parse_options(chosen))]

    t = 1_700_000_000_000
    assert planned(startingTimestamp=str(t + 55)) == [(50, 100), (50, 80)]
    assert planned(endingTimestamp=str(t + 75)) == [(0, 70), (50, 70)]
    assert planned(startingOffsetsByTimestamp=json.dumps({"t": {"0": t + 20, "1": t}})) == [
        *((20, 100), (50, 80)),
    ]
    with pytest.raises(BadOption, match="startingTimestamp: t-1 has no record"):
        planned(startingTimestamp=str(t + 90))
    late = {"startingTimestamp": str(t + 90), "startingOffsetsByTimestampStrategy": "latest"}
    assert planned(**late) == [(90, 100), (80, 80)]


def test_a_schema_leaves_columns_out_and_cannot_name_others(spark: Any, node: PlantedLogs) -> None:
    def reader(schema: str) -> Any:
        chosen = spark.read.format("holdfast").option("kafka.bootstrap.servers", node.address)
        return chosen.option("subscribe", "t").schema(schema).load()

    assert reader("offset long, partition int").filter("partition = 1").count() == 30
    with pytest.raises(PySparkException, match="there is no column ofset"):
        reader("ofset long").count()


def test_ranges_of_one_task_are_read_through_the_same_connections(
    node: PlantedLogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a topic with some hundred partitions and few records these would be nearly all of the work."""
    made: list[object] = []
    make = range_reader._consumer

    def counted(runtime: Runtime, options: ReadOptions) -> Consumer:
        made.append(options)
        return make(runtime, options)

    monkeypatch.setattr(range_reader, "_consumer", counted)
    options = parse_options({"kafka.bootstrap.servers": node.address, "subscribe": "t,other"}, Mode.BATCH)
    planned = [*plan_ranges(options), OffsetRange("t", 0, 15, 20), OffsetRange("t", 1, 60, 70)]
    found = [
        (row["topic"], row["partition"], row["offset"])
        for batch in read_partition(options, RangePartition(tuple(planned)))
        for row in batch.to_pylist()
    ]
    wanted = [
        (item.topic, item.partition, offset) for item in planned for offset in range(item.start, item.end)
    ]
    assert sorted(found) == sorted(wanted)
    assert len(wanted) == 100 + 30 + 10 + 5 + 10
    assert len(made) == 1


def test_filters_on_partition_offset_and_timestamp_leave_ranges_out(spark: Any, node: PlantedLogs) -> None:
    # the broken topic says what is read: a damaged batch that is not wanted ends nothing
    table = read(spark, node, subscribe="broken")
    assert table.filter("offset < 10").count() == 10
    assert table.filter("offset >= 20 and partition = 0").count() == 10
    assert table.filter("timestamp >= timestamp_millis(1700000000025)").count() == 5
    with pytest.raises(PySparkException, match="CorruptBatch"):
        table.filter("offset = 15").count()


def test_misspelt_options_end_the_read_with_the_name_that_was_meant(spark: Any, node: PlantedLogs) -> None:
    with pytest.raises(PySparkException, match="did you mean startingOffsets"):
        read(spark, node, subscribe="t", startingOfsets="latest").count()


def test_a_batch_whose_crc_does_not_hold_fails_a_read_and_is_rows_for_the_verdict(
    spark: Any, node: PlantedLogs
) -> None:
    with pytest.raises(PySparkException, match="CorruptBatch"):
        read(spark, node, subscribe="broken").count()
    table = read(spark, node, subscribe="broken", parseValues="true", includePayload="false")
    assert "value" not in table.columns
    states = {row.state: row["count"] for row in table.groupBy("state").count().collect()}
    assert states == {"foreign": 20, "damaged": 10}


def test_topics_are_planned_by_name_by_pattern_and_refused_when_unknown(node: PlantedLogs) -> None:
    def planned(**options: str) -> list[tuple[str, int, int, int]]:
        ranges = plan_ranges(parse_options({"kafka.bootstrap.servers": node.address, **options}))
        return [(item.topic, item.partition, item.start, item.end) for item in ranges]

    assert {topic for topic, *_ in planned(subscribePattern=".*")} == {"broken", "other", "t"}
    assert planned(subscribe=OFFSETS_TOPIC) == [(OFFSETS_TOPIC, 0, 0, 10)]
    assert {topic for topic, *_ in planned(subscribePattern="o.*e")} == {"broken", "other"}
    assert planned(subscribePattern="^t$|other") == [
        *(("other", 0, 0, 10), ("t", 0, 0, 100), ("t", 1, 50, 80), ("t", 2, 0, 0)),
    ]
    assert planned(subscribe="t", startingOffsets="latest") == [
        *(("t", 0, 100, 100), ("t", 1, 80, 80), ("t", 2, 0, 0)),
    ]
    for options, reason in (
        ({"subscribe": "nothing"}, "nothing"),
        ({"subscribePattern": "x.*"}, "no topic matches"),
    ):
        with pytest.raises((ClientError, BadOption), match=reason):
            planned(**options)
