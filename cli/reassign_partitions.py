"""`holdfast reassign-partitions`: moves partitions to other brokers, Kafka's options and lines.

Brokers choose the log dir: options about that are accepted and warn.
"""

from collections.abc import Mapping
from typing import Any

import click

from holdfast.cli.admin_session import AdminSession, ask, described, partition_name, row_refused
from holdfast.cli.options import (
    INT32_MAX,
    CommandAnswer,
    bootstrap,
    one_action,
    output,
    refuse_strangers,
    whole_number,
)
from holdfast.cli.partition_files import (
    REASSIGNMENT_SHAPE,
    TOPICS_SHAPE,
    read_reassignment,
    read_topics,
    reassignment_text,
)
from holdfast.cli.reassignment_plan import Assignment, CannotPropose, MoveProgress, propose, verify
from holdfast.cli.reassignment_throttle import remove_throttles, throttle_moves, throttled_moves
from holdfast.client.admin_partitions import Reassignment
from holdfast.client.core.errors import RowError
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.topic_names import TopicPartition

_ACTIONS = ("generate", "execute", "verify", "cancel", "list")
#: {option: the actions that it belongs to}
_ACTIONS_OF: dict[str, tuple[str, ...]] = {
    "topics_to_move_json_file": ("generate",),
    "broker_list": ("generate",),
    "disable_rack_aware": ("generate",),
    "reassignment_json_file": ("execute", "verify", "cancel"),
    "additional": ("execute",),
    "disallow_replication_factor_change": ("execute",),
    "wait": ("execute", "verify"),
    "throttle": ("execute",),
    "replica_alter_log_dirs_throttle": ("execute",),
    "preserve_throttles": ("verify", "cancel"),
}
_NO_EFFECT = ("replica_alter_log_dirs_throttle", "timeout")
_NEEDED = {
    "generate": ("topics_to_move_json_file", "broker_list"),
    "execute": ("reassignment_json_file",),
    "verify": ("reassignment_json_file",),
    "cancel": ("reassignment_json_file",),
    "list": (),
}
_EXISTING = (
    "Cannot execute because there is an existing partition assignment.  Use --additional to override this "
    "and create a new partition assignment in addition to the existing one. The --additional flag can also "
    "be used to change the throttle by resubmitting the current reassignment."
)
_VERIFY_PERIODICALLY = (
    "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle "
    "is removed."
)
_POLL_MS = 500
#: Nothing moves and not all is complete for so long: it will not be.
_STANDSTILL_MS = 3_000


@click.command()
@bootstrap
@click.option("--generate", "actions", flag_value="generate", multiple=True, help="Propose, change nothing.")
@click.option("--execute", "actions", flag_value="execute", multiple=True, help="Begin to move.")
@click.option("--verify", "actions", flag_value="verify", multiple=True, help="How far is it?")
@click.option(
    "--cancel", "actions", flag_value="cancel", multiple=True, help="Go back to the brokers before."
)
@click.option("--list", "actions", flag_value="list", multiple=True, help="What moves now.")
@click.option("--topics-to-move-json-file", metavar="FILE", help=f"--generate: {TOPICS_SHAPE}")
@click.option("--broker-list", metavar="N,M", help="--generate: the brokers to use.")
@click.option("--disable-rack-aware", is_flag=True, help="--generate: take no notice of racks.")
@click.option("--reassignment-json-file", metavar="FILE", help=REASSIGNMENT_SHAPE)
@click.option("--additional", is_flag=True, help="--execute: also while others move, or to redirect them.")
@click.option(
    "--disallow-replication-factor-change", is_flag=True, help="--execute: refuse longer and shorter lists."
)
@click.option("--wait", is_flag=True, help="Return when nothing of it moves any more, or after --timeout-ms.")
@click.option(
    "--throttle",
    type=click.IntRange(-1),
    help="--execute: bytes a second at each broker, above that of the writes times the followers in sync; "
    "-1 for any.",
)
@click.option("--replica-alter-log-dirs-throttle", type=click.IntRange(-1), help="No effect.")
@click.option(
    "--preserve-throttles", is_flag=True, help="--verify, --cancel: leave the throttles as they are."
)
@click.option("--timeout", type=click.IntRange(0), help="No effect: brokers choose the log dir.")
@output
def command(actions: tuple[str, ...], **given: Any) -> None:
    """Move partitions between brokers."""
    action = _checked(actions, given)
    wanted: dict[TopicPartition, tuple[int, ...]] = {}
    topics: list[str] = []
    broker_ids: list[int] = []
    if action == "generate":
        topics = read_topics(given["topics_to_move_json_file"])
        broker_ids = _broker_ids(given["broker_list"])
    elif given["reassignment_json_file"] is not None:
        wanted = read_reassignment(given["reassignment_json_file"])
    answer = CommandAnswer(f"reassign-partitions-{action}")
    text: list[str] = []

    async def act(session: AdminSession) -> None:
        if action == "generate":
            is_rack_aware = not given["disable_rack_aware"]
            text.extend(await _generate(session, topics, broker_ids, is_rack_aware=is_rack_aware))
        elif action == "execute":
            await _execute(session, wanted, given, text)
        elif action == "verify":
            await _verify(session, wanted, text, waits=given["wait"])
            if not given["preserve_throttles"]:
                await _remove_throttles_at_end(session, wanted, text)
        elif action == "cancel":
            await _cancel(session, wanted, text)
            if not given["preserve_throttles"] and not answer.errors:
                await remove_throttles(session, _topics(wanted), text)
        else:
            moving = await session.admin.list_partition_reassignments(timeout_ms=session.timeout_ms)
            session.answer.data = [_moving_json(*move) for move in sorted(moving.items())]
            text.extend(moving_lines(moving))

    ask(given, answer, act)
    answer.finish(given["output"], "\n".join(text))


