"""Log dirs that fail while their broker goes on, and the operators who replace the disks (R27).

Owns which dir of whom is gone for how long, and when a broker that has lost one is stopped, so that its next
process may have it again. A broker with a failed dir counts as lossy until it was started anew.
"""

from collections.abc import Callable
from functools import partial

from holdfast.sim.cluster.nodes import SimBroker
from holdfast.sim.cluster.world import World
from holdfast.sim.faults.budget import Budget
from holdfast.sim.machine.choices import Stream, between
from holdfast.sim.machine.disk import LOG_DIRS


class FailingDirs:
    """Of one run."""

    def __init__(self, world: World, budget: Budget, at: Callable[[int, Callable[[], None]], None]) -> None:
        self._world = world
        self._budget = budget
        #: (delay in ms, what to do then)
        self._at = at
        #: brokers that will be stopped before long
        self._waiting: set[str] = set()

    def fail(self, stream: Stream) -> bool:
        """One of the log dirs of a broker is gone for a while; processes that start meanwhile do without."""
        world = self._world
        up = [broker for broker in world.brokers if broker.is_up]
        if world.shape.log_dirs < 2 or not up:
            return False
        broker = up[stream.draw(len(up))]
        if not self._budget.may_lose(broker):
            return False
        self._budget.lost(broker)
        log_dir = LOG_DIRS[stream.draw(world.shape.log_dirs)]
        sim_disk = broker.machine.sim_disk
        sim_disk.break_folder(log_dir)
        self._at(between(stream, 500, 6_000), lambda: sim_disk.mend_folder(log_dir))
        return True

    def replace_disks(self, *, at_once: bool) -> None:
        """Stop, each after a while, the brokers that go on without a log dir which would work again."""
        for broker in self._world.brokers:
            node = broker.node
            if not broker.is_up or node is None or node.log_manager.is_whole:
                continue
            if broker.name in self._waiting or broker.machine.sim_disk.has_faults:
                continue
            self._waiting.add(broker.name)
            stream = self._world.choices.stream(f"replace.{broker.name}.{broker.boots}")
            delay_ms = 0 if at_once else between(stream, 100, 4_000)
            self._at(delay_ms, partial(self._replace, broker, broker.boots))

    def _replace(self, broker: SimBroker, boots: int) -> None:
        self._waiting.discard(broker.name)
        if broker.is_up and broker.boots == boots:
            broker.stop()
