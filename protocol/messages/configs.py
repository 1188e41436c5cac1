"""DescribeConfigs (32) and IncrementalAlterConfigs (44): dynamic values of topics and of the whole cluster.
The second sets the quotas of clients, too; DescribeClientQuotas tells them.

Any node answers the first from its image; the second is for the active controller, brokers forward it.
"""

from enum import IntEnum

from holdfast.protocol.schema.fields import (
    array,
    array_of,
    boolean,
    field,
    int8,
    int16,
    message,
    nullable,
    sentence,
    string,
)


class ResourceType(IntEnum):
    """What has configuration, numbered as in Kafka."""

    TOPIC = 2
    #: with an empty name: the whole cluster
    BROKER = 4
    #: Holdfast's own number; with an empty name: the default of all clients. Only to be altered
    CLIENT = 100


class ConfigOperation(IntEnum):
    """What happens to one key, numbered as in Kafka."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigSource(IntEnum):
    """Where a value comes from, numbered as in Kafka; the first of these that has one counts."""

    TOPIC = 1
    #: set for one broker
    BROKER = 2
    CLUSTER = 3
    STATIC = 4
    DEFAULT = 5


@message
class ConfigResource:
    """Whose values are asked for."""

    resource_type: int = field(int8, "2 topic, 4 broker.")
    resource_name: str = field(string, "Topic, or with type 4 a broker, empty for the cluster.")
    configuration_keys: tuple[str, ...] | None = field(nullable(array(string)), "Keys, null for all.")


@message
class DescribeConfigsRequest:
    """Every key with its value, and where that comes from."""

    resources: tuple[ConfigResource, ...] = field(array_of(ConfigResource), "Resources, each once.")


@message
class DescribedConfig:
    """One key as it counts for the resource."""

    name: str = field(string, "Key.")
    value: str | None = field(nullable(string), "Value in force; null when it is unset.")
    config_source: int = field(
        int8,
        "1 topic, 2 broker, 3 cluster, 4 file of the answering node (when it differs from the default), "
        "5 default.",
    )
    default_value: str | None = field(nullable(string), "What counts without any setting, null for unset.")
    config_type: str = field(string, "int, long, double, boolean, string, list or enum.")
    documentation: str = field(string, "Meaning and allowed values.")


@message
class DescribeConfigsResult:
    """One resource."""

    error_code: int = field(int16, "NONE, UNKNOWN_TOPIC_OR_PARTITION, INVALID_CONFIG or INVALID_REQUEST.")
    error_message: str | None = field(nullable(sentence), "What to do about the error.")
    resource_type: int = field(int8, "As asked.")
    resource_name: str = field(string, "As asked.")
    configs: tuple[DescribedConfig, ...] = field(array_of(DescribedConfig), "By name; none on error.")


@message
class DescribeConfigsResponse:
    """One row a resource."""

    error_code: int = field(int16, "NONE.")
    error_message: str | None = field(nullable(sentence), "What to do about the error.")
    results: tuple[DescribeConfigsResult, ...] = field(
        array_of(DescribeConfigsResult), "In order of the request."
    )


@message
class AlterableConfig:
    """A change of one key."""

    name: str = field(string, "Key.")
    config_operation: int = field(int8, "0 set, 1 delete; 2 append and 3 subtract are for lists.")
    value: str | None = field(nullable(string), "The value to set; null to delete.")


@message
class AlterConfigsResource:
    """The changes of one resource: all of them are made, or none."""

    resource_type: int = field(int8, "2 topic, 4 broker, 100 client.")
    resource_name: str = field(
        string,
        "Topic or client id; empty with type 4 for the cluster, with 100 for the default of all clients.",
    )
    configs: tuple[AlterableConfig, ...] = field(array_of(AlterableConfig), "Changes, each key once.")


@message
class IncrementalAlterConfigsRequest:
    """Answered when the records are committed; what is not named stays as it is."""

    validate_only: bool = field(boolean, "Check, change nothing.")
    resources: tuple[AlterConfigsResource, ...] = field(array_of(AlterConfigsResource), "Each once.")


@message
class AlterConfigsResult:
    """What became of one resource."""

    error_code: int = field(int16, "NONE, UNKNOWN_TOPIC_OR_PARTITION, INVALID_CONFIG or INVALID_REQUEST.")
    error_message: str | None = field(nullable(sentence), "The key and what it allows.")
    resource_type: int = field(int8, "As asked.")
    resource_name: str = field(string, "As asked.")


@message
class IncrementalAlterConfigsResponse:
    """One row a resource."""

    error_code: int = field(int16, "NOT_CONTROLLER and the like; then there are no rows.")
    error_message: str | None = field(nullable(sentence), "What to do about the error.")
    responses: tuple[AlterConfigsResult, ...] = field(
        array_of(AlterConfigsResult), "In order of the request."
    )
