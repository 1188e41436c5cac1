"""`holdfast consumer-groups`: which groups there are, who is in them, how far behind they are.

Options and columns are those of Kafka's tool. A reset of offsets needs a group without members, and only
shows what it would do unless `--execute` is given.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import click

from holdfast.cli.admin_session import AdminSession, ask, described, partition_name
from holdfast.cli.options import INT32_MAX, INT64_MAX, CommandAnswer, bootstrap, output, whole_number
from holdfast.cli.tables import table_lines
from holdfast.client.admin_groups import GroupDescription
from holdfast.client.core.errors import ClientError
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from holdfast.protocol.topic_names import TopicPartition

_ACTIONS = ("list", "describe", "delete", "reset_offsets")
_HEADS = (
    "GROUP",
    "TOPIC",
    "PARTITION",
    "CURRENT-OFFSET",
    "LOG-END-OFFSET",
    "LAG",
    "CONSUMER-ID",
    "HOST",
    "CLIENT-ID",
)
_NOTHING = "-"


class _Target(NamedTuple):
    """Where a reset goes."""

    #: to_earliest, to_latest, to_offset, shift_by, to_datetime
    kind: str
    value: int


@click.command()
@bootstrap
@click.option("--list", "is_list", is_flag=True, help="All groups.")
@click.option("--describe", "is_describe", is_flag=True, help="Partitions, offsets and lag of groups.")
@click.option("--delete", "is_delete", is_flag=True, help="Delete groups without members, and their offsets.")
@click.option("--reset-offsets", "is_reset_offsets", is_flag=True, help="Choose where a group goes on.")
@click.option("--group", "groups", multiple=True, help="A group; may be repeated.")
@click.option("--all-groups", is_flag=True, help="With --describe: every group.")
@click.option("--members", is_flag=True, help="With --describe: the members instead of the partitions.")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC[:P,P]",
    help="With --reset-offsets: these partitions.",
)
@click.option("--all-topics", is_flag=True, help="With --reset-offsets: all that the group has committed.")
@click.option("--to-earliest", is_flag=True, help="Reset to the first record that is kept.")
@click.option("--to-latest", is_flag=True, help="Reset to the end.")
@click.option("--to-offset", type=click.IntRange(0, INT64_MAX), help="Reset to this offset.")
@click.option("--shift-by", type=int, help="Reset by so many records forwards, or with a minus backwards.")
@click.option(
    "--to-datetime", metavar="ISO", help="Reset to the first record from 2026-01-31T12:00:00 on (UTC)."
)
@click.option("--dry-run", is_flag=True, help="Only show what a reset would do; so it is without --execute.")
@click.option("--execute", is_flag=True, help="Carry the reset out.")
@output
def command(**given: Any) -> None:
    """List, describe and delete consumer groups, and reset their offsets."""
    action, target = _checked(given)
    answer = CommandAnswer("consumer-groups", [])
    text: list[str] = []

    async def act(session: AdminSession) -> None:
        if action == "list":
            found = await session.admin.list_groups(timeout_ms=session.timeout_ms)
            answer.data = [one._asdict() for one in found]
            text.extend(one.group_id for one in found)
        elif action == "describe":
            text.extend(await _describe(session, given))
        elif action == "delete":
            text.extend(await _delete(session, given["groups"]))
        else:
            assert target is not None
            text.extend(await _reset(session, given, target))

    ask(given, answer, act)
    answer.finish(given["output"], "\n".join(text))


def _checked(given: Mapping[str, Any]) -> tuple[str, _Target | None]:
    """What is to be done. Raises: click.UsageError."""
    actions = [name for name in _ACTIONS if given[f"is_{name}"]]
    if len(actions) != 1:
        raise click.UsageError("say what to do, in one way: --list, --describe, --delete or --reset-offsets")
    (action,) = actions
    if action == "describe" and bool(given["groups"]) == given["all_groups"]:
        raise click.UsageError("--describe needs --group or --all-groups")
    if action == "delete" and not given["groups"]:
        raise click.UsageError("--delete needs --group")
    if action != "reset_offsets":
        return action, None
    if len(given["groups"]) != 1 or bool(given["topics"]) == given["all_topics"]:
        raise click.UsageError("--reset-offsets needs one --group, and --topic or --all-topics")
    if given["dry_run"] and given["execute"]:
        raise click.UsageError("--dry-run and --execute exclude each other")
    return action, _target(given)


def _target(given: Mapping[str, Any]) -> _Target:
    """Where to. Raises: click.UsageError."""
    found = [_Target(kind, 0) for kind in ("to_earliest", "to_latest") if given[kind]]
    found += [_Target(kind, given[kind]) for kind in ("to_offset", "shift_by") if given[kind] is not None]
    if given["to_datetime"] is not None:
        found.append(_Target("to_datetime", _milliseconds(given["to_datetime"])))
    if len(found) != 1:
        raise click.UsageError(
            "say where to, in one way: --to-earliest, --to-latest, --to-offset, --shift-by or --to-datetime"
        )
    return found[0]


def _milliseconds(text: str) -> int:
    """ms since 1970. Raises: click.UsageError."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise click.UsageError(f"--to-datetime {text}: expected 2026-01-31T12:00:00") from error
    return max(0, int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000))


