"""`holdfast get-offsets`: first, last or a timestamp's offset, as `topic:partition:offset` lines."""

import re
from typing import Any

import click

from cli.options import Answer, bootstrap, client_properties, output, run_client
from client.admin import Admin
from client.errors import ClientError
from protocol.messages.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from runtime.api import Runtime

_TIMES = {
    "latest": LATEST_TIMESTAMP,
    "-1": LATEST_TIMESTAMP,
    "earliest": EARLIEST_TIMESTAMP,
    "-2": EARLIEST_TIMESTAMP,
}


@click.command()
@bootstrap
@click.option("--topic", help="A regular expression of whole names; without it all topics.")
@click.option("--topic-partitions", metavar="TOPIC:P[,TOPIC:P]", help="Only these partitions.")
@click.option(
    "--time", "when", default="latest", show_default=True, help="latest, earliest or ms since the epoch."
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
        if not when.isdigit():
            raise click.UsageError(f"--time {when}: expected latest, earliest or ms since the epoch")
        timestamp = int(when)
    answer = Answer("get-offsets", [])

    async def work(runtime: Runtime) -> int:
        admin = Admin(runtime, given["bootstrap_server"])
        try:
            wanted = await _wanted(admin, topic, topic_partitions)
            found = await admin.list_offsets(dict.fromkeys(wanted, timestamp), timeout_ms=given["timeout_ms"])
            for (name, partition), (offset, _, leader_epoch) in sorted(found.items()):
                row = {"topic": name, "partition": partition, "offset": offset, "leader_epoch": leader_epoch}
                answer.data.append(row)
        except ClientError as error:
            code = error.code.name if error.code is not None else "CLIENT_ERROR"
            answer.errors.append({"code": code, "message": str(error)})
        finally:
            admin.close()
        return 0

    if run_client(work) != 0:
        raise SystemExit(1)
    lines = [
        f"{row['topic']}:{row['partition']}:{row['offset'] if row['offset'] >= 0 else ''}"
        for row in answer.data
    ]
    answer.finish(given["output"], "\n".join(lines))


async def _wanted(admin: Admin, topic: str | None, topic_partitions: str | None) -> list[tuple[str, int]]:
    if topic_partitions:
        try:
            parts = [item.rsplit(":", 1) for item in topic_partitions.split(",")]
            return [(name, int(partition)) for name, partition in parts]
        except ValueError:
            raise ClientError(f"--topic-partitions {topic_partitions}: expected topic:0,topic:1") from None
    try:
        matching = re.compile(topic or ".*")
    except re.error as error:
        raise ClientError(f"--topic {topic}: {error}") from error
    described = await admin.describe_topics(None)
    wanted = [
        (found.name, partition.partition_index)
        for found in described
        if matching.fullmatch(found.name)
        for partition in found.partitions
    ]
    if not wanted and topic:
        raise ClientError(f"no topic matches {topic}")
    return wanted
