"""`holdfast topics --create|--delete|--alter|--list|--describe`: Kafka's spelling, Kafka's lines."""

import re
from typing import Any

import click

from holdfast.cli.admin_session import AdminSession, ask, described, unknown_topic
from holdfast.cli.durability.report import durability_report, report_as_json, report_lines
from holdfast.cli.durability.view import surroundings
from holdfast.cli.fresh_metadata import warn_of_old
from holdfast.cli.options import (
    INT32_MAX,
    CommandAnswer,
    bootstrap,
    one_action,
    output,
    pairs,
    refuse_strangers,
    whole_number,
)
from holdfast.cli.topic_view import FILTERS, chosen_of, topic_as_json, topic_id_text
from holdfast.client.admin import CreatedTopic
from holdfast.client.admin_partitions import NewPartitions
from holdfast.client.core.errors import ClientError
from holdfast.protocol.errors import ErrorCode

#: {option: the actions that it belongs to}
_ACTIONS_OF: dict[str, tuple[str, ...]] = {
    "partitions": ("create", "alter"),
    "replication_factor": ("create",),
    "replica_assignment": ("create", "alter"),
    "config": ("create",),
    "if_not_exists": ("create",),
    "if_exists": ("delete", "alter", "describe"),
    "topic_id": ("describe",),
    "exclude_internal": ("list", "describe"),
    "durability": ("describe",),
    "watch": ("list", "describe"),
    **dict.fromkeys((*FILTERS, "topics_with_overrides"), ("describe",)),
}
_ACTIONS = ("create", "delete", "alter", "list", "describe")


@click.command()
@bootstrap
@click.option("--create", "actions", flag_value="create", multiple=True, help="Make a topic.")
@click.option("--delete", "actions", flag_value="delete", multiple=True, help="Delete topics.")
@click.option("--alter", "actions", flag_value="alter", multiple=True, help="Add partitions to a topic.")
@click.option("--list", "actions", flag_value="list", multiple=True, help="Names of all topics.")
@click.option(
    "--describe", "actions", flag_value="describe", multiple=True, help="Leaders, replicas, ISR, ELR."
)
@click.option("--topic", help="Name, or except for --create several with commas or a regular expression.")
@click.option("--topic-id", help="--describe: the topic with this id.")
@click.option(
    "--partitions", type=click.IntRange(1, INT32_MAX), help="Number of partitions (--create, --alter)."
)
@click.option(
    "--replication-factor", type=click.IntRange(1, INT32_MAX), help="Replicas of each partition (--create)."
)
@click.option(
    "--replica-assignment",
    metavar="1:2:3,2:3:1",
    help="Brokers of each partition, preferred first (--create, --alter).",
)
@click.option("--config", multiple=True, metavar="KEY=VALUE", help="Override (--create).")
@click.option("--under-replicated-partitions", is_flag=True, help="--describe: replicas are outside the ISR.")
@click.option("--under-min-isr-partitions", is_flag=True, help="--describe: the ISR is below min ISR.")
@click.option("--at-min-isr-partitions", is_flag=True, help="--describe: the ISR is just min ISR.")
@click.option("--unavailable-partitions", is_flag=True, help="--describe: there is no leader.")
@click.option("--elr-partitions", is_flag=True, help="--describe: replicas outside the ISR may lead.")
@click.option("--topics-with-overrides", is_flag=True, help="--describe: only topics with configurations.")
@click.option("--exclude-internal", is_flag=True, help="--list, --describe: without the cluster's own.")
@click.option("--if-not-exists", is_flag=True, help="--create: fine when it exists.")
@click.option("--if-exists", is_flag=True, help="--delete, --alter, --describe: fine when it does not exist.")
@click.option(
    "--partition-size-limit-per-response",
    type=click.IntRange(1, INT32_MAX),
    default=2_000,
    show_default=True,
    help="--describe: most partitions in one answer of the cluster.",
)
@click.option("--durability", is_flag=True, help="--describe: failures still survived, and who is next.")
@click.option(
    "--watch",
    type=click.FloatRange(0.1),
    is_flag=False,
    flag_value=2.0,
    metavar="[SECONDS]",
    help="--list, --describe: again and again, until interrupted.",
)
@output
def command(actions: tuple[str, ...], topic: str | None, **given: Any) -> None:
    """Create, delete, extend, list and describe topics."""
    action = _checked(actions, topic, given)
    answer = CommandAnswer(f"topics-{action}")
    text: list[str] = []

    async def act(session: AdminSession) -> None:
        if given["watch"] is not None:
            await _watch(session, action, topic, given)
        text.extend(await _act(session, action, topic, given))

    ask(given, answer, act)
    answer.finish(given["output"], "\n".join(text))


