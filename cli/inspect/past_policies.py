"""Whether a topic was compacted once, out of the metadata log: what its records may be missing for."""

from holdfast.cli.inspect.partition_story import ReadLog
from holdfast.metadata.image import RESOURCE_TOPIC
from holdfast.metadata.records import ConfigRecord, TopicRecord

_OF_TOPIC, _OF_BROKERS = "cleanup.policy", "log.cleanup.policy"


def was_compacted(log: ReadLog, topic: str) -> bool | None:
    """In the topic's present life; None when that is not known, as the log does not reach back to when the
    topic was made, or its brokers were told to compact what has no policy of its own."""
    known: bool | None = None
    is_default = False
    if log.base is not None:
        configs = log.base.image.configs
        of_topic = configs.get((RESOURCE_TOPIC, topic))
        if of_topic is not None and _compacts(of_topic.get(_OF_TOPIC)):
            known = True
        is_default = any(_compacts(values.get(_OF_BROKERS)) for values in configs.values())
    for logged in log.records:
        record = logged.record
        if isinstance(record, TopicRecord) and record.name == topic:
            known = False
        elif isinstance(record, ConfigRecord) and _compacts(record.value):
            if (record.resource_type, record.resource_name, record.name) == (
                RESOURCE_TOPIC,
                topic,
                _OF_TOPIC,
            ):
                known = True
            is_default = is_default or record.name == _OF_BROKERS
    return None if is_default and not known else known


def _compacts(value: str | None) -> bool:
    return value is not None and "compact" in value
