"""Whether an image shows what the active controller says it has changed. Decides nothing.

Brokers learn of a change one after the other. The broker that forwards a request answers when its own image
shows the change, so that who asked it sees what it did: a deleted topic is not listed, a new one can be used.
"""

from typing import Any

from immutables import Map

from holdfast.metadata.image import MetadataImage
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.configs import (
    ConfigOperation,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from holdfast.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from holdfast.protocol.messages.features import UpdateFeaturesRequest
from holdfast.protocol.messages.topics import CreateTopicsRequest, DeleteTopicsRequest
from holdfast.protocol.messages.unregister_broker import UnregisterBrokerRequest

_NOTHING: Map[str, str] = Map()


def shows_changes(image: MetadataImage, request: Any, answer: Any) -> bool:
    """True when all that `answer` says was done is seen in `image`, or is nothing that an image shows."""
    if answer.error_code != ErrorCode.NONE or getattr(request, "validate_only", False):
        return True
    match request:
        case CreateTopicsRequest():
            return all(row.topic_id in image.topics for row in answer.topics if _was_done(row))
        case DeleteTopicsRequest():
            return not any(row.topic_id in image.topics for row in answer.topics if _was_done(row))
        case CreatePartitionsRequest():
            return _shows_partitions(image, request, answer)
        case IncrementalAlterConfigsRequest():
            return _shows_configs(image, request, answer)
        case UpdateFeaturesRequest():
            return all(
                image.level_of(update.feature) == update.max_version_level
                for update in request.feature_updates
            )
        case UnregisterBrokerRequest():
            return request.broker_id not in image.brokers
        case _:
            return True


def _was_done(row: Any) -> bool:
    return bool(row.error_code == ErrorCode.NONE)


def _shows_partitions(
    image: MetadataImage, request: CreatePartitionsRequest, answer: CreatePartitionsResponse
) -> bool:
    done = {row.name for row in answer.results if _was_done(row)}
    for asked in request.topics:
        topic = image.topic(asked.name)
        if asked.name in done and topic is not None and len(topic.partitions) < asked.count:
            return False
    return True


def _shows_configs(
    image: MetadataImage, request: IncrementalAlterConfigsRequest, answer: IncrementalAlterConfigsResponse
) -> bool:
    """Lists that are added to or taken from are not looked at: their value is not in the request."""
    done = {(row.resource_type, row.resource_name) for row in answer.responses if _was_done(row)}
    for asked in request.resources:
        resource = (asked.resource_type, asked.resource_name)
        if resource not in done:
            continue
        values = image.configs.get(resource, _NOTHING)
        for change in asked.configs:
            if change.config_operation == ConfigOperation.SET and values.get(change.name) != change.value:
                return False
            if change.config_operation == ConfigOperation.DELETE and change.name in values:
                return False
    return True
