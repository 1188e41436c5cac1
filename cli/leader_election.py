"""`holdfast leader-election`: asks the controller to elect leaders (R17-R19), in Kafka's lines.

Types beyond PREFERRED are for partitions without a leader. Exit 0 when every election was made or not needed.
A comparison of logs only begins with the answer of the controller: it has succeeded when there is a leader.
"""

from collections.abc import Mapping
from typing import Any

import click

from holdfast.cli.admin_session import AdminSession, ask, described, partition_name, row_refused
from holdfast.cli.durability.report import ClusterContext
from holdfast.cli.durability.view import compares_logs as is_comparing_logs
from holdfast.cli.election_dry_run import LOG_COMPARISONS, Trial, try_election
from holdfast.cli.options import INT32_MAX, CommandAnswer, bootstrap, output
from holdfast.cli.partition_files import ELECTION_SHAPE, read_elections
from holdfast.client.core.backoff import Backoff
from holdfast.client.core.errors import RowError
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.elect_leaders import ElectionKind
from holdfast.protocol.messages.topics import DescribedPartition
from holdfast.protocol.topic_names import TopicPartition

#: Between looks for leaders that a comparison of logs is to find.
_LEADER_BACKOFF = Backoff(first_ms=100, max_ms=1_000)
_ALIASES = {"DESIGNATED": ElectionKind.DESIGNATION}


def _kind(_: click.Context, __: click.Parameter, value: str) -> ElectionKind:
    """Callback of `--election-type`: any case, `_` or `-`. Raises: click.BadParameter."""
    word = value.upper().replace("-", "_")
    if word in _ALIASES:
        return _ALIASES[word]
    if word not in ElectionKind.__members__:
        raise click.BadParameter(f"{value}: expected one of {', '.join(ElectionKind.__members__)}")
    return ElectionKind[word]


@click.command()
@bootstrap
@click.option(
    "--election-type",
    "kind",
    required=True,
    callback=_kind,
    metavar="|".join(ElectionKind.__members__),
    help="How the leader is found; all but the first are for partitions without one.",
)
@click.option("--topic", help="With --partition: one partition.")
@click.option("--partition", type=click.IntRange(0, INT32_MAX), help="With --topic: one partition.")
@click.option("--all-topic-partitions", "everything", is_flag=True, help="All partitions of all topics.")
@click.option("--path-to-json-file", "path", metavar="FILE", help=f"Partitions: {ELECTION_SHAPE}")
@click.option(
    "--designated-leader",
    "--desired-leader",
    "designated_leader",
    type=click.IntRange(0, INT32_MAX),
    metavar="N",
    help="DESIGNATION of one partition: the leader.",
)
@click.option("--dry-run", is_flag=True, help="Only say what the controller would do now.")
@output
def command(kind: ElectionKind, **given: Any) -> None:
    """Elect leaders of partitions."""
    wanted = _wanted(kind, given)
    answer = CommandAnswer("leader-election", {"election_type": kind.name, "dry_run": given["dry_run"]})
    text: list[str] = []

    async def act(session: AdminSession) -> None:
        if given["dry_run"]:
            text.extend(await _try(session, kind, wanted))
            return
        deadline_ms = session.clock.now_ms() + session.timeout_ms
        desired = {partition: leader for partition, leader in (wanted or {}).items() if leader is not None}
        outcome = await session.admin.elect_leaders(
            kind,
            None if wanted is None else list(wanted),
            desired if kind is ElectionKind.DESIGNATION else {},
            timeout_ms=session.timeout_ms,
        )
        if kind in LOG_COMPARISONS:
            begun = [partition for partition, error in outcome.items() if error is None]
            outcome = {**outcome, **await _without_leader(session, begun, deadline_ms)}
        text.extend(outcome_lines(session.answer, kind, outcome) or ["No partition needs an election"])

    ask(given, answer, act)
    answer.finish(given["output"], "\n".join(text))


def _wanted(kind: ElectionKind, given: Mapping[str, Any]) -> dict[TopicPartition, int | None] | None:
    """{partition: its desired leader}, None for all partitions. Raises: click.UsageError."""
    ways = [
        given["topic"] is not None or given["partition"] is not None,
        given["everything"],
        given["path"] is not None,
    ]
    if ways.count(True) != 1:
        raise click.UsageError(
            "say which partitions, in one way: --topic with --partition, --all-topic-partitions or "
            "--path-to-json-file"
        )
    if ways[0] and (given["topic"] is None or given["partition"] is None):
        raise click.UsageError("--topic and --partition go together")
    designates = kind is ElectionKind.DESIGNATION
    if given["designated_leader"] is not None and not (designates and ways[0]):
        raise click.UsageError("--designated-leader goes with DESIGNATION of one --topic and --partition")
    if given["everything"]:
        if designates:
            raise click.UsageError("DESIGNATION needs a leader for each partition: use --path-to-json-file")
        return None
    if given["path"] is None:
        if designates and given["designated_leader"] is None:
            raise click.UsageError("DESIGNATION of one partition needs --designated-leader")
        return {TopicPartition(given["topic"], given["partition"]): given["designated_leader"]}
    wanted = read_elections(given["path"])
    if designates:
        for partition, leader in wanted.items():
            if leader is None:
                raise click.UsageError(f"{given['path']}: {partition_name(partition)} has no desiredLeader")
    return wanted


