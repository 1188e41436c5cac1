"""Faults of several steps, aimed at what replicas hold and what they promise to hold.

Owns their choreography only, as `sim.faults.sequences.replication` does: logs that part and are compared
right then, a promise that is lowered while much comes. The single steps are those of `sim.faults.table`,
within the same budget.
"""

from collections.abc import Callable

from holdfast.broker.core.replicas.partition import Partition
from holdfast.client.admin_configs import Resource
from holdfast.metadata.partition import PartitionRegistration
from holdfast.sim.cluster.nodes import SimBroker
from holdfast.sim.cluster.world import World
from holdfast.sim.faults.budget import Budget
from holdfast.sim.faults.sequences.replication import Hands
from holdfast.sim.load.clients import partition_at
from holdfast.sim.load.operators import set_config
from holdfast.sim.machine.choices import Stream, between
from holdfast.sim.machine.connections import Host
from holdfast.sim.machine.crash_points import Points

_MS = 1_000_000
#: a promise stands for 5 s of quiet at least (broker.core.replicas.ceiling.AHEAD_MS), and is looked at once a
#: second
_LULL_MS = 7_500
#: records that a log ends later than others, more than a quiet replica promises ahead
_LONGER = 40
#: how often a choreography looks whether the state that it waits for is there
_LOOK_MS = 20


