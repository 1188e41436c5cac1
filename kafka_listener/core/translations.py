"""The table of translations: one function an API."""

from holdfast.kafka_listener.core.api_table import KafkaApi
from holdfast.kafka_listener.core.apis import (
    cluster,
    configs,
    fetch,
    group_offsets,
    groups,
    metadata,
    offsets,
    partitions,
    produce,
    producer_ids,
    topics,
)
from holdfast.kafka_listener.core.translation import Translation

TRANSLATIONS: dict[KafkaApi, Translation] = {
    KafkaApi.PRODUCE: produce.produce,
    KafkaApi.FETCH: fetch.fetch,
    KafkaApi.LIST_OFFSETS: offsets.list_offsets,
    KafkaApi.METADATA: metadata.metadata,
    KafkaApi.OFFSET_COMMIT: group_offsets.offset_commit,
    KafkaApi.OFFSET_FETCH: group_offsets.offset_fetch,
    KafkaApi.FIND_COORDINATOR: groups.find_coordinator,
    KafkaApi.JOIN_GROUP: groups.join_group,
    KafkaApi.HEARTBEAT: groups.heartbeat,
    KafkaApi.LEAVE_GROUP: groups.leave_group,
    KafkaApi.SYNC_GROUP: groups.sync_group,
    KafkaApi.DESCRIBE_GROUPS: groups.describe_groups,
    KafkaApi.LIST_GROUPS: groups.list_groups,
    KafkaApi.API_VERSIONS: cluster.api_versions,
    KafkaApi.CREATE_TOPICS: topics.create_topics,
    KafkaApi.DELETE_TOPICS: topics.delete_topics,
    KafkaApi.DELETE_RECORDS: offsets.delete_records,
    KafkaApi.INIT_PRODUCER_ID: producer_ids.init_producer_id,
    KafkaApi.OFFSET_FOR_LEADER_EPOCH: offsets.offset_for_leader_epoch,
    KafkaApi.DESCRIBE_CONFIGS: configs.describe_configs,
    KafkaApi.DESCRIBE_LOG_DIRS: cluster.describe_log_dirs,
    KafkaApi.CREATE_PARTITIONS: topics.create_partitions,
    KafkaApi.DELETE_GROUPS: groups.delete_groups,
    KafkaApi.ELECT_LEADERS: partitions.elect_leaders,
    KafkaApi.INCREMENTAL_ALTER_CONFIGS: configs.incremental_alter_configs,
    KafkaApi.ALTER_PARTITION_REASSIGNMENTS: partitions.alter_partition_reassignments,
    KafkaApi.LIST_PARTITION_REASSIGNMENTS: partitions.list_partition_reassignments,
    KafkaApi.OFFSET_DELETE: group_offsets.offset_delete,
    KafkaApi.DESCRIBE_QUORUM: cluster.describe_quorum,
    KafkaApi.UPDATE_FEATURES: cluster.update_features,
    KafkaApi.DESCRIBE_CLUSTER: metadata.describe_cluster,
    KafkaApi.DESCRIBE_TOPIC_PARTITIONS: metadata.describe_topic_partitions,
}
assert TRANSLATIONS.keys() == set(KafkaApi)
