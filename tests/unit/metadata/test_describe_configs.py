"""DescribeConfigs: every key, the value in force and where it comes from."""

import pytest

from holdfast.metadata.config_keys import CLUSTER_KEYS, TOPIC_KEYS
from holdfast.metadata.configs import BROKER_FILE_KEYS, CONTROLLER_FILE_KEYS, parse_value, read_keys
from holdfast.metadata.delta import MetadataDelta
from holdfast.metadata.describe_configs import describe_configs_response
from holdfast.metadata.image import CLUSTER_RESOURCE, RESOURCE_TOPIC, MetadataImage
from holdfast.metadata.records import ConfigRecord, MetadataRecord, TopicRecord
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.configs import (
    ConfigResource,
    ConfigSource,
    DescribeConfigsRequest,
    DescribeConfigsResult,
    DescribedConfig,
)
from tests.unit.metadata.test_delta import T

TOPIC = (RESOURCE_TOPIC, "t")
MIN_ISR = "min.insync.replicas"


def make_image(*values: tuple[tuple[int, str], str, str]) -> MetadataImage:
    records: list[MetadataRecord] = [TopicRecord("t", T)]
    records += [ConfigRecord(*resource, name, value) for resource, name, value in values]
    delta = MetadataDelta(MetadataImage())
    for offset, record in enumerate(records):
        delta.replay(record, offset, 1)
    return delta.apply()


def describe(
    image: MetadataImage,
    resource: tuple[int, str],
    *names: str,
    static: dict[str, object] | None = None,
) -> DescribeConfigsResult:
    request = DescribeConfigsRequest((ConfigResource(*resource, names or None),))
    answer = describe_configs_response(image, request, static or {})
    assert answer.error_code == ErrorCode.NONE
    (row,) = answer.results
    assert (row.resource_type, row.resource_name) == resource
    return row


def one(image: MetadataImage, resource: tuple[int, str], name: str, **static: object) -> DescribedConfig:
    given = {key.replace("_", "."): value for key, value in static.items()}
    (config,) = describe(image, resource, name, static=given).configs
    return config


def test_every_key_is_there_with_its_kind_its_default_and_what_it_allows() -> None:
    for resource, keys in ((TOPIC, TOPIC_KEYS), (CLUSTER_RESOURCE, CLUSTER_KEYS)):
        rows = {row.name: row for row in describe(make_image(), resource).configs}
        assert list(rows) == sorted(key.name for key in keys)
        for key in keys:
            row = rows[key.name]
            assert (row.config_type, row.value) == (key.kind.value, row.default_value)
            assert row.documentation.startswith(key.doc)
            assert "Allowed: " in row.documentation
            if row.default_value is not None:
                assert parse_value(key, row.default_value) == key.default
    assert "an integer in [1, 2147483647]" in one(make_image(), TOPIC, MIN_ISR).documentation


@pytest.mark.parametrize(
    ("values", "resource", "value", "source"),
    [
        ([(TOPIC, MIN_ISR, "3"), (CLUSTER_RESOURCE, MIN_ISR, "2")], TOPIC, "3", ConfigSource.TOPIC),
        ([(CLUSTER_RESOURCE, MIN_ISR, "2")], TOPIC, "2", ConfigSource.CLUSTER),
        ([(CLUSTER_RESOURCE, MIN_ISR, "2")], CLUSTER_RESOURCE, "2", ConfigSource.CLUSTER),
        ([(TOPIC, MIN_ISR, "3")], CLUSTER_RESOURCE, "5", ConfigSource.STATIC),
        ([], TOPIC, "5", ConfigSource.STATIC),
    ],
)
def test_the_value_is_that_of_the_nearest_source(
    values: list[tuple[tuple[int, str], str, str]],
    resource: tuple[int, str],
    value: str,
    source: ConfigSource,
) -> None:
    image = make_image(*values)
    row = one(image, resource, MIN_ISR, min_insync_replicas=5)
    assert (row.value, row.config_source, row.default_value) == (value, source, "1")
    if resource == TOPIC:
        counts = image.topic_config("t", MIN_ISR, {MIN_ISR: 5})
        assert str(counts) == value


