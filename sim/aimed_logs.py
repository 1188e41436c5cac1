"""Faults of several steps, aimed at what replicas hold and what they promise to hold.

Owns their choreography only, as `sim.aimed` does: logs that part and are compared right then, a promise that
is lowered while much comes. The single steps are those of `sim.faults`, within the same budget.
"""

from collections.abc import Callable

from metadata.partition import PartitionRegistration
from sim.aimed import Hands
from sim.budget import Budget
from sim.choices import Stream, between
from sim.nodes import SimBroker
from sim.world import World

_MS = 1_000_000
#: a promise stands for 5 s of quiet at least (broker.ceiling.AHEAD_MS), and is looked at once a second
_LULL_MS = 7_500
#: how often a choreography looks whether the state that it waits for is there
_LOOK_MS = 20


class AimedLogs:
    """Each method returns whether its first step could be played."""

    def __init__(self, world: World, budget: Budget, hands: Hands) -> None:
        self._world = world
        self._budget = budget
        self._hands = hands
        self.table: dict[str, Callable[[Stream], bool]] = {"lull": self._lull}

    # --- who -------------------------------------------------------------------------------------------

    def _led(self, stream: Stream) -> tuple[int, PartitionRegistration, SimBroker] | None:
        """A partition and its leader, which runs."""
        rows = [(place, row, self._broker(row.leader)) for place, row in self._world.partitions()]
        led = [(place, row, leader) for place, row, leader in rows if leader is not None and leader.is_up]
        return led[stream.draw(len(led))] if led else None

    def _broker(self, broker_id: int | None) -> SimBroker | None:
        return next((broker for broker in self._world.brokers if broker.node_id == broker_id), None)

    # --- promises --------------------------------------------------------------------------------------

    def _lull(self, stream: Stream) -> bool:
        """No client reaches a leader until it lowers a promise for the traffic that ebbed. Its disk hangs
        over that, and meanwhile everything that had waited comes at once (R68)."""
        found = self._led(stream)
        if found is None:
            return False
        place, _, leader = found
        network, platter, boots = self._world.network, leader.machine.platter, leader.boots
        for client in self._world.clients:
            network.cut(client.machine.host, leader.machine.host)
        burst_ms = between(stream, 500, 3_000)

        def look(left_ms: int) -> None:
            replica = self._world.replica(leader, place) if leader.boots == boots else None
            is_lowered = replica is not None and replica.ceiling.is_storing
            if is_lowered or left_ms <= 0 or replica is None:
                network.heal()
                platter.hang(burst_ms * _MS if is_lowered else 0)
            else:
                self._hands.later(_LOOK_MS, lambda: look(left_ms - _LOOK_MS))

        def hang() -> None:
            if leader.boots == boots and leader.is_up:
                platter.hang(_LULL_MS * _MS)
            look(_LULL_MS)

        # what was on its way to the leader, and to the disk, gets there first
        self._hands.later(between(stream, 300, 900), hang)
        return True
