"""`holdfast get-offsets`: first, last or a timestamp's offset, as `topic:partition:offset` lines."""

import re
from typing import Any

import click

from holdfast.cli.options import (
    INT32_MAX,
    INT64_MAX,
    CommandAnswer,
    bootstrap,
    client_properties,
    output,
    run_client,
    whole_number,
)
from holdfast.client.admin import Admin
from holdfast.client.core.errors import ClientError
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.list_offsets import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
)
from holdfast.runtime.api import Runtime

_TIMES = {
    "latest": LATEST_TIMESTAMP,
    "-1": LATEST_TIMESTAMP,
    "earliest": EARLIEST_TIMESTAMP,
    "-2": EARLIEST_TIMESTAMP,
    "max-timestamp": MAX_TIMESTAMP,
    "-3": MAX_TIMESTAMP,
    "earliest-local": EARLIEST_LOCAL_TIMESTAMP,
    "-4": EARLIEST_LOCAL_TIMESTAMP,
    "latest-tiered": LATEST_TIERED_TIMESTAMP,
    "-5": LATEST_TIERED_TIMESTAMP,
}


@click.command()
@bootstrap
@click.option("--topic", help="A regular expression of whole names; without it all topics.")
@click.option("--topic-partitions", metavar="TOPIC:P[,TOPIC:P]", help="Only these partitions.")
@click.option(
    "--time",
    "when",
    default="latest",
    show_default=True,
    help="latest, earliest, max-timestamp or ms since the epoch.",
)
@output
def command(
    command_config: str | None,
    command_property: tuple[str, ...],
    topic: str | None,
    topic_partitions: str | None,
    when: str,
    **given: Any,
) -> None:
    """Ask the leaders for offsets; the latest is the end of what consumers may see."""
    client_properties(command_config, command_property, frozenset())
    if topic and topic_partitions:
        raise click.UsageError("--topic and --topic-partitions exclude each other")
    timestamp = _TIMES.get(when)
    if timestamp is None:
        timestamp = whole_number(when, INT64_MAX)
    if timestamp is None:
        raise click.UsageError(
            f"--time {when}: expected latest, earliest, max-timestamp or ms since the epoch"
        )
    named = _named(topic_partitions)
    matching = _pattern(topic)
    answer = CommandAnswer("get-offsets", [])

    async def work(runtime: Runtime) -> int:
        admin = Admin(given["bootstrap_server"], runtime=runtime)
        try:
            wanted = await _wanted(admin, matching, named, given["timeout_ms"])
            found = await admin.list_offsets(dict.fromkeys(wanted, timestamp), timeout_ms=given["timeout_ms"])
            for (name, partition), (offset, _, leader_epoch) in sorted(found.items()):
                row = {"topic": name, "partition": partition, "offset": offset, "leader_epoch": leader_epoch}
                answer.data.append(row)
        except ClientError as error:
            answer.refused(error)
        finally:
            await admin.close()
        return 0

    if (code := run_client(work)) != 0:
        raise SystemExit(code)
    lines = [
        f"{row['topic']}:{row['partition']}:{row['offset'] if row['offset'] >= 0 else ''}"
        for row in answer.data
    ]
    answer.finish(given["output"], "\n".join(lines))


def _named(topic_partitions: str | None) -> list[tuple[str, int]] | None:
    """The value of --topic-partitions. Raises: click.UsageError."""
    if topic_partitions is None:
        return None
    named = []
    for item in topic_partitions.split(","):
        name, _, index = item.strip().rpartition(":")
        partition = whole_number(index, INT32_MAX)
        if not name or partition is None:
            raise click.UsageError(f"--topic-partitions {topic_partitions}: expected topic:0,topic:1")
        named.append((name, partition))
    return named


def _pattern(topic: str | None) -> re.Pattern[str] | None:
    """The value of --topic. Raises: click.UsageError."""
    try:
        return None if topic is None else re.compile(topic)
    except re.error as error:
        raise click.UsageError(f"--topic {topic}: no regular expression: {error}") from error


async def _wanted(
    admin: Admin, matching: re.Pattern[str] | None, named: list[tuple[str, int]] | None, timeout_ms: int
) -> list[tuple[str, int]]:
    """The partitions asked for, which all exist. Raises: ClientError."""
    names = None if named is None else list(dict.fromkeys(name for name, _ in named))
    described = await admin.describe_topics(names, timeout_ms=timeout_ms)
    sizes = {found.name: len(found.partitions) for found in described if found.error_code == ErrorCode.NONE}
    if named is not None:
        for name, partition in named:
            if name not in sizes:
                raise ClientError(
                    f"there is no topic {name}; `holdfast topics --list` shows those there are",
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                )
            if partition >= sizes[name]:
                raise ClientError(
                    f"{name} has partitions 0 to {sizes[name] - 1}, not {partition}",
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                )
        return named
    wanted = [
        (name, partition)
        for name, size in sizes.items()
        if matching is None or matching.fullmatch(name)
        for partition in range(size)
    ]
    if not wanted and matching is not None:
        raise ClientError(f"no topic matches {matching.pattern}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return wanted
