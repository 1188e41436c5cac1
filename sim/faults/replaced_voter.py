"""A voter whose disk is replaced while everything runs: killed, emptied, removed and added again (K30).

Owns the replacement that is under way; there is one at a time, so that the other voters have all that is
committed. Operators ask for nothing but what docs/voters.md tells them to, and look at what is committed
instead of at answers, which may be lost.
"""

from collections.abc import Callable

from holdfast.sim.cluster.nodes import SimController
from holdfast.sim.cluster.world import World, controller_endpoint
from holdfast.sim.load import operators
from holdfast.sim.machine.choices import Stream

_LOOK_MS = 300


class ReplacedVoter:
    """Replaces the disk of one voter after the other."""

    def __init__(
        self,
        world: World,
        at: Callable[[int, Callable[[], None]], None],
        kill: Callable[[SimController], bool],
    ) -> None:
        """`at` calls something after so many ms; `kill` ends a process that returns before long, and says
        whether it could."""
        self._world = world
        self._at = at
        self._kill = kill
        self._victim: SimController | None = None
        #: the directory that the victim had
        self._old_directory = b""

    def start(self) -> None:
        """Operators let the log name the voters, and see to it that each that lost a disk votes again."""
        self._look_after()
        self._at(_LOOK_MS, self.start)

    def replace(self, stream: Stream) -> bool:
        """Take the disk of a voter away, if every voter counts with the disk that it has."""
        named = self._world.named_voters()
        up = [voter for voter in self._world.controllers if voter.is_up and voter.node_id in named]
        if self._victim is not None or len(named) < len(self._world.controllers) or not up:
            return False
        victim = up[stream.draw(len(up))]
        if not self._kill(victim):
            return False
        self._victim, self._old_directory = victim, named[victim.node_id]
        victim.machine.sim_disk.replace()
        return True

    def _look_after(self) -> None:
        world, victim = self._world, self._victim
        if world.active_controller() is None or world.operator_queue.is_busy:
            return
        named = world.named_voters()
        if not named:
            self._ask("let the log name the voters", operators.upgrade_quorum())
        elif victim is None:
            return
        elif named.get(victim.node_id) == self._old_directory:
            self._ask(f"remove {victim.name}", operators.remove_controller(victim.node_id))
        elif victim.node_id not in named:
            act = operators.add_controller(victim.node_id, controller_endpoint(victim.node_id))
            self._ask(f"add {victim.name}", act)
        else:
            world.trace.add("replaced", victim.name)
            self._victim = None

    def _ask(self, name: str, act: operators.Act) -> None:
        if self._world.operator_queue.is_idle:
            self._world.operator_queue.put(name, act)
