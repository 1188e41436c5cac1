"""`holdfast verifiable-producer`: numbered, self-describing records; each answer as a JSON line; a ledger.

Owns the pace and what is reported. With `--quiet` the line per record is left out; a `progress` line every
half second and a `new_leader` line for the first acknowledgement in a (partition, leader epoch) always come.
"""

import asyncio
import contextlib
import os
import sys
from typing import Any

import click

from holdfast.cli.options import ACKS, INT32_MAX, bootstrap, client_properties, run_client
from holdfast.cli.tool_lines import ToolLines
from holdfast.client.core.batch import Batch
from holdfast.client.core.errors import ClientError, TimedOut
from holdfast.client.core.history import make_value
from holdfast.client.core.outcomes import DeliveryOutcome
from holdfast.client.ledger import Ledger
from holdfast.client.producer import Producer
from holdfast.runtime.api import DiskError, Runtime

PROGRESS_MS = 500
#: After a signal, what was sent already has so long to be acknowledged.
STOP_MS = 3_000
#: Records are paced in portions of so many ms.
PACE_MS = 10
_GOOD = (DeliveryOutcome.OK, DeliveryOutcome.OK1)


@click.command()
@bootstrap
@click.option("--topic", required=True, help="An existing topic.")
@click.option(
    "--max-messages",
    type=click.IntRange(-1),
    default=-1,
    show_default=True,
    help="Stop after so many; -1 never.",
)
@click.option("--until-eof", is_flag=True, help="Go on after --max-messages until standard input ends.")
@click.option(
    "--throughput",
    type=click.IntRange(-1),
    default=-1,
    show_default=True,
    help="Records a second; -1 unlimited.",
)
@click.option(
    "--throughput-after",
    type=click.IntRange(0),
    metavar="N",
    help="--until-eof: records a second behind --max-messages; without it as before.",
)
@click.option("--acks", type=click.Choice(list(ACKS)), default="all", show_default=True)
@click.option(
    "--value-size", type=click.IntRange(32, 1_000_000), default=64, show_default=True, help="Bytes."
)
@click.option("--value-prefix", type=int, help="Put this number and a dot before the producer's name.")
@click.option("--repeating-keys", type=click.IntRange(1), help="Keys 0..N-1 in turn; without: no keys.")
@click.option("--partition", type=click.IntRange(0, INT32_MAX), help="Only this partition.")
@click.option("--compression-codec", type=click.Choice(["none", "gzip", "lz4", "zstd"]), default="none")
@click.option("--linger-ms", type=click.IntRange(0, INT32_MAX), default=5, show_default=True)
@click.option("--delivery-timeout-ms", type=click.IntRange(1, INT32_MAX), default=120_000, show_default=True)
@click.option(
    "--ledger", "ledger_folder", type=click.Path(file_okay=False), help="Keep a ledger in this folder."
)
@click.option(
    "--ledger-format",
    type=click.Choice(["json", "arrow"]),
    default="json",
    show_default=True,
    help="arrow: fewer bytes where many records are sent at a time; needs the extra `spark`.",
)
@click.option("--ledger-fsync", is_flag=True, help="fsync the ledger with every flush.")
@click.option("--run", "run_name", default="run", show_default=True, help="Name of the run in the ledger.")
@click.option("--producer-name", help="Name in ledger and values; default: from the pid.")
@click.option("--quiet", is_flag=True, help="No line per record.")
def command(
    command_config: str | None, command_property: tuple[str, ...], producer_name: str | None, **given: Any
) -> None:
    """Send records that can be checked later; exit 0 when all were acknowledged."""
    client_properties(command_config, command_property, frozenset())
    name = producer_name or f"producer-{os.getpid()}"
    if given["value_prefix"] is not None:
        name = f"{given['value_prefix']}.{name}"

    async def work(runtime: Runtime) -> int:
        return await _Run(runtime, name, given).work()

    try:
        sys.exit(run_client(work))
    except (ClientError, DiskError, ValueError) as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)


