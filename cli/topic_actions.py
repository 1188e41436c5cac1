"""What `holdfast topics` asks of the cluster for each action, and the lines that it answers with.

Loaded when a cluster is asked: `topics --help` needs none of it.
"""

from typing import Any

import click

from holdfast.cli.admin_session import AdminSession, described, unknown_topic
from holdfast.cli.durability.report import durability_report, report_as_json, report_lines
from holdfast.cli.durability.view import surroundings
from holdfast.cli.fresh_metadata import warn_of_old
from holdfast.cli.options import CommandAnswer, pairs
from holdfast.cli.topic_view import chosen_of, topic_as_json
from holdfast.cli.topics import assignments_of, pattern_of
from holdfast.client.admin import CreatedTopic
from holdfast.client.admin_partitions import NewPartitions
from holdfast.client.core.errors import ClientError
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.id_text import encode_id


async def act_on(session: AdminSession, action: str, topic: str | None, given: dict[str, Any]) -> list[str]:
    """Do it, put data and errors into the answer; returns the lines of text."""
    if action == "create":
        return await _create(session, topic or "", given)
    if action == "delete":
        return await _delete(session, topic, given)
    if action == "alter":
        return await _alter(session, topic, given)
    return await (_list if action == "list" else _describe)(session, topic, given)


async def _create(session: AdminSession, topic: str, given: dict[str, Any]) -> list[str]:
    lists = assignments_of(given["replica_assignment"])
    try:
        created = await session.admin.create_topic(
            topic,
            given["partitions"] or -1,
            given["replication_factor"] or -1,
            configs=pairs(given["config"], "--config"),
            assignments=None if lists is None else dict(enumerate(lists)),
            timeout_ms=session.timeout_ms,
        )
    except ClientError as error:
        if error.code != ErrorCode.TOPIC_ALREADY_EXISTS or not given["if_not_exists"]:
            session.answer.refused(error, topic)
        return []
    _warn_if_unsafe(topic, created)
    session.answer.data = {"topic": topic}
    return [f"Created topic {topic}."]


def _warn_if_unsafe(topic: str, created: CreatedTopic) -> None:
    """Kafka's defaults keep an acknowledged record on one broker only: say so while it costs nothing."""
    if created.replication_factor == 1:
        click.echo(
            f"warning: {topic} has one replica: the loss of its broker loses records; "
            "--replication-factor 3 --config min.insync.replicas=2 survives it",
            err=True,
        )
    elif created.min_isr == 1:
        click.echo(
            f"warning: {topic} has min.insync.replicas=1: what one broker alone has is acknowledged; "
            "--config min.insync.replicas=2 asks for two",
            err=True,
        )


async def _delete(session: AdminSession, topic: str | None, given: dict[str, Any]) -> list[str]:
    deleted = []
    for name in await _chosen_names(session, topic, given["if_exists"]):
        try:
            await session.admin.delete_topic(name, timeout_ms=session.timeout_ms)
        except ClientError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or not given["if_exists"]:
                session.answer.refused(error, name)
            continue
        deleted.append(name)
    session.answer.data = {"topics": deleted}
    return []


async def _alter(session: AdminSession, topic: str | None, given: dict[str, Any]) -> list[str]:
    """Add partitions. Lists of --replica-assignment are those of all partitions, as in Kafka."""
    names = await _chosen_names(session, topic, given["if_exists"])
    if not names:
        return []
    lists = assignments_of(given["replica_assignment"])
    wanted = {}
    for found in await described(session, names, none_is_fine=given["if_exists"]):
        size = len(found.partitions)
        if lists is not None and [row.replicas for row in found.partitions] != lists[:size]:
            message = (
                f"the first {size} lists of --replica-assignment must be those of the partitions there are; "
                "`holdfast reassign-partitions` moves them"
            )
            session.answer.errors.append(
                {"code": ErrorCode.INVALID_REPLICA_ASSIGNMENT.name, "topic": found.name, "message": message}
            )
            continue
        assignments = None if lists is None else tuple(lists[size:])
        wanted[found.name] = NewPartitions(given["partitions"] or len(lists or ()), assignments)
    if wanted:
        rows = await session.admin.create_partitions(wanted, timeout_ms=session.timeout_ms)
        session.answer.data = {"topics": [name for name, error in rows.items() if error is None]}
        session.answer.errors += [
            {"code": error.code.name, "topic": name, "message": error.message}
            for name, error in rows.items()
            if error is not None
        ]
    return []


async def _list(session: AdminSession, topic: str | None, given: dict[str, Any]) -> list[str]:
    names = await session.admin.list_topics(timeout_ms=session.timeout_ms)
    wanted = await _names(session, topic)
    if given["exclude_internal"]:
        internal = {found.name for found in await described(session, None) if found.is_internal}
        names = [name for name in names if name not in internal]
    session.answer.data = [name for name in names if wanted is None or name in wanted]
    return list(session.answer.data)


async def _describe(session: AdminSession, topic: str | None, given: dict[str, Any]) -> list[str]:
    if given["durability"]:
        await warn_of_old(session)
    names = await _names(session, topic)
    if names == []:
        names = await _chosen_names(session, topic, given["if_exists"])
        session.answer.data = []
        return []
    found = await described(
        session,
        names,
        none_is_fine=given["if_exists"],
        partitions_per_answer=given["partition_size_limit_per_response"],
    )
    if given["topic_id"]:
        found = [one for one in found if encode_id(one.topic_id) == given["topic_id"]]
        if not found and not given["if_exists"]:
            unknown_topic(session.answer, given["topic_id"], ErrorCode.UNKNOWN_TOPIC_ID)
    moves = await session.admin.list_partition_reassignments(timeout_ms=session.timeout_ms)
    shown, lines = chosen_of(found, given, moves)
    if not given["durability"]:
        session.answer.data = [topic_as_json(one, moves) for one in shown]
        return lines
    around = await surroundings(session, shown, moves)
    rows = [durability_report(one.name, partition, around) for one in shown for partition in one.partitions]
    session.answer.data = report_as_json(shown, rows, moves)
    return report_lines(rows)


async def watch(session: AdminSession, action: str, topic: str | None, given: dict[str, Any]) -> None:
    """Show it again and again; ends with a signal only. JSON comes one object a line."""
    while True:
        answer = CommandAnswer(session.answer.command)
        text: list[str] = []
        if given["output"] == "text":
            click.clear()  # before it asks: warnings stay to be seen
        try:
            text = await act_on(session._replace(answer=answer), action, topic, given)
        except ClientError as error:
            answer.refused(error)
        answer.show(given["output"], "\n".join((*text, "")))
        await session.clock.sleep(given["watch"] * 1000)


# --- which topics ----------------------------------------------------------------------------------------


async def _names(session: AdminSession, topic: str | None) -> list[str] | None:
    """The names that --topic stands for, known or not; None for all."""
    pattern = pattern_of(topic)
    if pattern is not None:
        every = await session.admin.list_topics(timeout_ms=session.timeout_ms)
        return [name for name in every if pattern.fullmatch(name)]
    return None if topic is None else list(dict.fromkeys(name.strip() for name in topic.split(",")))


async def _chosen_names(session: AdminSession, topic: str | None, if_exists: bool) -> list[str]:
    """As `_names`; an expression that nothing matches is an error unless `if_exists`."""
    names = await _names(session, topic)
    if names == [] and not if_exists:
        unknown_topic(session.answer, topic or "")
    return names or []
