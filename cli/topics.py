"""`holdfast topics --create|--list|--describe|--delete`: Kafka's spelling, Kafka's lines."""

import base64
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import click

from cli.options import Answer, bootstrap, client_properties, output, pairs, run_client
from client.admin import Admin
from client.errors import ClientError
from protocol.errors import ErrorCode
from protocol.messages.topics import DescribedPartition, DescribedTopic
from runtime.api import Runtime

#: Options of --describe that choose partitions, spelled as in Kafka: {option: whether a partition is meant}
_FILTERS: dict[str, Callable[[DescribedPartition], bool]] = {
    "under_replicated_partitions": lambda partition: len(partition.isr) < len(partition.replicas),
    "under_min_isr_partitions": lambda partition: len(partition.isr) < partition.min_isr,
    "at_min_isr_partitions": lambda partition: len(partition.isr) == partition.min_isr,
    "unavailable_partitions": lambda partition: partition.leader_id < 0,
}


@click.command()
@bootstrap
@click.option("--create", "action", flag_value="create", help="Make a topic.")
@click.option("--delete", "action", flag_value="delete", help="Delete a topic.")
@click.option("--list", "action", flag_value="list", help="Names of all topics.")
@click.option("--describe", "action", flag_value="describe", help="Leaders, replicas, ISR, ELR.")
@click.option("--topic", help="Topic; --describe and --delete take several, separated by commas.")
@click.option("--partitions", type=click.IntRange(1), help="Number of partitions (--create).")
@click.option("--replication-factor", type=click.IntRange(1), help="Replicas of each partition (--create).")
@click.option(
    "--replica-assignment",
    metavar="1:2:3,2:3:1",
    help="Brokers of each partition, preferred first (--create).",
)
@click.option("--config", "configs", multiple=True, metavar="KEY=VALUE", help="Override (--create).")
@click.option("--under-replicated-partitions", is_flag=True, help="--describe: replicas are outside the ISR.")
@click.option("--under-min-isr-partitions", is_flag=True, help="--describe: the ISR is below min ISR.")
@click.option("--at-min-isr-partitions", is_flag=True, help="--describe: the ISR is just min ISR.")
@click.option("--unavailable-partitions", is_flag=True, help="--describe: there is no leader.")
@click.option("--topics-with-overrides", is_flag=True, help="--describe: only topics with configurations.")
@click.option("--if-not-exists", is_flag=True, help="--create: fine when it exists.")
@click.option("--if-exists", is_flag=True, help="--delete, --describe: fine when it does not exist.")
@output
def command(
    action: str | None,
    topic: str | None,
    command_config: str | None,
    command_property: tuple[str, ...],
    **given: Any,
) -> None:
    """Create, list, describe and delete topics."""
    if action is None:
        raise click.UsageError("one of --create, --delete, --list, --describe is needed")
    if topic is None and action in ("create", "delete"):
        raise click.UsageError(f"--{action} needs --topic")
    chosen = [name for name in (*_FILTERS, "topics_with_overrides") if given[name]]
    if chosen and action != "describe":
        raise click.UsageError(f"--{chosen[0].replace('_', '-')} belongs to --describe")
    if len(chosen) > 1:
        raise click.UsageError("choose one of " + ", ".join(f"--{name.replace('_', '-')}" for name in chosen))
    if given["replica_assignment"] and (given["partitions"] or given["replication_factor"]):
        raise click.UsageError("--replica-assignment already says partitions and replication factor")
    client_properties(command_config, command_property, frozenset())
    answer = Answer(f"topics-{action}")
    text: list[str] = []

    async def work(runtime: Runtime) -> int:
        admin = Admin(runtime, given["bootstrap_server"])
        try:
            text.extend(await _act(admin, action, topic, given, answer))
        except ClientError as error:
            answer.refused(error, topic)
        finally:
            admin.close()
        return 0

    if (code := run_client(work)) != 0:
        raise SystemExit(code)
    answer.finish(given["output"], "\n".join(text))


async def _act(
    admin: Admin, action: str, topic: str | None, given: dict[str, Any], answer: Answer
) -> list[str]:
    timeout_ms: int = given["timeout_ms"]
    if action == "list":
        answer.data = await admin.list_topics(timeout_ms=timeout_ms)
        return list(answer.data)
    if action == "create":
        return await _create(admin, topic or "", given, answer)
    names = [name.strip() for name in topic.split(",")] if topic else None
    if action == "delete":
        return await _delete(admin, names or [], given, answer)
    described = await admin.describe_topics(names, timeout_ms=timeout_ms)
    for missing in (found for found in described if found.error_code != ErrorCode.NONE):
        if not given["if_exists"]:
            code = ErrorCode(missing.error_code).name
            answer.errors.append(
                {"code": code, "topic": missing.name, "message": "`--list` shows the topics there are"}
            )
    present = [found for found in described if found.error_code == ErrorCode.NONE]
    shown, lines = chosen_of(present, given)
    answer.data = [topic_as_json(found) for found in shown]
    return lines


