"""Configuration of a broker, from server.properties and the environment; and the settings of a topic's logs.

Owns what the keys mean for a broker; `metadata.config_keys` has names, defaults and ranges.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.metadata.configs import (
    BROKER_FILE_KEYS,
    LONG_MAX,
    ConfigError,
    advertised_listeners,
    check_protocols,
    connection_limit,
    kafka_listeners,
    parse_address,
    parse_listeners,
    parse_voters,
    read_keys,
    request_memory,
)
from holdfast.metadata.image import MetadataImage
from holdfast.protocol.messages.broker_registration import ListenerEndpoint
from holdfast.protocol.topic_names import OFFSETS_TOPIC
from holdfast.storage.core.config import LogConfig


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """Settings of one broker process. Durations in ms, sizes in bytes."""

    node_id: int
    cluster_id: str
    #: addresses to bind
    listeners: tuple[ListenerEndpoint, ...]
    #: addresses for clients and brokers, in the same order; a port of 0 is replaced by the bound one
    advertised_listeners: tuple[ListenerEndpoint, ...]
    inter_broker_listener_name: str
    #: names of the listeners that speak Kafka's protocol; they come after the others
    kafka_listeners: tuple[str, ...]
    #: {voter_id: (host, port)}
    voters: Mapping[int, tuple[str, int]]
    log_dirs: tuple[str, ...]
    metadata_log_dir: str
    rack: str | None
    #: (host, port) of the admin endpoint, None to have none
    http_listener: tuple[str, int] | None
    heartbeat_ms: int
    registration_timeout_ms: int
    controlled_shutdown: bool
    controlled_shutdown_timeout_ms: int
    replica_lag_ms_max: int
    replica_silent_ms: int
    #: fewest records by which a ceiling is above the log's end
    ceiling_records: int
    replica_fetch_wait_ms: int
    replica_fetch_max_bytes: int
    replica_fetch_response_max_bytes: int
    replica_fetch_backoff_ms: int
    replica_socket_timeout_ms: int
    leader_silence_ms: int
    request_timeout_ms: int
    #: acknowledge no write alone once the session with the controller is over
    fences_itself: bool
    fetch_max_bytes: int
    #: largest frame that the broker reads
    frame_max_bytes: int
    #: memory for requests and answers of all listeners, None for any
    request_memory_bytes: int | None
    #: connections of all listeners, None for any number
    connection_max: int | None
    connection_max_per_ip: int
    partition_limit: int
    has_partition_metrics: bool
    #: every key of the file with its value: the defaults of topics
    static: Mapping[str, Any]

    @property
    def host_names(self) -> tuple[str, ...]:
        """Under which this node and the controllers are known."""
        endpoints = (*self.listeners, *self.advertised_listeners)
        return (*(endpoint.host for endpoint in endpoints), *(host for host, _ in self.voters.values()))

    @classmethod
    def from_properties(
        cls, properties: Mapping[str, str], environment: Mapping[str, str] | None = None
    ) -> "tuple[BrokerConfig, list[str]]":
        """The settings, and warnings about unknown keys. Raises: ConfigError naming the key."""
        values, warnings = read_keys(BROKER_FILE_KEYS, properties, environment or {})
        if "broker" not in values["process.roles"]:
            raise ConfigError(f"process.roles={','.join(values['process.roles'])}: this process is a broker")
        listeners, of_kafka = _listeners(values)
        given = parse_listeners("advertised.listeners", values["advertised.listeners"])
        log_dirs = values["log.dirs"] or ((values["log.dir"],) if values["log.dir"] else ())
        if not log_dirs:
            raise ConfigError("log.dirs must be set: folders of the partitions")
        inter_broker = values["inter.broker.listener.name"] or listeners[0].name
        if inter_broker in of_kafka or all(listener.name != inter_broker for listener in listeners):
            raise ConfigError(
                f"inter.broker.listener.name={inter_broker}: expected one of the listeners that do not speak "
                "KAFKA"
            )
        http = values["holdfast.http.listener"]
        voters = parse_voters("controller.quorum.voters", values["controller.quorum.voters"])
        if values["node.id"] in voters:
            raise ConfigError(
                f"node.id={values['node.id']}: belongs to a controller, give the broker another one"
            )
        config = cls(
            node_id=values["node.id"],
            cluster_id=values["holdfast.cluster.id"],
            listeners=listeners,
            advertised_listeners=advertised_listeners(listeners, given),
            inter_broker_listener_name=inter_broker,
            kafka_listeners=of_kafka,
            voters=voters,
            log_dirs=tuple(log_dirs),
            metadata_log_dir=values["metadata.log.dir"] or log_dirs[0],
            rack=values["broker.rack"],
            http_listener=parse_address("holdfast.http.listener", http) if http else None,
            heartbeat_ms=values["broker.heartbeat.interval.ms"],
            registration_timeout_ms=values["initial.broker.registration.timeout.ms"],
            controlled_shutdown=values["controlled.shutdown.enable"],
            controlled_shutdown_timeout_ms=values["holdfast.controlled.shutdown.timeout.ms"],
            replica_lag_ms_max=values["replica.lag.time.max.ms"],
            replica_silent_ms=values["holdfast.replica.silent.ms"],
            ceiling_records=values["holdfast.ceiling.records"],
            replica_fetch_wait_ms=values["replica.fetch.wait.max.ms"],
            replica_fetch_max_bytes=values["replica.fetch.max.bytes"],
            replica_fetch_response_max_bytes=values["replica.fetch.response.max.bytes"],
            replica_fetch_backoff_ms=values["replica.fetch.backoff.ms"],
            replica_socket_timeout_ms=values["replica.socket.timeout.ms"],
            leader_silence_ms=values["holdfast.leader.silence.max.ms"],
            request_timeout_ms=values["request.timeout.ms"],
            fences_itself=values["holdfast.fence.self"],
            fetch_max_bytes=values["fetch.max.bytes"],
            frame_max_bytes=values["socket.request.max.bytes"],
            request_memory_bytes=request_memory(values),
            connection_max=connection_limit(values),
            connection_max_per_ip=values["max.connections.per.ip"],
            partition_limit=values["max.request.partition.size.limit"],
            has_partition_metrics=values["holdfast.metrics.partition.level"],
            static=values,
        )
        return config, warnings


def _listeners(values: Mapping[str, Any]) -> tuple[tuple[ListenerEndpoint, ...], tuple[str, ...]]:
    """The listeners, and the names of those that speak Kafka's protocol. Raises: ConfigError."""
    listeners = parse_listeners("listeners", values["listeners"])
    protocols = values["listener.security.protocol.map"]
    check_protocols("listener.security.protocol.map", protocols, [one.name for one in listeners])
    of_kafka = kafka_listeners(listeners, protocols)
    # A node that knows no name takes a broker's first listener.
    return tuple(sorted(listeners, key=lambda one: one.name in of_kafka)), of_kafka


