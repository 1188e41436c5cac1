"""Faults of several steps, each aimed at a state that faults at random times hardly ever reach.

Owns their choreography only: who is cut off, stopped or killed, and when, so that a log parts twice, a
proposal comes too late, a stop or a start is cut short at each of its steps. The single steps are those of
`sim.faults.table`, within the same budget.
"""

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.metadata.partition import PartitionRegistration
from holdfast.sim.cluster.nodes import SimBroker, SimNode, State
from holdfast.sim.cluster.world import World
from holdfast.sim.faults.budget import Budget
from holdfast.sim.load.operator_acts import Operations
from holdfast.sim.machine.choices import Stream, between, one_in
from holdfast.sim.machine.crash_points import Points

#: what a disk does that others could see
_ON_DISK = frozenset(("create", "flush", "rename", "unlink", "sync", "truncate"))
_AT_START = _ON_DISK | {"boot", "log"}
#: how many of these a stop and a start have at most, about
_STEPS_OF_A_STOP = 40
_STEPS_OF_A_MARK = 3
_STEPS_OF_A_START = 14
#: a follower that does not fetch is in sync for so long (replica.lag.time.max.ms)
_LAG_MS = 2_000
#: between two looks at what is committed
_GLANCE_MS = 50


@dataclass(frozen=True, slots=True)
class Hands:
    """Single steps, as `sim.faults.table` plays them."""

    #: calls something after so many ms, unless all is healed by then
    later: Callable[[int, Callable[[], None]], None]
    kill: Callable[[SimNode | None], bool]
    kill_all: Callable[[], bool]
    #: killed, and back after so many ms
    restart: Callable[[SimNode | None, int], bool]
    #: a process of a node, by its boots, ends if the budget allows it; name of the point, power too
    crash_at: Callable[[SimNode, int, str, bool], None]
    return_later: Callable[[SimNode, int], None]

    def once(
        self,
        is_so: Callable[[], bool],
        then: Callable[[], None],
        within_ms: int,
        *,
        every_ms: int,
        otherwise: Callable[[], None] | None = None,
    ) -> None:
        """Look every so often, and go on as soon as it is so; `otherwise` when that takes too long."""
        if is_so():
            then()
        elif within_ms > 0:
            self.later(
                every_ms,
                lambda: self.once(is_so, then, within_ms - every_ms, every_ms=every_ms, otherwise=otherwise),
            )
        elif otherwise is not None:
            otherwise()


