"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs, of topics and of the cluster.

Kafka asks for single brokers too. Here most values of a broker are in its file, and what is dynamic counts
for the whole cluster; a broker has its own rates of throttled replication alone.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from holdfast.kafka_listener.core.envelope import Request
from holdfast.kafka_listener.core.error_codes import admin_code, kafka_code
from holdfast.kafka_listener.core.schema_writer import Fields
from holdfast.kafka_listener.core.translation import Ask, ClusterView, Outcome
from holdfast.metadata.offsets_topic import offsets_topic_problem
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResult,
    ConfigOperation,
    ConfigResource,
    ConfigSource,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribedConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ResourceType,
)

#: Kafka's numbers of the types of values.
_TYPES = {"boolean": 1, "string": 2, "int": 3, "long": 5, "double": 6, "list": 7, "enum": 2}
_DEFAULT_CONFIG = int(ConfigSource.DEFAULT)
_NOT_HERE = "only topics and the brokers of this cluster have configuration here"
_ALTERED = frozenset({int(ResourceType.TOPIC), int(ResourceType.BROKER)})
#: Most values that one AlterConfigs removes: each topic that it names may have many.
REMOVALS_MAX = 10_000
#: Moves between log dirs are not throttled here. Kafka's tools remove this after a move, set or not.
_NOT_THROTTLED = "replica.alter.log.dirs.io.max.bytes.per.second"


def describe_configs(request: Request, cluster: ClusterView) -> Outcome:
    """Every key with its value and where that comes from."""
    message = request.message
    asked: dict[tuple[int, str], ConfigResource] = {}
    for wanted in message.resources:
        key = _our_resource(cluster, wanted.resource_type, wanted.resource_name)
        if key is not None and key not in asked:
            asked[key] = ConfigResource(*key, wanted.configuration_keys)

    def answer(response: DescribeConfigsResponse) -> Outcome:
        found = {(row.resource_type, row.resource_name): row for row in response.results}
        rows: list[Fields] = []
        for wanted in message.resources:
            key = _our_resource(cluster, wanted.resource_type, wanted.resource_name)
            if key is None:
                rows.append(_described(wanted, kafka_code(ErrorCode.INVALID_REQUEST), _NOT_HERE, ()))
            else:
                row = found[key]
                rows.append(
                    _described(wanted, kafka_code(row.error_code), row.error_message, row.configs, message)
                )
        return {"results": rows}

    def refused(code: int, text: str) -> Outcome:
        return {"results": [_described(one, admin_code(code), text, ()) for one in message.resources]}

    return Ask(DescribeConfigsRequest(tuple(asked.values())), answer, refused)


def _our_resource(cluster: ClusterView, kind: int, name: str) -> tuple[int, str] | None:
    """Ours of Kafka's resource; None for what has no configuration here."""
    if kind == ResourceType.TOPIC:
        return kind, name
    is_broker = not name or any(name == str(broker_id) for broker_id in cluster.image.brokers)
    return (kind, name) if kind == ResourceType.BROKER and is_broker else None


def _described(
    wanted: Any, code: int, text: str | None, configs: Sequence[DescribedConfig], options: Any = None
) -> Fields:
    return {
        "error_code": code,
        "error_message": text,
        "resource_type": wanted.resource_type,
        "resource_name": wanted.resource_name,
        "configs": [_described_key(config, options) for config in configs],
    }


def _described_key(config: DescribedConfig, options: Any) -> Fields:
    synonyms: list[Fields] = []
    if getattr(options, "include_synonyms", False):
        synonyms.append({"name": config.name, "value": config.value, "source": config.config_source})
        if config.config_source != _DEFAULT_CONFIG:
            default = {"name": config.name, "value": config.default_value, "source": _DEFAULT_CONFIG}
            synonyms.append(default)
    return {
        "name": config.name,
        "value": config.value,
        "read_only": False,
        "config_source": config.config_source,
        "is_sensitive": False,
        "synonyms": synonyms,
        "config_type": _TYPES.get(config.config_type, 0),
        "documentation": config.documentation if getattr(options, "include_documentation", False) else None,
    }


# --- AlterConfigs and IncrementalAlterConfigs ----------------------------------------------------------