def _checked(actions: tuple[str, ...], given: Mapping[str, Any]) -> str:
    """The action. Raises: click.UsageError for what does not go together."""
    action = one_action(actions, _ACTIONS)
    for name in _NEEDED[action]:
        if given[name] is None:
            raise click.UsageError(f"--{action} needs --{name.replace('_', '-')}")
    refuse_strangers(action, given, _ACTIONS_OF)
    if given["throttle"] == 0:
        raise click.UsageError("--throttle 0: nothing would move; at least 1 byte a second, or -1 for any")
    for name in _NO_EFFECT:
        if given[name] not in (None, False):
            click.echo(f"warning: --{name.replace('_', '-')} has no effect here", err=True)
    return action


# --- generate --------------------------------------------------------------------------------------------


async def _generate(
    session: AdminSession, topics: list[str], wanted: list[int], *, is_rack_aware: bool
) -> list[str]:
    current = await _current(session, topics)
    cluster = await session.admin.describe_cluster(timeout_ms=session.timeout_ms)
    racks = {row.broker_id: row.rack for row in cluster.brokers}
    unknown = [broker_id for broker_id in wanted if broker_id not in racks]
    if unknown:
        text = f"broker {unknown[0]} is not registered; `holdfast cluster status` shows who is"
        session.answer.errors.append({"code": ErrorCode.BROKER_ID_NOT_REGISTERED.name, "message": text})
    if session.answer.errors:
        return []
    try:
        proposed = propose(
            current,
            [(broker_id, racks[broker_id]) for broker_id in wanted],
            rack_aware=is_rack_aware,
        )
    except CannotPropose as error:
        session.answer.errors.append(
            {"code": ErrorCode.INVALID_REPLICATION_FACTOR.name, "message": str(error)}
        )
        return []
    session.answer.data = {"current": _rows(current), "proposed": _rows(proposed)}
    return [
        "Current partition replica assignment",
        reassignment_text(sorted(current.items())),
        "",
        "Proposed partition reassignment configuration",
        reassignment_text(sorted(proposed.items())),
    ]


def _broker_ids(text: str) -> list[int]:
    """The ids of --broker-list. Raises: click.UsageError."""
    numbers = [whole_number(word.strip(), INT32_MAX) for word in text.split(",")]
    ids = [number for number in numbers if number is not None]
    if len(ids) < len(numbers):
        raise click.UsageError(f"--broker-list {text}: expected ids like 1,2,3")
    if len(set(ids)) != len(ids):
        raise click.UsageError(f"--broker-list {text}: Broker list contains duplicate entries")
    return ids


# --- execute, verify, cancel -----------------------------------------------------------------------------


