"""`readStream.format("holdfast")`: each record once, through restarts; a log that changed behind the stream
is noticed. Most tests drive the reader as Spark does, without Spark."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.streaming.datasource import ReadAllAvailable

from holdfast.client.core.errors import ClientError
from holdfast.durability.core.positions import DataLost
from holdfast.durability.range_reader import POLL_BYTES
from holdfast.protocol.record_batch import Record, encode_batch
from tests.spark.planted_log import PlantedLogs
from tests.spark.stream_driver import Stream

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(400),
    pytest.mark.xdist_group("spark session"),
]

ALL = ReadAllAvailable()


def batches(start: int, end: int, epoch: int = 3, size: int = 10, padding: bytes = b"") -> list[bytes]:
    """Records `<epoch>:<offset>` in batches of `size`."""
    return [
        encode_batch(
            [
                Record(o, 1_000 + o, None, b"%d:%d" % (epoch, o) + padding)
                for o in range(low, min(low + size, end))
            ],
            base_offset=low,
            leader_epoch=epoch,
        )
        for low in range(start, end, size)
    ]


@pytest.fixture
def node() -> Iterator[PlantedLogs]:
    with PlantedLogs({("t", 0): batches(0, 100), ("t", 1): batches(0, 40)}) as node:
        yield node


@pytest.fixture
def streams(node: PlantedLogs) -> Iterator[Any]:
    made: list[Stream] = []

    def make(**options: str) -> Stream:
        made.append(Stream(node.address, **options))
        return made[-1]

    yield make
    for stream in made:
        stream.end()


def values(partition: int, start: int, end: int, epoch: int = 3) -> list[tuple[int, int, str]]:
    return [(partition, offset, f"{epoch}:{offset}") for offset in range(start, end)]


def test_a_stream_reads_what_comes_and_new_partitions_from_their_beginning(
    node: PlantedLogs, streams: Any
) -> None:
    stream = streams()
    assert stream.next() == 140
    assert stream.plan()[0] == stream.plan()[1], "without news there is no micro-batch"
    node.plant("t", 0, batches(0, 110))
    node.plant("t", 2, batches(0, 20, epoch=5))
    stream.restart()
    assert stream.next() == 30
    assert sorted(stream.rows) == [*values(0, 0, 110), *values(1, 0, 40), *values(2, 0, 20, epoch=5)]


def test_a_stream_begins_at_the_end_unless_it_is_bidden_otherwise(node: PlantedLogs, streams: Any) -> None:
    stream = streams(startingOffsets="latest")
    assert stream.plan()[0] == stream.plan()[1]
    node.plant("t", 0, batches(0, 105))
    assert stream.next() == 5


def test_a_pattern_waits_for_its_topics_and_notices_those_that_go(node: PlantedLogs, streams: Any) -> None:
    stream = streams(subscribePattern="u.*")
    assert [stream.next(), stream.next()] == [0, 0]
    node.plant("u1", 0, batches(0, 10))
    assert stream.next() == 10
    node.plant("u2", 0, batches(0, 20))
    node.hide("u1")  # listed, and deleted before it is described
    with pytest.raises(DataLost, match="u1-0: no longer there"):
        stream.plan()
    stream.restart(failOnDataLoss="false")
    assert stream.next() == 20
    node.hide("u2")
    assert stream.next() == 0
    node.show()
    node.plant("u1", 0, batches(0, 30))
    assert stream.next() == 20


def test_partitions_that_a_broker_does_not_know_yet_are_not_lost(node: PlantedLogs, streams: Any) -> None:
    """No topic gets fewer partitions."""
    stream = streams()
    assert stream.next() == 140
    node.plant("t", 0, batches(0, 120))
    node.plant("t", 1, batches(0, 60))
    node.hide(("t", 1))
    stream.restart()
    assert stream.next() == 20
    node.show()
    assert stream.next() == 20


def test_limits_are_kept_and_a_small_trigger_waits(node: PlantedLogs, streams: Any) -> None:
    stream = streams(maxOffsetsPerTrigger="50", minOffsetsPerTrigger="20")
    assert [stream.next(), stream.next()] == [50, 50]
    assert stream.next() == 40
    node.plant("t", 1, batches(0, 50))
    assert stream.next() == 0, "ten are fewer than minOffsetsPerTrigger"
    assert stream.plan(ALL)[1] != stream.offsets, "the engine's own limit outweighs the options"
    node.plant("t", 1, batches(0, 60))
    assert stream.next() == 20
    assert sorted(stream.rows) == [*values(0, 0, 100), *values(1, 0, 60)]


def test_available_now_ends_where_the_log_ended(node: PlantedLogs, streams: Any) -> None:
    stream = streams(maxOffsetsPerTrigger="100")
    stream.reader.prepareForTriggerAvailableNow()
    node.plant("t", 0, batches(0, 150))
    node.plant("t", 2, batches(0, 10))
    assert [stream.next(), stream.next(), stream.next()] == [100, 40, 0]


def test_a_record_that_was_replaced_is_noticed_with_both_epochs(node: PlantedLogs, streams: Any) -> None:
    stream = streams()
    stream.next()
    # an unclean election: another leader goes on at 60, and is further than the stream by now
    node.plant("t", 0, batches(0, 60) + batches(60, 130, epoch=6))
    stream.restart()
    words = "t-0: the log was truncated: offset 60 was read in leader epoch 3.*of leader epoch 6"
    with pytest.raises(DataLost, match=words):
        stream.plan()
    stream.restart(failOnDataLoss="false")
    start, end = stream.plan()
    assert (end["t"]["partitions"]["0"]["lost"], stream.read(start, end)) == (40, 70)
    assert stream.rows[140:] == values(0, 60, 130, epoch=6)
    assert stream.next() == 0, "nothing is read twice"
    node.plant("t", 0, batches(0, 60) + batches(60, 150, epoch=6))
    stream.restart(failOnDataLoss="true")
    assert stream.next() == 20, "once counted, it is no loss any more"


def test_a_micro_batch_that_was_planned_and_not_read_is_read_again_or_refused(
    node: PlantedLogs, streams: Any
) -> None:
    stream = streams()
    start, end = stream.plan()
    stream.restart()
    assert stream.read(start, end) == 140, "killed and resumed: the same records"
    stream.offsets, stream.rows = start, []
    node.plant("t", 0, batches(0, 60) + batches(60, 80, epoch=6))
    stream.restart()
    with pytest.raises(DataLost, match="offset 60 was read in leader epoch 3"):
        stream.read(start, end)
    stream.restart(failOnDataLoss="false")
    assert stream.read(start, end) == 100
    assert stream.next() == 20
    assert sorted(stream.rows) == [*values(0, 0, 60), *values(0, 60, 80, epoch=6), *values(1, 0, 40)]


@pytest.mark.parametrize("done", [0, 1], ids=["the first one", "a later one"])
def test_a_planned_micro_batch_is_not_read_without_partitions_that_a_broker_does_not_know_yet(
    node: PlantedLogs, streams: Any, done: int
) -> None:
    """What a micro-batch passes over is never read."""
    stream = streams(failOnDataLoss="false")
    for _ in range(done):
        stream.next()
    node.plant("t", 1, batches(0, 50))
    start, end = stream.plan()

    def repeat() -> int:
        stream.restart()
        # of the first one Spark asks for the beginning again
        return int(stream.read(start if done else stream.reader.initialOffset(), end))

    node.hide(("t", 1))
    with pytest.raises(ClientError, match="t-1: UNKNOWN_TOPIC_OR_PARTITION"):
        repeat()
    node.show()
    assert repeat() == (10 if done else 150)


def test_a_first_micro_batch_that_was_planned_with_another_topic_says_so(
    node: PlantedLogs, streams: Any
) -> None:
    node.plant("u", 0, batches(0, 10))
    stream = streams(subscribe="t,u")
    _, end = stream.plan()
    stream.restart(subscribe="t")
    start = stream.reader.initialOffset()
    with pytest.raises(DataLost, match="u-0: no longer there, though the stream reads them"):
        stream.read(start, end)
    stream.restart(failOnDataLoss="false")
    assert stream.read(start, end) == 140


def test_records_that_are_replaced_between_plan_and_read_are_not_taken_for_the_planned_ones(
    node: PlantedLogs, streams: Any
) -> None:
    stream = streams()
    start, end = stream.plan()
    node.plant("t", 0, batches(0, 60) + batches(60, 130, epoch=6))
    with pytest.raises(DataLost, match="offset 60 was of leader epoch 3.*of leader epoch 6"):
        stream.read(start, end)


@pytest.mark.parametrize("has_read", [True, False], ids=["a running stream", "a new stream"])
def test_an_election_between_metadata_and_offsets_is_no_loss(
    node: PlantedLogs, streams: Any, has_read: bool
) -> None:
    stream = streams()
    if has_read:
        assert stream.next() == 140
    node.elect_unseen("t", 0, batches(0, 100) + batches(100, 120, epoch=6))
    stream.next()
    stream.restart()
    assert stream.next() == 0
    assert sorted(stream.rows) == [
        *values(0, 0, 100),
        *values(0, 100, 120, epoch=6),
        *values(1, 0, 40),
    ]


#: so long that a range is read in several answers
PADDING = b" " * (POLL_BYTES // 20)


@pytest.mark.parametrize(
    ("log", "begins", "following"),
    [
        (batches(90, 150, padding=PADDING), 0, (100, 150, 3)),
        ([], 150, (150, 150, 3)),
        (batches(0, 20, padding=PADDING), 0, (20, 20, 3)),
        (batches(0, 20, padding=PADDING) + batches(20, 35, 6, padding=PADDING), 0, (20, 35, 6)),
        (batches(0, 20, padding=PADDING) + batches(20, 150, 6, padding=PADDING), 0, (20, 150, 6)),
    ],
    ids=["deleted", "all deleted", "cut", "cut, and less since", "cut, and more since"],
)
def test_a_log_that_changes_while_a_range_is_read_gives_no_record_twice_and_none_of_others(
    node: PlantedLogs, streams: Any, log: list[bytes], begins: int, following: tuple[int, int, int]
) -> None:
    for fails in (True, False):
        node.plant("t", 0, batches(0, 100, padding=PADDING))
        stream = streams(
            **{"failOnDataLoss": str(fails), "assign": '{"t":[0]}', "kafkaConsumer.pollTimeoutMs": "3000"}
        )
        start, end = stream.plan()
        (partition,) = stream.reader.partitions(start, end)
        found = stream.reader.read(partition)
        offsets = next(found).column("offset").to_pylist()
        node.plant("t", 0, log, begins=begins)
        if fails:
            with pytest.raises(DataLost, match="deleted or truncated|the log was truncated"):
                list(found)
            continue
        for batch in found:
            offsets += batch.column("offset").to_pylist()
            assert set(batch.column("leaderEpoch").to_pylist()) == {3}
        assert sorted(set(offsets)) == offsets
        stream.offsets = end
        stream.next()
        assert [(offset, value.strip()) for _, offset, value in stream.rows] == [
            (offset, value) for _, offset, value in values(0, *following)
        ]


def test_a_topic_that_was_made_again_is_noticed(node: PlantedLogs, streams: Any) -> None:
    stream = streams()
    stream.next()
    node.make_again("t")
    node.plant("t", 0, batches(0, 200, epoch=1))
    stream.restart()
    with pytest.raises(DataLost, match="t-0: the topic was deleted and made again"):
        stream.plan()
    stream.restart(failOnDataLoss="false")
    assert stream.next() == 240


def test_partitions_that_a_topic_made_again_does_not_have_are_forgotten(
    node: PlantedLogs, streams: Any
) -> None:
    """When they are added later, they are new ones."""
    stream = streams(failOnDataLoss="false")
    stream.next()
    node.make_again("t")
    node.hide(("t", 1))
    start, end = stream.plan()
    stream.restart()
    assert stream.read(start, end) == 100
    node.show()
    assert [stream.next(), stream.next()] == [40, 0]


def test_a_topic_that_is_made_again_between_plan_and_read_is_not_read_for_the_planned_one(
    node: PlantedLogs, streams: Any
) -> None:
    stream = streams()
    start, end = stream.plan()
    node.make_again("t")
    with pytest.raises(DataLost, match="the topic was deleted and made again .* before offsets 0 to"):
        stream.read(start, end)
    stream.restart(failOnDataLoss="false")
    start, end = stream.plan()
    node.make_again("t")
    assert [stream.read(start, end), stream.next()] == [0, 140]


def test_offsets_that_retention_removed_are_named_or_counted(node: PlantedLogs, streams: Any) -> None:
    stream = streams()
    stream.next()
    node.plant("t", 1, batches(55, 70))
    stream.restart()
    with pytest.raises(DataLost, match="t-1: offsets 40 to 54 were deleted before they were read"):
        stream.plan()
    stream.restart(failOnDataLoss="false")
    start, end = stream.plan()
    assert (end["t"]["partitions"]["1"]["lost"], stream.read(start, end)) == (15, 15)


def test_spark_resumes_a_stream_from_its_checkpoint_and_fails_when_the_log_is_another(
    spark: Any, node: PlantedLogs, tmp_path: Path
) -> None:
    def run(**options: str) -> Any:
        stream = spark.readStream.format("holdfast").option("kafka.bootstrap.servers", node.address)
        for name, value in {"subscribe": "t", "startingOffsets": "earliest", **options}.items():
            stream = stream.option(name, value)
        query = (
            stream.load()
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "rows"))
        )
        query.awaitTermination(240)
        return query

    def rows() -> list[tuple[int, int]]:
        table = spark.read.parquet(str(tmp_path / "rows")).select("partition", "offset")
        return sorted((row.partition, row.offset) for row in table.collect())

    query = run(maxOffsetsPerTrigger="100")
    assert [progress["numInputRows"] for progress in query.recentProgress][:2] == [100, 40]
    node.plant("t", 0, batches(0, 120))
    run()
    assert rows() == [*((0, offset) for offset in range(120)), *((1, offset) for offset in range(40))]
    node.plant("t", 0, batches(0, 90) + batches(90, 140, epoch=8))
    with pytest.raises(PySparkException, match="t-0: the log was truncated: offset 90"):
        run()
