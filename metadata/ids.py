"""How the cluster's own parts name a partition: by the id of its topic, which no later topic has again."""

from typing import NamedTuple


class PartitionId(NamedTuple):
    """Topic by id and partition by index."""

    topic_id: bytes
    partition_index: int
