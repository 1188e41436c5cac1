"""Which faults may still be played without leaving the safe zone (G-1 to G-5).

Owns, by partition, who of its replicas may have lost records that it held, and who has stopped uncleanly. At
most min ISR - 1 replicas are lossy at a time (G-1); with every write flushed none is (G-3). The min ISR
that counts is the lowest that was asked for since the ISR last had as many members as it asks: what was
committed under a lower one may be on fewer replicas. Process kills are free (G-2) where the recovery manager
compares logs. Without it Kafka's rules elect the last known leader once all replicas have stopped uncleanly,
so then, while one replica is lossy, another stays whole and in sync. A replica is whole again once a
process that was started after the loss is in the ISR: a row alone may stem from a fetch before it.
"""

from dataclasses import dataclass, field

from holdfast.metadata.partition import PartitionRegistration
from holdfast.sim.cluster.nodes import SimBroker, SimNode, State
from holdfast.sim.cluster.world import World
from holdfast.sim.load.clients import partition_at


@dataclass(slots=True)
class _PartitionHistory:
    """What the replicas of a partition have gone through."""

    #: every write was flushed before it counted, always
    every_write: bool
    #: values of min ISR that count
    min_isrs: list[int]
    #: {broker: its boots at the loss, or at the unclean stop}, in the order in which they were hit
    lossy: dict[str, int] = field(default_factory=dict)
    unclean: dict[str, int] = field(default_factory=dict)

    def has_room(self, name: str, excess: int) -> bool:
        """This one may be lossy too."""
        return self.every_write or name in self.lossy or len(self.lossy) < min(self.min_isrs) - 1 + excess


class Budget:
    """What replicas may still go through."""

    def __init__(self, world: World) -> None:
        self._world = world
        #: by place
        self._histories: dict[int, _PartitionHistory] = {}
        #: rows as they were last seen
        self._rows: dict[int, PartitionRegistration] = {}
        #: they are those of now
        self._is_fresh = False

    # --- questions -------------------------------------------------------------------------------------

    def may_kill(self, node: SimNode) -> bool:
        """True when the process may end without a word."""
        if not isinstance(node, SimBroker) or self._is_free:
            return True
        return all(
            not self._histories[place].lossy or self._has_witness(place, node)
            for place in self._places_of(node)
        )

    def may_stop(self, node: SimNode) -> bool:
        """True when the process may stop in order: it loses nothing, but leaves the ISR, where it may be the
        last that is whole."""
        return self.may_kill(node)

    def may_kill_all(self) -> bool:
        """True when all brokers may."""
        return self._is_free or not any(history.lossy for history in self._histories.values())

    def may_lose(self, broker: SimBroker) -> bool:
        """True when this broker may lose what it has not flushed."""
        shape = self._world.shape
        if shape.over_budget and not shape.on_edge:
            return True
        if not self._rows:
            return False  # it is not known what it holds
        for place in self._places_of(broker):
            history = self._histories[place]
            if not history.has_room(broker.name, shape.on_edge):
                return False
            if not history.every_write and not self._is_free and not self._has_witness(place, broker):
                return False
        return True

    def may_rot(self, broker: SimBroker) -> bool:
        """True when this broker may lose what it has flushed; where writes count once flushed, only
        min ISR - 1 replicas may miss any then."""
        return bool(self._rows) and all(
            broker.name in self._histories[place].lossy
            or len(self._histories[place].lossy) < min(self._histories[place].min_isrs) - 1
            for place in self._places_of(broker)
        )

    def may_lose_all(self) -> bool:
        """True when all brokers may lose at once what they have not flushed."""
        shape = self._world.shape
        return (shape.over_budget and not shape.on_edge) or (
            bool(self._histories) and all(history.every_write for history in self._histories.values())
        )

    def may_set_min_isr(self, topic: str, value: int) -> bool:
        """True when the replicas that are lossy now are few enough for it too. Counts it from now on."""
        places = [place for place in self._histories if partition_at(place).topic == topic]
        limit = value - 1 + self._world.shape.on_edge
        if not self._world.shape.over_budget:
            for place in places:
                if not self._histories[place].every_write and len(self._histories[place].lossy) > limit:
                    return False
        for place in places:
            self._histories[place].min_isrs.append(value)
        return True

    @property
    def _is_free(self) -> bool:
        """A replica with a complete log is found however many stop, or this run does not ask for that."""
        shape = self._world.shape
        return shape.recovery_manager or shape.over_budget or not shape.elr or shape.switches_elr

    # --- what happens ----------------------------------------------------------------------------------

    def killed(self, node: SimNode) -> None:
        """It stops, or will stop, uncleanly."""
        if isinstance(node, SimBroker):
            for place in self._places_of(node):
                self._histories[place].unclean[node.name] = node.boots

    def lost(self, broker: SimBroker) -> None:
        """As `killed`, and it may have lost records that it held."""
        self.killed(broker)
        for place in self._places_of(broker):
            if not self._histories[place].every_write:
                self._histories[place].lossy[broker.name] = broker.boots

    def update(self) -> None:
        """Look at what is committed now: who is whole again, who has no seat any more."""
        rows = self._world.partitions()
        self._is_fresh = bool(rows)
        if not rows:
            return
        self._rows = dict(rows)
        brokers = {broker.name: broker for broker in self._world.brokers}
        for place, row in rows:
            history = self._histories.get(place)
            if history is None:
                topic = next(t for t in self._world.topics if t.name == partition_at(place).topic)
                history = self._histories[place] = _PartitionHistory(topic.every_write, [row.min_isr])
            for entries in (history.lossy, history.unclean):
                for name in list(entries):
                    broker = brokers[name]
                    is_out = broker.node_id not in row.replicas
                    if is_out or self._is_whole(broker, row, entries[name]):
                        del entries[name]
            is_said = row.min_isr == history.min_isrs[-1] or self._world.operator_queue.is_quiet
            if is_said and len(row.isr) >= row.min_isr:
                # All members of the ISR have all that is committed, and they are enough.
                history.min_isrs = [row.min_isr]
            elif row.min_isr not in history.min_isrs:
                history.min_isrs.append(row.min_isr)

    # --- inside ----------------------------------------------------------------------------------------

    def _places_of(self, broker: SimBroker) -> list[int]:
        return [place for place, row in self._rows.items() if broker.node_id in row.replicas]

    def _has_witness(self, place: int, hit: SimBroker) -> bool:
        """Another replica is in the ISR, has not stopped uncleanly since, and runs: one that has stopped in
        order leaves the ISR as soon as a controller hears of it, and no controller puts it into the ELR."""
        row, history = self._rows[place], self._histories[place]
        return self._is_fresh and any(
            broker is not hit
            and broker.state is State.RUNNING
            and broker.name not in history.unclean
            and broker.node_id in row.isr
            for broker in self._world.brokers
        )

    def _is_whole(self, broker: SimBroker, row: PartitionRegistration, boots_then: int) -> bool:
        node, image = broker.node, self._world.image()
        if broker.boots == boots_then or not broker.is_ready or node is None or image is None:
            return False
        if broker.machine.sim_disk.has_faults:
            return False  # what it was hit by may still come
        registration = image.brokers.get(broker.node_id)
        is_this_one = registration is not None and (
            registration.incarnation_id == node.core.lifecycle.identity.incarnation_id
        )
        return is_this_one and broker.node_id in row.isr
