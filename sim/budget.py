"""Which faults may still be played without leaving the safe zone (verification §1.6).

Owns who has stopped uncleanly and who of them may have lost records that it held. At most min ISR - 1 brokers
are lossy at a time (B-1); with every write flushed nobody is (B-3). A broker leaves both sets once its new
incarnation is back in the ISR of all its partitions. Process kills are free (B-2) where the recovery manager
compares logs. Without it Kafka's rules elect the last known leader once all replicas have stopped uncleanly,
so then, while somebody is lossy, somebody else stays whole and in sync.
"""

from sim.nodes import SimBroker, SimNode
from sim.world import World


class Budget:
    """What brokers may still go through."""

    def __init__(self, world: World) -> None:
        self._world = world
        #: names, in the order in which they were hit
        self.unclean: list[str] = []
        self.lossy: list[str] = []

    def may_kill(self, node: SimNode) -> bool:
        """True when the process may end without a word."""
        return not isinstance(node, SimBroker) or not self.lossy or self._leaves_witness(node)

    def may_kill_all(self) -> bool:
        """True when all brokers may."""
        return self._world.shape.over_budget or not self.lossy or self._world.shape.recovery_manager

    def may_lose(self, broker: SimBroker) -> bool:
        """True when this broker may lose what it has not flushed."""
        if self._world.shape.every_write or self._world.shape.over_budget:
            return True
        is_counted = broker.name in self.lossy or len(self.lossy) < self._world.shape.min_isr - 1
        return is_counted and self._leaves_witness(broker)

    def killed(self, node: SimNode) -> None:
        """It stops, or will stop, uncleanly."""
        if isinstance(node, SimBroker) and node.name not in self.unclean:
            self.unclean.append(node.name)

    def lost(self, broker: SimBroker) -> None:
        """As `killed`, and it may have lost records that it held."""
        self.killed(broker)
        if not self._world.shape.every_write and broker.name not in self.lossy:
            self.lossy.append(broker.name)

    def update(self) -> None:
        """Take out who is in sync again."""
        whole = [broker.name for broker in self._world.brokers if self._is_whole(broker)]
        self.unclean = [name for name in self.unclean if name not in whole]
        self.lossy = [name for name in self.lossy if name not in whole]

    def _leaves_witness(self, hit: SimBroker) -> bool:
        """Somebody else is in the ISR of every partition and has not stopped uncleanly since."""
        shape = self._world.shape
        if shape.recovery_manager or shape.over_budget or not shape.elr:
            return True
        rows = self._world.partitions()
        return bool(rows) and any(
            broker is not hit
            and broker.name not in self.unclean
            and all(broker.node_id in row.isr for _, row in rows)
            for broker in self._world.brokers
        )

    def _is_whole(self, broker: SimBroker) -> bool:
        node, image, rows = broker.node, self._world.image(), self._world.partitions()
        if not broker.is_ready or node is None or image is None or not rows:
            return False
        registration = image.brokers.get(broker.node_id)
        incarnation = node.core.lifecycle.identity.incarnation_id
        return (
            registration is not None
            and registration.incarnation_id == incarnation
            and not broker.machine.platter.has_faults
            and all(broker.node_id in row.isr for _, row in rows if broker.node_id in row.replicas)
        )
