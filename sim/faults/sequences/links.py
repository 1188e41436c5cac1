"""Faults of several steps on links of which only some connections are late.

Owns their choreography only, as `sim.faults.sequences.replication` does. On one link metadata, copies of a
request or the answers to one question come late, while all else that the same two hosts say to each other is
in time: who asks, and who has decided long ago, then know different things. Which connection is which, the
channels tell.
"""

from collections.abc import Callable, Iterable

from holdfast.rpc.channel import Channel
from holdfast.sim.cluster.nodes import SimBroker, SimController, SimNode
from holdfast.sim.cluster.world import World
from holdfast.sim.faults.sequences.replication import Hands
from holdfast.sim.load.operator_acts import Operations
from holdfast.sim.machine.choices import Stream, between
from holdfast.sim.machine.connections import Host, SimConnection

_MS = 1_000_000
#: a follower that does not fetch is in sync for so long (replica.lag.time.max.ms)
_LAG_MS = 2_000
#: a broker that is not heard of is unfenced for so long (broker.session.timeout.ms)
_SESSION_MS = 1_500
#: A fetch of metadata is parked for 500 ms at most, and given up after 1000: answers come in between.
_LATEST_MS = 450
#: how often new connections are looked for
_LOOK_MS = 10
#: and where it lasts long
_LATE_LOOK_MS = 100


