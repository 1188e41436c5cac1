"""`write.format("holdfast")` against a real cluster: rows become records, once and acknowledged."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from holdfast.client.admin import Admin
from holdfast.client.core.errors import ClientError, ProduceFailed
from holdfast.durability.range_reader import read_range
from holdfast.durability.read_options import parse_options
from holdfast.durability.sink import write_rows
from holdfast.durability.source import plan_ranges
from holdfast.durability.write_options import parse_write_options
from holdfast.localcluster.launch import shared_launcher
from holdfast.localcluster.processes import LocalCluster

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(400),
    pytest.mark.xdist_group("spark session"),
]

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """One broker, one controller."""
    cluster = LocalCluster.create(tmp_path_factory.mktemp("sink") / "c", 1, 1, launcher=shared_launcher())
    cluster.up()
    yield cluster
    cluster.kill(cluster.nodes)


def create(cluster: LocalCluster, topic: str, partitions: int = 2) -> None:
    async def run() -> None:
        async with Admin(cluster.bootstrap_servers) as admin:
            await admin.create_topic(topic, partitions, 1, timeout_ms=60_000)

    asyncio.run(run())


def write(cluster: LocalCluster, rows: pa.RecordBatch, **options: str) -> Any:
    columns = dict.fromkeys(rows.schema.names, "string") | {"value": "binary"}
    kinds = {"partition": "int", "headers": "array<struct<key:string,value:binary>>"}
    columns |= {name: kind for name, kind in kinds.items() if name in columns}
    chosen = {"kafka.bootstrap.servers": cluster.bootstrap_servers, **options}
    return write_rows(parse_write_options(chosen, columns), iter([rows]))


def records(cluster: LocalCluster, topic: str) -> list[dict[str, Any]]:
    chosen = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": topic}
    options = parse_options({**chosen, "includeHeaders": "true"})
    found = [
        row
        for item in plan_ranges(options)
        for batch in read_range(options, item)
        for row in batch.to_pylist()
    ]
    return sorted(found, key=lambda row: (row["partition"], row["offset"]))


def test_key_value_headers_partition_and_topic_are_written(cluster: LocalCluster) -> None:
    create(cluster, "a")
    rows = pa.RecordBatch.from_pydict(
        {
            "topic": pa.array(["a"] * 4),
            "key": pa.array(["k", None, "k", None]),
            "value": pa.array([b"0", b"1", None, b"3"]),
            "partition": pa.array([1, 0, 1, 0], pa.int32()),
            "headers": pa.array([[{"key": "h", "value": b"x"}], None, [], None], HEADERS),
        }
    )
    done = write(cluster, rows)
    assert (done.records, done.ends) == (4, {"a-0": 2, "a-1": 2})
    assert [
        (row["partition"], row["key"], row["value"], row["headers"]) for row in records(cluster, "a")
    ] == [
        (0, None, b"1", []),
        (0, None, b"3", []),
        (1, b"k", b"0", [{"key": "h", "value": b"x"}]),
        (1, b"k", None, []),
    ]


def test_what_cannot_be_written_is_said_by_topic_or_partition(cluster: LocalCluster) -> None:
    create(cluster, "b")
    rows = pa.RecordBatch.from_pydict({"value": pa.array([b"0"]), "partition": pa.array([7], pa.int32())})
    with pytest.raises(ClientError, match="b has partitions 0 to 1, not 7"):
        write(cluster, rows, topic="b")
    with pytest.raises(ClientError, match="nowhere"):
        write(cluster, rows, topic="nowhere")
    for header in (None, {"key": None, "value": b"x"}):
        nameless = pa.RecordBatch.from_pydict(
            {"value": pa.array([b"0"]), "headers": pa.array([[header]], HEADERS)}
        )
        with pytest.raises(ClientError, match="column headers has a null, or a header without a key"):
            write(cluster, nameless, topic="b")
    large = pa.RecordBatch.from_pydict({"value": pa.array([bytes(2_097_000)])})
    with pytest.raises(ClientError, match="record of 2097"):
        write(cluster, large, topic="b")
    assert records(cluster, "b") == []


def test_a_topic_is_copied_by_a_batch_and_by_a_stream(
    spark: Any, cluster: LocalCluster, tmp_path: Path
) -> None:
    servers = ("kafka.bootstrap.servers", cluster.bootstrap_servers)
    for topic in ("from", "to"):
        create(cluster, topic)
    rows = spark.range(0, 600, 1, 3).selectExpr(
        "cast(id as string) as key", "concat('value ', id) as value", "cast(id % 2 as int) as partition"
    )
    rows.write.format("holdfast").option(*servers).option("topic", "from").mode("append").save()
    with pytest.raises(PySparkException, match="a log is appended to"):
        rows.write.format("holdfast").option(*servers).option("topic", "from").mode("overwrite").save()
    query = (
        spark.readStream.format("holdfast")
        .option(*servers)
        .option("subscribe", "from")
        .option("startingOffsets", "earliest")
        .load()
        .writeStream.format("holdfast")
        .option(*servers)
        .option("topic", "to")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(240)
    there = records(cluster, "to")
    assert sorted(int(row["key"]) for row in there) == list(range(600))
    assert all(row["value"] == b"value " + row["key"] for row in there)
    assert all(row["partition"] == int(row["key"]) % 2 for row in there)


@pytest.mark.long
def test_a_cluster_that_is_gone_fails_the_task_with_partition_and_offset(cluster: LocalCluster) -> None:
    create(cluster, "c", 1)
    one = pa.RecordBatch.from_pydict({"value": pa.array([b"0"])})

    def rows() -> Iterator[pa.RecordBatch]:
        yield one
        cluster.kill(cluster.nodes)
        yield one

    chosen = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": "c"}
    options = parse_write_options({**chosen, "kafka.delivery.timeout.ms": "30000"}, {"value": "binary"})
    with pytest.raises(ProduceFailed, match="c-0: 1 records were not acknowledged.*is at offset 0"):
        write_rows(options, rows())
