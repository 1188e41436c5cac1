"""`holdfast verifiable-consumer`: reads a topic, reports what each poll gave, keeps it for the verdict.

Owns when a session of polls ends: it moves the consumer itself where a position is not in the log, so that
each move is seen. What was read in one session has to rise without gaps.
"""

import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from holdfast.cli.options import INT32_MAX, bootstrap, client_properties, run_client
from holdfast.cli.tool_lines import ToolLines
from holdfast.client.consumer import Consumer
from holdfast.client.core.errors import ClientError, LogTruncated, NoSuchOffset
from holdfast.client.core.fetcher_effects import FetchedBatch
from holdfast.client.group_session import RebalanceListener
from holdfast.client.poll_ledger import PollLedger, polled_of
from holdfast.protocol.topic_names import TopicPartition
from holdfast.runtime.api import DiskError, Runtime

_POLL_MS = 200
_POLL_BYTES = 1 << 20
_PROGRESS_MS = 500


@click.command()
@bootstrap
@click.option("--topic", required=True, help="An existing topic.")
@click.option("--group-id", help="Read as a member of this group, and commit what was read.")
@click.option(
    "--partition",
    "partitions",
    type=click.IntRange(0, INT32_MAX),
    multiple=True,
    help="Only this partition, again for more; without a group. Without: all that there are now.",
)
@click.option(
    "--reset-policy",
    type=click.Choice(["earliest", "latest"]),
    default="earliest",
    show_default=True,
    help="Where to begin, and to go on when the position is not in the log.",
)
@click.option("--max-messages", type=click.IntRange(1), help="Stop behind the poll that brings so many.")
@click.option("--seconds", type=click.FloatRange(0, INT32_MAX, min_open=True), help="Stop after so long.")
@click.option(
    "--idle-timeout-ms", type=click.IntRange(1, INT32_MAX), help="Stop when nothing has come for so long."
)
@click.option(
    "--ledger", "ledger_folder", type=click.Path(file_okay=False), help="Keep *.polls.jsonl in this folder."
)
@click.option("--run", "run_name", default="run", show_default=True, help="Name of the run, as in ledgers.")
@click.option("--consumer-name", help="Name in the file; default: from the pid.")
@click.option("--quiet", is_flag=True, help="No line per poll.")
def command(
    command_config: str | None, command_property: tuple[str, ...], consumer_name: str | None, **given: Any
) -> None:
    """Read records and write down what each poll gave, until --max-messages, --seconds, --idle-timeout-ms or
    a signal. `holdfast validate --ledger` judges the files."""
    client_properties(command_config, command_property, frozenset())
    if given["partitions"] and given["group_id"] is not None:
        raise click.UsageError("--group-id and --partition exclude each other: the group assigns partitions")

    async def work(runtime: Runtime) -> int:
        return await ConsumerRun(runtime, consumer_name or f"consumer-{os.getpid()}", given).work()

    try:
        sys.exit(run_client(work))
    except (ClientError, DiskError, ValueError) as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)