class AimedLinks:
    """Each method returns whether its first step could be played."""

    def __init__(self, world: World, operations: Operations, hands: Hands) -> None:
        self._world = world
        self._operations = operations
        self._hands = hands
        self.table: dict[str, Callable[[Stream], bool]] = {
            "late_metadata": self._late_metadata,
            "late_copy": self._late_copy,
            "stale_answer": self._stale_answer,
            "late_voters": self._late_voters,
            "late_session": self._late_session,
        }
        #: behind all others in the table of `sim.faults.table`
        self.newest: dict[str, Callable[[Stream], bool]] = {
            "late_fetches": self._late_fetches,
            "late_logs": self._late_logs,
        }

    # --- who -------------------------------------------------------------------------------------------

    def _led(self, stream: Stream) -> tuple[int, SimBroker, list[SimBroker]] | None:
        """A partition, its leader and its other replicas, of which at least one runs."""
        found: list[tuple[int, SimBroker, list[SimBroker]]] = []
        for place, row in self._world.partitions():
            replicas = [b for b in self._world.brokers if b.node_id in row.replicas]
            leader = next((b for b in replicas if b.node_id == row.leader and b.is_up), None)
            others = [b for b in replicas if b is not leader]
            if leader is not None and any(b.is_up for b in others):
                found.append((place, leader, others))
        return found[stream.draw(len(found))] if found else None

    def _is_fenced(self, broker: SimBroker) -> bool:
        image = self._world.image()
        return image is not None and not image.is_active(broker.node_id)

    def _is_unfenced(self, broker: SimBroker) -> bool:
        image = self._world.image()
        return image is not None and image.is_active(broker.node_id)

    # --- time ------------------------------------------------------------------------------------------

    def _once(
        self, is_so: Callable[[], bool], then: Callable[[], None], within_ms: int, every_ms: int = _LOOK_MS
    ) -> None:
        """Not at all if that takes too long."""
        self._hands.once(is_so, then, within_ms, every_ms=every_ms)

    # --- links -----------------------------------------------------------------------------------------

    def _cut(self, one: SimNode, others: Iterable[SimNode]) -> None:
        self._world.network.cut([one.machine.host], [other.machine.host for other in others])

    def _mend(self, one: SimNode, others: Iterable[SimNode]) -> None:
        """These links only, and what they held arrives at once."""
        network, host = self._world.network, one.machine.host
        hosts = [other.machine.host for other in others]
        network.uncut(host, hosts)
        for connection in list(network.connections):
            ends = connection.host, connection.other.host
            if host in ends and (ends[0] in hosts or ends[1] in hosts):
                connection.release(0)
                if connection.other.is_lost:
                    connection.other.release(0)

    def _connections(self, host: Host, client_id: str, targets: Iterable[SimNode]) -> list[SimConnection]:
        """The ends of those that this host has made as that client to one of the targets."""
        hosts = [target.machine.host for target in targets]
        return [
            connection
            for connection in self._world.network.connections
            if connection.host is host
            and connection.other.host in hosts
            and isinstance(connection.handler, Channel)
            and connection.handler._client_id == client_id
        ]

    def _be_late(
        self,
        found: Callable[[], list[SimConnection]],
        late_ms: int,
        for_ms: int,
        every_ms: int = _LOOK_MS,
    ) -> None:
        """What these ends say is late from now on, those too that are made meanwhile."""
        for connection in found():
            connection.late_ns = late_ms * _MS if for_ms > 0 else 0
        if for_ms > 0:
            left_ms = for_ms - every_ms
            self._hands.later(every_ms, lambda: self._be_late(found, late_ms, left_ms, every_ms))

    def _late_metadata_of(self, broker: SimBroker, late_ms: int, for_ms: int) -> None:
        """All that the broker is told as an observer of the quorum; heartbeats and answers are in time."""

        def answers() -> list[SimConnection]:
            host, controllers = broker.machine.host, self._world.controllers
            return [end.other for end in self._connections(host, f"raft-{broker.node_id}", controllers)]

        self._be_late(answers, late_ms, for_ms)

    # --- metadata --------------------------------------------------------------------------------------

    def _late_metadata(self, stream: Stream) -> bool:
        """A leader's followers all leave the ISR and come back at once, and what is granted to it arrives
        before what is told of it."""
        found = self._led(stream)
        if found is None:
            return False
        _, leader, others = found
        late_ms, away_ms = between(stream, 100, _LATEST_MS), between(stream, 200, 2_500)
        self._late_metadata_of(leader, late_ms, _LAG_MS + away_ms + between(stream, 500, 2_000))
        self._cut(leader, others)
        self._hands.later(_LAG_MS + away_ms, lambda: self._mend(leader, others))
        return True

    # --- fetches ---------------------------------------------------------------------------------------

    def _late_session(self, stream: Stream) -> bool:
        """A follower asks its leader for a session, and loses the connection while that is under way. It has
        the next session on another one when the first request arrives (A-15)."""
        found = self._led(stream)
        if found is None:
            return False
        _, leader, others = found
        follower = _running(others, stream)
        late_ms = between(stream, 400, 1_500)
        lost_ms = between(stream, 20, late_ms - 200)

        def fetches() -> list[SimConnection]:
            return self._connections(follower.machine.host, f"broker-{follower.node_id}", [leader])

        def lose() -> None:
            for connection in fetches():
                connection.abort()

        def hold() -> None:
            for connection in fetches():
                connection.late_ns = late_ms * _MS
            self._hands.later(lost_ms, lose)

        lose()
        # what is said first on a connection is another question: there is time to see it
        self._once(lambda: any(not connection.is_closing for connection in fetches()), hold, 1_000, 1)
        return True

    def _late_fetches(self, stream: Stream) -> bool:
        """A follower asks its leader again and again, each time late. It never has all that the leader has;
        where a fetch brings one batch only it falls behind further and further (R51)."""
        found = self._led(stream)
        if found is None:
            return False
        _, leader, others = found
        follower = _running(others, stream)
        late_ms, for_ms = between(stream, 200, 700), between(stream, 5_000, 12_000)
        name, host = f"broker-{follower.node_id}", follower.machine.host
        self._be_late(lambda: self._connections(host, name, [leader]), late_ms, for_ms, _LATE_LOOK_MS)
        return True

    # --- proposals -------------------------------------------------------------------------------------

    def _late_copy(self, stream: Stream) -> bool:
        """A leader asks to let a follower in, and what it has asked is long under way. It loses the
        connection and asks again, in vain: the follower is fenced by then. The first request arrives when the
        follower is unfenced and lacks what was committed without it."""
        found = self._led(stream)
        if found is None:
            return False
        place, leader, others = found
        follower = _running(others, stream)
        late_ms, asks_ms = between(stream, 2_000, 4_000), between(stream, 0, 500)
        controllers, boots = self._world.controllers, leader.boots

        def is_out() -> bool:
            row = self._world.partition(place)
            return row is not None and row.leader == leader.node_id and follower.node_id not in row.isr

        def fence() -> None:
            self._cut(follower, controllers)
            self._hands.later(_SESSION_MS - 700 + asks_ms, ask)

        def ask() -> None:
            if leader.boots != boots:
                return
            until_ns = self._world.loop.now_ns + late_ms * _MS
            for connection in self._calls_of(leader):
                connection.stall(until_ns)
            self._mend(follower, [leader])
            self._once(lambda: self._is_fenced(follower), lose, 1_200, 2)

        def lose() -> None:
            for connection in self._calls_of(leader):
                connection.abort()
            self._once(lambda: self._is_refused(leader, place), leave, 800, 2)

        def leave() -> None:
            self._cut(follower, [leader])
            self._once(lambda: self._lacks(follower, leader, place), unfence, 2_000)

        def unfence() -> None:
            self._mend(follower, controllers)
            self._hands.later(late_ms, lambda: self._mend(follower, [leader]))

        self._cut(follower, [leader])
        self._hands.later(8_000, lambda: self._mend(follower, [leader, *controllers]))
        self._once(is_out, fence, 2 * _LAG_MS)
        return True

    def _calls_of(self, broker: SimBroker) -> list[SimConnection]:
        """Its heartbeats and proposals."""
        return self._connections(broker.machine.host, f"broker-{broker.node_id}", self._world.controllers)

    def _is_refused(self, leader: SimBroker, place: int) -> bool:
        replica = self._world.replica(leader, place)
        return replica is None or replica.leadership is None or replica.leadership.proposal is None

    def _lacks(self, follower: SimBroker, leader: SimBroker, place: int) -> bool:
        """The follower has not all that the leader takes for committed."""
        ours, theirs = self._world.replica(follower, place), self._world.replica(leader, place)
        if ours is None or theirs is None:
            return False
        return ours.log.log_end_offset < theirs.high_watermark

    # --- questions -------------------------------------------------------------------------------------

    def _stale_answer(self, stream: Stream) -> bool:
        """Only where losses are allowed. A former leader has what its successor has not, which is out of the
        controllers' sight then; asked for its log it answers before it knows of that, and its log is cut by
        that successor while the answer is under way."""
        found = self._led(stream)
        if found is None or not self._operations.be_aggressive(found[0]):
            return False
        place, former, others = found
        alone_ms, late_ms = between(stream, 400, 1_200), between(stream, 150, 350)
        boots = former.boots + 1
        controllers = self._world.controllers

        def depose() -> None:
            if former.is_up and former.boots + 1 == boots:
                self._hands.restart(former, 20)
                self._once(follows, part, 3_000)

        def follows() -> bool:
            row, replica = self._world.partition(place), self._world.replica(former, place)
            return (
                former.is_ready
                and row is not None
                and row.leader is not None
                and replica is not None
                and replica.registration is not None
                and replica.registration.leader_epoch == row.leader_epoch
                and self._is_unfenced(former)
            )

        def part() -> None:
            self._late_metadata_of(former, 2 * _LATEST_MS, 4_000)
            self._be_late(self._answers_of(former), late_ms, 4_000, 1)
            for other in others:
                self._cut(other, controllers)
            self._once(is_leaderless, let_cut, 4_000, 2)

        def let_cut() -> None:
            # a connection that is not made yet says something before it answers, late too
            made = [end.other.handler for end in self._answers_of(former)()]
            is_made = any(isinstance(channel, Channel) and channel.is_connected for channel in made)
            after_ms = 1 if is_made else late_ms
            self._hands.later(after_ms, lambda: self._mend(former, others))

        def is_leaderless() -> bool:
            row = self._world.partition(place)
            return row is not None and row.leader is None

        self._cut(former, others)
        self._hands.later(alone_ms, depose)
        self._hands.later(9_000, self._world.network.heal)
        return True

    def _late_logs(self, stream: Stream) -> bool:
        """All brokers are killed, and what one or two tell controllers of their logs comes late, perhaps
        later than controllers wait for it, while what they say of themselves is in time (R64, R65)."""
        if not self._hands.kill_all():
            return False
        brokers = self._world.brokers
        late_ms, for_ms = between(stream, 500, 3_000), between(stream, 5_000, 8_000)
        for _ in range(between(stream, 1, 2)):
            self._be_late(self._answers_of(brokers[stream.draw(len(brokers))]), late_ms, for_ms)
        return True

    def _answers_of(self, broker: SimBroker) -> Callable[[], list[SimConnection]]:
        """The ends on which it answers questions of controllers."""
        return lambda: [
            end.other
            for controller in self._world.controllers
            for end in self._connections(
                controller.machine.host, f"controller-{controller.node_id}", [broker]
            )
        ]

    # --- voters ----------------------------------------------------------------------------------------

    def _late_voters(self, stream: Stream) -> bool:
        """A leader of the quorum writes what no voter gets. Its successor tells it to cut that, and stops;
        what it has told arrives when the next one is followed and has committed more."""
        former = self._world.active_controller()
        others = [c for c in self._world.controllers if c is not former]
        if former is None or len(others) < 2 or not all(c.is_up for c in others):
            return False
        late_ms, stops_ms = between(stream, 200, _LATEST_MS), between(stream, 5, 60)
        boots = former.boots
        up = [broker for broker in self._world.brokers if broker.is_up]
        if up:
            broker = up[stream.draw(len(up))]
            self._hands.later(between(stream, 20, 200), lambda: self._restart(broker))

        def successor() -> SimController | None:
            return next((c for c in others if c.is_active), None)

        def return_() -> None:
            new = successor()
            if new is None or former.boots != boots:
                return

            def answers() -> list[SimConnection]:
                host = former.machine.host
                return [end.other for end in self._connections(host, f"raft-{former.node_id}", [new])]

            self._be_late(answers, late_ms, 2_000)
            self._mend(former, others)
            self._once(lambda: _is_fetching(former, new), lambda: self._hands.later(stops_ms, stop), 1_500, 2)

        def stop() -> None:
            new = successor()
            if new is not None and new.is_up:
                new.stop()

        self._cut(former, others)
        self._hands.later(6_000, lambda: self._mend(former, others))
        self._once(lambda: successor() is not None, return_, 5_000)
        return True

    def _restart(self, broker: SimBroker) -> None:
        if broker.is_up:
            self._hands.restart(broker, 20)


def _is_fetching(voter: SimController, leader: SimController) -> bool:
    """A fetch from that leader is under way."""
    server = voter.server
    if server is None or server.driver._node is None:
        return False
    fetcher = server.driver._node._member.fetcher
    return fetcher.target_id == leader.node_id and server.driver._node.leader_id == leader.node_id


def _running(brokers: list[SimBroker], stream: Stream) -> SimBroker:
    """One of those that run; there is one."""
    up = [broker for broker in brokers if broker.is_up]
    return up[stream.draw(len(up))]
