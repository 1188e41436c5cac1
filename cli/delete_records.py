"""`holdfast delete-records`: lets partitions begin later, in the lines of Kafka's kafka-delete-records."""

from collections.abc import Mapping
from typing import Any

import click

from holdfast.cli.admin_session import AdminSession, ask, partition_name, row_refused
from holdfast.cli.options import INT32_MAX, INT64_MAX, CommandAnswer, bootstrap, output
from holdfast.cli.partition_files import RECORDS_SHAPE, read_offsets_to_delete
from holdfast.client.core.errors import RowError
from holdfast.protocol.messages.delete_records import TO_HIGH_WATERMARK
from holdfast.protocol.topic_names import TopicPartition


@click.command()
@bootstrap
@click.option("--offset-json-file", "path", metavar="FILE", help=f"Partitions and offsets: {RECORDS_SHAPE}")
@click.option("--topic", help="With --partition and --offset: one partition.")
@click.option("--partition", type=click.IntRange(0, INT32_MAX), help="With --topic: one partition.")
@click.option(
    "--offset",
    type=click.IntRange(TO_HIGH_WATERMARK, INT64_MAX),
    help="With --topic: the first offset to keep; -1 deletes all that is committed.",
)
@output
def command(**given: Any) -> None:
    """Delete the records of partitions below an offset."""
    wanted = _wanted(given)
    answer = CommandAnswer("delete-records", [])
    text: list[str] = []

    async def act(session: AdminSession) -> None:
        offsets = {(one.topic, one.partition): offset for one, offset in wanted.items()}
        results = await session.admin.delete_records(offsets, timeout_ms=session.timeout_ms)
        text.append("Records delete operation completed:")
        for partition, result in sorted(results.items()):
            name = partition_name(partition)
            if isinstance(result, RowError):
                row_refused(session.answer, result, partition)
                text.append(f"partition: {name}\terror: {result.code.name}: {result.message}")
            else:
                session.answer.data.append(partition._asdict() | {"low_watermark": result})
                text.append(f"partition: {name}\tlow_watermark: {result}")
        if answer.errors:
            answer.summary = f"records of {len(answer.errors)} partition(s) could not be deleted"

    ask(given, answer, act)
    answer.finish(given["output"], "\n".join(text))


def _wanted(given: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """{partition: first offset to keep}. Raises: click.UsageError."""
    one = given["topic"], given["partition"], given["offset"]
    if (given["path"] is None) == (one == (None, None, None)):
        raise click.UsageError("say which records: --offset-json-file, or --topic, --partition and --offset")
    if given["path"] is not None:
        return read_offsets_to_delete(given["path"])
    if None in one:
        raise click.UsageError("--topic, --partition and --offset go together")
    return {TopicPartition(given["topic"], given["partition"]): given["offset"]}
