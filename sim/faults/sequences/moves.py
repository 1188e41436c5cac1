"""Faults of several steps, aimed at moves that are cut short where anybody who is there may lead.

Owns their choreography only, as `sim.faults.sequences.replication` does. The single steps are those of
`sim.faults.table`; they are played only where losses are allowed.
"""

from collections.abc import Callable
from functools import partial

from holdfast.sim.cluster.nodes import SimBroker
from holdfast.sim.cluster.world import World
from holdfast.sim.faults.budget import Budget
from holdfast.sim.faults.sequences.replication import Hands
from holdfast.sim.load.operator_acts import Operations
from holdfast.sim.machine.choices import Stream

#: of who is to be seen no more, and of who comes back in between: both longer than a session
_GONE_MS, _BACK_MS = 8_000, 2_500
#: how often a choreography looks whether the state that it waits for is there
_LOOK_MS = 50


class AimedMoves:
    """Each method returns whether its first step could be played."""

    def __init__(self, world: World, budget: Budget, operations: Operations, hands: Hands) -> None:
        self._world = world
        self._budget = budget
        self._operations = operations
        self._hands = hands
        self.table: dict[str, Callable[[Stream], bool]] = {"strand_move": self._strand_move}

    def _strand_move(self, stream: Stream) -> bool:
        """A partition moves, and only one replica that is to stay is left: it is elected, which all but
        ends the move. One that is to leave comes back, and when the other goes it is elected itself (F7)."""
        world = self._world
        led = [(place, row) for place, row, _ in world.led_partitions() if row.original_replicas is None]
        if not led or not world.shape.over_budget or world.operator_queue.is_busy:
            return False
        place, row = led[stream.draw(len(led))]
        stays = world.brokers[stream.draw(len(world.brokers))]
        leavers = [b for b in world.brokers if b.node_id in row.replicas and b is not stays]
        if not leavers or not all(broker.is_up for broker in world.brokers):
            return False
        leaves = leavers[stream.draw(len(leavers))]
        if not self._operations.be_content_with_one(place):
            return False
        others = [broker.machine.host for broker in world.brokers if broker is not stays]
        world.network.cut([stays.machine.host], others)
        self._hands.later(3_000 + _GONE_MS, world.network.heal)
        move = partial(self._move, stream, place, stays, leaves)
        self._hands.once(lambda: stays.node_id not in self._isr(place), move, 3_000, every_ms=_LOOK_MS)
        return True

    def _move(self, stream: Stream, place: int, stays: SimBroker, leaves: SimBroker) -> None:
        world = self._world
        if not self._operations.move_to(place, [stays.node_id]):
            return

        def is_moving() -> bool:
            row = world.partition(place)
            return row is not None and row.original_replicas is not None

        def strand() -> None:
            self._take_away([broker for broker in world.brokers if broker not in (stays, leaves)], _GONE_MS)
            self._take_away([leaves], _BACK_MS)
            self._elect_once_leaderless(stream, place, stays, then)

        def then() -> None:
            self._hands.once(lambda: leaves.is_ready, finish, _GONE_MS, every_ms=_LOOK_MS)

        def finish() -> None:
            self._take_away([stays], _GONE_MS)
            self._elect_once_leaderless(stream, place, leaves, lambda: None)

        self._hands.once(is_moving, strand, 2_000, every_ms=_LOOK_MS)

    def _elect_once_leaderless(
        self, stream: Stream, place: int, leader: SimBroker, then: Callable[[], None]
    ) -> None:
        """There is no leader, and this one is ready to be elected: operators ask for it."""
        world = self._world

        def is_so() -> bool:
            row = world.partition(place)
            return row is not None and row.leader is None and leader.is_ready

        def leads() -> bool:
            row = world.partition(place)
            return row is not None and row.leader == leader.node_id

        def elect() -> None:
            self._operations.elect_by_hand(stream, place, leader.node_id)
            self._hands.once(leads, then, 3_000, every_ms=_LOOK_MS)

        self._hands.once(is_so, elect, _GONE_MS, every_ms=_LOOK_MS)

    def _take_away(self, brokers: list[SimBroker], for_ms: int) -> None:
        self._budget.update()
        for broker in brokers:
            if broker.is_up:
                self._hands.restart(broker, for_ms)

    def _isr(self, place: int) -> tuple[int, ...]:
        row = self._world.partition(place)
        return () if row is None else row.isr
