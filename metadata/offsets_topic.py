"""What the topic of the committed offsets always has.

Its coordinators delete what is over. A segment that is deleted because it is old or large would cost offsets
that were acknowledged, and other partitions would give every group another coordinator.
"""

#: The record of the largest group fits one batch.
_MAX_MESSAGE_BYTES = 8 << 20
_UNLIMITED = "-1"
_RETENTION_KEYS = ("retention.ms", "retention.bytes")

#: Overrides that the topic is created with, unless others are asked for.
OFFSETS_TOPIC_CONFIGS = {
    **dict.fromkeys(_RETENTION_KEYS, _UNLIMITED),
    "max.message.bytes": str(_MAX_MESSAGE_BYTES),
}
