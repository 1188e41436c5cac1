"""Directed walks of the model: actions by name and broker, so that a test reads like the story it retells."""

from holdfast.sim.model import controller, fetching, lifecycle, proposals, replica
from holdfast.sim.model.checker import Checker
from holdfast.sim.model.state import OFF, RUNNING, STARTING, STOPPING, ModelReplica, Setup, ids
from holdfast.sim.model.walk import lacks_acknowledged, new_world

#: bits that choose what is most ordinary: a rollback of no metadata, a shutdown that is not forced
ORDINARY = 1 << 8


class DirectedWalk:
    """One cluster with one partition; all properties are checked after each step."""

    def __init__(self, setup: Setup, left_out: str = "") -> None:
        self.world = new_world(setup, Checker(frozenset((left_out,))))
        self.part = self.world.partitions[0]

    def sets(self) -> tuple[list[int], list[int], list[int]]:
        """ISR, ELR and last known ELR."""
        return ids(self.part.isr), ids(self.part.elr), ids(self.part.last_known_elr)

    def end(self, broker: int) -> int:
        """Log end of a replica."""
        return len(self.world.brokers[broker].replicas[0].log)

    def at(self, broker: int) -> int:
        """Bits that make an action begin at this broker, in its most ordinary form."""
        return ORDINARY + (broker - ORDINARY) % self.world.broker_count

    def _checked(self) -> None:
        self.world.checker.full(self.world)

    def learn(self, *brokers: int) -> None:
        """These running brokers, or all, replay the metadata log to its end."""
        w = self.world
        for broker in w.brokers:
            if broker.id in (brokers or range(w.broker_count)) and broker.state == RUNNING:
                while broker.metadata_offset < len(w.metadata):
                    replica.replay_one(w, broker)
        self._checked()

    def produce(self, count: int = 1) -> None:
        """The leader takes acks=all writes."""
        leader = self.world.brokers[self.part.leader].replicas[0]
        for _ in range(count):
            assert not self.world.rules.refuses_writes(leader)
            replica.append(self.world, leader, True)

    def write_unacknowledged(self, count: int = 1) -> None:
        """The leader takes writes of acks=1."""
        for _ in range(count):
            replica.append(self.world, self.world.brokers[self.part.leader].replicas[0], False)

    def replicate(self, *followers: int, rounds: int = 4) -> None:
        """Running followers, these or all, fetch a few times."""
        w = self.world
        for _ in range(rounds):
            for broker in w.brokers:
                copy = broker.replicas[0]
                if broker.id in (followers or range(w.broker_count)) and broker.state == RUNNING:
                    if copy.role == 2 and copy.leader >= 0:
                        self._fetch(copy)
        self._checked()

    def _fetch(self, copy: ModelReplica) -> None:
        index = self.world.replicas.index(copy)
        for action in (fetching.fetch, fetching.serve_fetch, fetching.take_fetch_answer):
            action(self.world, index)

    def shrink(self, *followers: int) -> None:
        """The leader proposes an ISR without these; the controller answers, all brokers learn it."""
        index = self.world.replicas.index(self.world.brokers[self.part.leader].replicas[0])
        proposals.shrink(self.world, index + (sum(1 << f for f in followers) << 8))
        self.deliver()
        self.learn()

    def propose(self) -> None:
        """The leader asks for an ISR with the followers that have caught up."""
        proposals.expand(
            self.world, self.world.replicas.index(self.world.brokers[self.part.leader].replicas[0])
        )

    def expand(self) -> None:
        """The leader proposes who has caught up; the controller answers, the leader hears it."""
        proposals.expand(
            self.world, self.world.replicas.index(self.world.brokers[self.part.leader].replicas[0])
        )
        self.deliver()

    def deliver(self) -> None:
        """Everything under way to and from the controller arrives."""
        while self.world.messages:
            proposals.deliver(self.world, ORDINARY)
            self._checked()

    def flush(self, *brokers: int) -> None:
        """These brokers fsync."""
        for broker in brokers:
            index = self.world.replicas.index(self.world.brokers[broker].replicas[0])
            replica.begin_flush(self.world, index)
            replica.end_flush(self.world, index)

    def fence(self, *brokers: int) -> None:
        """Their sessions end, in this order."""
        for broker in brokers:
            controller.fence(self.world, broker)
        self._checked()

    def kill(self, broker: int) -> None:
        """kill -9."""
        lifecycle.kill(self.world, broker)

    def cut_power(self, broker: int, keep: int | None = None) -> None:
        """Power loss; the disk keeps `keep` records, by default what was flushed."""
        w = self.world
        lifecycle.kill(w, broker)
        copy = w.brokers[broker].replicas[0]
        lifecycle.lose_tail(w, copy, copy.durable if keep is None else keep)

    def stop(self, broker: int) -> None:
        """A clean stop to its end."""
        w = self.world
        lifecycle.stop(w, broker)
        while w.brokers[broker].state == STOPPING:
            lifecycle.finish_stop(w, broker)

    def start(self, broker: int, unfence: bool = True) -> None:
        """The process starts and registers; unfenced, it has also caught up with the metadata."""
        w = self.world
        assert w.brokers[broker].state == OFF
        lifecycle.start(w, self.at(broker))
        assert w.brokers[broker].state == STARTING
        assert controller.register(w, w.brokers[broker], False)
        w.brokers[broker].state = RUNNING
        self._checked()
        if unfence:
            self.unfence(broker)

    def unfence(self, broker: int) -> None:
        """A heartbeat of a broker that has caught up."""
        self.learn(broker)
        assert controller.unfence(self.world, broker)
        self.learn()

    def move(self, *target: int) -> bool:
        """A reassignment begins or is redirected; false when it is refused."""
        granted = controller.move(self.world, self.part, target)
        self._checked()
        return granted

    def recover(self, *, timed_out: bool = False) -> None:
        """The controller compares the logs of those that are there, and elects if it may."""
        w = self.world
        for broker in w.brokers:
            controller.ask_for_log_info(w, broker.id << 8)
            self.deliver()
        if timed_out:
            recovery = controller.recovery_of(w, self.part)
            assert recovery is not None
            recovery.timed_out = True
        controller.recover(w, ORDINARY)
        self.learn()

    def has_lost(self) -> bool:
        """An acknowledged record is not on the leader."""
        return lacks_acknowledged(self.world, self.part)
