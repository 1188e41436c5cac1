"""What a broker takes from server.properties."""

import pytest

from holdfast.broker.core.config import BrokerConfig, log_config, max_message_bytes
from holdfast.metadata.configs import ConfigError
from holdfast.metadata.delta import MetadataDelta
from holdfast.metadata.image import MetadataImage
from holdfast.metadata.records import ConfigRecord
from holdfast.protocol.topic_names import OFFSETS_TOPIC
from tests.unit.broker.core_harness import PROPERTIES, config


def test_defaults_are_kafkas() -> None:
    found = config()
    assert found.replica_lag_ms_max == 30_000
    assert (found.replica_fetch_wait_ms, found.replica_fetch_max_bytes) == (500, 1 << 20)
    assert found.heartbeat_ms == 2000
    assert found.inter_broker_listener_name == "PLAINTEXT"
    assert found.advertised_listeners == found.listeners
    assert found.metadata_log_dir == "/data"
    assert found.voters == {101: ("127.0.0.1", 9101)}


def test_environment_wins_and_unknown_keys_warn() -> None:
    found, warnings = BrokerConfig.from_properties(
        {**PROPERTIES, "no.such.key": "1"}, {"HOLDFAST_NODE_ID": "7"}
    )
    assert found.node_id == 7
    assert len(warnings) == 1
    assert "no.such.key" in warnings[0]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("process.roles", "controller"),
        ("node.id", "101"),
        ("inter.broker.listener.name", "INSIDE"),
        ("listener.security.protocol.map", "PLAINTEXT:SSL"),
        ("listener.security.protocol.map", "PLAINTEXT"),
        ("listener.security.protocol.map", "A:PLAINTEXT,A:PLAINTEXT"),
        ("replica.lag.time.max.ms", "0"),
        ("log.dirs", ""),
        # an answer would outgrow its frame
        ("fetch.max.bytes", str(60 << 20)),
        ("replica.fetch.response.max.bytes", str(60 << 20)),
        ("message.max.bytes", str(60 << 20)),
    ],
)
def test_bad_values_name_their_key(key: str, value: str) -> None:
    with pytest.raises(ConfigError, match=key.replace(".", r"\.")):
        BrokerConfig.from_properties({**PROPERTIES, key: value})


@pytest.mark.parametrize(
    ("listeners", "protocol_map", "of_kafka"),
    [
        ("A://h:1", "", ()),
        ("A://h:1,KAFKA://h:2", "", ("KAFKA",)),
        ("KAFKA://h:2,A://h:1", "", ("KAFKA",)),
        ("A://h:1,KAFKA://h:2", "KAFKA:PLAINTEXT", ()),
        ("A://h:1,OUTSIDE://h:2,KAFKA://h:3", "OUTSIDE:KAFKA", ("OUTSIDE", "KAFKA")),
        # Kafka's own file names protocols of listeners that are not there
        ("A://h:1", "CONTROLLER:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL", ()),
    ],
)
def test_a_listener_speaks_kafka_by_its_name_or_by_the_map(
    listeners: str, protocol_map: str, of_kafka: tuple[str, ...]
) -> None:
    found = config(listeners=listeners, listener_security_protocol_map=protocol_map)
    assert found.kafka_listeners == of_kafka
    # a node that knows no name takes the first one
    assert found.inter_broker_listener_name == found.listeners[0].name == "A"


def test_brokers_do_not_speak_kafka_among_themselves() -> None:
    for name in ("KAFKA", None):
        keys = {"listeners": "KAFKA://h:2", **({} if name is None else {"inter.broker.listener.name": name})}
        with pytest.raises(ConfigError, match=r"inter\.broker\.listener\.name"):
            BrokerConfig.from_properties({**PROPERTIES, **keys})


