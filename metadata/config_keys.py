"""The table of configuration keys: the only source for files, environment and topic overrides.

Names and defaults are Kafka's; keys of Holdfast's own begin with `holdfast.`. `metadata.configs` reads and
checks values by these rows; no other module has defaults. COMMON_KEYS has the keys of both roles.
"""

from dataclasses import dataclass
from enum import Enum

from holdfast.protocol.frames import ATTACHMENT_MAX_BYTES
from holdfast.protocol.schema.types import ARRAY_MAX, STRING_MAX

INT_MAX = (1 << 31) - 1
LONG_MAX = (1 << 63) - 1

ConfigValue = int | float | bool | str | tuple[str, ...] | None


class Kind(Enum):
    """Type of a value."""

    INT = "int"
    LONG = "long"
    DOUBLE = "double"
    BOOLEAN = "boolean"
    STRING = "string"
    LIST = "list"
    ENUM = "enum"


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One key. `low` and `high` are inclusive; `choices` are the values of an enum or of list items."""

    name: str
    kind: Kind
    #: None means unset: the reader decides what that means, unless `required`
    default: ConfigValue
    doc: str
    low: int = 0
    high: int = LONG_MAX
    choices: tuple[str, ...] = ()
    #: other spellings of a choice, (spelling, choice)
    aliases: tuple[tuple[str, str], ...] = ()
    required: bool = False
    #: topic keys only: the node's key that gives the value of a topic without an override
    synonym: str = ""
    #: lists only: a regular expression of the whole text, and what it means in words; empty: any items
    form: tuple[str, str] = ("", "")


def _int(
    name: str, default: int | None, doc: str, low: int = 0, high: int = INT_MAX, synonym: str = ""
) -> ConfigKey:
    return ConfigKey(name, Kind.INT, default, doc, low, high, synonym=synonym)


def _long(name: str, default: int | None, doc: str, low: int = 0, synonym: str = "") -> ConfigKey:
    return ConfigKey(name, Kind.LONG, default, doc, low, LONG_MAX, synonym=synonym)


def _ratio(name: str, default: float, doc: str, synonym: str = "") -> ConfigKey:
    return ConfigKey(name, Kind.DOUBLE, default, doc, 0, 1, synonym=synonym)


def _cleanup_policy(name: str, doc: str, synonym: str = "") -> ConfigKey:
    return ConfigKey(
        name,
        Kind.ENUM,
        "delete",
        doc,
        choices=("delete", "compact", "compact,delete"),
        aliases=(
            ("delete,compact", "compact,delete"),
            ("compact, delete", "compact,delete"),
            ("delete, compact", "compact,delete"),
        ),
        synonym=synonym,
    )


def _bool(name: str, default: bool, doc: str, synonym: str = "") -> ConfigKey:
    return ConfigKey(name, Kind.BOOLEAN, default, doc, synonym=synonym)


def _string(name: str, default: str | None, doc: str, required: bool = False) -> ConfigKey:
    return ConfigKey(name, Kind.STRING, default, doc, required=required)


def _list(
    name: str, default: tuple[str, ...], doc: str, required: bool = False, choices: tuple[str, ...] = ()
) -> ConfigKey:
    return ConfigKey(name, Kind.LIST, default, doc, required=required, choices=choices)


def _throttled_replicas(name: str, doc: str) -> ConfigKey:
    one = "[0-9]{1,10}:[0-9]{1,10}"
    form = (rf"\*|{one}(,{one})*|", "* or a list of PARTITION:BROKER")
    return ConfigKey(name, Kind.LIST, (), doc, form=form)


_STRATEGIES = ("Aggressive", "Balanced", "None")
_STRATEGY_ALIASES = (("proactive", "Aggressive"), ("balanced", "Balanced"), ("manual", "None"))

#: Read by both roles.
COMMON_KEYS: tuple[ConfigKey, ...] = (
    ConfigKey(
        "node.id", Kind.INT, None, "Number of this node, unique in the cluster.", 0, INT_MAX, required=True
    ),
    _list("process.roles", (), "broker or controller.", required=True, choices=("broker", "controller")),
    _list("listeners", (), "NAME://host:port, an empty host binds all addresses.", required=True),
    _list("advertised.listeners", (), "NAME://host:port given to others; unset: the listeners."),
    _list(
        "listener.security.protocol.map",
        (),
        "NAME:PROTOCOL; PLAINTEXT is Holdfast's own protocol, KAFKA is Kafka's; neither encrypts or "
        "authenticates. A listener that is not named here and is called KAFKA speaks KAFKA.",
    ),
    _string(
        "inter.broker.listener.name", None, "Listener that brokers use among themselves; unset: the first."
    ),
    _list(
        "controller.listener.names", ("CONTROLLER",), "Listeners of the controllers; the first one is used."
    ),
    _list("controller.quorum.voters", (), "id@host:port of every controller.", required=True),
    _bool(
        "holdfast.quorum.joins",
        False,
        "A controller that controller.quorum.voters need not name: it reads the metadata log until "
        "`metadata-quorum add-controller` makes it a voter.",
    ),
    _bool(
        "controller.quorum.auto.join.enable",
        False,
        "Such a controller that makes itself a voter, once the metadata log names the voters and it has what "
        "they have.",
    ),
    _int(
        "controller.quorum.election.timeout.ms",
        1000,
        "Voter without a leader waits this long, or up to twice.",
        1,
    ),
    _int("controller.quorum.fetch.timeout.ms", 2000, "Follower without a fetch answer this long elects.", 1),
    _int("controller.quorum.election.backoff.max.ms", 1000, "Most ms between two elections of a voter.", 0),
    _int("controller.quorum.request.timeout.ms", 2000, "A quorum request without answer is given up.", 1),
    _int("controller.quorum.retry.backoff.ms", 20, "Pause before a failed quorum request is repeated.", 1),
    _list("log.dirs", (), "Folders of the partitions; a controller needs none."),
    _string("log.dir", None, "One folder, when log.dirs is unset."),
    _string("metadata.log.dir", None, "Folder of the metadata log; unset: the first of log.dirs."),
    _long(
        "metadata.log.max.record.bytes.between.snapshots",
        20 << 20,
        "A metadata snapshot is made after so many bytes of new records.",
        1,
    ),
    _long(
        "metadata.log.max.snapshot.interval.ms",
        3_600_000,
        "A metadata snapshot is made after so long when there are new records; 0: by bytes alone.",
        0,
    ),
    _int(
        "max.request.partition.size.limit", 2000, "Most partitions in one DescribeTopicPartitions answer.", 1
    ),
    _int("min.insync.replicas", 1, "ISR members an acks=all write needs; of the whole cluster.", 1),
    _int("num.partitions", 1, "Partitions of a topic whose creator names no count.", 1),
    _int("default.replication.factor", 1, "Replicas of a topic whose creator names no count.", 1, 32767),
    _int("socket.request.max.bytes", 64 << 20, "Largest frame that is read.", 1024),
    _long(
        "queued.max.request.bytes",
        None,
        "Memory of all listeners for requests without an answer and answers that are not taken; at least "
        "twice socket.request.max.bytes, -1 for any; unset: 128 MiB, or that.",
        -1,
    ),
    _int("max.connections", INT_MAX, "Connections of all listeners; further ones are refused.", 1),
    _int("max.connections.per.ip", INT_MAX, "The same from one address.", 1),
    _string("holdfast.cluster.id", None, "Name of the cluster, the same on all its nodes.", required=True),
    _string("holdfast.http.listener", "", "host:port of /livez, /readyz, /metrics and /v1/...; empty: none."),
    _bool("holdfast.metrics.partition.level", True, "Metrics of single partitions."),
    # Controllers decide by these; brokers read them to describe effective values where all nodes share one
    # file.
    _bool("unclean.leader.election.enable", False, "Elect any live replica when no complete one is left."),
    _bool("unclean.recovery.manager.enabled", True, "Compare logs before an unclean election."),
)

#: Read by controllers only.
CONTROLLER_KEYS: tuple[ConfigKey, ...] = (
    _int("broker.session.timeout.ms", 9000, "A broker silent for this long is fenced.", 1),
    _bool(
        "eligible.leader.replicas.enabled",
        True,
        "Level of eligible.leader.replicas.version in a new cluster.",
    ),
    _int(
        "unclean.leader.election.interval.ms",
        300_000,
        "Period of the pass that retries unclean elections.",
        1,
    ),
    _int(
        "unclean.recovery.timeout.ms",
        300_000,
        "A comparison of logs goes on without replicas that have not answered by then.",
        1,
    ),
    _int(
        "unclean.recovery.request.timeout.ms",
        2_000,
        "Time without an answer after which a broker is asked for its logs again.",
        1,
    ),
    _int(
        "unclean.recovery.retry.backoff.ms",
        50,
        "Wait before a broker is asked for its logs again; doubles, up to 16 times as long, while that is in "
        "vain.",
        1,
    ),
    _bool("auto.leader.rebalance.enable", True, "Move leaderships back to preferred replicas periodically."),
    _int(
        "leader.imbalance.check.interval.seconds",
        300,
        "Seconds between two checks for preferred replicas that do not lead.",
        1,
        INT_MAX // 1000,
    ),
    _int(
        "leader.imbalance.per.broker.percentage",
        10,
        "A broker gets its leaderships back when it lacks more than this percentage of them.",
        0,
        100,
    ),
    _int(
        "metadata.max.idle.interval.ms",
        500,
        "NoOp record after this long without others, 0 for never (K24).",
        0,
    ),
    _int(
        "queued.max.requests", 4096, "Requests that may wait for their commit; further ones are refused.", 1
    ),
)

#: Read by brokers only.
BROKER_KEYS: tuple[ConfigKey, ...] = (
    _bool(
        "auto.create.topics.enable", False, "Create a topic that a Kafka client asks for; Kafka's is true."
    ),
    _string("broker.rack", None, "Failure domain, spread by replica placement."),
    _int(
        "broker.heartbeat.interval.ms",
        2000,
        "Period of heartbeats to the active controller; one is given up after two.",
        1,
    ),
    _int("initial.broker.registration.timeout.ms", 60_000, "A broker not registered by then gives up.", 1),
    _bool("controlled.shutdown.enable", True, "Move leaderships away before a stop."),
    _int("holdfast.controlled.shutdown.timeout.ms", 300_000, "Stop anyway after this long (R29).", 0),
    _int("replica.lag.time.max.ms", 30_000, "A follower not caught up for this long leaves the ISR.", 1),
    _int(
        "holdfast.replica.silent.ms",
        3000,
        "A follower that holds back the high watermark and sends no fetch for so long, while another member "
        "of the ISR does, leaves the ISR; 0: only replica.lag.time.max.ms counts.",
        0,
    ),
    _int("replica.fetch.wait.max.ms", 500, "A follower's fetch is parked this long at most.", 1),
    _int("replica.fetch.max.bytes", 1 << 20, "Bytes per partition and follower fetch.", 1),
    _int(
        "replica.fetch.response.max.bytes",
        10 << 20,
        "Bytes per follower fetch; they must fit a frame.",
        1,
        ATTACHMENT_MAX_BYTES,
    ),
    _int("replica.fetch.backoff.ms", 1000, "Pause after a failed follower fetch.", 0),
    _int("replica.socket.timeout.ms", 30_000, "A follower fetch without answer is given up.", 1),
    _int(
        "holdfast.leader.silence.max.ms",
        3000,
        "A follower connects anew to a leader that sends no byte of an answer for so long, and reports it as "
        "unreachable after twice that.",
        1,
    ),
    _int(
        "replica.high.watermark.checkpoint.interval.ms", 5000, "Period of the high watermark checkpoint.", 1
    ),
    _int(
        "holdfast.ceiling.records",
        1000,
        "Fewest records between a replica's log end and its stored ceiling: the error of the upper bound "
        "of a loss in a quiet partition (R68).",
        1,
    ),
    _long(
        "holdfast.log.dirs.min.free.bytes",
        64 << 20,
        "Records are refused while the device of their log dir has less left, copies of a leader's records "
        "below half of it; 0: never, until the disk is full and the log dir fails.",
    ),
    _int(
        "holdfast.log.scrub.interval.hours",
        168,
        "Closed segments are read again and checked (the scrub); a pass begins so long after the last; 0: "
        "never.",
        0,
        1_000_000,
    ),
    _long("holdfast.log.scrub.bytes.per.second", 8 << 20, "How fast the scrub reads, in each log dir.", 1024),
    _int("request.timeout.ms", 30_000, "A request to another node without answer is given up.", 1),
    _int(
        "holdfast.log.dir.stall.ms",
        10_000,
        "A broker is fenced while operations on a log dir are under way for so long without an end of any.",
        100,
    ),
    _bool(
        "holdfast.fence.self",
        True,
        "Without an answer of a controller for broker.session.timeout.ms, refuse writes with acks 0 and 1.",
    ),
    _int(
        "message.max.bytes", 1_048_588, "Largest record batch; it must fit a frame.", 61, ATTACHMENT_MAX_BYTES
    ),
    _int(
        "fetch.max.bytes",
        55 << 20,
        "Most bytes of one fetch answer; they must fit a frame.",
        1024,
        ATTACHMENT_MAX_BYTES,
    ),
    _long(
        "log.flush.interval.messages",
        LONG_MAX,
        "Records between two flushes of a log; 1: every write (D6).",
        1,
    ),
    _long(
        "log.flush.interval.ms", None, "Longest time that a record stays unflushed; unset: never by time.", 0
    ),
    _int("log.flush.offset.checkpoint.interval.ms", 60_000, "Period of the recovery point checkpoint.", 1),
    _int("log.segment.bytes", 1 << 30, "Size at which a segment is rolled.", 1024),
    _long("log.roll.ms", 604_800_000, "Age at which a segment is rolled.", 1),
    _int("log.index.interval.bytes", 4096, "Log bytes per index entry.", 0),
    _int("log.index.size.max.bytes", 10 << 20, "Size at which a full index rolls its segment.", 64),
    _long("log.retention.ms", 604_800_000, "Age at which closed segments are deleted, -1 for never.", -1),
    _long(
        "log.retention.bytes", -1, "Size of a log above which closed segments are deleted, -1 for none.", -1
    ),
    _cleanup_policy(
        "log.cleanup.policy",
        "delete: old segments are deleted; compact: of each key the last record is kept; or both.",
    ),
    _bool("log.cleaner.enable", True, "Compact the topics whose cleanup.policy says so."),
    _long("log.cleaner.backoff.ms", 15_000, "Pause of the cleaner when no log is due.", 1),
    _long(
        "log.cleaner.io.max.bytes.per.second",
        16 << 20,
        "How fast the cleaner reads, in each log dir; Kafka's has no limit.",
        1024,
    ),
    _long(
        "log.cleaner.dedupe.buffer.size",
        64 << 20,
        "Memory of the keys of one compaction in each log dir, at 200 bytes a key; more keys take several "
        "compactions.",
        1 << 20,
    ),
    _ratio(
        "log.cleaner.min.cleanable.ratio",
        0.5,
        "A log is compacted when a larger share of its bytes came since the last time.",
    ),
    _long(
        "log.cleaner.delete.retention.ms",
        86_400_000,
        "A tombstone is kept so long after the first compaction that meets it.",
    ),
    _long("log.cleaner.min.compaction.lag.ms", 0, "A record is not compacted away before this age."),
    _long(
        "log.cleaner.max.compaction.lag.ms",
        LONG_MAX,
        "A log with a dirty record of this age is compacted, also when its ratio is low.",
        1,
    ),
    _long("log.retention.check.interval.ms", 300_000, "Period of the retention check.", 1),
    _int("num.recovery.threads.per.data.dir", 1, "Logs recovered at the same time per log dir.", 1),
    _int("producer.id.expiration.ms", 86_400_000, "An idle producer's state is dropped after this long.", 1),
    _long(
        "log.message.timestamp.before.max.ms",
        LONG_MAX,
        "A record's timestamp may be this far behind the broker's clock.",
    ),
    _long(
        "log.message.timestamp.after.max.ms",
        3_600_000,
        "A record's timestamp may be this far ahead of the broker's clock.",
    ),
    _int(
        "offsets.topic.num.partitions",
        50,
        "Partitions of __consumer_offsets, when a client first looks for a coordinator.",
        1,
        10_000,
    ),
    _int(
        "offsets.topic.replication.factor",
        3,
        "Replicas of __consumer_offsets, at most one on each broker that is registered then.",
        1,
        32767,
    ),
    _int("offsets.topic.segment.bytes", 100 << 20, "Size at which __consumer_offsets rolls a segment.", 1024),
    _int("offsets.commit.timeout.ms", 5_000, "An offset that is not committed by then is refused.", 1),
    _int(
        "offsets.retention.minutes",
        10_080,
        "Minutes that offsets are kept after the last member has left their group.",
        1,
    ),
    _long("offsets.retention.check.interval.ms", 600_000, "Period of the check for old offsets.", 1),
    _int(
        "offset.metadata.max.bytes",
        4096,
        "Largest text that a member may commit with an offset.",
        0,
        STRING_MAX,
    ),
    _int("group.min.session.timeout.ms", 6_000, "Shortest session timeout of a member.", 1),
    _int("group.max.session.timeout.ms", 1_800_000, "Longest session timeout of a member.", 1),
    _int("group.initial.rebalance.delay.ms", 3_000, "An empty group waits so long for further members.", 0),
    _int("group.max.size", 1_000, "Most members of a group; Kafka's has no limit.", 1, ARRAY_MAX),
    _int(
        "quota.window.num",
        11,
        "Windows over which a client's rate is measured; one of them is the present one.",
        1,
        1000,
    ),
    _int("quota.window.size.seconds", 1, "Length of each of these windows.", 1, 3600),
    _int(
        "replication.quota.window.num",
        11,
        "Windows over which throttled replication is measured; one of them is the present one.",
        1,
        1000,
    ),
    _int("replication.quota.window.size.seconds", 1, "Length of each of these windows.", 1, 3600),
    ConfigKey(
        "holdfast.validate.records",
        Kind.ENUM,
        "full",
        "What is read of a producer's batch before it is appended: every record, or its header alone.",
        choices=("full", "header"),
    ),
)

#: Of the topic, and of a broker or of all: which replicas, and how fast.
LEADER_THROTTLED_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_THROTTLED_REPLICAS = "follower.replication.throttled.replicas"
LEADER_THROTTLED_RATE = "leader.replication.throttled.rate"
FOLLOWER_THROTTLED_RATE = "follower.replication.throttled.rate"

#: Keys of one topic. Without an override the cluster's dynamic value counts, then the node's file, then the
#: default.
TOPIC_KEYS: tuple[ConfigKey, ...] = (
    _int("min.insync.replicas", 1, "ISR members an acks=all write needs.", 1, synonym="min.insync.replicas"),
    _long(
        "flush.messages",
        LONG_MAX,
        "Records between two flushes; 1: every write.",
        1,
        "log.flush.interval.messages",
    ),
    _long("flush.ms", None, "Longest time that a record stays unflushed.", 0, "log.flush.interval.ms"),
    _int("segment.bytes", 1 << 30, "Size at which a segment is rolled.", 1024, synonym="log.segment.bytes"),
    _long("segment.ms", 604_800_000, "Age at which a segment is rolled.", 1, "log.roll.ms"),
    _int("index.interval.bytes", 4096, "Log bytes per index entry.", 0, synonym="log.index.interval.bytes"),
    _int(
        "segment.index.bytes",
        10 << 20,
        "Size of an index at which its segment is rolled.",
        64,
        synonym="log.index.size.max.bytes",
    ),
    _long("retention.ms", 604_800_000, "Age of deletion, -1 for never.", -1, "log.retention.ms"),
    _long(
        "retention.bytes",
        -1,
        "Size above which old segments are deleted, -1 for none.",
        -1,
        "log.retention.bytes",
    ),
    _int(
        "max.message.bytes",
        1_048_588,
        "Largest record batch; it must fit a frame.",
        61,
        ATTACHMENT_MAX_BYTES,
        "message.max.bytes",
    ),
    _long(
        "message.timestamp.before.max.ms",
        LONG_MAX,
        "A record's timestamp may be this far behind the broker's clock.",
        synonym="log.message.timestamp.before.max.ms",
    ),
    _long(
        "message.timestamp.after.max.ms",
        3_600_000,
        "A record's timestamp may be this far ahead of the broker's clock.",
        synonym="log.message.timestamp.after.max.ms",
    ),
    _bool(
        "unclean.leader.election.enable",
        False,
        "Elect any live replica when no complete one is left.",
        "unclean.leader.election.enable",
    ),
    ConfigKey(
        "unclean.recovery.strategy",
        Kind.ENUM,
        None,
        "What to do when no complete replica is left; unset: follows unclean.leader.election.enable (D8).",
        choices=_STRATEGIES,
        aliases=_STRATEGY_ALIASES,
        synonym="unclean.recovery.strategy",
    ),
    _cleanup_policy(
        "cleanup.policy",
        "delete: old segments are deleted; compact: of each key the last record is kept; or both.",
        "log.cleanup.policy",
    ),
    _ratio(
        "min.cleanable.dirty.ratio",
        0.5,
        "A log is compacted when a larger share of its bytes came since the last time.",
        "log.cleaner.min.cleanable.ratio",
    ),
    _long(
        "delete.retention.ms",
        86_400_000,
        "A tombstone is kept so long after the first compaction that meets it.",
        synonym="log.cleaner.delete.retention.ms",
    ),
    _long(
        "min.compaction.lag.ms",
        0,
        "A record is not compacted away before this age.",
        synonym="log.cleaner.min.compaction.lag.ms",
    ),
    _long(
        "max.compaction.lag.ms",
        LONG_MAX,
        "A log with a dirty record of this age is compacted, also when its ratio is low.",
        1,
        "log.cleaner.max.compaction.lag.ms",
    ),
    # Only what is served: Kafka Streams, Connect and tools of operators name both for their topics.
    ConfigKey(
        "message.timestamp.type",
        Kind.ENUM,
        "CreateTime",
        "The time of a record is the producer's.",
        choices=("CreateTime",),
    ),
    ConfigKey(
        "compression.type",
        Kind.ENUM,
        "producer",
        "Batches keep the compression of their producer.",
        choices=("producer",),
    ),
    _throttled_replicas(
        LEADER_THROTTLED_REPLICAS, f"Replicas that send within {LEADER_THROTTLED_RATE} while they lead."
    ),
    _throttled_replicas(
        FOLLOWER_THROTTLED_REPLICAS,
        f"Replicas that fetch within {FOLLOWER_THROTTLED_RATE} while they are not in sync.",
    ),
)

#: Dynamic keys that a single broker may have, too.
BROKER_DYNAMIC_KEYS: tuple[ConfigKey, ...] = (
    _long(
        LEADER_THROTTLED_RATE,
        LONG_MAX,
        "Bytes a second that a broker sends to followers of its throttled replicas, those not in sync wait.",
        1,
    ),
    _long(
        FOLLOWER_THROTTLED_RATE,
        LONG_MAX,
        "Bytes a second that a broker fetches for its throttled replicas, those not in sync wait.",
        1,
    ),
)

#: Dynamic keys of the whole cluster, stored in the metadata log.
CLUSTER_KEYS: tuple[ConfigKey, ...] = (
    _int("min.insync.replicas", 1, "ISR members an acks=all write needs.", 1),
    _bool("unclean.leader.election.enable", False, "Elect any live replica when no complete one is left."),
    ConfigKey(
        "unclean.recovery.strategy",
        Kind.ENUM,
        None,
        "What to do when no complete replica is left.",
        choices=_STRATEGIES,
        aliases=_STRATEGY_ALIASES,
    ),
    _bool("unclean.recovery.manager.enabled", True, "Compare logs before an unclean election."),
    *BROKER_DYNAMIC_KEYS,
)

#: Keys of a client, or of all clients that have none of their own, stored in the metadata log. Each broker
#: allows a client so much by itself.
CLIENT_KEYS: tuple[ConfigKey, ...] = (
    _long("producer_byte_rate", None, "Bytes of records a second that a client may send to a broker.", 1),
    _long("consumer_byte_rate", None, "Bytes of records a second that a client may fetch from a broker.", 1),
)

BROKER_FILE_KEYS: tuple[ConfigKey, ...] = COMMON_KEYS + BROKER_KEYS
CONTROLLER_FILE_KEYS: tuple[ConfigKey, ...] = COMMON_KEYS + CONTROLLER_KEYS

#: Every key that a server.properties may have; a file may serve both roles.
FILE_KEY_NAMES: frozenset[str] = frozenset(key.name for key in COMMON_KEYS + BROKER_KEYS + CONTROLLER_KEYS)
TOPIC_KEY_BY_NAME: dict[str, ConfigKey] = {key.name: key for key in TOPIC_KEYS}
BROKER_DYNAMIC_KEY_BY_NAME: dict[str, ConfigKey] = {key.name: key for key in BROKER_DYNAMIC_KEYS}
CLIENT_KEY_BY_NAME: dict[str, ConfigKey] = {key.name: key for key in CLIENT_KEYS}
CLUSTER_KEY_BY_NAME: dict[str, ConfigKey] = {key.name: key for key in CLUSTER_KEYS}
