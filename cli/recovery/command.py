"""`holdfast unclean-recovery` (KIP-1275): compare the logs of leaderless partitions, and designate the best.

The options and the shell: what is asked, chosen and said is decided in `unclean_recovery_mind`. Exit 0 only
when all that was asked for is done; with --automated-recovery when every partition of the input was elected
by this run (R74).
"""

import asyncio
import os
from collections.abc import Coroutine
from typing import Any

import aiofiles
import aiofiles.os
import click

from holdfast.cli.admin_session import AdminSession, ask
from holdfast.cli.options import INT32_MAX, CommandAnswer, bootstrap, output
from holdfast.cli.partition_files import RECOVERY_SHAPE, read_recovery
from holdfast.cli.recovery.core import Goal, RecoveryLimits, RecoveryPlanner
from holdfast.cli.recovery.events import (
    AskForLogs,
    CommittedTold,
    Describe,
    Described,
    Effect,
    Elect,
    ElectionsAnswered,
    ElectionsFailed,
    Event,
    FindCommitted,
    LogsNotTold,
    LogsTold,
    NotDescribed,
    Tick,
)
from holdfast.cli.recovery.view import as_json, elected_lines, election_file, errors, table, warnings
from holdfast.client.core.errors import ClientError, RowError
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.elect_leaders import ElectionKind
from holdfast.protocol.topic_names import TopicPartition
from holdfast.runtime.stats import LogLine


@click.command()
@bootstrap
@click.option(
    "--recovery-duration-ms",
    type=click.IntRange(1, INT32_MAX),
    default=30_000,
    show_default=True,
    help="Brokers that have not told their logs by then are no candidates.",
)
@click.option(
    "--recovery-election-attempts",
    type=click.IntRange(0),
    default=3,
    show_default=True,
    help="Repetitions of elections that failed for a while only.",
)
@click.option("--show-replica-info", "shows", is_flag=True, help="Print a table of replicas and their logs.")
@click.option(
    "--manual-recovery-output-file",
    "target",
    metavar="FILE",
    help="Write a new file for `holdfast leader-election --election-type DESIGNATION`.",
)
@click.option("--automated-recovery", "elects", is_flag=True, help="Elect the longest logs by designation.")
@click.option("--path-to-json-file", "source", metavar="FILE", help=f"Partitions: {RECOVERY_SHAPE}")
@click.option("--all-offline-partitions", "everything", is_flag=True, help="All partitions without a leader.")
@click.option(
    "--kip1275-json", "is_kip1275", is_flag=True, help="Write designatedLeader instead of desiredLeader."
)
@output
def command(**given: Any) -> None:
    """Recover partitions without a leader by the logs of their replicas; records may be lost."""
    goal = _goal(given)
    wanted = _wanted(given)
    if given["target"] is not None:
        _check_new_file(given["target"])
    limits = RecoveryLimits(
        given["recovery_duration_ms"], given["recovery_election_attempts"], given["timeout_ms"]
    )
    planner = RecoveryPlanner(wanted, goal, limits)
    answer = CommandAnswer("unclean-recovery", {"partitions": [], "warnings": [], "output_file": None})
    text: list[str] = []

    async def act(session: AdminSession) -> None:
        try:
            await _Shell(session, planner).run()
        except asyncio.CancelledError:
            _report(answer, text, planner, given, is_interrupted=True)  # R75
            answer.show(given["output"], "\n".join(text))
            raise
        _report(answer, text, planner, given, is_interrupted=False)
        if given["target"] is not None:
            text.extend(await _write(answer, planner, given["target"], given["is_kip1275"]))

    ask(given, answer, act)
    answer.finish(given["output"], "\n".join(text))


def _goal(given: dict[str, Any]) -> Goal:
    """What to do in the end. Raises: click.UsageError (R70)."""
    if given["elects"] and given["target"] is not None:
        raise click.UsageError("--automated-recovery and --manual-recovery-output-file exclude each other")
    if given["is_kip1275"] and given["target"] is None:
        raise click.UsageError("--kip1275-json goes with --manual-recovery-output-file")
    if given["elects"]:
        return Goal.ELECT
    if given["target"] is not None:
        return Goal.WRITE_FILE
    if not given["shows"]:
        raise click.UsageError(
            "say what to do: --show-replica-info, --manual-recovery-output-file or --automated-recovery"
        )
    return Goal.SHOW


def _wanted(given: dict[str, Any]) -> list[TopicPartition] | None:
    """The partitions, None for all without a leader. Raises: click.UsageError (R70)."""
    if given["everything"] == (given["source"] is not None):
        raise click.UsageError("exactly one of --path-to-json-file and --all-offline-partitions is needed")
    return None if given["everything"] else read_recovery(given["source"])


def _report(
    answer: CommandAnswer,
    text: list[str],
    planner: RecoveryPlanner,
    given: dict[str, Any],
    *,
    is_interrupted: bool,
) -> None:
    """Tell what was found out and done; what was not done becomes an error."""
    for warning in warnings(planner):
        click.echo(f"warning: {warning}", err=True)
    answer.errors += errors(planner, is_interrupted=is_interrupted)
    answer.data |= as_json(planner, shows_replicas=given["shows"])
    if planner.has_looked and not planner.outcomes:
        text.append("No partition is without a leader.")
    if given["shows"]:
        text.extend(table(planner))
    text.extend(elected_lines(planner))


