"""Which faults may still be played without leaving the safe zone (verification §1.6).

Owns the set of brokers that may have lost records that they held: at most min ISR - 1 at a time (B-1). A
broker leaves it once its new incarnation is back in the ISR of all its partitions. With every write flushed
(B-3) power cuts are free, but not a failed flush, whose pages are gone. Process kills are always free (B-2).
"""

from sim.nodes import SimBroker
from sim.world import World


class Budget:
    """Who may have lost something."""

    def __init__(self, world: World) -> None:
        self._world = world
        #: names, in the order in which they were hit
        self.lossy: list[str] = []

    def may_lose(self, count: int = 1) -> bool:
        """True when so many more brokers may lose what they have not flushed."""
        return len(self.lossy) + count <= self._world.shape.min_isr - 1

    def may_lose_power(self, broker: SimBroker) -> bool:
        """True when this broker may lose its power."""
        return self._world.shape.every_write or broker.name in self.lossy or self.may_lose()

    def lost(self, broker: SimBroker, *, also_flushed: bool = False) -> None:
        """The broker may have lost records; `also_flushed`: those of a flush that failed, too."""
        if self._world.shape.every_write and not also_flushed:
            return
        if broker.name not in self.lossy:
            self.lossy.append(broker.name)

    def update(self) -> None:
        """Take out who is in sync again."""
        if self.lossy:
            world = self._world
            self.lossy = [b.name for b in world.brokers if b.name in self.lossy and not self._is_whole(b)]

    def _is_whole(self, broker: SimBroker) -> bool:
        node, image, rows = broker.node, self._world.image(), self._world.partitions()
        if not broker.is_ready or node is None or image is None or not rows:
            return False
        registration = image.brokers.get(broker.node_id)
        incarnation = node.core.lifecycle.identity.incarnation_id
        return (
            registration is not None
            and registration.incarnation_id == incarnation
            and all(broker.node_id in row.isr for _, row in rows if broker.node_id in row.replicas)
        )
