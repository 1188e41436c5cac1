"""`holdfast console-consumer`: the records of a topic, as consumers may see them."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import click

from holdfast.cli.options import (
    INT32_MAX,
    INT64_MAX,
    client_properties,
    connection,
    output,
    pairs,
    run_client,
    whole_number,
    yes_or_no,
)
from holdfast.client.admin import Admin
from holdfast.client.consumer import Consumer
from holdfast.client.core.consumer_records import ConsumerRecord
from holdfast.client.core.errors import ClientError, CorruptRecords
from holdfast.runtime.api import Runtime

#: No cluster for so long: give up; with --timeout-ms after that, but not before the connections can be made.
_FIND_TIMEOUT_MS = 30_000
_FIND_LEAST_MS = 3_000
#: Partitions that are added are noticed within.
_METADATA_MAX_AGE_MS = 5_000
_PRINTED = ("timestamp", "partition", "offset", "leader_epoch", "headers", "key", "value")
_FORMATTER_KEYS = frozenset({*(f"print.{name}" for name in _PRINTED), "key.separator", "line.separator"})


@click.command()
@connection
@click.option("--topic", required=True, help="An existing topic.")
@click.option("--from-beginning", is_flag=True, help="Start at the first record kept, not at the end.")
@click.option("--partition", type=click.IntRange(0, INT32_MAX), help="Only this partition.")
@click.option("--offset", help="earliest, latest or a number (with --partition).")
@click.option("--group", help="Read as a member of this group, and commit how far it has come.")
@click.option("--max-messages", type=click.IntRange(0), help="Stop after so many.")
@click.option(
    "--timeout-ms",
    "--idle-timeout-ms",
    "idle_timeout_ms",
    type=click.IntRange(1, INT32_MAX),
    help="Stop when nothing has come for so long; else wait for ever.",
)
@click.option(
    "--skip-corrupt",
    is_flag=True,
    help="Go on behind a batch that cannot be read, with a warning; else stop at it.",
)
@click.option(
    "--formatter-property",
    "--property",
    multiple=True,
    metavar="KEY=VALUE",
    help="print.timestamp=true (or partition, offset, ...), key.separator, line.separator.",
)
@output
def command(
    command_config: str | None,
    command_property: tuple[str, ...],
    formatter_property: tuple[str, ...],
    **given: Any,
) -> None:
    """Print records until --max-messages, --timeout-ms without records, or Ctrl-C."""
    client_properties(command_config, command_property, frozenset())
    if given["offset"] is not None and given["partition"] is None:
        raise click.UsageError("--offset needs --partition")
    if given["offset"] is not None and given["from_beginning"]:
        raise click.UsageError("--from-beginning and --offset exclude each other")
    if given["group"] is not None and given["partition"] is not None:
        raise click.UsageError("--group and --partition exclude each other: the group assigns partitions")
    offset = given["offset"]
    if offset not in (None, "earliest", "latest") and whole_number(offset, INT64_MAX) is None:
        raise click.UsageError(f"--offset {offset}: expected earliest, latest or a number")
    formatter = pairs(formatter_property, "--formatter-property")
    for key in sorted(set(formatter) - _FORMATTER_KEYS):
        click.echo(f"warning: formatter property {key} is not known and has no effect", err=True)
    shown = [
        name
        for name in _PRINTED
        if yes_or_no(formatter, f"print.{name}", name == "value", "--formatter-property")
    ]

    printed = _Printed()

    async def work(runtime: Runtime) -> int:
        consumer = Consumer(
            given["bootstrap_server"],
            auto_offset_reset=_reset(given),
            metadata_max_age_ms=_METADATA_MAX_AGE_MS,
            group_id=given["group"],
            runtime=runtime,
        )
        async with consumer:
            if given["group"] is None:
                await _place(runtime, consumer, given)
            else:
                consumer.subscribe(given["topic"])
            await _print_all(
                runtime, consumer, given, lambda record: _as_text(record, shown, formatter), printed
            )
        return 0

    try:
        code = run_client(work)
    except ClientError as error:
        click.echo(f"error: {error}", err=True)
        code = 1
    click.echo(f"Processed a total of {printed.count} messages", err=True)
    sys.exit(code)


@dataclass
class _Printed:
    """How far it got."""

    count: int = 0


def _reset(given: dict[str, Any]) -> Literal["earliest", "latest", "none"]:
    """Where to begin when the position is not in the log."""
    if given["group"] is not None:
        return "earliest" if given["from_beginning"] else "latest"
    # who names an offset means that one: another place is an error, not a substitute
    return "earliest" if given["offset"] in (None, "earliest", "latest") else "none"


async def _place(runtime: Runtime, consumer: Consumer, given: dict[str, Any]) -> None:
    """Assign the partitions and choose where to start."""
    admin = Admin(given["bootstrap_server"], runtime=runtime)
    try:
        timeout_ms = max(_FIND_LEAST_MS, given["idle_timeout_ms"] or _FIND_TIMEOUT_MS)
        (topic,) = await admin.describe_topics([given["topic"]], timeout_ms=timeout_ms)
    finally:
        await admin.close()
    if topic.error_code != 0:
        raise ClientError(
            f"topic {given['topic']} does not exist: `holdfast topics --list` shows those that do"
        )
    wanted = [p.partition_index for p in topic.partitions if given["partition"] in (None, p.partition_index)]
    if not wanted:
        raise ClientError(f"topic {given['topic']} has {len(topic.partitions)} partitions, counted from 0")
    partitions = [(given["topic"], index) for index in wanted]
    consumer.assign(partitions)
    offset: str | None = given["offset"]
    if given["from_beginning"] or offset == "earliest":
        consumer.seek_to_beginning(*partitions)
    elif offset in (None, "latest"):
        consumer.seek_to_end(*partitions)
    else:
        consumer.seek(partitions[0], int(offset))
    if given["partition"] is None:
        # what was assigned stays where it is; partitions that are added, and the topic made again, join it
        consumer.subscribe(given["topic"])


async def _print_all(
    runtime: Runtime,
    consumer: Consumer,
    given: dict[str, Any],
    as_text: Callable[[ConsumerRecord], bytes],
    printed: _Printed,
) -> None:
    left: int | None = given["max_messages"]
    idle_ms: int | None = given["idle_timeout_ms"]
    heard_ms = runtime.clock.now_ms()
    while left is None or left > 0:
        try:
            records = await consumer.poll(5000 if left is None else min(5000, left), 200)
        except CorruptRecords as error:
            if not given["skip_corrupt"] or error.next_offset is None:
                raise
            consumer.seek(error.partition, error.next_offset)
            click.echo(f"warning: skipped up to offset {error.next_offset}: {error}", err=True)
            continue
        now_ms = runtime.clock.now_ms()
        for record in records:
            line = _as_json(record) if given["output"] == "json" else as_text(record)
            sys.stdout.buffer.write(line)
        if records:
            sys.stdout.buffer.flush()
            heard_ms = now_ms
            printed.count += len(records)
            left = None if left is None else left - len(records)
        elif idle_ms is not None and now_ms - heard_ms >= idle_ms:
            return


def _as_text(record: ConsumerRecord, shown: Sequence[str], formatter: Mapping[str, str]) -> bytes:
    """The chosen parts of a record, in Kafka's order and spelling."""
    parts: list[bytes] = []
    for name in shown:
        if name == "timestamp":
            parts.append(b"CreateTime:%d" % record.timestamp_ms)
        elif name in ("key", "value"):
            content = getattr(record, name)
            parts.append(b"null" if content is None else content)
        elif name == "headers":
            pairs_text = [b"%s:%s" % (key.encode(), b"null" if v is None else v) for key, v in record.headers]
            parts.append(b",".join(pairs_text) or b"NO_HEADERS")
        else:
            parts.append(b"%s:%d" % (name.capitalize().encode(), getattr(record, name)))
    separator = formatter.get("key.separator", "\t").encode()
    return separator.join(parts) + formatter.get("line.separator", "\n").encode()


def _as_json(record: ConsumerRecord) -> bytes:
    def text(content: bytes | None) -> str | None:
        return None if content is None else content.decode("utf-8", "backslashreplace")

    line = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "leader_epoch": record.leader_epoch,
        "timestamp_ms": record.timestamp_ms,
        "headers": [[key, text(value)] for key, value in record.headers],
        "key": text(record.key),
        "value": text(record.value),
    }
    return json.dumps(line).encode() + b"\n"
