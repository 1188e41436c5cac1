"""Operators of a simulated cluster: what they are asked to do, done one after the other by the real admin.

Owns the queue, its program, and what each act is; whether an act is within the fault budget is asked in
`sim.faults`, where acts are drawn like faults. An act whose answer is lost may still be carried out later.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence

from client.admin import Admin
from client.admin_configs import FeatureUpdate, Resource
from client.admin_partitions import NewPartitions
from client.errors import ClientError, RowError
from client.metadata_cache import TopicPartition
from metadata.records import ELR_FEATURE
from protocol.messages.elect_leaders import ElectionKind
from runtime.api import Runtime
from sim.clients import Load, place_of
from sim.nodes import SimClient
from sim.trace import Trace

#: acts that wait; operators who hear nothing are not asked for more
_WAITING_MAX = 3
_TIMEOUT_MS = 2_500
_QUIET_NS = 10_000_000_000

Act = Callable[[Admin], Awaitable[object]]


class Desk:
    """Where acts are put down; one client carries them out in order."""

    def __init__(self, trace: Trace, bootstrap: str) -> None:
        self._trace = trace
        self._bootstrap = bootstrap
        self._acts: deque[tuple[str, Act, Callable[[], None] | None]] = deque()
        self._client: SimClient | None = None
        self._wake: asyncio.Future[None] | None = None
        #: acts that were answered, by outcome: "ok" or the name of the error
        self.outcomes: dict[str, int] = {}
        self._is_working = False
        self._answered_ns = 0

    def open(self, client: SimClient) -> None:
        """The client that works here."""
        self._client = client

    @property
    def is_busy(self) -> bool:
        return self._client is None or len(self._acts) >= _WAITING_MAX

    @property
    def is_quiet(self) -> bool:
        """Nothing was asked for long enough that nothing of it is under way."""
        now_ns = self._trace.now_ns()
        return not self._acts and not self._is_working and now_ns - self._answered_ns > _QUIET_NS

    def put(self, name: str, act: Act, done: Callable[[], None] | None = None) -> None:
        """Ask for an act; `done` is called when it has succeeded."""
        assert self._client is not None, "nobody works here yet"
        self._acts.append((name, act, done))
        self._client.process.call(self._ring)

    def clear(self) -> None:
        """Forget what nobody has begun."""
        self._acts.clear()

    def _ring(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def program(self, runtime: Runtime) -> None:
        """What the client runs."""
        admin = Admin(runtime, self._bootstrap)
        while True:
            while not self._acts:
                self._wake = asyncio.get_running_loop().create_future()
                await self._wake
            name, act, done = self._acts.popleft()
            outcome = "ok"
            self._is_working = True
            try:
                await act(admin)
                if done is not None:
                    done()
            except ClientError as error:
                outcome = type(error).__name__ if error.code is None else error.code.name
            self._is_working, self._answered_ns = False, self._trace.now_ns()
            self._trace.add("act", f"{name}: {outcome}")
            self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1


# --- acts ----------------------------------------------------------------------------------------------


def move(partition: TopicPartition, replicas: Sequence[int] | None) -> Act:
    """Reassign a partition; None cancels what runs."""

    async def act(admin: Admin) -> None:
        rows = await admin.alter_partition_reassignments({partition: replicas}, timeout_ms=_TIMEOUT_MS)
        _raise(rows.values())

    return act


def set_config(resource: Resource, key: str, value: str | None) -> Act:
    """Give a key a value, or take it away."""

    async def act(admin: Admin) -> None:
        _raise((await admin.alter_configs({resource: {key: value}}, timeout_ms=_TIMEOUT_MS)).values())

    return act


def elect(kind: ElectionKind, partition: TopicPartition | None, leader: int | None = None) -> Act:
    """Elect the leader of a partition, or of all; with DESIGNATION this one."""

    async def act(admin: Admin) -> None:
        wanted = None if partition is None else [partition]
        desired = {} if partition is None or leader is None else {partition: leader}
        _raise((await admin.elect_leaders(kind, wanted, desired, timeout_ms=_TIMEOUT_MS)).values())

    return act


def add_partition(topic: str, total_count: int) -> Act:
    """Give a topic so many partitions."""

    async def act(admin: Admin) -> None:
        rows = await admin.create_partitions({topic: NewPartitions(total_count)}, timeout_ms=_TIMEOUT_MS)
        _raise(rows.values())

    return act


def make_topic(name: str, partitions: int, replicas: int, *, times: int = 1) -> Act:
    """A topic that nobody writes to; with `times` it is deleted and made again at once."""

    async def act(admin: Admin) -> None:
        await admin.create_topic(name, partitions, replicas, timeout_ms=_TIMEOUT_MS)
        for _ in range(times - 1):
            await admin.delete_topic(name, timeout_ms=_TIMEOUT_MS)
            await admin.create_topic(name, partitions, replicas, timeout_ms=_TIMEOUT_MS)

    return act


def drop_topic(name: str) -> Act:
    """Delete a topic."""

    async def act(admin: Admin) -> None:
        await admin.delete_topic(name, timeout_ms=_TIMEOUT_MS)

    return act


def unregister(broker_id: int) -> Act:
    """Take a broker out for good; one that runs registers anew, and knows nothing of its former seat."""

    async def act(admin: Admin) -> None:
        await admin.unregister_broker(broker_id, timeout_ms=_TIMEOUT_MS)

    return act


def set_elr_level(level: int) -> Act:
    """Switch ELR on or off."""

    async def act(admin: Admin) -> None:
        update = FeatureUpdate(level, allow_downgrade=True)
        await admin.update_features({ELR_FEATURE: update}, timeout_ms=_TIMEOUT_MS)

    return act


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
