"""Whether a topic was compacted once, by what the metadata log still tells."""

import pytest
from immutables import Map

from holdfast.cli.inspect.partition_story import LoggedRecord, ReadLog
from holdfast.cli.inspect.past_policies import was_compacted
from holdfast.metadata.history import MetadataHistory
from holdfast.metadata.image import RESOURCE_BROKER, RESOURCE_TOPIC, MetadataImage
from holdfast.metadata.records import ConfigRecord, MetadataRecord, RemoveTopicRecord, TopicRecord
from holdfast.metadata.snapshot import MetadataState

MADE = TopicRecord("t", bytes(15) + b"1")
MADE_AGAIN = TopicRecord("t", bytes(15) + b"2")


def policy(value: str | None, topic: str = "t") -> ConfigRecord:
    return ConfigRecord(RESOURCE_TOPIC, topic, "cleanup.policy", value)


BROKERS_COMPACT = ConfigRecord(RESOURCE_BROKER, "", "log.cleanup.policy", "compact")


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([MADE], False),
        ([MADE, policy("delete")], False),
        ([MADE, policy("compact"), policy("delete")], True),
        ([MADE, policy("compact,delete"), policy(None)], True),
        ([MADE, policy("compact", "other")], False),
        ([MADE, policy("compact"), RemoveTopicRecord(MADE.topic_id), MADE_AGAIN], False),
        ([policy("delete")], None),
        ([], None),
        ([MADE, BROKERS_COMPACT], None),
    ],
    ids=[
        *("never", "told to delete", "once", "once in part", "another one", "in an earlier life"),
        *("made before the log begins", "no log", "what the brokers do is not known"),
    ],
)
def test_a_log_tells_of_a_topic_that_it_has_from_the_beginning(
    records: list[MetadataRecord], expected: bool | None
) -> None:
    log = ReadLog([LoggedRecord(offset, 0, record) for offset, record in enumerate(records)])
    assert was_compacted(log, "t") is expected


@pytest.mark.parametrize(("value", "expected"), [("compact", True), ("delete", None)])
def test_a_snapshot_tells_what_a_topic_was_at_its_end(value: str, expected: bool | None) -> None:
    image = MetadataImage(configs=Map({(RESOURCE_TOPIC, "t"): Map({"cleanup.policy": value})}))
    log = ReadLog([LoggedRecord(9, 0, policy("delete"))], MetadataState(image, MetadataHistory()))
    assert was_compacted(log, "t") is expected
