"""`holdfast log-dirs --describe`: what is in the log dirs of brokers, and how full their devices are."""

from typing import Any

import click

from holdfast.cli.admin_session import AdminSession, ask
from holdfast.cli.options import INT32_MAX, CommandAnswer, bootstrap, output, whole_number
from holdfast.cli.tables import table_lines
from holdfast.client.core.errors import ClientError
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.log_dirs import DescribedLogDir


@click.command()
@bootstrap
@click.option("--describe", is_flag=True, help="Show them: the only thing that this command does.")
@click.option("--broker-list", metavar="ID[,ID]", help="Only these brokers; without it all registered ones.")
@click.option("--topic-list", metavar="TOPIC[,TOPIC]", help="Only replicas of these topics.")
@output
def command(describe: bool, broker_list: str | None, topic_list: str | None, **given: Any) -> None:
    """Show size, replicas, free bytes and state of every log dir.

    Exit code 1 when a broker does not answer. An offline log dir is shown, and is no failure.
    """
    if not describe:
        raise click.UsageError("--describe is needed")
    wanted = _ids(broker_list)
    topics = topic_list.split(",") if topic_list else None
    answer = CommandAnswer("log-dirs", [])

    async def act(session: AdminSession) -> None:
        cluster = await session.admin.describe_cluster(timeout_ms=session.timeout_ms)
        addresses = {row.broker_id: (row.host, row.port) for row in cluster.brokers}
        for broker_id in sorted(addresses) if wanted is None else wanted:
            if broker_id not in addresses:
                _failed(answer, broker_id, ErrorCode.BROKER_ID_NOT_REGISTERED, "it is not registered")
                continue
            try:
                dirs = await session.admin.describe_log_dirs(
                    broker_id, addresses[broker_id], topics, timeout_ms=session.timeout_ms
                )
            except ClientError as error:
                _failed(answer, broker_id, error.code or ErrorCode.NETWORK_EXCEPTION, str(error))
            else:
                answer.data.append({"broker": broker_id, "log_dirs": [_row(one) for one in dirs]})

    ask(given, answer, act)
    answer.finish(given["output"], _text(answer))


def _ids(text: str | None) -> list[int] | None:
    """The value of --broker-list. Raises: click.UsageError."""
    if text is None:
        return None
    ids = [whole_number(word.strip(), INT32_MAX) for word in text.split(",")]
    if None in ids:
        raise click.UsageError(f"--broker-list {text}: expected numbers of brokers, as 1,2")
    return sorted({number for number in ids if number is not None})


def _failed(answer: CommandAnswer, broker_id: int, code: ErrorCode, message: str) -> None:
    error = {"code": code.name, "node": f"broker {broker_id}", "broker": broker_id, "message": message}
    answer.errors.append(error)


def _row(one: DescribedLogDir) -> dict[str, Any]:
    replicas = [
        {
            "topic": topic.name,
            "partition": row.partition_index,
            "size_bytes": row.size_bytes,
            "offset_lag": row.offset_lag,
        }
        for topic in one.topics
        for row in topic.partitions
    ]
    return {
        "path": one.path,
        "directory_id": None if one.directory_id is None else one.directory_id.hex(),
        "offline_reason": one.error_message if one.error_code else None,
        "size_bytes": sum(row["size_bytes"] for row in replicas),
        "free_bytes": None if one.usable_bytes < 0 else one.usable_bytes,
        "total_bytes": None if one.total_bytes < 0 else one.total_bytes,
        "replicas": replicas,
    }


def _text(answer: CommandAnswer) -> str:
    heads = ("BROKER", "REPLICAS", "BYTES", "FREE-BYTES", "DEVICE-BYTES", "LOG-DIR", "STATE")
    rows = [
        (
            str(broker["broker"]),
            str(len(one["replicas"])),
            str(one["size_bytes"]),
            *("-" if one[key] is None else str(one[key]) for key in ("free_bytes", "total_bytes")),
            one["path"],
            "online" if one["offline_reason"] is None else f"offline: {one['offline_reason']}",
        )
        for broker in answer.data
        for one in broker["log_dirs"]
    ]
    return "\n".join(table_lines(heads, rows))