def _checked(actions: tuple[str, ...], topic: str | None, given: dict[str, Any]) -> str:
    """The action. Raises: click.UsageError for what does not go together."""
    action = one_action(actions, _ACTIONS)
    if topic is None and action in ("create", "delete", "alter"):
        raise click.UsageError(f"--{action} needs --topic")
    refuse_strangers(action, given, _ACTIONS_OF)
    chosen = [name for name in (*FILTERS, "topics_with_overrides") if given[name]]
    if len(chosen) > 1:
        raise click.UsageError("choose one of " + ", ".join(f"--{name.replace('_', '-')}" for name in chosen))
    if given["durability"] and given["topics_with_overrides"]:
        raise click.UsageError("--durability shows partitions, --topics-with-overrides does not")
    if topic is not None and given["topic_id"]:
        raise click.UsageError("--topic and --topic-id exclude each other")
    lists = _assignments(given["replica_assignment"])
    if action == "alter" and not given["partitions"] and lists is None:
        raise click.UsageError("--alter adds partitions: it needs --partitions or --replica-assignment")
    if action == "create" and lists is not None and (given["partitions"] or given["replication_factor"]):
        raise click.UsageError("--replica-assignment already says partitions and replication factor")
    if action == "alter" and lists is not None and given["partitions"] not in (None, len(lists)):
        raise click.UsageError(
            f"--replica-assignment lists {len(lists)} partitions, not {given['partitions']}"
        )
    pairs(given["config"], "--config")
    _pattern(topic)
    return action


def _assignments(text: str | None) -> list[tuple[int, ...]] | None:
    """The lists of --replica-assignment. Raises: click.UsageError."""
    if text is None:
        return None
    lists = []
    for part in text.split(","):
        replicas = [whole_number(replica.strip(), INT32_MAX) for replica in part.split(":")]
        ids = tuple(replica for replica in replicas if replica is not None)
        if len(ids) < len(replicas):
            raise click.UsageError(f"--replica-assignment {text}: expected ids like 1:2:3,2:3:1")
        lists.append(ids)
    return lists


# --- which topics ----------------------------------------------------------------------------------------


def _pattern(topic: str | None) -> re.Pattern[str] | None:
    """What --topic stands for when it is more than names. Raises: click.UsageError.

    A name is taken as it is, though its dots would match anything: `--delete --topic a.b` means one topic.
    """
    if topic is None or re.fullmatch(r"[a-zA-Z0-9._,\s-]*", topic):
        return None
    try:
        return re.compile("|".join(part.strip() for part in topic.split(",")))
    except re.error as error:
        raise click.UsageError(f"--topic {topic}: no regular expression: {error}") from error


async def _names(session: AdminSession, topic: str | None) -> list[str] | None:
    """The names that --topic stands for, known or not; None for all."""
    pattern = _pattern(topic)
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


# --- actions ---------------------------------------------------------------------------------------------


async def _act(session: AdminSession, action: str, topic: str | None, given: dict[str, Any]) -> list[str]:
    """Do it, put data and errors into the answer; returns the lines of text."""
    if action == "create":
        return await _create(session, topic or "", given)
    if action == "delete":
        return await _delete(session, topic, given)
    if action == "alter":
        return await _alter(session, topic, given)
    return await (_list if action == "list" else _describe)(session, topic, given)


async def _create(session: AdminSession, topic: str, given: dict[str, Any]) -> list[str]:
    lists = _assignments(given["replica_assignment"])
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
    lists = _assignments(given["replica_assignment"])
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
        found = [one for one in found if topic_id_text(one.topic_id) == given["topic_id"]]
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


async def _watch(session: AdminSession, action: str, topic: str | None, given: dict[str, Any]) -> None:
    """Show it again and again; ends with a signal only. JSON comes one object a line."""
    while True:
        answer = CommandAnswer(session.answer.command)
        text: list[str] = []
        if given["output"] == "text":
            click.clear()  # before it asks: warnings stay to be seen
        try:
            text = await _act(session._replace(answer=answer), action, topic, given)
        except ClientError as error:
            answer.refused(error)
        answer.show(given["output"], "\n".join((*text, "")))
        await session.clock.sleep(given["watch"] * 1000)