class AimedLogs:
    """Each method returns whether its first step could be played."""

    def __init__(self, world: World, budget: Budget, points: Points, hands: Hands) -> None:
        self._world = world
        self._budget = budget
        self._points = points
        self._hands = hands
        self.table: dict[str, Callable[[Stream], bool]] = {
            "lull": self._lull,
            "refuse_join": self._refuse_join,
            "figure_eight": lambda stream: self._figure_eight(stream, 0),
            "long_figure_eight": self._long_figure_eight,
        }

    # --- who -------------------------------------------------------------------------------------------

    def _led(self, stream: Stream) -> tuple[int, PartitionRegistration, SimBroker] | None:
        """A partition and its leader, which runs."""
        led = self._world.led_partitions()
        return led[stream.draw(len(led))] if led else None

    # --- single steps ----------------------------------------------------------------------------------

    def _part(self, one: Host, other: Host) -> None:
        """They do not reach each other."""
        self._world.network.cut([one], [other])

    def _reach(self, one: Host, other: Host) -> None:
        """They reach each other again; other cuts stay."""
        network = self._world.network
        network.uncut(one, [other])
        for connection in network.connections:
            if {connection.host, connection.other.host} == {one, other}:
                connection.release(0)

    def _once(self, is_so: Callable[[], bool], then: Callable[[], None], within_ms: int) -> None:
        """Undo all cuts if that takes too long."""
        self._hands.once(is_so, then, within_ms, every_ms=_LOOK_MS, otherwise=self._world.network.heal)

    # --- promises --------------------------------------------------------------------------------------

    def _lull(self, stream: Stream) -> bool:
        """No client reaches a leader until it lowers a promise for the traffic that ebbed. Its disk hangs
        over that, and meanwhile everything that had waited comes at once (R68)."""
        found = self._led(stream)
        if found is None:
            return False
        place, _, leader = found
        network, sim_disk, boots = self._world.network, leader.machine.sim_disk, leader.boots
        clients = [client.machine.host for client in self._world.clients]
        network.cut(clients, [leader.machine.host], one_way=True)
        burst_ms = between(stream, 500, 3_000)

        def look(left_ms: int) -> None:
            replica = self._world.replica(leader, place) if leader.boots == boots else None
            is_lowered = replica is not None and replica.ceiling.is_storing
            if is_lowered or left_ms <= 0 or replica is None:
                network.heal()
                sim_disk.hang(burst_ms * _MS if is_lowered else 0)
            else:
                self._hands.later(_LOOK_MS, lambda: look(left_ms - _LOOK_MS))

        def hang() -> None:
            if leader.boots == boots and leader.is_up:
                sim_disk.hang(_LULL_MS * _MS)
            look(_LULL_MS)

        # what was on its way to the leader, and to the disk, gets there first
        self._hands.later(between(stream, 300, 900), hang)
        return True

    # --- proposals -------------------------------------------------------------------------------------

    def _refuse_join(self, stream: Stream) -> bool:
        """A follower that was dropped is fenced, and its leader, which the controllers' words reach late,
        asks to let it join when it has caught up (R44)."""
        found = self._led(stream)
        if found is None:
            return False
        place, row, leader = found
        followers = [b for b in self._world.brokers if b.node_id in row.isr and b is not leader and b.is_up]
        if not followers:
            return False
        follower = followers[stream.draw(len(followers))]
        network, loop = self._world.network, self._world.loop
        controllers = [controller.machine.host for controller in self._world.controllers]
        late_ms = between(stream, 700, 1_000)

        def fenced() -> None:
            until_ns = loop.now_ns + late_ms * _MS
            for connection in network.connections:
                if connection.host in controllers and connection.other.host is leader.machine.host:
                    connection.stall(until_ns)
            self._reach(leader.machine.host, follower.machine.host)
            self._hands.later(late_ms + 500, network.heal)

        def fence() -> None:
            active = self._world.active_controller()
            if active is None:
                network.heal()
                return
            for controller in controllers:
                self._part(controller, follower.machine.host)
            told = f"broker {follower.node_id} fenced"
            self._points.arm_within(
                active,
                active.boots,
                frozenset(("log",)),
                0,
                lambda: self._hands.later(0, fenced),
                None,
                (told,),
            )
            self._hands.later(4_000, network.heal)

        def is_dropped() -> bool:
            one = self._world.partition(place)
            return one is not None and one.leader == leader.node_id and follower.node_id not in one.isr

        self._part(leader.machine.host, follower.machine.host)
        self._once(is_dropped, fence, 6_000)
        return True

    # --- logs that part --------------------------------------------------------------------------------

    def _figure_eight(self, stream: Stream, longer: int) -> bool:
        """Raft's figure 8: one leads for a while and writes what no follower gets, the next writes nothing
        and commits what was there before. Then these fall, and the log of a later epoch is there to be
        compared with theirs (R66). `longer`: by so many records at least, and above what others promise."""
        found = self._led(stream)
        if found is None:
            return False
        place, row, first = found
        others = [self._world.broker(b) for b in row.replicas if b in row.isr and b != row.leader]
        up = [broker for broker in others if broker is not None and broker.is_up]
        if len(up) < 2 or row.min_isr > 2:
            return False
        second, third = up[:2]
        clients = [client.machine.host for client in self._world.clients]
        controllers = [controller.machine.host for controller in self._world.controllers]
        back_ms = between(stream, 20, 300)

        def is_behind() -> bool:
            return 0 <= self._end(second, place) < min(self._end(third, place), self._end(first, place))

        def second_leads() -> None:
            for client in clients:
                self._part(client, third.machine.host)
                self._part(client, first.machine.host)
            self._restart(first, back_ms)
            self._once(has_written, third_leads, 8_000 if longer else 2_500)

        def has_written() -> bool:
            led = self._led_by(second, place)
            has_epoch = led is not None and led[1].log.last_epoch == led[0].leader_epoch
            is_long = not longer or self._end(second, place) >= self._end(third, place) + longer
            return has_epoch and is_long

        def third_leads() -> None:
            self._restart(second, back_ms)
            self._once(has_committed, all_fall, 13_000 if longer else 6_000)

        def has_committed() -> bool:
            led = self._led_by(third, place)
            if led is None or len(led[0].isr) < 2 or led[1].high_watermark < led[1].log.log_end_offset:
                return False
            promised = min(self._ceiling(broker, place) for broker in (first, third))
            return not longer or 0 <= promised <= self._end(second, place)

        def all_fall() -> None:
            if longer:
                # they are back, and tell of their logs, before its answer is there
                until_ns = self._world.loop.now_ns + between(stream, 900, 1_200) * _MS
                for connection in self._world.network.connections:
                    if connection.host is second.machine.host and connection.other.host in controllers:
                        connection.stall(until_ns)
            for broker in (first, third):
                if longer:
                    self._restart(broker, 20)
                elif broker.is_up:
                    self._budget.update()
                    self._hands.kill(broker)
            self._hands.later(8_000, self._world.network.heal)

        for broker in (first, third):
            self._part(second.machine.host, broker.machine.host)
        self._once(is_behind, second_leads, 1_500)
        return True

    def _long_figure_eight(self, stream: Stream) -> bool:
        """As `figure_eight`. The log of the later epoch is longer than what the others promise, and where
        losses are allowed it is elected: what it has does not count as kept (R68)."""
        world = self._world
        if world.operator_queue.is_busy or not self._figure_eight(stream, _LONGER):
            return False
        if world.shape.over_budget:
            for topic in {partition_at(place).topic for place, _ in world.partitions()}:
                act = set_config(Resource.topic(topic), "unclean.recovery.strategy", "Aggressive")
                world.operator_queue.put(f"strategy of {topic}: Aggressive", act)
        return True

    def _led_by(self, broker: SimBroker, place: int) -> tuple[PartitionRegistration, Partition] | None:
        """The partition and its leader's replica, if that is this one."""
        row, replica = self._world.partition(place), self._world.replica(broker, place)
        is_leader = row is not None and row.leader == broker.node_id
        return (row, replica) if is_leader and row is not None and replica is not None else None

    def _ceiling(self, broker: SimBroker, place: int) -> int:
        """What its disk says, -1 when it does not run."""
        replica = self._world.replica(broker, place)
        managed = (
            None if replica is None or broker.node is None else broker.node.log_manager.managed(replica.key)
        )
        return -1 if managed is None else managed.ceiling

    def _end(self, broker: SimBroker, place: int) -> int:
        replica = self._world.replica(broker, place)
        return -1 if replica is None else replica.log.log_end_offset

    def _restart(self, broker: SimBroker, after_ms: int) -> None:
        self._budget.update()
        if broker.is_up:
            self._hands.restart(broker, after_ms)