def default_log_config(static: Mapping[str, Any]) -> LogConfig:
    """Settings of a log whose topic is not known yet."""
    return log_config(MetadataImage(), "", static)


def log_config(image: MetadataImage, topic_name: str, static: Mapping[str, Any]) -> LogConfig:
    """Settings of a topic's logs: topic, else cluster, else this node's file, else the default."""

    def value(name: str) -> Any:
        return image.topic_config(topic_name, name, static)

    flush_ms = value("flush.ms")
    flush_messages = value("flush.messages")
    # A cluster of an earlier build may have a topic of the offsets with another retention. Its coordinators
    # keep it small by themselves.
    is_offsets = topic_name == OFFSETS_TOPIC
    policy = value("cleanup.policy")
    compacts = "compact" in policy and not is_offsets
    is_kept = is_offsets or policy == "compact"
    lag_ms = value("max.compaction.lag.ms")
    return LogConfig(
        segment_bytes=value("segment.bytes"),
        # Only closed segments are compacted.
        segment_ms=min(value("segment.ms"), lag_ms) if compacts else value("segment.ms"),
        index_interval_bytes=value("index.interval.bytes"),
        index_max_bytes=value("segment.index.bytes"),
        retention_ms=None if is_kept else _unless_negative(value("retention.ms")),
        retention_bytes=None if is_kept else _unless_negative(value("retention.bytes")),
        flush_messages=None if flush_messages in (None, LONG_MAX) else flush_messages,
        flush_ms=None if flush_ms in (None, LONG_MAX) else max(1, flush_ms),
        compacts=compacts,
        min_cleanable_dirty_ratio=value("min.cleanable.dirty.ratio"),
        delete_retention_ms=value("delete.retention.ms"),
        min_compaction_lag_ms=value("min.compaction.lag.ms"),
        max_compaction_lag_ms=None if lag_ms == LONG_MAX else lag_ms,
        producer_id_expiration_ms=static["producer.id.expiration.ms"],
        message_timestamp_before_max_ms=value("message.timestamp.before.max.ms"),
        message_timestamp_after_max_ms=value("message.timestamp.after.max.ms"),
        validate_records=static["holdfast.validate.records"] == "full",
    )


def max_message_bytes(image: MetadataImage, topic_name: str, static: Mapping[str, Any]) -> int:
    """Largest batch that the topic accepts, in bytes."""
    limit: int = image.topic_config(topic_name, "max.message.bytes", static)
    return limit


def _unless_negative(number: int) -> int | None:
    return None if number < 0 else number