class Pace:
    """How many records may have been sent by now. Rates are records a second."""

    def __init__(self, start_ms: int, count: int, rate: int, rate_after: int | None) -> None:
        """`count`, `rate`: -1 for no limit. `rate_after`: behind `count`; None: `rate` there, too."""
        self._start_ms = self._reached_ms = start_ms
        self._count = count
        self._rate = rate
        self._rate_after = rate_after

    def due(self, now_ms: int, sent: int, *, goes_on: bool) -> int:
        """`goes_on`: records beyond `count` are wanted. At most 1000 more than were sent."""
        portion = sent + 1000
        if goes_on and self._is_behind(sent):
            return min(portion, self._count + (now_ms - self._reached_ms) * (self._rate_after or 0) // 1000)
        self._reached_ms = now_ms
        if self._rate >= 0:
            portion = min(portion, (now_ms - self._start_ms + PACE_MS) * self._rate // 1000)
        if self._count >= 0 and (not goes_on or self._rate_after is not None):
            portion = min(portion, self._count)
        return portion

    def is_slow(self, sent: int) -> bool:
        """There is time between two portions."""
        return self._rate >= 0 or self._is_behind(sent)

    def _is_behind(self, sent: int) -> bool:
        return self._rate_after is not None and sent >= self._count >= 0


class _Run:
    """One run of the tool."""

    def __init__(self, runtime: Runtime, name: str, given: dict[str, Any]) -> None:
        self._clock = runtime.clock
        self._name = name
        self._given = given
        self._quiet: bool = given["quiet"]
        self._sent = 0
        self._acked = 0
        self._failed = 0
        #: records beyond --max-messages are wanted
        self._goes_on: bool = given["until_eof"]
        #: the reports are still read
        self._lines = ToolLines()
        self._longest_wait_ms = 0
        #: when something was acknowledged or given up last, or was sent while nothing was on its way
        self._settled_ms = runtime.clock.now_ms()
        self._leader_epochs: dict[int, int] = {}
        self._ledger: Ledger | None = None
        if given["ledger_folder"] is not None:
            self._ledger = Ledger(
                given["ledger_folder"],
                given["run_name"],
                name,
                fsync=given["ledger_fsync"],
                file_format=given["ledger_format"],
                runtime=runtime,
            )
        self._producer = Producer(
            given["bootstrap_server"],
            acks=ACKS[given["acks"]],
            linger_ms=given["linger_ms"],
            compression=given["compression_codec"],
            max_block_ms=given["timeout_ms"],
            delivery_timeout_ms=given["delivery_timeout_ms"],
            client_id=name,
            ledger=self._ledger,
            on_batch=self._on_batch,
            runtime=runtime,
        )

    async def work(self) -> int:
        """Send everything; the exit code."""
        producer = self._producer
        await producer.start()
        count = await producer.partition_count(self._given["topic"])
        if self._given["partition"] is not None and self._given["partition"] >= count:
            raise ClientError(
                f"{self._given['topic']} has partitions 0 to {count - 1}, not {self._given['partition']}"
            )
        self._lines.say(name="startup_complete", timestamp=self._clock.wall_ms())
        start_ms = self._clock.now_ms()
        if self._goes_on:
            try:
                asyncio.get_running_loop().add_reader(0, self._stdin_ready)
            except PermissionError:
                self._goes_on = False  # a file or /dev/null: there is no end to wait for
        try:
            await self._send_all(start_ms)
            await self._drain()
        except asyncio.CancelledError:
            await self._finish(start_ms, STOP_MS)
            raise
        await self._finish(start_ms, PROGRESS_MS)
        return 0 if self._acked == self._sent and self._lines.is_heard else 1

    def _stdin_ready(self) -> None:
        if not os.read(0, 1 << 16):
            self._goes_on = False
            asyncio.get_running_loop().remove_reader(0)

    async def _finish(self, start_ms: int, timeout_ms: int) -> None:
        elapsed_ms = max(1, self._clock.now_ms() - start_ms)
        await self._producer.close(timeout_ms)
        self._progress()
        self._lines.say(
            name="tool_data",
            sent=self._sent,
            acked=self._acked,
            target_throughput=self._given["throughput"],
            avg_throughput=self._acked * 1000 / elapsed_ms,
        )
        self._lines.say(name="shutdown_complete", timestamp=self._clock.wall_ms())

    async def _send_all(self, start_ms: int) -> None:
        given = self._given
        count: int = given["max_messages"]
        pace = Pace(start_ms, count, given["throughput"], given["throughput_after"])
        next_progress_ms = start_ms
        while self._lines.is_heard and (count < 0 or self._sent < count or self._goes_on):
            now_ms = self._clock.now_ms()
            if now_ms >= next_progress_ms:
                self._progress()
                next_progress_ms = now_ms + PROGRESS_MS
            portion = pace.due(now_ms, self._sent, goes_on=self._goes_on)
            while self._sent < portion:
                if self._producer.buffered_bytes >= self._producer.config.buffer_memory_bytes:
                    self._progress()
                    # patience is the delivery timeout's: what it gives up makes room as well
                    with contextlib.suppress(TimedOut):
                        await self._producer.room()
                self._send_one()
            await self._clock.sleep(PACE_MS if pace.is_slow(self._sent) else 0)

    def _send_one(self) -> None:
        given = self._given
        number = self._ledger.take_pseq() if self._ledger is not None else self._sent
        value = make_value(self._name, number, given["value_size"])
        key = None
        if given["repeating_keys"] is not None:
            key = str(self._sent % given["repeating_keys"]).encode()
        if self._acked + self._failed == self._sent:
            self._settled_ms = self._clock.now_ms()
        self._producer.send_nowait(given["topic"], value, key, given["partition"], tag=number)
        self._sent += 1

    async def _drain(self) -> None:
        while self._acked + self._failed < self._sent:
            try:
                await self._producer.flush(PROGRESS_MS)
            except ClientError:
                self._progress()

    def _on_batch(self, batch: Batch) -> None:
        self._settled_ms = self._clock.now_ms()
        if batch.outcome not in _GOOD:
            self._failed += batch.count
            self._lines.say(
                name="producer_send_error",
                topic=batch.topic,
                partition=batch.partition,
                count=batch.count,
                exception=batch.error.name if batch.error is not None else None,
                message=batch.error_text,
            )
            return
        self._acked += batch.count
        self._longest_wait_ms = max(self._longest_wait_ms, self._clock.now_ms() - batch.created_ms)
        if self._leader_epochs.get(batch.partition, -1) != batch.leader_epoch:
            self._leader_epochs[batch.partition] = batch.leader_epoch
            self._lines.say(
                name="new_leader",
                partition=batch.partition,
                leader_epoch=batch.leader_epoch,
                at_ns=self._clock.now_ns(),
            )
        if not self._quiet:
            for index, pseq in enumerate(batch.tags):
                self._lines.say(
                    name="producer_send_success",
                    producer=self._name,
                    seq=pseq,
                    topic=batch.topic,
                    partition=batch.partition,
                    offset=batch.base_offset + index if batch.base_offset >= 0 else -1,
                    leader_epoch=batch.leader_epoch,
                )

    def _progress(self) -> None:
        if self._acked + self._failed < self._sent:
            # what is not acknowledged yet has waited, too: an outage shows while it lasts
            self._longest_wait_ms = max(self._longest_wait_ms, self._clock.now_ms() - self._settled_ms)
        self._lines.say(
            name="progress",
            sent=self._sent,
            acked=self._acked,
            failed=self._failed,
            longest_wait_ms=self._longest_wait_ms,
            at_ns=self._clock.now_ns(),
        )
        self._longest_wait_ms = 0
