"""Faults of several steps aimed at producers that have several batches of a partition on their way.

Owns their choreography only: when brokers go and return, whose answers are held back meanwhile, and whether
they come late or never. Looks into the producers as `sim.faults.sequences.replication` looks at partitions;
changes nothing there.
"""

from collections.abc import Callable

from holdfast.metadata.partition import PartitionRegistration
from holdfast.sim.cluster.nodes import SimBroker
from holdfast.sim.cluster.world import World
from holdfast.sim.faults.budget import Budget
from holdfast.sim.faults.sequences.replication import Hands
from holdfast.sim.load.operator_acts import Operations
from holdfast.sim.machine.choices import Stream, between, one_in
from holdfast.sim.machine.connections import SimConnection

_MS = 1_000_000
#: between two looks
_GLANCE_MS = 10
#: an ISR that is not whole by then is not waited for
_PATIENCE_MS = 3_000
#: machines without power have returned by then, and their replicas are in sync
_RETURN_MS = 8_000
#: longer than producers wait before they ask for other leaders
_STALL_MS = 1_000


class AimedClients:
    """Each method returns whether its first step could be played."""

    def __init__(self, world: World, budget: Budget, operations: Operations, hands: Hands) -> None:
        self._world = world
        self._budget = budget
        self._operations = operations
        self._hands = hands
        self.table: dict[str, Callable[[Stream], bool]] = {
            "flap_isr": self._flap_isr,
            "forget_producers": self._forget_producers,
        }

    # --- who -------------------------------------------------------------------------------------------

    def _broker(self, broker_id: int | None) -> SimBroker | None:
        found = (broker for broker in self._world.brokers if broker.node_id == broker_id and broker.is_up)
        return next(found, None)

    def _led(self, places: list[int]) -> list[tuple[int, PartitionRegistration]]:
        """Of these the partitions whose leader runs."""
        rows = self._world.partitions()
        return [(place, row) for place, row in rows if place in places and self._broker(row.leader)]

    def _answers_of(self, leader: SimBroker) -> list[SimConnection]:
        """The ends at a broker of what producers have open to it, for long enough to send batches there."""
        hosts = {machine.host for machine in self._world.producer_machines.values()}
        return [
            connection
            for connection in self._world.network.connections
            if connection.host is leader.machine.host and connection.other.host in hosts
        ]

    # --- what ------------------------------------------------------------------------------------------

    def _flap_isr(self, stream: Stream) -> bool:
        """Followers stop in order, so that the ISR is below min ISR at once, and return soon. What the leader
        answers meanwhile comes late, or never: producers have batches on their way that were refused, and
        behind them batches that were not (R92). Half of the time in a partition that is new to its leader."""
        led = self._led(self._world.load.places)
        if not led:
            return False
        place, _ = led[stream.draw(len(led))]
        is_new = one_in(stream, 2)
        held_ms, is_lost = between(stream, 100, 800), one_in(stream, 3)
        if not is_new:
            return self._stop_below_min_isr(place, held_ms, is_lost)
        return self._with_new_partition(
            place, lambda fresh: self._stop_below_min_isr(fresh, held_ms, is_lost)
        )

    def _forget_producers(self, stream: Stream) -> bool:
        """All replicas of a new partition lose power while nothing of it is on its way, so that their logs
        may know no producer any more; then its ISR flaps, and no client gets the leader's answers (R93)."""
        led = self._led(self._world.load.places)
        if not led:
            return False
        load, (place, _) = self._world.load, led[stream.draw(len(led))]
        held_ms, used_ms, idle_ms = (
            between(stream, 100, 800),
            between(stream, 600, 1_500),
            between(stream, 100, 400),
        )

        def use(fresh: int) -> None:
            """A producer without an answer for a while asks for metadata, and finds the partition."""
            for broker in self._world.brokers:
                for connection in self._answers_of(broker):
                    connection.stall(self._world.loop.now_ns + _STALL_MS * _MS)
            self._hands.later(_STALL_MS + used_ms, lambda: rest(fresh))

        def rest(fresh: int) -> None:
            """No producer writes there for a while."""
            load.resting.add(fresh)
            self._hands.later(idle_ms, lambda: lose(fresh))

        def lose(fresh: int) -> None:
            row = dict(self._world.partitions()).get(fresh)
            if row is None:
                return
            for broker in self._world.brokers:
                if broker.node_id in row.replicas:
                    self._hands.crash_at(broker, broker.boots, "its replicas", True)
            again(fresh, row.leader_epoch, _RETURN_MS // _GLANCE_MS)

        def again(fresh: int, epoch: int, left: int) -> None:
            row = dict(self._led([fresh])).get(fresh)
            if row is not None and row.leader_epoch > epoch and len(row.isr) >= row.min_isr:
                load.resting.discard(fresh)
                self._stop_below_min_isr(fresh, held_ms, True)
            elif left:
                self._hands.later(_GLANCE_MS, lambda: again(fresh, epoch, left - 1))

        return self._with_new_partition(place, use)

    def _with_new_partition(self, place: int, what: Callable[[int], object]) -> bool:
        """Once there is one more in the topic of this one, and has a leader."""
        known = {place for place, _ in self._world.partitions()}
        if not self._operations.add_partition_of(place):
            return False

        def watch(left: int) -> None:
            fresh = [p for p in self._world.load.places if p not in known]
            if fresh and self._led(fresh):
                what(fresh[0])
            elif left:
                self._hands.later(_GLANCE_MS, lambda: watch(left - 1))

        watch(_PATIENCE_MS // _GLANCE_MS)
        return True

    def _stop_below_min_isr(self, place: int, held_ms: int, is_lost: bool) -> bool:
        row = dict(self._led([place])).get(place)
        leader = None if row is None else self._broker(row.leader)
        if row is None or leader is None:
            return False
        followers = [b for b in self._world.brokers if b.is_up and b is not leader and b.node_id in row.isr]
        count = len(row.isr) - row.min_isr + 1
        if not 0 < count <= len(followers):
            return False
        self._budget.update()
        for follower in followers[:count]:
            if self._budget.may_stop(follower):
                follower.stop()
        self._hold_answers(place, leader, held_ms, is_lost)
        return True

    def _hold_answers(self, place: int, leader: SimBroker, held_ms: int, is_lost: bool) -> None:
        """What a leader tells producers comes so long after the ISR fell below min ISR and was whole."""
        world, boots = self._world, leader.boots
        whole: list[bool] = []

        def hold(left: int) -> None:
            if leader.boots != boots or not leader.is_up:
                return
            row = dict(world.partitions()).get(place)
            if row is not None and not whole and len(row.isr) < row.min_isr:
                whole.append(False)
            elif row is not None and whole == [False] and len(row.isr) >= row.min_isr:
                whole.append(True)
                left = held_ms // _GLANCE_MS
            if left:
                until_ns = world.loop.now_ns + 2 * _GLANCE_MS * _MS
                for connection in self._answers_of(leader):
                    connection.stall(until_ns)
                self._hands.later(_GLANCE_MS, lambda: hold(left - 1))
            elif is_lost:
                for connection in self._answers_of(leader):
                    connection.reset()

        hold(_PATIENCE_MS // _GLANCE_MS)
