"""Looks at every node after each of its steps, and tells the properties what has changed.

Owns the ghost state that no node has: the newest committed image, the highest high watermark that any leader
reached, what was committed below it. Reads the nodes' own objects between two steps, outside of virtual time;
draws nothing and changes nothing. A look that finds nothing new costs a few comparisons, so that every step
can be looked at.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from broker.partition import Leadership, Partition, Role
from metadata.image import MetadataImage
from metadata.partition import PartitionRegistration
from sim.batches import BatchMark, History
from sim.clients import TOPIC
from sim.nodes import SimBroker, SimController, SimNode
from sim.world import World


@dataclass(slots=True)
class ReplicaView:
    """A broker's live replica as it is after a step."""

    broker: SimBroker
    index: int
    replica: Partition
    history: History
    registration: PartitionRegistration | None = None
    leadership: Leadership | None = None
    role: Role = Role.NONE
    high_watermark: int = 0
    end_offset: int = 0
    position: int = 0
    maximal_isr: tuple[int, ...] = ()
    has_proposal: bool = False
    #: batches that were compared with the committed ones
    compared: int = 0


@dataclass(slots=True)
class Before:
    """What a replica was like before the step; what properties of pairs compare with."""

    registration: PartitionRegistration | None
    leadership: Leadership | None
    high_watermark: int
    end_offset: int


@dataclass(slots=True)
class Ghost:
    """What is true of a partition, whoever knows it."""

    #: the highest high watermark that any leader reached
    high_watermark: int = 0
    #: batches below it
    committed: list[BatchMark] = field(default_factory=list)
    row: PartitionRegistration | None = None


class Property(Protocol):
    """One property, by its name in the specifications. Raises Violation."""

    name: str

    def replica_changed(
        self, seen: "Observer", view: ReplicaView, before: Before, appended: Sequence[BatchMark]
    ) -> None: ...

    def row_changed(self, seen: "Observer", index: int, row: PartitionRegistration) -> None: ...

    def controller_changed(self, seen: "Observer", node: SimController) -> None: ...


class Observer:
    """Everything that can be seen of a world."""

    def __init__(self, world: World, properties: Sequence[Property]) -> None:
        self.world = world
        self._properties = properties
        #: the newest committed image of any controller
        self.image = MetadataImage()
        self.topic_id: bytes | None = None
        self.ghosts: dict[int, Ghost] = {}
        #: {index: {broker id: its live replica}}
        self.replicas: dict[int, dict[int, ReplicaView]] = {}
        #: what a controller looked like after its last step
        self._controllers: dict[int, tuple[object, int, int, bool]] = {}
        #: looks that found something new
        self.changes = 0
        world.around.watch = self._watcher

    def _watcher(self, node: SimNode) -> Callable[[], None] | None:
        """What runs after each step of the process that boots now."""
        if isinstance(node, SimBroker):
            for replicas in self.replicas.values():
                replicas.pop(node.node_id, None)
            return lambda: self._look_at_broker(node)
        if isinstance(node, SimController):
            self._controllers.pop(node.node_id, None)
            return lambda: self._look_at_controller(node)
        return None

    def is_live(self, broker: SimBroker) -> bool:
        """Its process runs, and its registration is the one that the cluster has agreed on."""
        registration = self.image.brokers.get(broker.node_id)
        return (
            not broker.process.is_dead
            and registration is not None
            and broker.node is not None
            and hasattr(broker.node, "core")
            and broker.node.core.lifecycle.broker_epoch == registration.broker_epoch
        )

    def live_replica(self, index: int, broker_id: int) -> ReplicaView | None:
        """A live broker's replica, once its log is loaded."""
        view = self.replicas.get(index, {}).get(broker_id)
        return view if view is not None and self.is_live(view.broker) else None

    # --- brokers ------------------------------------------------------------------------------------------

    def _look_at_broker(self, broker: SimBroker) -> None:
        node = broker.node
        if node is None or self.topic_id is None or not hasattr(node, "core"):
            return
        for key, replica in node.core.partitions.items():
            if key.topic_id != self.topic_id:
                continue
            index = key.partition_index
            views = self.replicas.setdefault(index, {})
            view = views.get(broker.node_id)
            if view is None or view.replica is not replica:
                log = node.log_manager.logs.get((key.topic_id, index))
                if log is None:
                    continue
                view = views[broker.node_id] = ReplicaView(broker, index, replica, History(log))
            elif not _has_changed(view, replica):
                continue
            self._replica_changed(view, replica)

    def _replica_changed(self, view: ReplicaView, replica: Partition) -> None:
        self.changes += 1
        before = Before(view.registration, view.leadership, view.high_watermark, view.end_offset)
        leadership = replica.leadership
        view.registration = replica.registration
        view.leadership = leadership
        view.role = replica.role
        view.high_watermark = replica.high_watermark
        view.end_offset = replica.log.log_end_offset
        view.position = replica.position
        view.maximal_isr = () if leadership is None else leadership.maximal_isr
        view.has_proposal = leadership is not None and leadership.proposal is not None
        appended = view.history.follow() if view.history.end_offset != view.end_offset else []
        view.compared = min(view.compared, len(view.history.batches))
        ghost = self.ghosts.setdefault(view.index, Ghost())
        if view.role is Role.LEADER and view.high_watermark > ghost.high_watermark:
            ghost.high_watermark = view.high_watermark
            batches = view.history.batches
            while len(ghost.committed) < len(batches):
                batch = batches[len(ghost.committed)]
                if batch.last_offset >= ghost.high_watermark:
                    break
                ghost.committed.append(batch)
        for one in self._properties:
            one.replica_changed(self, view, before, appended)

    # --- controllers ----------------------------------------------------------------------------------------

    def _look_at_controller(self, node: SimController) -> None:
        server = node.server
        if server is None:
            return
        image, driver = server.core.committed, server.driver
        now = (image, driver.raft_epoch, driver.committed_offset, driver.is_leader)
        before = self._controllers.get(node.node_id)
        if before is not None and before[0] is image and before[1:] == now[1:]:
            return
        self._controllers[node.node_id] = now
        self.changes += 1
        for one in self._properties:
            one.controller_changed(self, node)
        if image.offset > self.image.offset:
            self._image_changed(image)

    def _image_changed(self, image: MetadataImage) -> None:
        self.image = image
        self.topic_id = image.topic_ids.get(TOPIC)
        if self.topic_id is None:
            return
        for index, row in image.topics[self.topic_id].sorted_partitions():
            ghost = self.ghosts.setdefault(index, Ghost())
            if ghost.row != row:
                ghost.row = row
                for one in self._properties:
                    one.row_changed(self, index, row)


def _has_changed(view: ReplicaView, replica: Partition) -> bool:
    leadership = replica.leadership
    if (
        replica.high_watermark != view.high_watermark
        or replica.log.log_end_offset != view.end_offset
        or replica.registration is not view.registration
        or leadership is not view.leadership
        or replica.role is not view.role
    ):
        return True
    return leadership is not None and (
        leadership.maximal_isr is not view.maximal_isr
        or (leadership.proposal is not None) != view.has_proposal
    )
