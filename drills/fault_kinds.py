"""How each fault is made out of words: for `holdfast chaos NAME`, scenario files and random phases alike.

Owns the table of faults, of processes and of containers, and which keys each takes. What a fault does and how
it is undone is `localcluster.faults`' and `localcluster.compose_faults`'.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from holdfast.localcluster.compose import ComposeCluster
from holdfast.localcluster.compose_delays import DelayedPackets
from holdfast.localcluster.compose_faults import (
    ContainerFault,
    CutContainers,
    DisconnectContainer,
    FrozenDiskOfContainers,
    KillContainer,
    PauseContainer,
    PowerLossOfContainers,
    SlowDiskOfContainers,
    SlowLinksOfContainers,
    StopContainer,
)
from holdfast.localcluster.compose_links import ContainerLinks
from holdfast.localcluster.faults import clients, clocks, damage, disks, limits, network, processes, shapes
from holdfast.localcluster.faults.fault import Fault, FaultRefused
from holdfast.localcluster.faults.places import Part, Place
from holdfast.localcluster.nodes import Node, Nodes
from holdfast.localcluster.processes import LocalCluster


class Undoable(Protocol):
    """A fault of processes or of containers."""

    name: ClassVar[str]
    ends_nodes: ClassVar[bool]

    @property
    def nodes(self) -> Sequence[Node]: ...
    def apply(self) -> str: ...
    def heal(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Given:
    """What can be said of a fault beside its target."""

    seed: int = 0
    #: the other side; empty: all other nodes
    other: Sequence[Node] = ()
    how: str = "isolate"
    one_way: bool = False
    delay_ms: int = 200
    #: seconds that a wall clock jumps, below 0 into the past
    by_s: int = 7_200
    part: str = Part.CLOSED_SEGMENT.value
    partition: str = ""
    topic_id: bytes = b""


Make = Callable[[LocalCluster, Sequence[Node], Given], Sequence[Undoable]]
MakeOnContainers = Callable[[ComposeCluster, Sequence[Node], Given], Sequence[Undoable]]


@dataclass(frozen=True, slots=True)
class FaultKind:
    """One fault, by name in KINDS."""

    make: Make
    #: None: not possible with containers
    on_containers: MakeOnContainers | None = None
    #: keys of scenario files and options of commands beside the target
    keys: frozenset[str] = field(default_factory=frozenset)
    #: connections of the process that makes it: they end with it
    is_of_this_process: bool = False
    #: the same of containers, where it differs
    is_of_this_process_on_containers: bool = False

    def ends_with_us(self, driver: str) -> bool:
        """It does not outlive the process that makes it."""
        on_containers = driver == "compose" and self.is_of_this_process_on_containers
        return self.is_of_this_process or on_containers


def _on_each(fault: Callable[..., Fault]) -> Make:
    return lambda cluster, nodes, given: [fault(cluster, node) for node in nodes]


def _on_containers(fault: type[ContainerFault]) -> MakeOnContainers:
    return lambda cluster, nodes, given: [fault(cluster, nodes)]


def _on_file(fault: Callable[[LocalCluster, Node, Place, int], Fault]) -> Make:
    """A node that runs is stopped before, and runs again when its damage is left for it to find."""

    def make(cluster: LocalCluster, nodes: Sequence[Node], given: Given) -> Sequence[Fault]:
        place = Place(Part(given.part), given.partition)
        return [
            step
            for node in nodes
            for step in (processes.Kill(cluster, node), fault(cluster, node, place, given.seed))
        ]

    return make


def _shapes(cluster: Nodes, nodes: Sequence[Node], given: Given) -> list[shapes.Shape]:
    if given.other:
        way = shapes.one_way if given.one_way else shapes.symmetric
        return [way(nodes, given.other)]
    return [shapes.WAYS[given.how](cluster, node) for node in nodes]


def _parted(cluster: LocalCluster, nodes: Sequence[Node], given: Given) -> Sequence[Fault]:
    return [network.Partition(cluster, *shape) for shape in _shapes(cluster, nodes, given)]


def _parted_containers(cluster: ComposeCluster, nodes: Sequence[Node], given: Given) -> Sequence[Undoable]:
    reason = ContainerLinks.why_not()
    if not reason:
        return [CutContainers(cluster, shape) for shape in _shapes(cluster, nodes, given)]
    if given.other or given.how != "isolate":
        raise FaultRefused(f"only whole containers can be taken off the network here: {reason}")
    return [DisconnectContainer(cluster, nodes)]


def _slowed(cluster: LocalCluster, nodes: Sequence[Node], given: Given) -> Sequence[Fault]:
    rest = [node for node in cluster.nodes if node not in nodes]
    return [network.SlowLinks(cluster, nodes, given.other or rest, given.delay_ms)]


def _slowed_containers(cluster: ComposeCluster, nodes: Sequence[Node], given: Given) -> Sequence[Undoable]:
    reason = DelayedPackets.why_not()
    if reason:
        raise FaultRefused(f"links of containers cannot be slow here: {reason}")
    rest = [node for node in cluster.nodes if node not in nodes]
    return [SlowLinksOfContainers(cluster, nodes, given.other or rest, given.delay_ms)]


def _unread(cluster: LocalCluster, nodes: Sequence[Node], given: Given) -> Sequence[Fault]:
    if not given.topic_id:
        raise FaultRefused("the fetches of which topic? name it, as one that the node leads")
    return [clients.UnreadFetches(cluster, node, given.topic_id) for node in nodes]


_FILE_KEYS = frozenset({"part", "partition"})

KINDS: dict[str, FaultKind] = {
    "kill": FaultKind(
        lambda cluster, nodes, given: [processes.Kill(cluster, *nodes)], _on_containers(KillContainer)
    ),
    "stop": FaultKind(
        lambda cluster, nodes, given: [processes.Stop(cluster, *nodes)], _on_containers(StopContainer)
    ),
    "pause": FaultKind(
        lambda cluster, nodes, given: [processes.Pause(cluster, *nodes)], _on_containers(PauseContainer)
    ),
    "power-loss": FaultKind(
        lambda cluster, nodes, given: [processes.PowerLoss(cluster, *nodes, seed=given.seed)],
        _on_containers(PowerLossOfContainers),
    ),
    "wipe-disk": FaultKind(
        lambda cluster, nodes, given: [processes.Kill(cluster, *nodes), damage.WipeDisk(cluster, *nodes)]
    ),
    "flip-bit": FaultKind(_on_file(damage.FlipBit), keys=_FILE_KEYS),
    "cut-file": FaultKind(_on_file(damage.CutFile), keys=_FILE_KEYS),
    "remove-file": FaultKind(_on_file(damage.RemoveFile), keys=_FILE_KEYS),
    "few-handles": FaultKind(_on_each(limits.FewHandles)),
    "little-memory": FaultKind(_on_each(limits.LittleMemory)),
    "no-room-in-files": FaultKind(_on_each(limits.NoRoomInFiles)),
    "full-disk": FaultKind(_on_each(disks.FullDisk)),
    "frozen-disk": FaultKind(_on_each(disks.FrozenDisk), _on_containers(FrozenDiskOfContainers)),
    "slow-disk": FaultKind(
        _on_each(disks.SlowDisk), _on_containers(SlowDiskOfContainers), is_of_this_process=True
    ),
    "partition": FaultKind(_parted, _parted_containers, frozenset({"other", "how", "one-way"})),
    "slow-links": FaultKind(
        _slowed,
        _slowed_containers,
        frozenset({"other", "delay-ms"}),
        is_of_this_process_on_containers=True,
    ),
    "clock-jump": FaultKind(
        lambda cluster, nodes, given: [clocks.ClockJump(cluster, *nodes, by_s=given.by_s)],
        keys=frozenset({"by-s"}),
    ),
    "unread-fetches": FaultKind(_unread, keys=frozenset({"topic"}), is_of_this_process=True),
    **{
        fault.name: FaultKind(_on_each(fault), is_of_this_process=True)
        for fault in (
            clients.IdleConnections,
            clients.HalfFrames,
            clients.MetadataFlood,
            clients.Garbage,
        )
    },
}
