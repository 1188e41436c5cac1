"""`readFrom=replica:<id>`: a range as one broker's own log has it. The reader is driven without Spark."""

from collections.abc import Iterator

import pytest

from holdfast.client.core.errors import ClientError, TimedOut
from holdfast.durability.core.positions import DataLost
from holdfast.durability.range_reader import read_range
from holdfast.durability.read_options import BadOption, Mode, OffsetRange, parse_options
from holdfast.protocol.record_batch import Record, encode_batch
from tests.spark.planted_log import NODE_ID, PlantedLogs

pytestmark = [pytest.mark.spark]


def batches(start: int, end: int) -> list[bytes]:
    return [
        encode_batch(
            [Record(offset, 1, None, b"%d" % offset) for offset in range(low, low + 5)],
            base_offset=low,
            leader_epoch=3,
        )
        for low in range(start, end, 5)
    ]


@pytest.fixture(scope="module")
def node() -> Iterator[PlantedLogs]:
    with PlantedLogs({("t", 0): batches(0, 20), ("t", 1): batches(10, 20)}) as node:
        yield node


def read(
    node: PlantedLogs, partition: int, start: int, end: int, broker: int = NODE_ID, **more: str
) -> list[int]:
    options = parse_options(
        {
            "kafka.bootstrap.servers": node.address,
            "subscribe": "t",
            "readFrom": f"replica:{broker}",
            "kafkaConsumer.pollTimeoutMs": "1000",
            **more,
        },
        Mode.BATCH,
    )
    found = read_range(options, OffsetRange("t", partition, start, end))
    return [offset for batch in found for offset in batch.column("offset").to_pylist()]


def test_a_range_is_read_from_the_named_broker_without_what_lies_around_it(node: PlantedLogs) -> None:
    assert read(node, 0, 3, 17) == list(range(3, 17))
    assert read(node, 0, 4, 4) == []


def test_a_replica_that_has_less_is_said_with_what_it_knows(node: PlantedLogs) -> None:
    with pytest.raises(TimedOut, match="t-0 on broker 1: nothing came from offset 20 .* high watermark 20"):
        read(node, 0, 15, 25)


def test_a_replica_whose_log_begins_later_has_lost_something_unless_that_is_fine(node: PlantedLogs) -> None:
    with pytest.raises(DataLost, match="t-1 on broker 1: its log begins at 10, offset 3 is not in it"):
        read(node, 1, 3, 20)
    assert read(node, 1, 3, 20, failOnDataLoss="false") == list(range(10, 20))


def test_another_topic_of_the_same_name_is_not_read_for_the_planned_one(node: PlantedLogs) -> None:
    planned = node.topic_id("t").hex()
    options = {"kafka.bootstrap.servers": node.address, "subscribe": "t", "readFrom": f"replica:{NODE_ID}"}
    for topic_id, fails, count in ((planned, "true", 20), ("aa", "false", 0)):
        chosen = parse_options({**options, "failOnDataLoss": fails}, Mode.BATCH)
        found = read_range(chosen, OffsetRange("t", 0, 0, 20, topic_id=topic_id))
        assert sum(batch.num_rows for batch in found) == count
    with pytest.raises(DataLost, match="t-0: the topic was deleted and made again .topic id aa, now"):
        list(read_range(parse_options(options, Mode.BATCH), OffsetRange("t", 0, 0, 20, topic_id="aa")))


def test_a_broker_that_is_not_there_is_named_with_those_that_are(node: PlantedLogs) -> None:
    with pytest.raises(ClientError, match="broker 7 is not registered; there are 1"):
        read(node, 0, 0, 5, broker=7)


def test_a_stream_reads_leaders_only() -> None:
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "readFrom": "replica:2"}
    with pytest.raises(BadOption, match="streams read leaders"):
        parse_options(given, Mode.STREAM)