async def _execute(
    session: AdminSession, wanted: Assignment, given: Mapping[str, Any], text: list[str]
) -> None:
    moving = await session.admin.list_partition_reassignments(timeout_ms=session.timeout_ms)
    if moving and not given["additional"]:
        session.answer.errors.append({"code": ErrorCode.REASSIGNMENT_IN_PROGRESS.name, "message": _EXISTING})
        return
    current = await _current(session, _topics(wanted), none_is_fine=True)
    for partition in wanted:
        if partition not in current:
            _unknown_partition(session.answer, partition)
    if session.answer.errors:
        return
    before = {
        # what a move that is to be redirected has added is no place to go back to
        partition: tuple(r for r in current[partition] if r not in _adding(moving, partition))
        for partition in wanted
    }
    text += [
        "Current partition replica assignment",
        "",
        reassignment_text(sorted(before.items())),
        "",
        "Save this to use as the --reassignment-json-file option during rollback",
    ]
    rate = given["throttle"] or -1
    if rate > 0:
        await throttle_moves(session, throttled_moves(wanted, before, moving), rate)
        if session.answer.errors:
            return
        text += [_VERIFY_PERIODICALLY, f"The inter-broker throttle limit was set to {rate} B/s"]
    rows = await session.admin.alter_partition_reassignments(
        wanted,
        allow_replication_factor_change=not given["disallow_replication_factor_change"],
        timeout_ms=session.timeout_ms,
    )
    begun = _sorted_out(session.answer, rows)
    session.answer.data = {
        "before": _rows(before),
        "throttle": rate if rate > 0 else None,
        "started": [partition._asdict() for partition in begun],
    }
    if begun:
        plural = "" if len(begun) == 1 else "s"
        names = ",".join(map(partition_name, begun))
        text.append(f"Successfully started partition reassignment{plural} for {names}")
    if rate > 0 and not begun and not moving:
        await remove_throttles(session, _topics(wanted), text)
    if given["wait"]:
        await wait_for_moves(session, {partition: wanted[partition] for partition in begun}, text)
        if rate > 0:
            await _remove_throttles_at_end(session, wanted, text)


async def _verify(session: AdminSession, wanted: Assignment, text: list[str], *, waits: bool) -> None:
    session.answer.data = {}
    if waits:
        await wait_for_moves(session, wanted, text)
        return
    current = await _current(session, _topics(wanted), none_is_fine=True)
    moving = await session.admin.list_partition_reassignments(list(wanted), timeout_ms=session.timeout_ms)
    _tell_steps(session.answer, wanted, current, moving, text)


def _tell_steps(
    answer: CommandAnswer,
    wanted: Assignment,
    current: Assignment,
    moving: Mapping[TopicPartition, Reassignment],
    text: list[str],
) -> None:
    """The lines of --verify; a partition that is elsewhere and does not move is an error."""
    steps = verify(wanted, current, moving)
    text += ["Status of partition reassignment:", *(step.line for step in steps)]
    answer.data["partitions"] = [
        {**step.partition._asdict(), "progress": step.progress.value} for step in steps
    ]
    for step in steps:
        if step.progress is MoveProgress.UNKNOWN:
            _unknown_partition(answer, step.partition)
        elif step.progress is MoveProgress.DIFFERENT:
            text_of = f"{step.line} `--execute` moves it"
            row_refused(answer, RowError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, text_of), step.partition)


async def wait_for_moves(session: AdminSession, wanted: Assignment, text: list[str]) -> None:
    """Ask until all is where it should be, and tell how it ended.

    Brokers answer from their own metadata, which may be older than the move: what neither moves nor is
    complete gets some time to be seen. Errors: those of --verify, REQUEST_TIMED_OUT for what still moves.
    """
    deadline_ms = session.clock.now_ms() + session.timeout_ms
    still_ms = 0
    while wanted:
        # in this order: of a move that begins in between, `moving` tells, or `current` is still the old one
        current = await _current(session, _topics(wanted), none_is_fine=True)
        moving = await session.admin.list_partition_reassignments(list(wanted), timeout_ms=session.timeout_ms)
        is_complete = all(current.get(partition) == target for partition, target in wanted.items())
        still_ms = 0 if moving else still_ms + _POLL_MS
        is_late = session.clock.now_ms() + _POLL_MS >= deadline_ms
        if (is_complete and not moving) or still_ms > _STANDSTILL_MS or is_late:
            _tell_steps(session.answer, wanted, current, moving, text)
            for partition in sorted(moving):
                patience = f"still in progress after {session.timeout_ms} ms; `--verify` shows how far it is"
                row_refused(session.answer, RowError(ErrorCode.REQUEST_TIMED_OUT, patience), partition)
            return
        await session.clock.sleep(_POLL_MS)


