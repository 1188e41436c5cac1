"""What the topic of the committed offsets always has.

Its coordinators delete what is over. A segment that is deleted because it is old or large would cost offsets
that were acknowledged, and other partitions would give every group another coordinator.
"""

from holdfast.protocol.topic_names import OFFSETS_TOPIC

#: The record of the largest group fits one batch.
_MAX_MESSAGE_BYTES = 8 << 20
_UNLIMITED = "-1"
_RETENTION_KEYS = ("retention.ms", "retention.bytes")

#: Overrides that the topic is created with, unless others are asked for.
OFFSETS_TOPIC_CONFIGS = {
    **dict.fromkeys(_RETENTION_KEYS, _UNLIMITED),
    "max.message.bytes": str(_MAX_MESSAGE_BYTES),
}


def offsets_topic_problem(topic_name: str, key: str, value: str | None) -> str | None:
    """Why an override of a topic cannot be set, or removed when it is None; None when it can."""
    if topic_name != OFFSETS_TOPIC or key not in _RETENTION_KEYS or value == _UNLIMITED:
        return None
    return f"{key} of {OFFSETS_TOPIC} stays {_UNLIMITED}: its coordinators delete old offsets"