def alter_configs(request: Request, cluster: ClusterView) -> Outcome:
    """The values of topics, or with an empty name of the cluster: those that are given, and no others. What
    this broker knows to be set besides is removed; the broker forwards it."""
    message = request.message
    times = Counter((one.resource_type, one.resource_name) for one in message.resources)
    resources: list[AlterConfigsResource] = []
    done: list[AlterConfigsResult] = []
    removals = 0
    for resource in message.resources:
        kind, name = resource.resource_type, resource.resource_name
        is_alone = kind in _ALTERED and times[kind, name] == 1
        present = cluster.image.configs.get((kind, name), ()) if is_alone else ()
        given = {one.name for one in resource.configs}
        others = [key for key in sorted(present) if key not in given and _may_be_removed(kind, name, key)]
        removals += len(others)
        if not is_alone:
            text = _NOT_HERE if kind not in _ALTERED else "it is named twice in this request"
            done.append(AlterConfigsResult(ErrorCode.INVALID_REQUEST, text, kind, name))
        elif removals > REMOVALS_MAX:
            text = f"this request removes more than {REMOVALS_MAX} values; name fewer topics in one"
            done.append(AlterConfigsResult(ErrorCode.INVALID_REQUEST, text, kind, name))
        else:
            changes = [AlterableConfig(one.name, ConfigOperation.SET, one.value) for one in resource.configs]
            changes += [AlterableConfig(key, ConfigOperation.DELETE, None) for key in others]
            resources.append(AlterConfigsResource(kind, name, tuple(changes)))
    return _asked_to_alter(message.validate_only, resources, done)


def _may_be_removed(kind: int, name: str, key: str) -> bool:
    """What an internal topic always has is none of the values that a client sets."""
    return kind != ResourceType.TOPIC or offsets_topic_problem(name, key, None) is None


def incremental_alter_configs(request: Request, cluster: ClusterView) -> Outcome:
    """Changes of topics, brokers, or with an empty name of the cluster; the broker forwards them. To remove
    the throttle of log dirs succeeds: there is none."""
    message = request.message
    resources: list[AlterConfigsResource] = []
    done: list[AlterConfigsResult] = []
    for resource in message.resources:
        kind, name = resource.resource_type, resource.resource_name
        changes = [one for one in resource.configs if not _removes_a_throttle(one)]
        if kind not in _ALTERED:
            done.append(AlterConfigsResult(ErrorCode.INVALID_REQUEST, _NOT_HERE, kind, name))
        elif kind == ResourceType.BROKER and resource.configs and not changes:
            done.append(AlterConfigsResult(ErrorCode.NONE, None, kind, name))
        else:
            configs = tuple(AlterableConfig(one.name, one.config_operation, one.value) for one in changes)
            resources.append(AlterConfigsResource(kind, name, configs))

    return _asked_to_alter(message.validate_only, resources, done)


def _asked_to_alter(
    validate_only: bool, resources: Sequence[AlterConfigsResource], done: Sequence[AlterConfigsResult]
) -> Outcome:
    """The question about these resources; the answer has the rows that are `done` as well."""
    answered = [_altered(row, kafka_code(row.error_code), row.error_message) for row in done]

    def answer(response: IncrementalAlterConfigsResponse) -> Outcome:
        if response.error_code:
            return refused(response.error_code, response.error_message or "")
        rows = [_altered(row, kafka_code(row.error_code), row.error_message) for row in response.responses]
        return {"responses": rows + answered}

    def refused(code: int, text: str) -> Outcome:
        return {
            "responses": [_altered(resource, admin_code(code), text) for resource in resources] + answered
        }

    if not resources:
        return {"responses": answered}
    return Ask(IncrementalAlterConfigsRequest(validate_only, tuple(resources)), answer, refused)


def _removes_a_throttle(config: Any) -> bool:
    return bool(config.config_operation == ConfigOperation.DELETE and config.name == _NOT_THROTTLED)


def _altered(row: Any, code: int, text: str | None) -> Fields:
    return {
        "error_code": code,
        "error_message": text,
        "resource_type": row.resource_type,
        "resource_name": row.resource_name,
    }
