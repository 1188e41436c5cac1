"""ControllerConfig: the settings of a controller, checked once."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.metadata.configs import (
    ANY_HOST,
    CONTROLLER_FILE_KEYS,
    INT_MAX,
    ConfigError,
    check_protocols,
    connection_limit,
    parse_address,
    parse_listeners,
    parse_voters,
    read_keys,
    request_memory,
)
from holdfast.protocol.messages.broker_registration import ListenerEndpoint


@dataclass(frozen=True, slots=True)
class ControllerConfig:
    """Fields are named after the keys, with units last. `from_properties` returns validated values only."""

    node_id: int
    cluster_id: str
    #: where this controller listens; its name is the first of controller.listener.names
    listener: ListenerEndpoint
    #: {voter_id: (host, port)}, by id
    voters: Mapping[int, tuple[str, int]]
    metadata_log_dir: str
    #: listener of brokers that is probed when one of them vanishes (D9); None: their first
    inter_broker_listener_name: str | None = None
    #: (host, port) of the admin endpoint, or None
    http_listener: tuple[str, int] | None = None
    session_timeout_ms: int = 9000
    num_partitions: int = 1
    default_replication_factor: int = 1
    min_insync_replicas: int = 1
    elr_enabled: bool = True
    unclean_election_interval_ms: int = 300_000
    #: compare logs before an unclean election (R60); Kafka's default is off (D8.8)
    recovery_manager_enabled: bool = True
    recovery_timeout_ms: int = 300_000
    #: time limit for an answer about logs
    recovery_request_timeout_ms: int = 2_000
    #: pause before a broker is asked about logs again; doubles while its answers do not help
    recovery_retry_backoff_ms: int = 50
    #: move leaderships back to preferred replicas periodically (R16)
    rebalances_leaders: bool = True
    rebalance_interval_ms: int = 300_000
    #: percentage of its leaderships that a broker may lack
    imbalance_percentage: int = 10
    max_idle_interval_ms: int = 500
    #: `voters` need not name this controller (K30)
    joins: bool = False
    #: host:port under which it makes itself a voter; None: it waits for an operator
    joins_as: str | None = None
    #: most requests that wait for their commit
    waiting_requests_max: int = 4096
    partition_size_limit: int = 2000
    partition_metrics: bool = True
    request_max_bytes: int = 64 << 20
    #: memory for requests and answers, None for any
    request_memory_bytes: int | None = 128 << 20
    #: connections of all listeners, None for any number
    connection_max: int | None = None
    connection_max_per_ip: int = INT_MAX
    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    election_backoff_max_ms: int = 1000
    quorum_request_timeout_ms: int = 2000
    quorum_retry_backoff_ms: int = 20
    #: a snapshot is made after so many bytes of metadata records, or so long; None: by bytes alone
    snapshot_bytes: int = 20 << 20
    snapshot_interval_ms: int | None = 3_600_000
    #: values of the file by key: the defaults of topics
    static: Mapping[str, Any] = field(default_factory=dict)

    @property
    def host_names(self) -> tuple[str, ...]:
        """Under which the controllers are known."""
        return (self.listener.host, *(host for host, _ in self.voters.values()))

    @classmethod
    def from_properties(
        cls, properties: Mapping[str, str], environment: Mapping[str, str]
    ) -> tuple["ControllerConfig", list[str]]:
        """The checked configuration and warnings. Raises: ConfigError."""
        values, warnings = read_keys(CONTROLLER_FILE_KEYS, properties, environment)
        names = values["controller.listener.names"]
        check_protocols("listener.security.protocol.map", values["listener.security.protocol.map"], names[:1])
        listeners = parse_listeners("listeners", values["listeners"])
        listener = next((one for one in listeners if names and one.name == names[0]), None)
        if listener is None:
            raise ConfigError(
                f"listeners={','.join(values['listeners'])}: expected a listener named as in "
                f"controller.listener.names={','.join(names)}"
            )
        folders = values["log.dirs"] or ((values["log.dir"],) if values["log.dir"] else ())
        folder = values["metadata.log.dir"] or (folders[0] if folders else None)
        if folder is None:
            raise ConfigError("metadata.log.dir or log.dirs must be set: the metadata log needs a folder")
        http = values["holdfast.http.listener"]
        config = cls(
            node_id=values["node.id"],
            cluster_id=values["holdfast.cluster.id"],
            listener=listener,
            voters=parse_voters("controller.quorum.voters", values["controller.quorum.voters"]),
            metadata_log_dir=folder,
            inter_broker_listener_name=values["inter.broker.listener.name"],
            http_listener=parse_address("holdfast.http.listener", http) if http else None,
            session_timeout_ms=values["broker.session.timeout.ms"],
            num_partitions=values["num.partitions"],
            default_replication_factor=values["default.replication.factor"],
            min_insync_replicas=values["min.insync.replicas"],
            elr_enabled=values["eligible.leader.replicas.enabled"],
            unclean_election_interval_ms=values["unclean.leader.election.interval.ms"],
            recovery_manager_enabled=values["unclean.recovery.manager.enabled"],
            recovery_timeout_ms=values["unclean.recovery.timeout.ms"],
            recovery_request_timeout_ms=values["unclean.recovery.request.timeout.ms"],
            recovery_retry_backoff_ms=values["unclean.recovery.retry.backoff.ms"],
            rebalances_leaders=values["auto.leader.rebalance.enable"],
            rebalance_interval_ms=values["leader.imbalance.check.interval.seconds"] * 1000,
            imbalance_percentage=values["leader.imbalance.per.broker.percentage"],
            max_idle_interval_ms=values["metadata.max.idle.interval.ms"],
            waiting_requests_max=values["queued.max.requests"],
            partition_size_limit=values["max.request.partition.size.limit"],
            partition_metrics=values["holdfast.metrics.partition.level"],
            request_memory_bytes=request_memory(values),
            connection_max=connection_limit(values),
            connection_max_per_ip=values["max.connections.per.ip"],
            request_max_bytes=values["socket.request.max.bytes"],
            election_timeout_ms=values["controller.quorum.election.timeout.ms"],
            fetch_timeout_ms=values["controller.quorum.fetch.timeout.ms"],
            election_backoff_max_ms=values["controller.quorum.election.backoff.max.ms"],
            quorum_request_timeout_ms=values["controller.quorum.request.timeout.ms"],
            quorum_retry_backoff_ms=values["controller.quorum.retry.backoff.ms"],
            snapshot_bytes=values["metadata.log.max.record.bytes.between.snapshots"],
            snapshot_interval_ms=values["metadata.log.max.snapshot.interval.ms"] or None,
            joins=values["holdfast.quorum.joins"] or values["controller.quorum.auto.join.enable"],
            joins_as=(
                f"{listener.host}:{listener.port}" if values["controller.quorum.auto.join.enable"] else None
            ),
            static=values,
        )
        config.validate(values)
        return config, warnings

    def validate(self, values: Mapping[str, Any]) -> None:
        """Check what concerns several keys. Raises: ConfigError."""
        roles = values["process.roles"]
        if roles != ("controller",):
            raise ConfigError(f"process.roles={','.join(roles)}: expected controller alone")
        if self.node_id not in self.voters and not self.joins:
            raise ConfigError(
                f"node.id={self.node_id}: expected one of the ids in controller.quorum.voters, "
                f"{', '.join(map(str, self.voters))}; or set holdfast.quorum.joins=true"
            )
        if self.joins_as is not None and (self.listener.host in ANY_HOST or not self.listener.port):
            raise ConfigError(
                f"listeners={','.join(values['listeners'])}: with "
                "controller.quorum.auto.join.enable=true the controller's listener must name the host and "
                "the port where the other nodes reach it"
            )
