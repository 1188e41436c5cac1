"""Renders the configuration of an image as a DescribeConfigs answer: effective values and their sources.

Brokers and controllers use the same code, each with its own image and file. Also says which resources and
keys can be changed. Decides nothing.
"""

from collections.abc import Mapping
from typing import Any

from holdfast.metadata.answer_steps import AnswerSteps, Pace, in_one_go
from holdfast.metadata.configs import (
    CLIENT_KEY_BY_NAME,
    CLUSTER_KEY_BY_NAME,
    TOPIC_KEY_BY_NAME,
    ConfigKey,
    allowed_values,
    unknown_key_problem,
    value_text,
)
from holdfast.metadata.image import (
    CLUSTER_RESOURCE,
    RESOURCE_BROKER,
    RESOURCE_CLIENT,
    RESOURCE_TOPIC,
    ConfigResource,
    MetadataImage,
)
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.configs import ConfigResource as AskedResource
from holdfast.protocol.messages.configs import (
    ConfigSource,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribedConfig,
)


def describe_configs_response(
    image: MetadataImage, request: DescribeConfigsRequest, static: Mapping[str, Any]
) -> DescribeConfigsResponse:
    """One row per resource, in order of the request; `static`: the values of this node's file by key."""
    answer: DescribeConfigsResponse = in_one_go(describe_configs_steps(image, request, static))
    return answer


def describe_configs_steps(
    image: MetadataImage, request: DescribeConfigsRequest, static: Mapping[str, Any]
) -> AnswerSteps:
    """The same in steps."""
    pace = Pace()
    rows: list[DescribeConfigsResult] = []
    named: set[ConfigResource] = set()
    for asked in request.resources:
        resource = (asked.resource_type, asked.resource_name)
        if resource in named:
            text = "it is named twice in this request"
            rows.append(DescribeConfigsResult(ErrorCode.INVALID_REQUEST, text, *resource, ()))
        else:
            named.add(resource)
            rows.append(_described(image, asked, static))
            if pace.is_step_over(1 + len(rows[-1].configs)):
                yield
    return DescribeConfigsResponse(ErrorCode.NONE, None, tuple(rows))


def resource_problem(image: MetadataImage, resource: ConfigResource) -> tuple[ErrorCode, str] | None:
    """Why the resource has no dynamic configuration, or None."""
    kind, name = resource
    if resource == CLUSTER_RESOURCE:
        return None
    if kind == RESOURCE_BROKER:
        # values may outlive a registration, and are to be taken away
        if resource in image.configs or any(name == str(broker_id) for broker_id in image.brokers):
            return None
        return ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {name} is not registered"
    if kind != RESOURCE_TOPIC:
        text = "only topics, brokers and the cluster have dynamic values here; others are in a node's file"
        if kind == RESOURCE_CLIENT:
            text = "ask DescribeClientQuotas for the quotas of clients"
        return ErrorCode.INVALID_REQUEST, text
    if name not in image.topic_ids:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}"
    return None


def keys_of(resource: ConfigResource) -> dict[str, ConfigKey]:
    """The keys of a topic, of a client, of a broker or of the cluster, by name. Of those of a broker most are
    the cluster's alone to change (`BROKER_DYNAMIC_KEY_BY_NAME` has the others)."""
    if resource[0] == RESOURCE_CLIENT:
        return CLIENT_KEY_BY_NAME
    return CLUSTER_KEY_BY_NAME if resource[0] == RESOURCE_BROKER else TOPIC_KEY_BY_NAME


def _described(
    image: MetadataImage, asked: AskedResource, static: Mapping[str, Any]
) -> DescribeConfigsResult:
    resource = (asked.resource_type, asked.resource_name)
    problem = resource_problem(image, resource)
    keys = keys_of(resource)
    names = sorted(keys if asked.configuration_keys is None else set(asked.configuration_keys))
    if problem is None:
        unknown = [name for name in names if name not in keys]
        if unknown:
            problem = ErrorCode.INVALID_CONFIG, unknown_key_problem(unknown[0], keys)
    if problem is not None:
        return DescribeConfigsResult(*problem, *resource, ())
    rows = tuple(_entry(image, resource, keys[name], static) for name in names)
    return DescribeConfigsResult(ErrorCode.NONE, None, *resource, rows)


def _entry(
    image: MetadataImage, resource: ConfigResource, key: ConfigKey, static: Mapping[str, Any]
) -> DescribedConfig:
    value, source = _in_force(image, resource, key, static)
    return DescribedConfig(
        key.name,
        value,
        source,
        value_text(key.default),
        key.kind.value,
        f"{key.doc} Allowed: {allowed_values(key)}.",
    )


def _in_force(
    image: MetadataImage, resource: ConfigResource, key: ConfigKey, static: Mapping[str, Any]
) -> tuple[str | None, ConfigSource]:
    """The order of `MetadataImage.topic_config`, topic, cluster, file, default; or with a broker first."""
    is_topic = resource[0] == RESOURCE_TOPIC
    cluster_name = key.synonym if is_topic else key.name
    own = image.configs.get(resource)
    if resource != CLUSTER_RESOURCE and own is not None and (text := own.get(key.name)) is not None:
        return text, ConfigSource.TOPIC if is_topic else ConfigSource.BROKER
    of_cluster = image.configs.get(CLUSTER_RESOURCE)
    if of_cluster is not None and (text := of_cluster.get(cluster_name)) is not None:
        return text, ConfigSource.CLUSTER
    stated = static.get(cluster_name)
    if stated is not None and stated != key.default:
        return value_text(stated), ConfigSource.STATIC
    return value_text(key.default), ConfigSource.DEFAULT