async def _remove_throttles_at_end(session: AdminSession, wanted: Assignment, text: list[str]) -> None:
    """Once all is where it should be and nothing else moves in the cluster: which moves the rate of a broker
    is for cannot be told. What neither moves nor is complete may be about to move."""
    moving = await session.admin.list_partition_reassignments(timeout_ms=session.timeout_ms)
    if not moving and not session.answer.errors:
        await remove_throttles(session, _topics(wanted), text)


async def _cancel(session: AdminSession, wanted: Assignment, text: list[str]) -> None:
    """End the moves of the partitions that the file names, wherever they go."""
    moving = await session.admin.list_partition_reassignments(list(wanted), timeout_ms=session.timeout_ms)
    chosen = [partition for partition in sorted(wanted) if partition in moving]
    session.answer.data = {"cancelled": []}
    if not chosen:
        text.append("None of the specified partition moves are active.")
        return
    rows = await session.admin.alter_partition_reassignments(
        dict.fromkeys(chosen), timeout_ms=session.timeout_ms
    )
    ended = _sorted_out(session.answer, rows)
    session.answer.data = {"cancelled": [partition._asdict() for partition in ended]}
    if ended:
        plural = "" if len(ended) == 1 else "s"
        names = ",".join(map(partition_name, ended))
        text.append(f"Successfully cancelled partition reassignment{plural} for: {names}")


def _sorted_out(
    answer: CommandAnswer, rows: Mapping[TopicPartition, RowError | None]
) -> list[TopicPartition]:
    """The partitions that were granted; the others become errors."""
    for partition, error in sorted(rows.items()):
        if error is not None:
            row_refused(answer, error, partition)
    return sorted(partition for partition, error in rows.items() if error is None)


# --- what there is ---------------------------------------------------------------------------------------


async def _current(
    session: AdminSession, topics: list[str], *, none_is_fine: bool = False
) -> dict[TopicPartition, tuple[int, ...]]:
    """Replicas of all partitions of these topics."""
    found = await described(session, topics, none_is_fine=none_is_fine)
    return {
        TopicPartition(topic.name, row.partition_index): row.replicas
        for topic in found
        for row in topic.partitions
    }


def _topics(wanted: Assignment) -> list[str]:
    return list(dict.fromkeys(partition.topic for partition in wanted))


def _adding(moving: Mapping[TopicPartition, Reassignment], partition: TopicPartition) -> tuple[int, ...]:
    return moving[partition].adding if partition in moving else ()


def _unknown_partition(answer: CommandAnswer, partition: TopicPartition) -> None:
    message = "there is no such partition; `holdfast topics --describe` shows those there are"
    row_refused(answer, RowError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message), partition)


def moving_lines(moving: Mapping[TopicPartition, Reassignment]) -> list[str]:
    """The lines of --list."""
    if not moving:
        return ["No partition reassignments found."]
    return [
        "Current partition reassignments:",
        *(
            f"{partition_name(partition)}: replicas: {_ids(move.replicas)}."
            + (f" adding: {_ids(move.adding)}." if move.adding else "")
            + (f" removing: {_ids(move.removing)}." if move.removing else "")
            for partition, move in sorted(moving.items())
        ),
    ]


def _moving_json(partition: TopicPartition, move: Reassignment) -> dict[str, Any]:
    return {
        **partition._asdict(),
        "replicas": move.replicas,
        "adding_replicas": move.adding,
        "removing_replicas": move.removing,
    }


def _rows(assignment: Assignment) -> list[dict[str, Any]]:
    return [
        {**partition._asdict(), "replicas": replicas} for partition, replicas in sorted(assignment.items())
    ]


def _ids(ids: tuple[int, ...]) -> str:
    return ",".join(map(str, ids))
