"""`holdfast explain TOPIC PARTITION`: why a partition is as it is, from the metadata log, in sentences."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from holdfast.cli.inspect.metadata_log import UnreadableLog, fetch_log, read_folder
from holdfast.cli.inspect.partition_story import ReadLog, Step, Story, story_of
from holdfast.cli.inspect.sentences import decision_row, headline, sentences, state_row
from holdfast.cli.options import (
    INT32_MAX,
    CommandAnswer,
    checked_servers,
    output,
    run_client,
    servers_of_environment,
)
from holdfast.client.core.errors import ClientError
from holdfast.protocol.id_text import encode_id
from holdfast.protocol.schema.fields import SchemaError
from holdfast.runtime.api import Runtime


@click.command()
@click.argument("topic")
@click.argument("partition", type=click.IntRange(0, INT32_MAX))
@click.option(
    "--bootstrap-server",
    "--bootstrap-controller",
    "bootstrap_server",
    callback=lambda context, option, value: checked_servers(context, option, value) if value else None,
    metavar="HOST:PORT[,HOST:PORT]",
    help="Brokers or controllers of a live cluster.",
)
@click.option(
    "--metadata-dir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Instead: the metadata.log.dir of a node, which may be stopped.",
)
@click.option(
    "--at-epoch", type=click.IntRange(0, INT32_MAX), help="Only what began this leader epoch or was in it."
)
@click.option(
    "--timeout-ms",
    type=click.IntRange(1, INT32_MAX),
    default=30_000,
    show_default=True,
    help="Give up after.",
)
@output
def command(
    topic: str,
    partition: int,
    bootstrap_server: str | None,
    metadata_dir: Path | None,
    at_epoch: int | None,
    timeout_ms: int,
    output: str,
) -> None:
    """Tell each change of leader, ISR and ELR of a partition: when, why, who was rejected, what follows."""
    if bootstrap_server is None and metadata_dir is None:
        bootstrap_server = servers_of_environment()
    if (bootstrap_server is None) == (metadata_dir is None):
        raise click.UsageError("give either --bootstrap-server or --metadata-dir")
    answer = CommandAnswer("explain")
    if metadata_dir is not None:
        log = _read(metadata_dir, answer)
    else:
        assert bootstrap_server is not None
        log = _fetch(bootstrap_server, timeout_ms, answer)
    if answer.errors:
        answer.finish(output, "")
    story = story_of(log.records, topic, partition, log.base)
    if log.base is not None:
        click.echo(
            f"note: a snapshot holds what is below offset {log.base.image.offset}; of that only the last "
            "changes are told",
            err=True,
        )
    for complaint in story.complaints:
        click.echo(f"warning: {complaint}", err=True)
    if not story.steps:
        answer.errors.append(
            {
                "code": "UNKNOWN_TOPIC_OR_PARTITION",
                "topic": topic,
                "partition": partition,
                "message": "the metadata log does not name it; `topics --list` shows the topics there are",
            }
        )
    elif at_epoch is not None:
        story = story.of_epoch(at_epoch)
        if not story.steps:
            message = f"{topic}-{partition} has had no leader epoch {at_epoch}"
            answer.errors.append({"code": "UNKNOWN_LEADER_EPOCH", "message": message})
    answer.data = [_row(step) for step in story.steps]
    answer.finish(output, "\n".join(_text(story)))


def _read(folder: Path, answer: CommandAnswer) -> ReadLog:
    try:
        log, warning = read_folder(folder)
    except (UnreadableLog, SchemaError, OSError) as error:
        answer.errors.append({"code": "UNREADABLE_LOG", "message": str(error)})
        return ReadLog([])
    if warning:
        click.echo(f"warning: {warning}", err=True)
    click.echo("note: the end of a folder's log may not have been committed", err=True)
    return log


def _fetch(servers: str, timeout_ms: int, answer: CommandAnswer) -> ReadLog:
    log = ReadLog([])

    async def work(runtime: Runtime) -> int:
        nonlocal log
        try:
            log = await fetch_log(runtime, servers, timeout_ms)
        except ClientError as error:
            answer.refused(error)
        return 0

    if (code := run_client(work)) != 0:
        raise SystemExit(code)
    return log


def _text(story: Story) -> list[str]:
    lines: list[str] = []
    topic_id = None
    for step in story.steps:
        if step.topic_id != topic_id:
            topic_id = step.topic_id
            name = f"{story.topic_name}-{story.partition_index}"
            lines.append(f"{name}, topic id {encode_id(topic_id)}")
        lines.append(f"offset {step.logged.offset}  {_time(step)}  {headline(step)}")
        lines += [f"    {sentence}" for sentence in sentences(step)]
    return lines


def _row(step: Step) -> dict[str, Any]:
    return {
        "offset": step.logged.offset,
        "timestamp_ms": step.logged.timestamp_ms,
        "topic_id": encode_id(step.topic_id),
        "record": type(step.logged.record).__name__,
        "change": headline(step),
        "before": state_row(step.before),
        "after": state_row(step.after),
        "decision": decision_row(step),
        "sentences": sentences(step),
    }


def _time(step: Step) -> str:
    moment = datetime.fromtimestamp(step.logged.timestamp_ms / 1000, UTC)
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{step.logged.timestamp_ms % 1000:03}Z"