def test_a_topics_key_takes_the_value_of_its_synonym_in_the_file() -> None:
    row = one(make_image(), TOPIC, "retention.ms", log_retention_ms=7)
    assert (row.value, row.config_source) == ("7", ConfigSource.STATIC)
    unset = one(make_image(), TOPIC, "flush.ms", log_flush_interval_ms=None)
    assert (unset.value, unset.config_source) == (None, ConfigSource.DEFAULT)
    alone = one(make_image(), TOPIC, "cleanup.policy")
    assert (alone.value, alone.config_source) == ("delete", ConfigSource.DEFAULT)


def test_a_file_that_says_nothing_leaves_the_defaults() -> None:
    values, _ = read_keys(CLUSTER_KEYS, {}, {})
    for row in describe(make_image(), CLUSTER_RESOURCE, static=values).configs:
        assert row.config_source == ConfigSource.DEFAULT


def test_booleans_are_written_as_they_are_read() -> None:
    name = "unclean.leader.election.enable"
    row = one(make_image(), TOPIC, name, unclean_leader_election_enable=True)
    assert (row.value, row.default_value) == ("true", "false")


@pytest.mark.parametrize(
    ("resource", "names", "error", "says"),
    [
        ((RESOURCE_TOPIC, "x"), (), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no topic x"),
        ((4, "9"), (), ErrorCode.BROKER_ID_NOT_REGISTERED, "broker 9 is not registered"),
        ((4, "x"), (), ErrorCode.BROKER_ID_NOT_REGISTERED, "broker x is not registered"),
        ((3, "1"), (), ErrorCode.INVALID_REQUEST, "only topics, brokers and the cluster"),
        (TOPIC, ("min.insync.replica",), ErrorCode.INVALID_CONFIG, "did you mean min.insync.replicas?"),
        (CLUSTER_RESOURCE, (MIN_ISR, "retention.ms"), ErrorCode.INVALID_CONFIG, "retention.ms"),
    ],
)
def test_what_is_not_there_is_told(
    resource: tuple[int, str], names: tuple[str, ...], error: ErrorCode, says: str
) -> None:
    row = describe(make_image(), resource, *names)
    assert (row.error_code, row.configs) == (error, ())
    assert says in (row.error_message or "")


def test_resources_are_answered_in_order_and_keys_by_name_once() -> None:
    asked = (
        ConfigResource(*CLUSTER_RESOURCE, None),
        ConfigResource(RESOURCE_TOPIC, "x", None),
        ConfigResource(*TOPIC, ("segment.ms", "flush.ms", "segment.ms")),
    )
    answer = describe_configs_response(make_image(), DescribeConfigsRequest(asked), {})
    assert [row.resource_name for row in answer.results] == ["", "x", "t"]
    assert [config.name for config in answer.results[2].configs] == ["flush.ms", "segment.ms"]


def test_a_resource_that_is_named_twice_is_described_once() -> None:
    asked = tuple(ConfigResource(*resource, None) for resource in (TOPIC, CLUSTER_RESOURCE, TOPIC))
    answer = describe_configs_response(make_image(), DescribeConfigsRequest(asked), {})
    assert [row.error_code for row in answer.results] == [0, 0, ErrorCode.INVALID_REQUEST]
    assert [len(row.configs) > 0 for row in answer.results] == [True, True, False]


@pytest.mark.parametrize("name", ["unclean.recovery.manager.enabled", "unclean.leader.election.enable"])
def test_brokers_and_controllers_tell_the_same_of_what_controllers_decide_by(name: str) -> None:
    """One file for all nodes, as in docker compose; every tool asks a broker."""
    value = "false" if name == "unclean.recovery.manager.enabled" else "true"
    common = {
        "node.id": "1",
        "listeners": "PLAINTEXT://h:1",
        "controller.quorum.voters": "9@h:2",
        "holdfast.cluster.id": "c",
        "log.dirs": "/d",
        name: value,
    }
    of_controller, _ = read_keys(CONTROLLER_FILE_KEYS, {**common, "process.roles": "controller"}, {})
    of_broker, _ = read_keys(BROKER_FILE_KEYS, {**common, "process.roles": "broker"}, {})
    request = DescribeConfigsRequest((ConfigResource(*CLUSTER_RESOURCE, (name,)),))

    def told(static: dict[str, object]) -> str | None:
        return describe_configs_response(MetadataImage(), request, static).results[0].configs[0].value

    assert told(of_controller) == value
    assert told(of_broker) == value
