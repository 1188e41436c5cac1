"""Options of `df.write.format("holdfast")`, spelled as those of Spark's Kafka sink.

Pure. Owns names, defaults and refusals of docs/spark.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.durability.read_options import (
    INT32_MAX,
    BadOption,
    check_names,
    client_id_of,
    integer_of,
    servers_of,
)
from holdfast.protocol.topic_names import topic_name_problem

DELIVERY_TIMEOUT_MS = 120_000
COMPRESSIONS = ("none", "gzip", "lz4", "zstd")

_DELIVERY_TIMEOUT = "kafka.delivery.timeout.ms"
_COMPRESSION = "kafka.compression.type"
#: `checkpointLocation` and `queryName` are Spark's own
_NAMES = (
    *("kafka.bootstrap.servers", "kafka.client.id", _COMPRESSION, _DELIVERY_TIMEOUT),
    *("kafka.acks", "kafka.enable.idempotence", "topic", "checkpointLocation", "queryName"),
)
_REFUSED = {
    "path": "the topic is named with the option topic or the column topic",
    "kafka.transactional.id": "there are no transactions",
    "kafka.key.serializer": "keys are bytes or strings: convert them with SQL",
    "kafka.value.serializer": "values are bytes or strings: convert them with SQL",
    "includeHeaders": "a column headers is always written",
}
#: each column with the types it may have, as Spark's `simpleString` has them
_WRITTEN = {
    "topic": ("string",),
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "partition": ("int",),
}
#: columns of the source that a sink has no use for: copying a topic needs no select
_PASSED_OVER = ("offset", "timestamp", "timestampType", "leaderEpoch", "timestampMs", "problem")


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Where and how to write."""

    bootstrap_servers: str
    client_id: str
    #: None: the column topic says it
    topic: str | None
    compression: str
    delivery_timeout_ms: int


def parse_write_options(options: Mapping[str, str], columns: Mapping[str, str]) -> WriteOptions:
    """`columns`: {name: simple type} of what is to be written. Raises: BadOption."""
    given = {key.lower(): value for key, value in options.items()}
    check_names(given, _NAMES, _REFUSED)
    if given.get("kafka.acks", "all").strip().lower() not in ("all", "-1"):
        raise BadOption("option kafka.acks: this sink always waits for acks=all; leave it out")
    if given.get("kafka.enable.idempotence", "true").strip().lower() != "true":
        raise BadOption("option kafka.enable.idempotence: this sink is always idempotent; leave it out")
    topic = given.get("topic")
    if topic is not None and (problem := topic_name_problem(topic)) is not None:
        raise BadOption(f"option topic: {problem}")
    _check_columns(columns, topic)
    compression = given.get(_COMPRESSION, "none").strip().lower()
    if compression not in COMPRESSIONS:
        raise BadOption(
            f"option {_COMPRESSION}: expected one of {', '.join(COMPRESSIONS)}, got {compression!r}"
        )
    timeout = given.get(_DELIVERY_TIMEOUT, str(DELIVERY_TIMEOUT_MS))
    timeout_ms = integer_of(_DELIVERY_TIMEOUT, timeout, 1, INT32_MAX)
    return WriteOptions(servers_of(given), client_id_of(given), topic, compression, timeout_ms)


def _check_columns(columns: Mapping[str, str], topic: str | None) -> None:
    for name, kind in columns.items():
        if name in _PASSED_OVER:
            continue
        if name not in _WRITTEN:
            raise BadOption(f"column {name}: a sink writes {', '.join(_WRITTEN)}; leave the others out")
        if kind not in _WRITTEN[name]:
            raise BadOption(f"column {name}: expected {' or '.join(_WRITTEN[name])}, got {kind}")
    if "value" not in columns:
        raise BadOption("column value is needed")
    if topic is None and "topic" not in columns:
        raise BadOption("option topic or a column topic is needed")
