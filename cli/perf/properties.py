"""Kafka's names of client settings, as `--command-property acks=1` has them, and what they are here."""

from collections.abc import Callable, Mapping
from typing import Any

import click

from holdfast.cli.options import ACKS, client_properties

_Reader = Callable[[str], Any]


def _flag(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


#: {Kafka's name: (parameter of Producer, how its text is read)}
PRODUCER: dict[str, tuple[str, _Reader]] = {
    "acks": ("acks", lambda text: ACKS[text]),
    "batch.size": ("batch_size_bytes", int),
    "buffer.memory": ("buffer_memory_bytes", int),
    "client.id": ("client_id", str),
    "compression.type": ("compression", str),
    "delivery.timeout.ms": ("delivery_timeout_ms", int),
    "enable.idempotence": ("idempotent", _flag),
    "linger.ms": ("linger_ms", int),
    "max.block.ms": ("max_block_ms", int),
    "max.in.flight.requests.per.connection": ("in_flight_max", int),
    "max.request.size": ("request_size_bytes_max", int),
    "metadata.max.age.ms": ("metadata_max_age_ms", int),
    "request.timeout.ms": ("request_timeout_ms", int),
}
#: {Kafka's name: (parameter of Consumer, how its text is read)}
CONSUMER: dict[str, tuple[str, _Reader]] = {
    "auto.commit.interval.ms": ("auto_commit_interval_ms", int),
    "check.crcs": ("check_crcs", _flag),
    "client.id": ("client_id", str),
    "enable.auto.commit": ("enable_auto_commit", _flag),
    "fetch.max.bytes": ("request_bytes_max", int),
    "fetch.max.wait.ms": ("max_wait_ms", int),
    "fetch.min.bytes": ("min_bytes", int),
    "group.instance.id": ("group_instance_id", str),
    "heartbeat.interval.ms": ("heartbeat_interval_ms", int),
    "max.partition.fetch.bytes": ("partition_bytes_max", int),
    "max.poll.interval.ms": ("max_poll_interval_ms", int),
    "metadata.max.age.ms": ("metadata_max_age_ms", int),
    "request.timeout.ms": ("request_timeout_ms", int),
    "session.timeout.ms": ("session_timeout_ms", int),
}


def settings(
    given: Mapping[str, Any], known: Mapping[str, tuple[str, _Reader]], older: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Parameters of a client out of `--command-config`, `--command-property` and the `older` spellings of
    the latter; keys that are not known warn. Raises: click.UsageError for a value that cannot be."""
    texts = client_properties(given["command_config"], (*older, *given["command_property"]), frozenset(known))
    found = {}
    for key, text in texts.items():
        name, read = known[key]
        try:
            found[name] = read(text.strip())
        except (KeyError, ValueError):
            raise click.UsageError(f"{key}={text}: {key} has no such value") from None
    return found
