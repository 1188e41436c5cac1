"""Members of one consumer group: our own client's, which come, go, are slow and fall silent.

Owns what they were told: who got which partitions in which generation, from where on, and which commits were
acknowledged. Judges nothing: the rules are `checks.group_rules`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast.client.consumer import Consumer
from holdfast.client.core.errors import ClientError
from holdfast.client.group_session import RebalanceListener
from holdfast.protocol.topic_names import TopicPartition
from holdfast.runtime.api import Runtime
from holdfast.sim.load.clients import TOPIC, Load
from holdfast.sim.machine.choices import Stream, between, evenly, one_in

GROUP = "g"
SESSION_MS = 2_000
MAX_POLL_MS = 4_000
_POLLS_MAX = 100


class GroupAssignment(NamedTuple):
    """What a member reads once it is told so."""

    #: a static member's instance id: another process may take its place in the same generation
    member: str
    generation_id: int
    #: all that it reads now
    partitions: tuple[int, ...]
    #: {partition that is new to it: where it begins}, None for one that the group has committed nothing of
    starts: dict[int, int | None]
    #: {partition: offset} whose commit any member had an acknowledgement for, when it was told so
    acknowledged: dict[int, int]


@dataclass(slots=True)
class GroupHistory:
    """What the members of the group were told, in order."""

    assignments: list[GroupAssignment] = field(default_factory=list)
    #: {partition: highest offset whose commit was acknowledged}
    acknowledged: dict[int, int] = field(default_factory=dict)
    commits: int = 0
    #: those that are there now
    members: dict[str, Consumer] = field(default_factory=dict)
    troubles: list[str] = field(default_factory=list)

    def committed(self, offsets: dict[int, int]) -> None:
        """The commit was acknowledged."""
        self.commits += 1
        for index, offset in offsets.items():
            self.acknowledged[index] = max(offset, self.acknowledged.get(index, 0))


class _Listener(RebalanceListener):
    def __init__(self, history: GroupHistory, member: str | None, consumer: Consumer) -> None:
        self._history = history
        self._member = member
        self._consumer = consumer

    async def assigned(self, partitions: tuple[TopicPartition, ...]) -> None:
        core, consumer = self._consumer._member.core, self._consumer
        self._history.assignments.append(
            GroupAssignment(
                self._member or core.member_id,
                core.generation_id,
                tuple(index for _, index in consumer.assignment),
                {one.partition: consumer.position(one) for one in partitions},
                dict(self._history.acknowledged),
            )
        )


def group_member(
    load: Load, history: GroupHistory, work: Stream, name: str, assignor: str
) -> Callable[[Runtime], object]:
    """Reads and commits until all readers have read; now and then as another member, and after each error."""

    async def run(runtime: Runtime) -> None:
        while not load.is_read:
            instance = name if one_in(work, 3) else None
            consumer = Consumer(
                load.bootstrap,
                group_id=GROUP,
                group_instance_id=instance,
                session_timeout_ms=SESSION_MS,
                heartbeat_interval_ms=300,
                max_poll_interval_ms=MAX_POLL_MS,
                assignors=[assignor],
                enable_auto_commit=one_in(work, 3),
                auto_commit_interval_ms=700,
                request_timeout_ms=2_000,
                metadata_max_age_ms=2_000,
                runtime=runtime,
            )
            history.members[name] = consumer
            try:
                await _read(load, history, work, runtime, instance, consumer)
            except ClientError as error:
                history.troubles.append("" if error.code is None else error.code.name)
                await runtime.clock.sleep(100)
            del history.members[name]
            await consumer.close()

    return run


async def _read(
    load: Load,
    history: GroupHistory,
    work: Stream,
    runtime: Runtime,
    instance: str | None,
    consumer: Consumer,
) -> None:
    """One member's life. Raises: ClientError."""
    await consumer.start()
    consumer.subscribe(TOPIC, _Listener(history, instance, consumer))
    polls = evenly(work, 5, _POLLS_MAX)
    while not load.is_read and (polls > 0 or load.is_over):
        polls -= 1
        await consumer.poll(max_records=evenly(work, 1, 50), timeout_ms=300)
        if load.is_over:
            continue
        if one_in(work, 40):  # longer than a member may take, at times
            await runtime.clock.sleep(between(work, 300, 5_000))
        if one_in(work, 2):
            await _commit(history, consumer)


async def _commit(history: GroupHistory, consumer: Consumer) -> None:
    places = {one: consumer.position(one) for one in consumer.assignment}
    offsets = {one.partition: at for one, at in places.items() if at is not None}
    try:
        await consumer.commit(timeout_ms=3_000)
    except ClientError as error:  # others may have the partitions, or no coordinator is there
        history.troubles.append("" if error.code is None else error.code.name)
    else:
        history.committed(offsets)