def test_topic_settings_win_over_the_file_and_that_over_the_default() -> None:
    static = config(log_segment_bytes="5000", log_flush_interval_messages="7").static
    delta = MetadataDelta(MetadataImage())
    delta.replay(ConfigRecord(2, "t", "flush.messages", "1"), 0, 1)
    delta.replay(ConfigRecord(2, "t", "max.message.bytes", "200"), 1, 1)
    image = delta.apply()
    assert log_config(image, "t", static).flush_messages == 1
    assert log_config(image, "other", static).flush_messages == 7
    assert log_config(image, "t", static).segment_bytes == 5000
    assert max_message_bytes(image, "t", static) == 200
    assert max_message_bytes(image, "other", static) == 1_048_588


def test_what_is_taken_from_producers_follows_the_topic_and_the_file() -> None:
    delta = MetadataDelta(MetadataImage())
    delta.replay(ConfigRecord(2, "t", "message.timestamp.after.max.ms", "7"), 0, 1)
    image = delta.apply()
    by_default = log_config(image, "other", config().static)
    assert by_default == log_config(MetadataImage(), "t", config().static)
    assert (by_default.message_timestamp_before_max_ms, by_default.message_timestamp_after_max_ms) == (
        (1 << 63) - 1,
        3_600_000,
    )
    assert by_default.validate_records
    static = config(
        log_message_timestamp_after_max_ms="8",
        log_message_timestamp_before_max_ms="9",
        holdfast_validate_records="header",
    ).static
    assert log_config(image, "t", static).message_timestamp_after_max_ms == 7
    other = log_config(image, "other", static)
    assert (other.message_timestamp_before_max_ms, other.message_timestamp_after_max_ms) == (9, 8)
    assert not other.validate_records


def test_committed_offsets_are_kept_whatever_the_retention() -> None:
    """A topic that an earlier build or an operator made by hand may have another one."""
    delta = MetadataDelta(MetadataImage())
    delta.replay(ConfigRecord(2, OFFSETS_TOPIC, "retention.ms", "1"), 0, 1)
    found = log_config(delta.apply(), OFFSETS_TOPIC, config(log_retention_bytes="1").static)
    assert (found.retention_ms, found.retention_bytes) == (None, None)


def test_no_limit_is_none() -> None:
    found = log_config(MetadataImage(), "t", config().static)
    assert found.retention_bytes is None
    assert found.flush_messages is None
    assert found.flush_ms is None


@pytest.mark.parametrize(
    ("policy", "compacts", "retention_ms"),
    [
        ("delete", False, 5),
        ("compact", True, None),
        ("compact,delete", True, 5),
        ("delete, compact", True, 5),
    ],
)
def test_the_cleanup_policy_says_whether_a_log_is_compacted_and_whether_old_segments_go(
    policy: str, compacts: bool, retention_ms: int | None
) -> None:
    delta = MetadataDelta(MetadataImage())
    for number, (key, value) in enumerate({"cleanup.policy": policy, "retention.ms": "5"}.items()):
        delta.replay(ConfigRecord(2, "t", key, value), number, 1)
    of_topic = log_config(delta.apply(), "t", config().static)
    of_file = log_config(MetadataImage(), "t", config(log_cleanup_policy=policy, log_retention_ms="5").static)
    for found in (of_topic, of_file):
        assert (found.compacts, found.retention_ms) == (compacts, retention_ms)
    offsets = log_config(MetadataImage(), OFFSETS_TOPIC, config(log_cleanup_policy=policy).static)
    assert (offsets.compacts, offsets.retention_ms) == (False, None)


def test_a_compacted_topic_rolls_its_segment_before_the_longest_lag_is_over() -> None:
    static = config(log_cleanup_policy="compact", log_cleaner_max_compaction_lag_ms="1000").static
    found = log_config(MetadataImage(), "t", static)
    assert (found.segment_ms, found.max_compaction_lag_ms) == (1000, 1000)
    by_default = log_config(MetadataImage(), "t", config(log_cleanup_policy="compact").static)
    assert (by_default.segment_ms, by_default.max_compaction_lag_ms) == (604_800_000, None)


@pytest.mark.parametrize("ratio", ["-0.1", "1.1", "nan", "half"])
def test_a_ratio_is_from_0_to_1(ratio: str) -> None:
    with pytest.raises(ConfigError, match=r"expected a number in \[0, 1\]"):
        config(log_cleaner_min_cleanable_ratio=ratio)