# --- describe ------------------------------------------------------------------------------------------


async def _describe(session: AdminSession, given: Mapping[str, Any]) -> list[str]:
    names = given["groups"]
    if given["all_groups"]:
        names = [one.group_id for one in await session.admin.list_groups(timeout_ms=session.timeout_ms)]
    lines: list[str] = []
    for name in dict.fromkeys(names):
        try:
            group = await session.admin.describe_group(name, timeout_ms=session.timeout_ms)
            rows = _member_rows(group) if given["members"] else await _partition_rows(session, group)
        except ClientError as error:
            session.answer.refused(error, topic=name)
            continue
        session.answer.data.append({"group": name, "state": group.state, "rows": rows})
        if lines:
            lines.append("")
        lines.append(f"group {name}: {group.state}, coordinator {group.coordinator_id}")
        if rows:
            lines += table_lines(list(rows[0]), [[str(cell) for cell in row.values()] for row in rows])
    return lines


def _member_rows(group: GroupDescription) -> list[dict[str, Any]]:
    return [
        {
            "CONSUMER-ID": member.member_id,
            "INSTANCE-ID": member.group_instance_id or _NOTHING,
            "HOST": member.host,
            "CLIENT-ID": member.client_id,
            "PARTITIONS": ",".join(map(partition_name, member.partitions)) or _NOTHING,
        }
        for member in group.members
    ]


async def _partition_rows(session: AdminSession, group: GroupDescription) -> list[dict[str, Any]]:
    committed = await session.admin.group_offsets(group.group_id, timeout_ms=session.timeout_ms)
    owners = {partition: member for member in group.members for partition in member.partitions}
    partitions = sorted(committed.keys() | owners.keys())
    ends = await session.admin.list_offsets(
        dict.fromkeys(partitions, LATEST_TIMESTAMP), timeout_ms=session.timeout_ms
    )
    rows = []
    for partition in partitions:
        owner, end = owners.get(partition), ends[partition].offset
        offset = committed[partition].offset if partition in committed else None
        cells = (
            group.group_id,
            partition.topic,
            partition.partition,
            _NOTHING if offset is None else offset,
            end,
            _NOTHING if offset is None else max(0, end - offset),
            _NOTHING if owner is None else owner.member_id,
            _NOTHING if owner is None else owner.host,
            _NOTHING if owner is None else owner.client_id,
        )
        rows.append(dict(zip(_HEADS, cells, strict=True)))
    return rows


# --- delete --------------------------------------------------------------------------------------------


