"""What befalls the disks of a simulated cluster: slow ones, full ones, errors, and rot (P7).

Owns which disk is hit and what the budget must be told. A log dir that fails whole is in
`sim.faults.log_dir_faults`.
"""

import errno
from collections.abc import Callable

from holdfast.sim.cluster.nodes import SimBroker, SimNode
from holdfast.sim.cluster.world import World
from holdfast.sim.faults.budget import Budget
from holdfast.sim.machine.choices import Stream, between, one_in

_MS = 1_000_000


class DiskFaults:
    """Of one run. Each fault draws from its stream, and returns whether it could be played."""

    def __init__(
        self,
        world: World,
        budget: Budget,
        at: Callable[[int, Callable[[], None]], None],
        return_later: Callable[[SimNode], None],
    ) -> None:
        self._world = world
        self._budget = budget
        #: (delay in ms, what to do then)
        self._at = at
        self._return_later = return_later

    def slow(self, stream: Stream) -> bool:
        node = self._node(stream)
        sim_disk = node.machine.sim_disk
        sim_disk.be_slow(between(stream, 5, 200) * _MS)
        self._at(between(stream, 500, 5_000), lambda: sim_disk.be_slow(None))
        return True

    def hang(self, stream: Stream) -> bool:
        self._node(stream).machine.sim_disk.hang(between(stream, 100, 4_000) * _MS)
        return True

    def fail_flush(self, stream: Stream) -> bool:
        """A flush fails: what it should have written is gone once the page cache forgets it (A-20)."""
        broker = self._broker(stream)
        if broker is None or not self._budget.may_lose(broker):
            return False
        self._budget.lost(broker)
        broker.machine.sim_disk.fail("flush", "/data", errno.EIO)
        return True

    def fail_append(self, stream: Stream) -> bool:
        """An append to a log fails, and the process ends; what was there before stays."""
        node = self._node(stream)
        if not self._budget.may_kill(node):
            return False
        self._budget.killed(node)
        node.machine.sim_disk.fail("append", ".log", errno.EIO)
        return True

    def flip_bit(self, stream: Stream) -> bool:
        """P7: a machine without power comes back with a bit turned in what was flushed of a log."""
        broker = self._broker(stream)
        if broker is None or not self._may_rot(broker):
            return False
        self._budget.lost(broker)
        broker.lose_power()
        broker.machine.sim_disk.flip_bit(stream)
        self._return_later(broker)
        return True

    def keep_copy(self, stream: Stream) -> bool:
        """P7: a machine that was stopped cleanly is copied, its mark of a clean stop included."""
        broker = self._broker(stream)
        if broker is None or not self._world.shape.disks_lie:
            return False
        broker.machine.sim_disk.copies_next_exit = True
        broker.stop()
        return True

    def restore_copy(self, stream: Stream) -> bool:
        """P7: a machine goes down and comes back with the copy; the mark tells of an old stop."""
        copied = [b for b in self._world.brokers if b.is_up and b.machine.sim_disk.has_copy]
        if not copied:
            return False
        broker = copied[stream.draw(len(copied))]
        if not self._may_rot(broker):
            return False
        self._budget.lost(broker)
        broker.lose_power()
        broker.machine.sim_disk.restore()
        self._return_later(broker)
        return True

    def fill(self, stream: Stream) -> bool:
        """An append or a new file finds no room, and the process ends."""
        node = self._node(stream)
        if not self._budget.may_kill(node):
            return False
        self._budget.killed(node)
        operation = "append" if one_in(stream, 2) else "open"
        node.machine.sim_disk.fail(operation, "/", errno.ENOSPC)
        return True

    # --- who is hit --------------------------------------------------------------------------------------

    def _node(self, stream: Stream) -> SimNode:
        return self._world.nodes[stream.draw(len(self._world.nodes))]

    def _broker(self, stream: Stream) -> SimBroker | None:
        up = [broker for broker in self._world.brokers if broker.is_up]
        return up[stream.draw(len(up))] if up else None

    def _may_rot(self, broker: SimBroker) -> bool:
        """The map of faults: enough replicas stay whole that what must survive is known."""
        return self._world.shape.disks_lie and self._budget.may_rot(broker)
