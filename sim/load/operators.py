"""Operators of a simulated cluster: what they are asked to do, done one after the other by the real admin.

Owns the queue, its program, and what each act is; whether an act is within the fault budget is asked in
`sim.faults.table`, where acts are drawn like faults. An act whose answer is lost may still be carried out
later.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

from immutables import Map

from holdfast.client.admin import Admin
from holdfast.client.admin_configs import FeatureUpdate, Resource
from holdfast.client.admin_partitions import NewPartitions
from holdfast.client.core.errors import ClientError, RowError
from holdfast.metadata.image import MetadataImage
from holdfast.metadata.partition import PartitionRegistration
from holdfast.metadata.records import ELR_FEATURE
from holdfast.protocol.messages.elect_leaders import ElectionKind
from holdfast.protocol.topic_names import TopicPartition
from holdfast.runtime.api import Runtime
from holdfast.sim.cluster.nodes import SimClient
from holdfast.sim.load.clients import Load, place_of
from holdfast.sim.machine.trace import Trace

#: acts that wait; operators who hear nothing are not asked for more
_WAITING_MAX = 3
_TIMEOUT_MS = 2_500
_QUIET_NS = 10_000_000_000
_NOTHING: Map[str, str] = Map()


def _always(image: MetadataImage) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Act:
    """One thing that operators may ask for."""

    run: Callable[[Admin], Awaitable[object]]
    #: what success promises: that it was so in some committed image since the act was begun
    is_done: Callable[[MetadataImage], bool] = _always


class OperatorQueue:
    """Where acts are put down; one client carries them out in order."""

    def __init__(self, trace: Trace, bootstrap: str) -> None:
        self._trace = trace
        self._bootstrap = bootstrap
        self._acts: deque[tuple[str, Act, Callable[[], None] | None]] = deque()
        self._client: SimClient | None = None
        self._wake: asyncio.Future[None] | None = None
        #: acts that were answered, by outcome: "ok" or the name of the error
        self.outcomes: dict[str, int] = {}
        #: what is being asked for, by its name
        self.under_way: tuple[str, Act] | None = None
        #: what has succeeded since the observer last looked
        self.fresh: list[tuple[str, Act]] = []
        self._answered_ns = 0
        #: {what was asked for: when that was answered last}
        self.answered_ns: dict[str, int] = {}

    def open(self, client: SimClient) -> None:
        """The client that works here."""
        self._client = client

    @property
    def is_busy(self) -> bool:
        return self._client is None or len(self._acts) >= _WAITING_MAX

    @property
    def is_idle(self) -> bool:
        """Nothing waits, nothing is under way."""
        return not self._acts and self.under_way is None

    @property
    def is_quiet(self) -> bool:
        """Nothing was asked for long enough that nothing of it is under way."""
        now_ns = self._trace.now_ns()
        return self.is_idle and now_ns - self._answered_ns > _QUIET_NS

    def put(self, name: str, act: Act, done: Callable[[], None] | None = None) -> None:
        """Ask for an act; `done` is called when it has succeeded."""
        assert self._client is not None, "no operator works here yet"
        self._acts.append((name, act, done))
        self._client.process.call(self._ring)

    def clear(self) -> None:
        """Forget what no operator has begun."""
        self._acts.clear()

    def _ring(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def program(self, runtime: Runtime) -> None:
        """What the client runs."""
        admin = Admin(self._bootstrap, runtime=runtime)
        while True:
            while not self._acts:
                self._wake = asyncio.get_running_loop().create_future()
                await self._wake
            name, act, done = self._acts.popleft()
            outcome = "ok"
            self.under_way = name, act
            try:
                await act.run(admin)
                self.fresh.append((name, act))
                if done is not None:
                    done()
            except ClientError as error:
                outcome = type(error).__name__ if error.code is None else error.code.name
            self.under_way, self._answered_ns = None, self._trace.now_ns()
            self.answered_ns[name] = self._answered_ns
            self._trace.add("act", f"{name}: {outcome}")
            self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1


# --- acts ----------------------------------------------------------------------------------------------


def move(partition: TopicPartition, replicas: Sequence[int] | None) -> Act:
    """Reassign a partition; None cancels what runs."""

    async def run(admin: Admin) -> None:
        rows = await admin.alter_partition_reassignments({partition: replicas}, timeout_ms=_TIMEOUT_MS)
        _raise(rows.values())

    def is_done(row: PartitionRegistration) -> bool:
        if replicas is None:
            return not row.adding_replicas and not row.removing_replicas
        # in that order: the first one is preferred
        return [one for one in row.replicas if one not in row.removing_replicas] == [*replicas]

    return Act(run, _of(partition, is_done))


def set_config(resource: Resource, key: str, value: str | None) -> Act:
    """Give a key a value, or take it away."""

    async def run(admin: Admin) -> None:
        _raise((await admin.alter_configs({resource: {key: value}}, timeout_ms=_TIMEOUT_MS)).values())

    def is_done(image: MetadataImage) -> bool:
        return image.configs.get((resource.kind, resource.name), _NOTHING).get(key) == value

    return Act(run, is_done)


def elect(kind: ElectionKind, partition: TopicPartition | None, leader: int | None = None) -> Act:
    """Elect the leader of a partition, or of all; with DESIGNATION this one. A comparison of logs is only
    begun, and of all partitions those are left out that need no election: they promise nothing."""

    async def run(admin: Admin) -> None:
        wanted = None if partition is None else [partition]
        desired = {} if partition is None or leader is None else {partition: leader}
        _raise((await admin.elect_leaders(kind, wanted, desired, timeout_ms=_TIMEOUT_MS)).values())

    def is_done(row: PartitionRegistration) -> bool:
        if kind is ElectionKind.PREFERRED:
            return row.leader == row.replicas[0]
        return row.leader is not None and leader in (None, row.leader)

    if partition is None or kind in (
        ElectionKind.LONGEST_LOG_AGGRESSIVE,
        ElectionKind.LONGEST_LOG_BALANCED,
    ):
        return Act(run)
    return Act(run, _of(partition, is_done))


def delete_records(partition: TopicPartition, offset: int) -> Act:
    """Delete the records of a partition below an offset."""

    async def run(admin: Admin) -> None:
        offsets = {(partition.topic, partition.partition): offset}
        (result,) = (await admin.delete_records(offsets, timeout_ms=_TIMEOUT_MS)).values()
        _raise([result if isinstance(result, RowError) else None])

    return Act(run)


def add_partition(topic: str, total_count: int) -> Act:
    """Give a topic so many partitions."""

    async def run(admin: Admin) -> None:
        rows = await admin.create_partitions({topic: NewPartitions(total_count)}, timeout_ms=_TIMEOUT_MS)
        _raise(rows.values())

    return Act(run, lambda image: _partition_count(image, topic) >= total_count)


def make_topic(name: str, partitions: int, replicas: int, *, times: int = 1) -> Act:
    """A topic that no client writes to; with `times` it is deleted and made again at once."""

    async def run(admin: Admin) -> None:
        await admin.create_topic(name, partitions, replicas, timeout_ms=_TIMEOUT_MS)
        for _ in range(times - 1):
            await admin.delete_topic(name, timeout_ms=_TIMEOUT_MS)
            await admin.create_topic(name, partitions, replicas, timeout_ms=_TIMEOUT_MS)

    return Act(run, lambda image: _partition_count(image, name) == partitions)


def drop_topic(name: str) -> Act:
    """Delete a topic."""

    async def run(admin: Admin) -> None:
        await admin.delete_topic(name, timeout_ms=_TIMEOUT_MS)

    return Act(run, lambda image: name not in image.topic_ids)


def unregister(broker_id: int) -> Act:
    """Take a broker out for good; one that runs registers anew, and knows nothing of its former seat."""

    async def run(admin: Admin) -> None:
        await admin.unregister_broker(broker_id, timeout_ms=_TIMEOUT_MS)

    return Act(run, lambda image: broker_id not in image.brokers)


def upgrade_quorum() -> Act:
    """The metadata log names the voters from now on."""

    async def run(admin: Admin) -> None:
        await admin.upgrade_quorum(timeout_ms=_TIMEOUT_MS)

    return Act(run)


def remove_controller(node_id: int) -> Act:
    """It is no voter any more."""

    async def run(admin: Admin) -> None:
        await admin.remove_controller(node_id, timeout_ms=_TIMEOUT_MS)

    return Act(run)


def add_controller(node_id: int, endpoint: str) -> Act:
    """It is a voter, with the disk that it has."""

    async def run(admin: Admin) -> None:
        await admin.add_controller(node_id, endpoint, timeout_ms=_TIMEOUT_MS)

    return Act(run)


def elr_level_name(level: int) -> str:
    """What an act of `set_elr_level` is called on the desk."""
    return f"ELR level {level}"


def set_elr_level(level: int) -> Act:
    """Switch ELR on or off."""

    async def run(admin: Admin) -> None:
        update = FeatureUpdate(level, allow_downgrade=True)
        await admin.update_features({ELR_FEATURE: update}, timeout_ms=_TIMEOUT_MS)

    return Act(run, lambda image: image.features.get(ELR_FEATURE, 0) == level)


def _of(
    partition: TopicPartition, holds: Callable[[PartitionRegistration], bool]
) -> Callable[[MetadataImage], bool]:
    """Whether it holds of a partition that is there."""

    def is_done(image: MetadataImage) -> bool:
        topic = image.topic(partition.topic)
        row = None if topic is None else topic.partitions.get(partition.partition)
        return row is not None and holds(row)

    return is_done


def _partition_count(image: MetadataImage, name: str) -> int:
    topic = image.topic(name)
    return 0 if topic is None else len(topic.partitions)


def begin_load(load: Load, topic: str, index: int) -> Callable[[], None]:
    """Producers and consumers use the partition from now on."""

    def begin() -> None:
        place = place_of(topic, index)
        if place is not None and place not in load.places:
            load.places.append(place)

    return begin


def _raise(rows: Iterable[RowError | None]) -> None:
    """Raise the first refusal."""
    for row in rows:
        if row is not None:
            raise ClientError(row.message, row.code)
