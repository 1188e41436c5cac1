"""ApiVersions, UpdateFeatures, DescribeQuorum and DescribeLogDirs."""

from typing import Any

from holdfast.kafka_listener.core.api_table import KafkaApi
from holdfast.kafka_listener.core.envelope import Request
from holdfast.kafka_listener.core.error_codes import admin_code, kafka_code
from holdfast.kafka_listener.core.schema_writer import Fields
from holdfast.kafka_listener.core.translation import Ask, ClusterView, LogDirView, Outcome
from holdfast.metadata.describe import described_features
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.features import (
    FeatureUpdate,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
    UpgradeType,
)
from holdfast.protocol.messages.quorum import DescribeQuorumRequest, DescribeQuorumResponse, QuorumReplica

#: Kafka's name of the metadata log.
METADATA_TOPIC = "__cluster_metadata"
_NOT_THE_METADATA_LOG = "only partition 0 of __cluster_metadata has a quorum"


# --- ApiVersions ---------------------------------------------------------------------------------------


def api_versions(request: Request, cluster: ClusterView) -> Outcome:
    """Every API that is served, and the features with their levels."""
    features = [row for row in described_features(cluster.image) if row.max_supported_level > 0]
    finalized = [row for row in features if row.finalized_level > 0]
    return {
        **versions_fields(ErrorCode.NONE),
        "supported_features": [
            {
                "name": row.name,
                # Kafka's schema has no level 0 here: a feature may always be off.
                "min_version": max(1, row.min_supported_level),
                "max_version": row.max_supported_level,
            }
            for row in features
        ],
        "finalized_features_epoch": cluster.image.offset if finalized else -1,
        "finalized_features": [
            {"name": row.name, "max_version_level": row.finalized_level, "min_version_level": 1}
            for row in finalized
        ],
    }


def versions_fields(code: ErrorCode) -> dict[str, Any]:
    """The table of APIs, which a client of an unknown version gets too."""
    return {
        "error_code": int(code),
        "api_keys": [
            {"api_key": int(api), "min_version": api.min_version, "max_version": api.max_version}
            for api in KafkaApi
        ],
    }


# --- UpdateFeatures ------------------------------------------------------------------------------------


def update_features(request: Request, cluster: ClusterView) -> Outcome:
    """Finalize levels; the broker forwards it."""
    message = request.message
    updates = tuple(
        FeatureUpdate(
            update.feature,
            update.max_version_level,
            getattr(update, "upgrade_type", UpgradeType.UPGRADE)
            if not getattr(update, "allow_downgrade", False)
            else UpgradeType.SAFE_DOWNGRADE,
        )
        for update in message.feature_updates
    )

    def finish(code: int, text: str | None) -> Fields:
        rows = [{"feature": update.feature, "error_code": code, "error_message": text} for update in updates]
        return {"error_code": code, "error_message": text, "results": rows}

    def answer(response: UpdateFeaturesResponse) -> Outcome:
        return finish(kafka_code(response.error_code), response.error_message)

    ours = UpdateFeaturesRequest(message.timeout, getattr(message, "validate_only", False), updates)
    return Ask(ours, answer, lambda code, text: finish(admin_code(code), text))


# --- DescribeQuorum ------------------------------------------------------------------------------------


def describe_quorum(request: Request, cluster: ClusterView) -> Outcome:
    """The quorum as its leader sees it; the broker forwards it."""
    asked = [
        (topic.topic_name, one.partition_index)
        for topic in request.message.topics
        for one in topic.partitions
    ]
    if asked != [(METADATA_TOPIC, 0)]:
        return _quorum_refused(kafka_code(ErrorCode.INVALID_REQUEST), _NOT_THE_METADATA_LOG)

    def answer(response: DescribeQuorumResponse) -> Outcome:
        if response.error_code:
            return _quorum_refused(kafka_code(response.error_code), response.error_message)
        partition = {
            "partition_index": 0,
            "error_code": 0,
            "error_message": None,
            "leader_id": response.leader_id,
            "leader_epoch": response.raft_epoch,
            "high_watermark": response.high_watermark,
            "current_voters": [_quorum_replica(row) for row in response.voters],
            "observers": [_quorum_replica(row) for row in response.observers],
        }
        return {
            "error_code": 0,
            "error_message": None,
            "topics": [{"topic_name": METADATA_TOPIC, "partitions": [partition]}],
            # Controllers have no listener for Kafka clients.
            "nodes": [{"node_id": row.replica_id, "listeners": ()} for row in response.voters],
        }

    return Ask(DescribeQuorumRequest(), answer, lambda code, text: _quorum_refused(admin_code(code), text))


def _quorum_refused(code: int, text: str | None) -> Fields:
    return {"error_code": code, "error_message": text, "topics": (), "nodes": ()}


def _quorum_replica(row: QuorumReplica) -> Fields:
    return {
        "replica_id": row.replica_id,
        "replica_directory_id": None,
        "log_end_offset": row.log_end_offset,
        "last_fetch_timestamp": row.last_fetch_timestamp_ms,
        "last_caught_up_timestamp": row.last_caught_up_timestamp_ms,
    }


# --- DescribeLogDirs -----------------------------------------------------------------------------------


def describe_log_dirs(request: Request, cluster: ClusterView) -> Outcome:
    """The log dirs of this broker, with these partitions or with all."""
    topics = request.message.topics
    asked = (
        None if topics is None else {(topic.topic, index) for topic in topics for index in topic.partitions}
    )
    return {"error_code": 0, "results": [_log_dir(one, asked) for one in cluster.log_dirs()]}


def _log_dir(log_dir: LogDirView, asked: set[tuple[str, int]] | None) -> Fields:
    by_topic: dict[str, list[Fields]] = {}
    for name, index, size_bytes, lag in log_dir.replicas:
        if asked is None or (name, index) in asked:
            row = {
                "partition_index": index,
                "partition_size": size_bytes,
                "offset_lag": lag,
                "is_future_key": False,
            }
            by_topic.setdefault(name, []).append(row)
    return {
        "error_code": 0 if log_dir.is_online else kafka_code(ErrorCode.KAFKA_STORAGE_ERROR),
        "log_dir": log_dir.path,
        "topics": [{"name": name, "partitions": rows} for name, rows in sorted(by_topic.items())],
        "total_bytes": log_dir.total_bytes,
        "usable_bytes": log_dir.usable_bytes,
    }