def outcome_lines(
    answer: CommandAnswer, kind: ElectionKind, outcome: Mapping[TopicPartition, RowError | None]
) -> list[str]:
    """Kafka's lines; what was elected, not needed and refused goes into the answer."""
    rows = sorted(outcome.items())
    elected = [partition for partition, error in rows if error is None]
    not_needed = [
        partition
        for partition, error in rows
        if error is not None and error.code is ErrorCode.ELECTION_NOT_NEEDED
    ]
    answer.data |= {
        "elected": [partition._asdict() for partition in elected],
        "not_needed": [partition._asdict() for partition in not_needed],
    }
    lines = []
    if elected:
        names = ", ".join(map(partition_name, elected))
        lines.append(f"Successfully completed leader election ({kind.name}) for partitions {names}")
    if not_needed:
        # R19: a replica leads, perhaps not the designated one: no success of this choice
        lines.append(
            f"Valid replica already elected for partitions {', '.join(map(partition_name, not_needed))}"
        )
    for partition, error in rows:
        if error is not None and error.code is not ErrorCode.ELECTION_NOT_NEEDED:
            row_refused(answer, error, partition)
            lines.append(
                f"Error completing leader election ({kind.name}) for partition: {partition_name(partition)}: "
                f"{error.code.name}: {error.message}"
            )
    if answer.errors:
        answer.summary = f"{len(answer.errors)} replica(s) could not be elected"
    return lines


async def _without_leader(
    session: AdminSession, begun: list[TopicPartition], deadline_ms: int
) -> dict[TopicPartition, RowError]:
    """Wait for leaders of these partitions; which of them have none when the time is over, and why."""
    waiting = begun
    repetitions = 0
    while waiting:
        names = list(dict.fromkeys(partition.topic for partition in waiting))
        left_ms = max(1, deadline_ms - session.clock.now_ms())
        topics = await session.admin.describe_topics(names, timeout_ms=left_ms)
        rows = {
            TopicPartition(topic.name, row.partition_index): row
            for topic in topics
            for row in topic.partitions
        }
        # the node that answers may lag behind: one that is not known there may be known soon
        waiting = [one for one in waiting if one not in rows or rows[one].leader_id < 0]
        repetitions += 1
        pause_ms = _LEADER_BACKOFF.pause_ms(repetitions)
        if session.clock.now_ms() + pause_ms >= deadline_ms:
            return {one: _no_leader_yet(rows.get(one)) for one in waiting}
        if waiting:
            await session.clock.sleep(pause_ms)
    return {}


def _no_leader_yet(row: DescribedPartition | None) -> RowError:
    if row is None:
        return RowError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition any more")
    known = (*row.isr, *(row.eligible_leader_replicas or ())) or row.last_known_elr or ()
    away = [replica for replica in known if replica in row.offline_replicas]
    text = "the comparison of logs has begun and goes on"
    if away:
        text += f"; offline of those that may have everything: {', '.join(map(str, away))}"
    return RowError(ErrorCode.REQUEST_TIMED_OUT, f"{text}; `holdfast topics --describe` shows a leader later")


# --- dry run ---------------------------------------------------------------------------------------------


async def _try(
    session: AdminSession, kind: ElectionKind, wanted: dict[TopicPartition, int | None] | None
) -> list[str]:
    names = None if wanted is None else list(dict.fromkeys(partition.topic for partition in wanted))
    topics = await described(session, names, none_is_fine=True)
    there: dict[TopicPartition, DescribedPartition] = {
        TopicPartition(topic.name, row.partition_index): row for topic in topics for row in topic.partitions
    }
    around = ClusterContext(await session.admin.describe_cluster(timeout_ms=session.timeout_ms), {})
    compares_logs = kind not in LOG_COMPARISONS or await is_comparing_logs(session)
    trials = {}
    for partition in sorted(there if wanted is None else wanted):
        row = there.get(partition)
        if row is None:
            text = f"there is no partition {partition_name(partition)}"
            trials[partition] = Trial(None, RowError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text))
        else:
            leader = None if wanted is None else wanted[partition]
            trials[partition] = try_election(kind, row, around.is_active, leader, compares_logs=compares_logs)
    return _trial_lines(session.answer, trials, hides_not_needed=wanted is None)


def _trial_lines(
    answer: CommandAnswer, trials: Mapping[TopicPartition, Trial], *, hides_not_needed: bool
) -> list[str]:
    lines = []
    answer.data["would"] = []
    for partition, trial in trials.items():
        name = partition_name(partition)
        if trial.error is None:
            answer.data["would"].append({**partition._asdict(), "result": trial.text})
            lines.append(f"{name}: {trial.text}")
        elif trial.error.code is not ErrorCode.ELECTION_NOT_NEEDED:
            row_refused(answer, trial.error, partition)
            lines.append(f"{name}: would be refused: {trial.error}")
        elif not hides_not_needed:
            answer.data["would"].append({**partition._asdict(), "result": "nothing to do"})
            lines.append(f"{name}: nothing to do: {trial.error.message}")
    if answer.errors:
        answer.summary = f"{len(answer.errors)} replica(s) could not be elected"
    return lines
