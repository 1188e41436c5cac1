"""Whether an image shows what the active controller says it has changed."""

from typing import Any

import pytest

from holdfast.metadata.delta import MetadataDelta
from holdfast.metadata.image import RESOURCE_TOPIC, MetadataImage
from holdfast.metadata.records import ConfigRecord, FeatureLevelRecord, MetadataRecord, TopicRecord
from holdfast.metadata.shown_changes import shows_changes
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResult,
    ConfigOperation,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from holdfast.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from holdfast.protocol.messages.features import FeatureUpdate, UpdateFeaturesRequest, UpdateFeaturesResponse
from holdfast.protocol.messages.topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from holdfast.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

NONE, FAILED = ErrorCode.NONE, ErrorCode.INVALID_REQUEST
KNOWN, OTHER = b"k" * 16, b"o" * 16


def image() -> MetadataImage:
    """One topic, `known`, without partitions, with one setting and one feature."""
    records: list[MetadataRecord] = [
        TopicRecord("known", KNOWN),
        ConfigRecord(RESOURCE_TOPIC, "known", "retention.ms", "5"),
        FeatureLevelRecord("eligible.leader.replicas.version", 1),
    ]
    delta = MetadataDelta(MetadataImage())
    for offset, record in enumerate(records):
        delta.replay(record, offset, 1)
    return delta.apply()


def created(topic_id: bytes, code: int = NONE, *, validate_only: bool = False) -> tuple[Any, Any]:
    row = CreatableTopicResult("a", topic_id, code, None, 1, 1, 1)
    return CreateTopicsRequest(0, validate_only, ()), CreateTopicsResponse(NONE, None, (row,))


def deleted(topic_id: bytes, code: int = NONE) -> tuple[Any, Any]:
    row = DeletableTopicResult("a", topic_id, code, None)
    return DeleteTopicsRequest(0, ("a",)), DeleteTopicsResponse(NONE, None, (row,))


def grown(name: str, code: int = NONE) -> tuple[Any, Any]:
    row = CreatePartitionsTopicResult(name, code, None)
    request = CreatePartitionsRequest(0, False, (CreatePartitionsTopic(name, 3, None),))
    return request, CreatePartitionsResponse(NONE, None, (row,))


def altered(operation: ConfigOperation, name: str, value: str | None, code: int = NONE) -> tuple[Any, Any]:
    resource = AlterConfigsResource(RESOURCE_TOPIC, "known", (AlterableConfig(name, operation, value),))
    row = AlterConfigsResult(code, None, RESOURCE_TOPIC, "known")
    return IncrementalAlterConfigsRequest(False, (resource,)), IncrementalAlterConfigsResponse(
        NONE, None, (row,)
    )


def leveled(level: int, code: int = NONE) -> tuple[Any, Any]:
    update = FeatureUpdate("eligible.leader.replicas.version", level, 1)
    return UpdateFeaturesRequest(0, False, (update,)), UpdateFeaturesResponse(code, None, ())


@pytest.mark.parametrize(
    ("change", "is_shown"),
    [
        (created(KNOWN), True),
        (created(OTHER), False),
        (created(OTHER, FAILED), True),
        (created(OTHER, validate_only=True), True),
        (deleted(OTHER), True),
        (deleted(KNOWN), False),
        (deleted(KNOWN, FAILED), True),
        (grown("known"), False),
        (grown("known", FAILED), True),
        (grown("gone since"), True),
        (altered(ConfigOperation.SET, "retention.ms", "5"), True),
        (altered(ConfigOperation.SET, "retention.ms", "6"), False),
        (altered(ConfigOperation.SET, "retention.ms", "6", FAILED), True),
        (altered(ConfigOperation.DELETE, "retention.ms", None), False),
        (altered(ConfigOperation.DELETE, "segment.ms", None), True),
        (altered(ConfigOperation.APPEND, "cleanup.policy", "delete"), True),
        (leveled(1), True),
        (leveled(0), False),
        (leveled(0, FAILED), True),
        ((UnregisterBrokerRequest(7), UnregisterBrokerResponse(NONE, None)), True),
    ],
)
def test_what_was_done_is_looked_for_and_what_was_refused_is_not(
    change: tuple[Any, Any], is_shown: bool
) -> None:
    assert shows_changes(image(), *change) is is_shown
