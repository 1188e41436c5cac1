"""BrokerRegistration (62) and BrokerHeartbeat (63): a broker's life as the controller sees it (R20-R36)."""

from holdfast.protocol.schema.fields import (
    array,
    array_of,
    boolean,
    field,
    int16,
    int32,
    int64,
    message,
    nullable,
    sentence,
    string,
    uuid,
)


@message
class ListenerEndpoint:
    """Where one listener can be reached."""

    name: str = field(string, "Listener name.")
    host: str = field(string, "Advertised host.")
    port: int = field(int32, "Advertised port.")


@message
class FeatureRange:
    """Levels of a feature that this broker supports."""

    name: str = field(string, "Feature.")
    min_level: int = field(int16, "Lowest.")
    max_level: int = field(int16, "Highest.")


@message
class BrokerRegistrationRequest:
    """A new incarnation announces itself; answered when the records are committed."""

    broker_id: int = field(int32, "Id.")
    cluster_id: str = field(string, "INCONSISTENT_CLUSTER_ID when it is another.")
    incarnation_id: bytes = field(uuid, "Random id of this process start.")
    listeners: tuple[ListenerEndpoint, ...] = field(array_of(ListenerEndpoint), "Addresses.")
    rack: str | None = field(nullable(string), "Failure domain.")
    features: tuple[FeatureRange, ...] = field(array_of(FeatureRange), "Supported features.")
    log_dirs: tuple[bytes, ...] = field(array(uuid), "Directory ids.")
    previous_broker_epoch: int = field(int64, "Epoch stored by the last clean shutdown, -1 for none (R32).")


@message
class BrokerRegistrationResponse:
    """The new broker epoch: the offset of the registration record (K28)."""

    error_code: int = field(
        int16,
        "R30 lists them in order. OPERATION_NOT_ATTEMPTED: its earlier process is still being taken out.",
    )
    error_message: str | None = field(nullable(sentence), "What to do about the error.")
    broker_epoch: int = field(int64, "Epoch, -1 on error.")
    clean_shutdown: bool = field(boolean, "True when the controller took the previous shutdown for clean.")


@message
class OfflineTopic:
    """Partitions of a topic whose logs on the broker are out of use, in use again, or low on space."""

    topic_id: bytes = field(uuid, "Topic.")
    partitions: tuple[int, ...] = field(array(int32), "Indexes, ascending.")


@message
class BrokerHeartbeatRequest:
    """Keeps the session and carries the broker's wishes (R23)."""

    broker_id: int = field(int32, "Id.")
    broker_epoch: int = field(int64, "STALE_BROKER_EPOCH when it is another.")
    current_metadata_offset: int = field(int64, "End of what the broker has applied, exclusive.")
    want_fence: bool = field(boolean, "Stay or become fenced.")
    want_shutdown: bool = field(boolean, "Begin or go on with a controlled shutdown.")
    offline: tuple[OfflineTopic, ...] = field(
        array_of(OfflineTopic),
        "Replicas in failed log dirs, and damaged ones, that the broker's registration does not name yet "
        "(R27).",
        since=1,
        default=(),
    )
    unreachable: tuple[int, ...] = field(
        array(int32), "Leaders that the broker cannot fetch from, ascending.", since=2, default=()
    )
    online: tuple[OfflineTopic, ...] = field(
        array_of(OfflineTopic),
        "Damaged replicas that are fetched anew, and that the broker's registration still names.",
        since=2,
        default=(),
    )
    low_on_space: tuple[OfflineTopic, ...] = field(
        array_of(OfflineTopic),
        "Replicas that take no records of clients because too little is left of their log dir's disk.",
        since=3,
        default=(),
    )


@message
class BrokerHeartbeatResponse:
    """What the controller has decided."""

    error_code: int = field(int16, "NONE, NOT_CONTROLLER, STALE_BROKER_EPOCH, BROKER_ID_NOT_REGISTERED.")
    error_message: str | None = field(nullable(sentence), "What to do about the error.")
    is_caught_up: bool = field(boolean, "The broker has applied its own registration.")
    is_fenced: bool = field(boolean, "Fenced after this heartbeat.")
    should_shut_down: bool = field(boolean, "Controlled shutdown is complete: stop now.")
    session_timeout_ms: int = field(
        int32,
        "The controller fences the broker this long after a heartbeat without another; -1 unknown.",
        since=2,
        default=-1,
    )