class ConsumerRun(RebalanceListener):
    """One run of the tool."""

    def __init__(self, runtime: Runtime, name: str, given: dict[str, Any]) -> None:
        self._clock = runtime.clock
        self._given = given
        self._read = 0
        #: the reports are still read
        self._lines = ToolLines()
        self._progress_ms = self._clock.now_ms()
        self._ledger: PollLedger | None = None
        if given["ledger_folder"] is not None:
            self._ledger = PollLedger(given["ledger_folder"], given["run_name"], name, runtime=runtime)
        self._consumer = Consumer(
            given["bootstrap_server"],
            auto_offset_reset="none",
            client_id=name,
            group_id=given["group_id"],
            runtime=runtime,
        )

    async def work(self) -> int:
        """Read everything; the exit code."""
        if self._ledger is not None:
            await self._ledger.open()
        try:
            async with self._consumer:
                await self._begin()
                self._lines.say(name="startup_complete", timestamp=self._clock.wall_ms())
                await self._read_all()
        finally:
            self._progress()
            if self._ledger is not None:
                await self._ledger.close()
            self._lines.say(name="shutdown_complete", timestamp=self._clock.wall_ms())
        return 0 if self._lines.is_heard else 1

    async def _begin(self) -> None:
        topic, chosen = self._given["topic"], self._given["partitions"]
        there = await self._consumer.partitions(topic, self._given["timeout_ms"])
        if self._given["group_id"] is not None:
            self._consumer.subscribe(topic, self)
            return
        for index in chosen:
            if index >= len(there):
                raise ClientError(f"{topic} has partitions 0 to {len(there) - 1}, not {index}")
        wanted = [one for one in there if not chosen or one.partition in chosen]
        self._consumer.assign(dict.fromkeys(wanted, self._given["reset_policy"]))
        await self.assigned(tuple(wanted))

    # --- sessions -------------------------------------------------------------------------------------

    async def assigned(self, partitions: tuple[TopicPartition, ...]) -> None:
        """These are read from now on."""
        self._begin_session()
        self._lines.say(
            name="partitions_assigned", timestamp=self._clock.wall_ms(), partitions=_named(partitions)
        )

    async def revoked(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Others read these from now on."""
        self._begin_session()
        self._lines.say(
            name="partitions_revoked", timestamp=self._clock.wall_ms(), partitions=_named(partitions)
        )

    def _begin_session(self) -> None:
        if self._ledger is not None:
            self._ledger.begin_session()

    def _move(self, partition: TopicPartition) -> None:
        self._begin_session()
        if self._given["reset_policy"] == "earliest":
            self._consumer.seek_to_beginning(partition)
        else:
            self._consumer.seek_to_end(partition)

    # --- reading --------------------------------------------------------------------------------------

    async def _read_all(self) -> None:
        begun_ms = heard_ms = self._clock.now_ms()
        most, seconds, idle_ms = (
            self._given[name] for name in ("max_messages", "seconds", "idle_timeout_ms")
        )
        while self._lines.is_heard and (most is None or self._read < most):
            batches = await self._poll()
            now_ms = self._clock.now_ms()
            if batches:
                heard_ms = now_ms
                self._take(batches)
            if now_ms - self._progress_ms >= _PROGRESS_MS:
                self._progress()
            if idle_ms is not None and now_ms - heard_ms >= idle_ms:
                return
            if seconds is not None and now_ms - begun_ms >= seconds * 1000:
                return

    async def _poll(self) -> list[FetchedBatch]:
        try:
            return await self._consumer.poll_batches(_POLL_BYTES, _POLL_MS)
        except NoSuchOffset as error:
            if error.partition is None or error.partition not in self._consumer.assignment:
                raise
            self._move(error.partition)
        except LogTruncated as error:
            self._begin_session()  # the consumer has gone back to where the logs part
            click.echo(f"warning: {error}", err=True)
        return []

    def _take(self, batches: Sequence[FetchedBatch]) -> None:
        polled, problems = polled_of(self._consumer, batches)
        if self._ledger is not None:
            self._ledger.write(polled)
        if problems:
            raise problems[0]
        count = sum(len(one.records) for one in polled)
        self._read += count
        if self._given["quiet"] or not count:
            return
        self._lines.say(
            name="records_consumed",
            timestamp=self._clock.wall_ms(),
            count=count,
            partitions=[
                {
                    "topic": one.topic,
                    "partition": one.partition,
                    "count": len(one.records),
                    "minOffset": one.records[0].offset,
                    "maxOffset": one.records[-1].offset,
                }
                for one in polled
            ],
        )

    # --- reports --------------------------------------------------------------------------------------

    def _progress(self) -> None:
        self._progress_ms = self._clock.now_ms()
        self._lines.say(name="progress", consumed=self._read, at_ns=self._clock.now_ns())


def _named(partitions: Sequence[TopicPartition]) -> list[dict[str, Any]]:
    return [{"topic": topic, "partition": index} for topic, index in partitions]
