"""How commands ask the cluster: one Admin, one answer, and refusals as sentences.

Owns the frame around administrative commands; what is asked and how it is shown is each command's own.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.cli.options import CommandAnswer, client_properties, run_client
from holdfast.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from holdfast.client.admin import Admin
    from holdfast.client.core.errors import RowError
    from holdfast.protocol.messages.topics import DescribedTopic
    from holdfast.protocol.topic_names import TopicPartition
    from holdfast.runtime.api import Clock, Runtime, Tasks


class AdminSession(NamedTuple):
    """What a command has in hand while it asks."""

    admin: "Admin"
    answer: CommandAnswer
    timeout_ms: int
    clock: "Clock"
    tasks: "Tasks"


def ask(
    given: Mapping[str, Any], answer: CommandAnswer, act: "Callable[[AdminSession], Awaitable[None]]"
) -> None:
    """Run `act`; what is refused or does not answer goes into the answer. Raises: SystemExit on a signal."""
    client_properties(given["command_config"], given["command_property"], frozenset())
    # loaded here: the help of a command needs none of it
    from holdfast.client.admin import Admin
    from holdfast.client.core.errors import ClientError
    from holdfast.runtime.api import NetworkError

    async def work(runtime: "Runtime") -> int:
        admin = Admin(given["bootstrap_server"], runtime=runtime)
        try:
            await act(AdminSession(admin, answer, given["timeout_ms"], runtime.clock, runtime.tasks))
        except ClientError as error:
            answer.refused(error)
        except NetworkError as error:
            answer.errors.append({"code": ErrorCode.NETWORK_EXCEPTION.name, "message": str(error)})
        finally:
            await admin.close()
        return 0

    if (code := run_client(work)) != 0:
        raise SystemExit(code)


def partition_name(partition: "TopicPartition") -> str:
    """`topic-0`, as everywhere in Kafka's tools."""
    return f"{partition.topic}-{partition.partition}"


def row_refused(answer: CommandAnswer, error: "RowError", partition: "TopicPartition") -> None:
    """Take down what was said about one partition."""
    answer.errors.append(
        {
            "code": error.code.name,
            "topic": partition.topic,
            "partition": partition.partition,
            "message": error.message,
        }
    )


async def described(
    session: AdminSession,
    names: list[str] | None,
    *,
    none_is_fine: bool = False,
    partitions_per_answer: int = 2_000,
) -> "list[DescribedTopic]":
    """The topics that exist among `names`, or all; the others become errors unless `none_is_fine`."""
    found = await session.admin.describe_topics(
        names, partitions_per_answer=partitions_per_answer, timeout_ms=session.timeout_ms
    )
    for missing in (topic for topic in found if topic.error_code != ErrorCode.NONE):
        if not none_is_fine:
            unknown_topic(session.answer, missing.name, ErrorCode(missing.error_code))
    return [topic for topic in found if topic.error_code == ErrorCode.NONE]


def unknown_topic(
    answer: CommandAnswer, name: str, code: ErrorCode = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
) -> None:
    """Take down that there is no such topic."""
    message = "`holdfast topics --list` shows the topics there are"
    answer.errors.append({"code": code.name, "topic": name, "message": message})
