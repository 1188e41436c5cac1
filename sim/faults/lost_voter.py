"""A voter that is lost to the end of a story, after everything else was healed, too: dead, or out of reach.

Owns which voter it is, when it is lost and how, and which links never heal. The others are a majority and
must do without it: `world.lost` names it for those who wait for voters.
"""

from collections.abc import Callable
from enum import IntEnum
from functools import partial

from holdfast.raft.core.roles import Candidate
from holdfast.sim.cluster.nodes import SimController, State
from holdfast.sim.cluster.world import World
from holdfast.sim.machine.choices import between
from holdfast.sim.machine.connections import Host

#: a leader that stands still for so long has resigned when it goes on (K7)
_PAUSE_MS = 1_450
#: less than a vote takes to be asked for and given
_LOOK_NS = 50_000


class Loss(IntEnum):
    """How a voter is lost."""

    DEAD = 0
    #: no machine reaches it
    OUT_OF_REACH = 1
    #: brokers reach it, voters do not
    OUT_OF_REACH_OF_VOTERS = 2
    #: one of them does
    OUT_OF_REACH_OF_ONE_VOTER = 3
    #: voters hear it, and it hears none of them
    DEAF = 4


class LostVoter:
    """Chooses and loses it. `at` calls something after so many ms."""

    def __init__(self, world: World, at: Callable[[int, Callable[[], None]], None]) -> None:
        self._world = world
        self._at = at
        self._stream = world.choices.stream("lost")
        #: cut for good: (the ones, the others, one way only)
        self._cuts: list[tuple[list[Host], list[Host], bool]] = []

    def start(self, load_ms: int) -> None:
        """Lose a voter early in the load, so that much is decided without it; or near its end, so that no
        election mends what the loss has done before all is judged. Nothing with fewer than three voters."""
        if len(self._world.controllers) < 3:
            return
        at_ms = between(self._stream, 0, load_ms // 4)
        if self._stream.draw(2) == 1:
            at_ms = load_ms - between(self._stream, 2 * _PAUSE_MS, 4 * _PAUSE_MS)
        self._at(max(0, at_ms), self._lose_one)

    def cut(self) -> None:
        """The links that never heal, again."""
        for ones, others, one_way in self._cuts:
            self._world.network.cut(ones, others, one_way=one_way)

    def _lose_one(self) -> None:
        voters = self._world.controllers
        loss = Loss(self._stream.draw(len(Loss)))
        victim = voters[self._stream.draw(len(voters))]
        active = self._world.active_controller()
        if self._stream.draw(2) == 0 or active is None or not all(voter.is_up for voter in voters):
            self._lose(victim, loss)
            return
        # A voter that has just begun to run for office is ahead of all others by an epoch.
        active.pause()
        until_ns = self._world.loop.now_ns + _PAUSE_MS * 1_000_000
        self._wait_for_candidate(active, victim, Loss.OUT_OF_REACH_OF_VOTERS, until_ns)

    def _wait_for_candidate(
        self, active: SimController, victim: SimController, loss: Loss, until_ns: int
    ) -> None:
        found = next((voter for voter in self._world.controllers if _is_candidate(voter)), None)
        loop = self._world.loop
        if found is None and loop.now_ns < until_ns and active.state is State.PAUSED:
            look = partial(self._wait_for_candidate, active, victim, loss, until_ns)
            loop.at_ns(loop.now_ns + _LOOK_NS, loop.kernel, look)
            return
        self._lose(victim if found is None else found, loss)
        if active.state is State.PAUSED:
            active.resume()
        self._hide_from_brokers(active)

    def _hide_from_brokers(self, active: SimController) -> None:
        """For a while: brokers ask the other voters then, and meet the one that is ahead."""
        network, host = self._world.network, active.machine.host
        brokers = [broker.machine.host for broker in self._world.brokers]
        network.cut([host], brokers)

        def reveal() -> None:
            network.uncut(host, brokers)
            self.cut()
            for connection in list(network.connections):
                connection.release(0)

        self._at(between(self._stream, 500, 2 * _PAUSE_MS), reveal)

    def _lose(self, victim: SimController, loss: Loss) -> None:
        world, host = self._world, victim.machine.host
        world.lost.add(victim.name)
        world.trace.add("lost", f"{victim.name} {loss.name}")
        voters = [voter.machine.host for voter in world.controllers if voter is not victim]
        match loss:
            case Loss.DEAD:
                victim.lose_power()
            case Loss.OUT_OF_REACH:
                others = [other for other in world.network.hosts.values() if other is not host]
                self._cuts.append(([host], others, False))
            case Loss.OUT_OF_REACH_OF_VOTERS:
                self._cuts.append(([host], voters, False))
            case Loss.OUT_OF_REACH_OF_ONE_VOTER:
                self._cuts.append(([host], [voters[self._stream.draw(len(voters))]], False))
            case Loss.DEAF:
                self._cuts.append((voters, [host], True))
        self.cut()


def _is_candidate(voter: SimController) -> bool:
    view = None if not voter.is_up or voter.server is None else voter.server.driver.snapshot()
    return view is not None and view.role == Candidate.__name__
