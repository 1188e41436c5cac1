"""Options and columns of the sink: Spark's Kafka spelling, clear refusals."""

import pytest

from holdfast.durability.read_options import BadOption
from holdfast.durability.write_options import WriteOptions, parse_write_options

SERVERS = {"kafka.bootstrap.servers": "h:1"}
ROWS = {"topic": "string", "key": "binary", "value": "string"}


def test_what_the_source_gives_can_be_written_as_it_is() -> None:
    columns = {
        **{"key": "binary", "value": "binary", "topic": "string", "partition": "int", "offset": "bigint"},
        **{"timestamp": "timestamp", "timestampType": "int", "leaderEpoch": "int"},
        "headers": "array<struct<key:string,value:binary>>",
    }
    assert parse_write_options(SERVERS, columns) == WriteOptions(
        "h:1", "holdfast-spark", None, "none", 120_000
    )


def test_options_are_taken_whatever_their_case() -> None:
    given = SERVERS | {
        "TOPIC": "t",
        "kafka.Compression.type": "ZSTD",
        "kafka.delivery.timeout.ms": "7",
        "kafka.acks": "-1",
        "checkpointLocation": "/c",
    }
    assert parse_write_options(given, {"value": "string"}) == WriteOptions(
        "h:1", "holdfast-spark", "t", "zstd", 7
    )


@pytest.mark.parametrize(
    ("options", "columns", "reason"),
    [
        ({}, ROWS, "kafka.bootstrap.servers"),
        (SERVERS | {"topics": "t"}, ROWS, "did you mean topic"),
        (SERVERS | {"kafka.acks": "1"}, ROWS, "always waits for acks=all"),
        (SERVERS | {"kafka.enable.idempotence": "false"}, ROWS, "always idempotent"),
        (SERVERS | {"kafka.transactional.id": "x"}, ROWS, "no transactions"),
        (SERVERS | {"kafka.linger.ms": "5"}, ROWS, "Kafka's own client is not used"),
        (SERVERS | {"kafka.compression.type": "rar"}, ROWS, "expected one of none, gzip"),
        (SERVERS | {"kafka.delivery.timeout.ms": "0"}, ROWS, "number from 1"),
        (SERVERS | {"kafka.delivery.timeout.ms": "9" * 20}, ROWS, "number from 1 to 2147483647"),
        (SERVERS | {"topic": ""}, ROWS, "option topic: a topic cannot be called ''"),
        (SERVERS | {"topic": "a b"}, ROWS, "option topic: topic name 'a b' may only contain letters"),
        ({"kafka.bootstrap.servers": "h:0"}, ROWS, "kafka.bootstrap.servers: .*'h:0': expected host:port"),
        (SERVERS, {"value": "string"}, "option topic or a column topic"),
        (SERVERS, {"topic": "string"}, "column value is needed"),
        (SERVERS, ROWS | {"headrs": "string"}, "column headrs: a sink writes"),
        (SERVERS, ROWS | {"partition": "bigint"}, "column partition: expected int, got bigint"),
        (SERVERS, ROWS | {"value": "int"}, "column value: expected string or binary"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(
    options: dict[str, str], columns: dict[str, str], reason: str
) -> None:
    with pytest.raises(BadOption, match=reason):
        parse_write_options(options, columns)