async def _delete(session: AdminSession, names: tuple[str, ...]) -> list[str]:
    lines = []
    for name in dict.fromkeys(names):
        try:
            await session.admin.delete_group(name, timeout_ms=session.timeout_ms)
        except ClientError as error:
            session.answer.refused(error, topic=name)
            continue
        session.answer.data.append({"group": name})
        lines.append(f"deleted group {name}")
    return lines


# --- reset ---------------------------------------------------------------------------------------------


async def _reset(session: AdminSession, given: Mapping[str, Any], target: _Target) -> list[str]:
    (group,) = given["groups"]
    committed = await session.admin.group_offsets(group, timeout_ms=session.timeout_ms)
    if given["all_topics"]:
        partitions = sorted(committed)
    else:
        partitions = await _named(session, given["topics"])
    current = {partition: row.offset for partition, row in committed.items()}
    offsets = await _new_offsets(session, partitions, target, current.get)
    if given["execute"] and offsets:
        wanted = {(topic, index): offset for (topic, index), offset in offsets.items()}
        await session.admin.alter_group_offsets(group, wanted, timeout_ms=session.timeout_ms)
    rows = [
        {"GROUP": group, "TOPIC": one.topic, "PARTITION": one.partition, "NEW-OFFSET": offset}
        for one, offset in offsets.items()
    ]
    session.answer.data = rows
    if not rows:
        return [f"group {group} has committed nothing"]
    lines = table_lines(list(rows[0]), [[str(cell) for cell in row.values()] for row in rows])
    return lines if given["execute"] else [*lines, "nothing was changed: --execute carries it out"]


async def _named(session: AdminSession, topics: tuple[str, ...]) -> list[TopicPartition]:
    """The partitions of `--topic`. Raises: ClientError, click.UsageError."""
    wanted: dict[str, list[int] | None] = {}
    for text in topics:
        name, _, indexes = text.partition(":")
        numbers = [whole_number(one, INT32_MAX) for one in indexes.split(",")] if indexes else None
        if numbers is not None and None in numbers:
            raise click.UsageError(f"--topic {text}: expected TOPIC or TOPIC:0,1")
        before = wanted.get(name, [])
        if numbers is None or before is None:
            wanted[name] = None  # the whole topic
        else:
            wanted[name] = [*before, *(one for one in numbers if one is not None)]
    sizes = {one.name: len(one.partitions) for one in await described(session, list(wanted))}
    found: list[TopicPartition] = []
    for name, size in sizes.items():
        numbers_of = wanted[name]
        indexes_of = list(range(size)) if numbers_of is None else numbers_of
        if any(index >= size for index in indexes_of):
            raise ClientError(f"{name} has partitions 0 to {size - 1}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        found += [TopicPartition(name, index) for index in indexes_of]
    return sorted(set(found))


async def _new_offsets(
    session: AdminSession,
    partitions: list[TopicPartition],
    target: _Target,
    current: Callable[[TopicPartition], int | None],
) -> dict[TopicPartition, int]:
    """Within what the partitions have, as Kafka's tool does it."""

    async def offsets(timestamp: int) -> dict[TopicPartition, int]:
        found = await session.admin.list_offsets(
            dict.fromkeys(partitions, timestamp), timeout_ms=session.timeout_ms
        )
        return {partition: row.offset for partition, row in found.items()}

    first, last = await offsets(EARLIEST_TIMESTAMP), await offsets(LATEST_TIMESTAMP)
    if target.kind == "to_earliest":
        return first
    if target.kind == "to_latest":
        return last
    if target.kind == "to_datetime":
        by_time = await offsets(target.value)
        return {one: last[one] if offset < 0 else offset for one, offset in by_time.items()}
    wanted = {
        one: target.value if target.kind == "to_offset" else (current(one) or 0) + target.value
        for one in partitions
    }
    return {one: min(max(offset, first[one]), last[one]) for one, offset in wanted.items()}