async def _create(admin: Admin, topic: str, given: dict[str, Any], answer: Answer) -> list[str]:
    try:
        await admin.create_topic(
            topic,
            given["partitions"] or -1,
            given["replication_factor"] or -1,
            configs=pairs(given["configs"], "--config"),
            assignments=_assignments(given["replica_assignment"]),
            timeout_ms=given["timeout_ms"],
        )
    except ClientError as error:
        if error.code != ErrorCode.TOPIC_ALREADY_EXISTS or not given["if_not_exists"]:
            raise
        return []
    answer.data = {"topic": topic}
    return [f"Created topic {topic}."]


async def _delete(admin: Admin, names: list[str], given: dict[str, Any], answer: Answer) -> list[str]:
    deleted = []
    for name in names:
        try:
            await admin.delete_topic(name, timeout_ms=given["timeout_ms"])
        except ClientError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or not given["if_exists"]:
                answer.refused(error, name)
            continue
        deleted.append(name)
    answer.data = {"topics": deleted}
    return []


def _assignments(text: str | None) -> dict[int, tuple[int, ...]] | None:
    if text is None:
        return None
    try:
        return {index: tuple(int(i) for i in part.split(":")) for index, part in enumerate(text.split(","))}
    except ValueError:
        raise click.UsageError(f"--replica-assignment {text}: expected ids like 1:2:3,2:3:1") from None


def topic_id_text(topic_id: bytes) -> str:
    """A topic id as Kafka prints it: base64 for URLs, without padding."""
    return base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode()


def describe_lines(topic: DescribedTopic) -> list[str]:
    """The lines of `--describe`; existing scripts read them, so their layout never changes."""
    factor = max((len(partition.replicas) for partition in topic.partitions), default=0)
    configs = ",".join(f"{config.name}={config.value}" for config in topic.configs)
    head = (
        f"Topic: {topic.name}\tTopicId: {topic_id_text(topic.topic_id)}"
        f"\tPartitionCount: {len(topic.partitions)}\tReplicationFactor: {factor}\tConfigs: {configs}"
    )
    return [head, *(_partition_line(topic.name, partition) for partition in topic.partitions)]


def chosen_of(
    topics: list[DescribedTopic], given: Mapping[str, Any]
) -> tuple[list[DescribedTopic], list[str]]:
    """What the filters leave, and its lines: partitions without heads, or heads without partitions."""
    if given.get("topics_with_overrides"):
        topics = [topic for topic in topics if topic.configs]
        return topics, [describe_lines(topic)[0] for topic in topics]
    for name, is_meant in _FILTERS.items():
        if given.get(name):
            left = [replace(topic, partitions=tuple(filter(is_meant, topic.partitions))) for topic in topics]
            return [topic for topic in left if topic.partitions], [
                line for topic in left for line in describe_lines(topic)[1:]
            ]
    return topics, [line for topic in topics for line in describe_lines(topic)]


def _partition_line(name: str, partition: DescribedPartition) -> str:
    return (
        f"\tTopic: {name}\tPartition: {partition.partition_index}"
        f"\tLeader: {partition.leader_id if partition.leader_id >= 0 else 'none'}"
        f"\tReplicas: {_ids(partition.replicas)}\tIsr: {_ids(partition.isr)}"
        f"\tElr: {_ids(partition.eligible_leader_replicas)}\tLastKnownElr: {_ids(partition.last_known_elr)}"
    )


def _ids(ids: tuple[int, ...] | None) -> str:
    return "N/A" if ids is None else ",".join(map(str, ids))


def topic_as_json(topic: DescribedTopic) -> dict[str, Any]:
    """One topic of `--output json`."""
    return {
        "topic": topic.name,
        "topic_id": topic_id_text(topic.topic_id),
        "configs": {config.name: config.value for config in topic.configs},
        "partitions": [
            {
                "partition": partition.partition_index,
                "leader": partition.leader_id if partition.leader_id >= 0 else None,
                "leader_epoch": partition.leader_epoch,
                "partition_epoch": partition.partition_epoch,
                "replicas": partition.replicas,
                "isr": partition.isr,
                "elr": partition.eligible_leader_replicas,
                "last_known_elr": partition.last_known_elr,
                "last_known_leader": partition.last_known_leader
                if partition.last_known_leader >= 0
                else None,
                "min_isr": partition.min_isr,
                "recovering": partition.leader_recovery_state == 1,
                "offline_replicas": partition.offline_replicas,
            }
            for partition in topic.partitions
        ],
    }
