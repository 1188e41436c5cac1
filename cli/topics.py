"""`holdfast topics --create|--delete|--alter|--list|--describe`: Kafka's spelling, Kafka's lines."""

import re
from typing import Any

import click

from holdfast.cli.admin_session import AdminSession, ask
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
from holdfast.cli.topic_view import FILTERS

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
        from holdfast.cli.topic_actions import act_on, watch

        if given["watch"] is not None:
            await watch(session, action, topic, given)
        text.extend(await act_on(session, action, topic, given))

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
    lists = assignments_of(given["replica_assignment"])
    if action == "alter" and not given["partitions"] and lists is None:
        raise click.UsageError("--alter adds partitions: it needs --partitions or --replica-assignment")
    if action == "create" and lists is not None and (given["partitions"] or given["replication_factor"]):
        raise click.UsageError("--replica-assignment already says partitions and replication factor")
    if action == "alter" and lists is not None and given["partitions"] not in (None, len(lists)):
        raise click.UsageError(
            f"--replica-assignment lists {len(lists)} partitions, not {given['partitions']}"
        )
    pairs(given["config"], "--config")
    pattern_of(topic)
    return action


def assignments_of(text: str | None) -> list[tuple[int, ...]] | None:
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


def pattern_of(topic: str | None) -> re.Pattern[str] | None:
    """What --topic stands for when it is more than names. Raises: click.UsageError.

    A name is taken as it is, though its dots would match anything: `--delete --topic a.b` means one topic.
    """
    if topic is None or re.fullmatch(r"[a-zA-Z0-9._,\s-]*", topic):
        return None
    try:
        return re.compile("|".join(part.strip() for part in topic.split(",")))
    except re.error as error:
        raise click.UsageError(f"--topic {topic}: no regular expression: {error}") from error