class Aimed:
    """Each method returns whether its first step could be played."""

    def __init__(
        self, world: World, budget: Budget, points: Points, operations: Operations, hands: Hands
    ) -> None:
        self._world = world
        self._budget = budget
        self._points = points
        self._operations = operations
        self._hands = hands
        self.table: dict[str, Callable[[Stream], bool]] = {
            "crash_in_stop": self._crash_in_stop,
            "crash_in_start": self._crash_in_start,
            "stop_unseen": self._stop_unseen,
            "cut_pair": self._cut_pair,
            "cut_followers": self._cut_followers,
            "starve_follower": self._starve_follower,
            "kill_elected": self._kill_elected,
            "stall": self._stall,
            "late_proposal": self._late_proposal,
            "min_isr_with_elr": self._min_isr_with_elr,
            "act_while_leaderless": self._act_while_leaderless,
            "crumble": self._crumble,
            "unregister_broker": self._unregister,
        }
        #: behind all others in the table of `sim.faults.table`
        self.newest: dict[str, Callable[[Stream], bool]] = {"tear_move": self._tear_move}

    # --- who -------------------------------------------------------------------------------------------

    def _any_up(self, stream: Stream) -> SimBroker | None:
        up = [broker for broker in self._world.brokers if broker.is_up]
        return up[stream.draw(len(up))] if up else None

    def _led(self, stream: Stream) -> tuple[int, PartitionRegistration, SimBroker] | None:
        """A partition and its leader, which runs."""
        led = self._world.led_partitions()
        return led[stream.draw(len(led))] if led else None

    # --- stops and starts ------------------------------------------------------------------------------

    def _crash_in_stop(self, stream: Stream) -> bool:
        """A broker stops in order, and goes down at any step between its leave and its end (A-19)."""
        broker = self._any_up(stream)
        if broker is None or not self._budget.may_stop(broker):
            return False
        has_power, boots = one_in(stream, 3), broker.boots

        def has_leave() -> bool:
            return broker.state is State.STOPPING and broker.node is not None and broker.node.stopped.done()

        is_at_mark = one_in(stream, 3)
        self._points.arm_within(
            broker,
            boots,
            _ON_DISK,
            stream.draw(_STEPS_OF_A_MARK if is_at_mark else _STEPS_OF_A_STOP),
            lambda: self._hands.crash_at(broker, boots, "a stop", not has_power),
            has_leave,
            ("cleanshutdown",) if is_at_mark else (),
        )
        broker.stop()
        return True

    def _crash_in_start(self, stream: Stream) -> bool:
        """A broker ends, in order or not, and goes down again at any of its first steps."""
        broker = self._any_up(stream)
        if broker is None or not self._budget.may_stop(broker):
            return False
        has_power, boots = one_in(stream, 2), broker.boots + 1
        steps = stream.draw(_STEPS_OF_A_START)
        if one_in(stream, 3):
            if not self._hands.kill(broker):
                return False
        else:
            broker.stop()
        self._points.arm_within(
            broker,
            boots,
            _AT_START,
            steps,
            lambda: self._hands.crash_at(broker, boots, "a start", not has_power),
        )
        return True

    def _stop_unseen(self, stream: Stream) -> bool:
        """A broker stops in order while no controller runs, and is back before they know (D14)."""
        broker = self._any_up(stream)
        if broker is None or not self._budget.may_stop(broker):
            return False
        away_ms = between(stream, 5_100, 6_500)
        for controller in self._world.controllers:
            if controller.state is not State.DOWN:
                controller.kill()
                self._hands.return_later(controller, away_ms + between(stream, 0, 300))
        broker.stop()
        return True

    # --- links -----------------------------------------------------------------------------------------

    def _cut(self, ones: list[SimBroker], others: list[SimBroker], for_ms: int) -> None:
        """Brokers do not reach each other; clients and controllers reach both."""
        network = self._world.network
        network.cut([one.machine.host for one in ones], [other.machine.host for other in others])
        self._hands.later(for_ms, network.heal)

    def _cut_pair(self, stream: Stream) -> bool:
        """One follower and one leader do not reach each other; half of the followers are killed and return
        meanwhile, so that the leader knows them from before."""
        found = self._led(stream)
        if found is None:
            return False
        _, row, leader = found
        followers = [b for b in self._world.brokers if b.node_id in row.replicas and b is not leader]
        if not followers:
            return False
        follower = followers[stream.draw(len(followers))]
        self._cut([leader], [follower], between(stream, 300, 6_000))
        if one_in(stream, 2) and follower.is_up:
            self._hands.restart(follower, between(stream, 1, 400))
        return True

    def _cut_followers(self, stream: Stream) -> bool:
        """A leader loses all its followers at once, so that one proposal drops them; now and then all brokers
        are killed then, and all of them become last known."""
        found = self._led(stream)
        if found is None:
            return False
        leader = found[2]
        self._cut([leader], self._world.brokers, between(stream, 2 * _LAG_MS, 3 * _LAG_MS))
        if one_in(stream, 2):
            self._hands.later(between(stream, _LAG_MS + 300, 2 * _LAG_MS), self._end_all)
        return True

    def _end_all(self) -> None:
        self._budget.update()
        self._hands.kill_all()

    def _starve_follower(self, stream: Stream) -> bool:
        """A member of the ISR gets no records while the others take turns as leaders, so that nothing of
        theirs is committed; then it leads, and what they have has to go, several epochs of it. Half of the
        time in a partition that has just been made, where everything goes."""
        found = self._led(stream)
        if found is None:
            return False
        place, row, leader = found
        starved = [b for b in self._world.brokers if b.node_id in row.isr and b is not leader]
        if not starved:
            return False
        follower = starved[stream.draw(len(starved))]
        self._cut([follower], self._world.brokers, between(stream, _LAG_MS, 2 * _LAG_MS))
        known = {place for place, _ in self._world.partitions()}
        is_new = one_in(stream, 2) and self._operations.add_partition_of(place)
        at_ms = 0

        def kill_leader() -> None:
            self._budget.update()
            fresh = [p for p, _ in self._world.partitions() if p not in known]
            one = self._world.partition(fresh[0] if is_new and fresh else place)
            if one is not None and one.leader != follower.node_id:
                node = self._world.broker(one.leader)
                if node is not None and node.is_up:
                    self._hands.kill(node)

        for _ in range(2):
            at_ms += between(stream, 250, 800)
            self._hands.later(at_ms, kill_leader)
        return True

    def _kill_elected(self, stream: Stream) -> bool:
        """A leader is killed, and who follows it as soon as it leads; up to three of them in turn."""
        found = self._led(stream)
        if found is None or not self._hands.kill(found[2]):
            return False
        for broker in self._world.brokers:
            if broker is not found[2] and broker.is_up:
                self._kill_once_it_leads(broker, between(stream, 0, 120), one_in(stream, 3))
        return True

    def _kill_once_it_leads(self, broker: SimBroker, after_ms: int, has_power: bool) -> None:
        boots = broker.boots

        def crash() -> None:
            self._hands.later(
                after_ms, lambda: self._hands.crash_at(broker, boots, "an election", not has_power)
            )

        self._points.arm_within(broker, boots, frozenset(("log",)), 0, crash, None, ("leads in epoch",))

    def _stall(self, stream: Stream) -> bool:
        """Segments of some connections from a host are lost: what follows them waits, other connections
        overtake it."""
        nodes = self._world.nodes
        host = nodes[stream.draw(len(nodes))].machine.host
        until_ns = self._world.loop.now_ns + between(stream, 50, 3_500) * 1_000_000
        stalled = [c for c in self._world.network.connections if c.host is host and one_in(stream, 2)]
        for connection in stalled:
            connection.stall(until_ns)
        return bool(stalled)

    def _late_proposal(self, stream: Stream) -> bool:
        """A leader proposes to drop its followers, and what it says to the controllers comes late: after it
        was restarted, or after it has said it again."""
        found = self._led(stream)
        if found is None:
            return False
        leader = found[2]
        network, boots = self._world.network, leader.boots
        controllers = [c.machine.host for c in self._world.controllers]
        late_ms = between(stream, 700, 4_000)
        self._cut([leader], self._world.brokers, _LAG_MS + between(stream, 400, 3_000))

        def stall() -> None:
            until_ns = self._world.loop.now_ns + late_ms * 1_000_000
            for connection in network.connections:
                if connection.host is leader.machine.host and connection.other.host in controllers:
                    connection.stall(until_ns)

        def restart() -> None:
            if leader.boots == boots and leader.is_up:
                self._budget.update()
                self._hands.restart(leader, 20)

        stalls_at_ms = _LAG_MS - between(stream, 100, 600)
        self._hands.later(stalls_at_ms, stall)
        if one_in(stream, 2):
            self._hands.later(stalls_at_ms + between(stream, 600, 1_500), restart)
        return True

    # --- operators -------------------------------------------------------------------------------------

    def _min_isr_with_elr(self, stream: Stream) -> bool:
        """The min ISR of a topic changes while a partition of it has eligible members out of sync."""
        found = self._led(stream)
        if found is None:
            return False
        place, _, leader = found
        self._cut([leader], self._world.brokers, between(stream, 2 * _LAG_MS, 3 * _LAG_MS))

        def change() -> None:
            self._budget.update()
            self._operations.change_min_isr_of(stream, place)

        self._hands.later(between(stream, _LAG_MS + 200, 2 * _LAG_MS), change)
        return True

    def _act_while_leaderless(self, stream: Stream) -> bool:
        """All brokers are killed, and operators change what has no leader."""
        if not self._hands.kill_all():
            return False

        def act() -> None:
            leaderless = [place for place, row in self._world.partitions() if row.leader is None]
            if leaderless:
                self._budget.update()
                place = leaderless[stream.draw(len(leaderless))]
                if one_in(stream, 2) or not self._operations.change_min_isr_of(stream, place):
                    self._operations.move_place(stream, place)

        for _ in range(3):
            self._hands.later(between(stream, 100, 2_500), act)
        return True

    def _crumble(self, stream: Stream) -> bool:
        """All brokers are killed, and one that has returned goes down again before the others are there."""
        if not self._hands.kill_all():
            return False

        def again() -> None:
            self._budget.update()
            broker = self._any_up(stream)
            if broker is not None:
                self._hands.crash_at(broker, broker.boots, "a return", not one_in(stream, 3))

        at_ms = 0
        for _ in range(6):
            at_ms += between(stream, 60, 700)
            self._hands.later(at_ms, again)
        return True

    def _unregister(self, stream: Stream) -> bool:
        """An operator unregisters a broker that runs; half of the time its process is restarted then."""
        broker = self._any_up(stream)
        if broker is None or not self._budget.may_lose(broker):
            return False
        self._budget.lost(broker)
        boots = broker.boots
        if one_in(stream, 2):
            after_ms = between(stream, 20, 2_000)

            def restart() -> None:
                if broker.boots == boots and broker.is_up:
                    self._hands.restart(broker, 20)

            self._hands.later(after_ms, restart)
        return self._operations.unregister(broker.node_id)

    def _tear_move(self, stream: Stream) -> bool:
        """A partition moves: of those that are added one gets in sync and another does not, those who stay
        drop out, and then operators call it off (R103)."""
        found = self._led(stream)
        if found is None:
            return False
        place, row, leader = found
        spare = [b for b in self._world.brokers if b.is_up and b.node_id not in row.replicas]
        if row.original_replicas is not None or len(spare) < 2:
            return False
        joins = spare.pop(stream.draw(len(spare)))
        late = spare[stream.draw(len(spare))]
        others = [b for b in row.replicas if b != leader.node_id]
        target = [joins.node_id, late.node_id, leader.node_id, *others][: max(2, len(row.replicas))]
        if not self._operations.move_to(place, target):
            return False
        self._cut([late], self._world.brokers, 4 * _LAG_MS)
        stayers = [b for b in self._world.brokers if b.node_id in others]

        def watch(left: int, is_cut: bool) -> None:
            now = self._world.partition(place)
            if now is not None and now.original_replicas is not None:
                if not is_cut and joins.node_id in now.isr:
                    self._cut([leader], stayers, 4 * _LAG_MS)
                    is_cut = True
                if sum(b in row.replicas for b in now.isr) < now.min_isr:
                    self._operations.cancel_move_of(place)
                    return
            if left:
                self._hands.later(_GLANCE_MS, lambda: watch(left - 1, is_cut))

        watch(4 * _LAG_MS // _GLANCE_MS, False)
        return True
