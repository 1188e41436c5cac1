"""The Kafka APIs that the listener serves, with their numbers and versions.

Each is served in every version that the library kio has a schema for.
"""

from enum import IntEnum
from functools import cache
from typing import Any

from kio.index import load_payload_module
from kio.schema.index import schema_name_map
from kio.static.constants import EntityType
from kio.static.protocol import Entity


class KafkaApi(IntEnum):
    """Kafka's numbers."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    DESCRIBE_LOG_DIRS = 35
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_QUORUM = 55
    UPDATE_FEATURES = 57
    DESCRIBE_CLUSTER = 60
    CONSUMER_GROUP_HEARTBEAT = 68
    DESCRIBE_TOPIC_PARTITIONS = 75

    @property
    def schema_name(self) -> str:
        """kio's name."""
        return self.name.lower()

    @property
    def title(self) -> str:
        """Kafka's name, such as CreateTopics."""
        return self.name.title().replace("_", "")

    @property
    def min_version(self) -> int:
        return _VERSIONS[self][0]

    @property
    def max_version(self) -> int:
        return _VERSIONS[self][1]


#: {API: (lowest, highest version that kio has)}
_VERSIONS = {
    api: (min(schema_name_map[api.schema_name]), max(schema_name_map[api.schema_name])) for api in KafkaApi
}


@cache
def request_type(api: KafkaApi, version: int) -> type[Entity]:
    """The schema of a request."""
    return _payload(api, version, EntityType.request, "Request")


@cache
def response_type(api: KafkaApi, version: int) -> type[Entity]:
    """The schema of a response."""
    return _payload(api, version, EntityType.response, "Response")


def _payload(api: KafkaApi, version: int, kind: Any, suffix: str) -> type[Entity]:
    module = load_payload_module(int(api), version, kind)
    found: type[Entity] = getattr(module, api.title + suffix)
    return found