# --- the file --------------------------------------------------------------------------------------------


def _check_new_file(path: str) -> None:
    """See before anybody is asked that the file can be made. Raises: click.UsageError."""
    try:
        with open(path, "x", encoding="utf-8"):
            os.unlink(path)
    except FileExistsError as error:
        raise click.UsageError(f"{path} exists; nothing is overwritten, name a new file") from error
    except (OSError, ValueError) as error:
        raise click.UsageError(f"cannot write {path}: {_reason(error)}") from error


async def _write(answer: CommandAnswer, planner: RecoveryPlanner, path: str, is_kip1275: bool) -> list[str]:
    """Write the elections; the lines that say so. Without any there is no file."""
    content = election_file(planner, is_kip1275=is_kip1275)
    if content is None:
        return [f"No replica is to be elected: {path} was not written."]
    try:
        await _create(path, content)
    except (OSError, ValueError) as error:
        text = f"{path} was not written: {_reason(error)}"
        answer.errors.append({"code": ErrorCode.UNKNOWN_SERVER_ERROR.name, "message": text})
        return []
    answer.data["output_file"] = path
    count = sum(one in planner.designated for one in planner.open_partitions())
    return [
        f"Wrote {count} election(s) to {path}; look at them, then: "
        f"holdfast leader-election --election-type DESIGNATION --path-to-json-file {path}"
    ]


async def _create(path: str, content: str) -> None:
    """Make a new file, whole or not at all; one that exists is left alone. Raises: OSError."""
    async with aiofiles.open(path, "x", encoding="utf-8") as made:
        try:
            await made.write(content)
            await made.flush()
            await aiofiles.os.wrap(os.fsync)(made.fileno())
        except BaseException:
            await aiofiles.os.unlink(path)
            raise


def _reason(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


# --- the shell -------------------------------------------------------------------------------------------


class _Shell:
    """Carries out what the mind wants, each in a task of its own, and tells it what came of it."""

    def __init__(self, session: AdminSession, planner: RecoveryPlanner) -> None:
        self._session = session
        self._planner = planner
        self._events: asyncio.Queue[Event] = asyncio.Queue()

    async def run(self) -> None:
        """Until the mind is done. Raises: CancelledError on a signal."""
        clock = self._session.clock
        self._carry_out(self._planner.start(clock.now_ms()))
        while not self._planner.is_done:
            due_ms = self._planner.next_deadline_ms()
            timer = None
            if due_ms is not None:
                left_ms = max(0, due_ms - clock.now_ms())
                timer = clock.call_later(left_ms, lambda: self._events.put_nowait(Tick()))
            event = await self._events.get()
            if timer is not None:
                timer.cancel()
            self._carry_out(self._planner.handle(event, clock.now_ms()))

    def _start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        self._session.tasks.start(f"unclean-recovery {name}", work)

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case LogLine():
                    click.echo(effect.text, err=True)
                case FindCommitted():
                    self._start("quorum", self._find_committed(effect))
                case Describe():
                    self._start("metadata", self._describe(effect))
                case AskForLogs():
                    self._start(f"logs of {effect.broker_id}", self._ask_for_logs(effect))
                case Elect():
                    self._start("elections", self._elect(effect))

    async def _find_committed(self, wanted: FindCommitted) -> None:
        try:
            quorum = await self._session.admin.describe_quorum(timeout_ms=wanted.timeout_ms)
        except ClientError:
            self._events.put_nowait(CommittedTold(None))
        else:
            self._events.put_nowait(CommittedTold(quorum.high_watermark))

    async def _describe(self, wanted: Describe) -> None:
        admin = self._session.admin
        try:
            cluster = await admin.describe_cluster(timeout_ms=wanted.timeout_ms)
            topics = await admin.describe_topics(wanted.names, timeout_ms=wanted.timeout_ms)
        except ClientError as error:
            self._events.put_nowait(NotDescribed(wanted.question_id, _refusal(error)))
        else:
            self._events.put_nowait(Described(wanted.question_id, cluster, topics))

    async def _ask_for_logs(self, wanted: AskForLogs) -> None:
        try:
            logs = await self._session.admin.ask_broker_for_logs(
                wanted.broker_id,
                wanted.address,
                wanted.topic_ids,
                wanted.partitions,
                timeout_ms=wanted.timeout_ms,
            )
        except ClientError as error:
            self._events.put_nowait(LogsNotTold(wanted.question_id, _refusal(error)))
        else:
            self._events.put_nowait(LogsTold(wanted.question_id, logs))

    async def _elect(self, wanted: Elect) -> None:
        try:
            outcome = await self._session.admin.elect_leaders(
                ElectionKind.DESIGNATION, list(wanted.leaders), wanted.leaders, timeout_ms=wanted.timeout_ms
            )
        except ClientError as error:
            self._events.put_nowait(ElectionsFailed(_refusal(error)))
        else:
            self._events.put_nowait(ElectionsAnswered(outcome))


def _refusal(error: ClientError) -> RowError:
    """A raised error as a value; without a code no node answered."""
    return RowError(error.code or ErrorCode.NETWORK_EXCEPTION, str(error))
