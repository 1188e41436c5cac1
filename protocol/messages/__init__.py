"""One module an API; `APIS` is the registry that rpc, documentation and fuzzing read."""

from dataclasses import dataclass

from holdfast.protocol.api_keys import ApiKey
from holdfast.protocol.messages import (
    alter_partition,
    api_versions,
    broker_registration,
    client_quotas,
    committed_offsets,
    configs,
    create_partitions,
    delete_records,
    elect_leaders,
    features,
    fetch,
    groups,
    list_offsets,
    log_dirs,
    metadata,
    offset_for_leader_epoch,
    produce,
    producer_ids,
    quorum,
    reassignments,
    replica_log_info,
    topics,
    unregister_broker,
)


@dataclass(frozen=True, slots=True)
class Api:
    """One RPC: its message classes and the versions that this software speaks, both ends inclusive."""

    key: ApiKey
    request: type
    response: type
    min_version: int = 0
    max_version: int = 0


APIS: dict[ApiKey, Api] = {
    api.key: api
    for api in (
        Api(ApiKey.PRODUCE, produce.ProduceRequest, produce.ProduceResponse),
        Api(ApiKey.FETCH, fetch.FetchRequest, fetch.FetchResponse, max_version=3),
        Api(ApiKey.LIST_OFFSETS, list_offsets.ListOffsetsRequest, list_offsets.ListOffsetsResponse),
        Api(ApiKey.METADATA, metadata.MetadataRequest, metadata.MetadataResponse),
        Api(
            ApiKey.OFFSET_COMMIT,
            committed_offsets.OffsetCommitRequest,
            committed_offsets.OffsetCommitResponse,
        ),
        Api(ApiKey.OFFSET_FETCH, committed_offsets.OffsetFetchRequest, committed_offsets.OffsetFetchResponse),
        Api(ApiKey.FIND_COORDINATOR, groups.FindCoordinatorRequest, groups.FindCoordinatorResponse),
        Api(ApiKey.JOIN_GROUP, groups.JoinGroupRequest, groups.JoinGroupResponse),
        Api(ApiKey.GROUP_HEARTBEAT, groups.GroupHeartbeatRequest, groups.GroupHeartbeatResponse),
        Api(ApiKey.LEAVE_GROUP, groups.LeaveGroupRequest, groups.LeaveGroupResponse),
        Api(ApiKey.SYNC_GROUP, groups.SyncGroupRequest, groups.SyncGroupResponse),
        Api(ApiKey.DESCRIBE_GROUPS, groups.DescribeGroupsRequest, groups.DescribeGroupsResponse),
        Api(ApiKey.LIST_GROUPS, groups.ListGroupsRequest, groups.ListGroupsResponse),
        Api(ApiKey.API_VERSIONS, api_versions.ApiVersionsRequest, api_versions.ApiVersionsResponse),
        Api(ApiKey.CREATE_TOPICS, topics.CreateTopicsRequest, topics.CreateTopicsResponse),
        Api(ApiKey.DELETE_TOPICS, topics.DeleteTopicsRequest, topics.DeleteTopicsResponse),
        Api(
            ApiKey.DELETE_RECORDS,
            delete_records.DeleteRecordsRequest,
            delete_records.DeleteRecordsResponse,
        ),
        Api(ApiKey.INIT_PRODUCER_ID, producer_ids.InitProducerIdRequest, producer_ids.InitProducerIdResponse),
        Api(
            ApiKey.OFFSET_FOR_LEADER_EPOCH,
            offset_for_leader_epoch.OffsetForLeaderEpochRequest,
            offset_for_leader_epoch.OffsetForLeaderEpochResponse,
        ),
        Api(ApiKey.DESCRIBE_CONFIGS, configs.DescribeConfigsRequest, configs.DescribeConfigsResponse),
        Api(ApiKey.DESCRIBE_LOG_DIRS, log_dirs.DescribeLogDirsRequest, log_dirs.DescribeLogDirsResponse),
        Api(
            ApiKey.CREATE_PARTITIONS,
            create_partitions.CreatePartitionsRequest,
            create_partitions.CreatePartitionsResponse,
        ),
        Api(ApiKey.DELETE_GROUPS, groups.DeleteGroupsRequest, groups.DeleteGroupsResponse),
        Api(ApiKey.ELECT_LEADERS, elect_leaders.ElectLeadersRequest, elect_leaders.ElectLeadersResponse),
        Api(
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            configs.IncrementalAlterConfigsRequest,
            configs.IncrementalAlterConfigsResponse,
        ),
        Api(
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            reassignments.AlterPartitionReassignmentsRequest,
            reassignments.AlterPartitionReassignmentsResponse,
        ),
        Api(
            ApiKey.LIST_PARTITION_REASSIGNMENTS,
            reassignments.ListPartitionReassignmentsRequest,
            reassignments.ListPartitionReassignmentsResponse,
        ),
        Api(
            ApiKey.OFFSET_DELETE,
            committed_offsets.OffsetDeleteRequest,
            committed_offsets.OffsetDeleteResponse,
        ),
        Api(
            ApiKey.DESCRIBE_CLIENT_QUOTAS,
            client_quotas.DescribeClientQuotasRequest,
            client_quotas.DescribeClientQuotasResponse,
        ),
        Api(ApiKey.VOTE, quorum.VoteRequest, quorum.VoteResponse, max_version=2),
        Api(
            ApiKey.BEGIN_QUORUM_EPOCH,
            quorum.BeginQuorumEpochRequest,
            quorum.QuorumEpochResponse,
            max_version=1,
        ),
        Api(ApiKey.END_QUORUM_EPOCH, quorum.EndQuorumEpochRequest, quorum.QuorumEpochResponse),
        Api(
            ApiKey.DESCRIBE_QUORUM,
            quorum.DescribeQuorumRequest,
            quorum.DescribeQuorumResponse,
            max_version=1,
        ),
        Api(
            ApiKey.ALTER_PARTITION,
            alter_partition.AlterPartitionRequest,
            alter_partition.AlterPartitionResponse,
            max_version=2,
        ),
        Api(ApiKey.UPDATE_FEATURES, features.UpdateFeaturesRequest, features.UpdateFeaturesResponse),
        Api(ApiKey.DESCRIBE_CLUSTER, metadata.DescribeClusterRequest, metadata.DescribeClusterResponse),
        Api(
            ApiKey.BROKER_REGISTRATION,
            broker_registration.BrokerRegistrationRequest,
            broker_registration.BrokerRegistrationResponse,
        ),
        Api(
            ApiKey.BROKER_HEARTBEAT,
            broker_registration.BrokerHeartbeatRequest,
            broker_registration.BrokerHeartbeatResponse,
            max_version=3,
        ),
        Api(
            ApiKey.UNREGISTER_BROKER,
            unregister_broker.UnregisterBrokerRequest,
            unregister_broker.UnregisterBrokerResponse,
        ),
        Api(
            ApiKey.ALLOCATE_PRODUCER_IDS,
            producer_ids.AllocateProducerIdsRequest,
            producer_ids.AllocateProducerIdsResponse,
        ),
        Api(
            ApiKey.GET_REPLICA_LOG_INFO,
            replica_log_info.GetReplicaLogInfoRequest,
            replica_log_info.GetReplicaLogInfoResponse,
            max_version=1,
        ),
        Api(
            ApiKey.DESCRIBE_TOPIC_PARTITIONS,
            topics.DescribeTopicPartitionsRequest,
            topics.DescribeTopicPartitionsResponse,
        ),
        Api(ApiKey.FETCH_SNAPSHOT, quorum.FetchSnapshotRequest, quorum.FetchSnapshotResponse),
        Api(ApiKey.ADD_RAFT_VOTER, quorum.AddRaftVoterRequest, quorum.AddRaftVoterResponse, max_version=1),
        Api(ApiKey.REMOVE_RAFT_VOTER, quorum.RemoveRaftVoterRequest, quorum.RemoveRaftVoterResponse),
        Api(
            ApiKey.RESIGN_QUORUM_LEADER,
            quorum.ResignQuorumLeaderRequest,
            quorum.ResignQuorumLeaderResponse,
        ),
        Api(ApiKey.UPGRADE_QUORUM, quorum.UpgradeQuorumRequest, quorum.UpgradeQuorumResponse),
    )
}

#: Request class -> its API, for senders.
API_OF_REQUEST: dict[type, Api] = {api.request: api for api in APIS.values()}
