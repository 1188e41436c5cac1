"""Faults of containers: killed, stopped cleanly, paused, taken off their network, or cut off from some.

Owns how each is done and undone with Docker and nft. `heal_containers` finds what was left behind by looking
at the containers themselves, so it needs no journal, and touches only those of the project.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ClassVar

from holdfast.localcluster.compose import ComposeCluster
from holdfast.localcluster.compose_delays import DelayedPackets
from holdfast.localcluster.compose_disks import ContainerDisks, detach_left, has_no_power
from holdfast.localcluster.compose_links import ContainerLinks, Pair
from holdfast.localcluster.endings import undisturbed
from holdfast.localcluster.faults import shapes
from holdfast.localcluster.faults.disks import GOES_S, STILL_S, Alternation, freeze, thaw
from holdfast.localcluster.faults.fault import FaultRefused
from holdfast.localcluster.faults.shapes import Shape
from holdfast.localcluster.nodes import Node


class ContainerFault(ABC):
    """One fault on one or several containers."""

    name: ClassVar[str]
    #: its containers end by it: the operator asked for that
    ends_nodes: ClassVar[bool] = False

    def __init__(self, cluster: ComposeCluster, nodes: Sequence[Node]) -> None:
        self.cluster = cluster
        self.nodes = tuple(nodes)

    @property
    def target(self) -> str:
        """The containers, in words."""
        return ", ".join(node.name for node in self.nodes)

    @abstractmethod
    def apply(self) -> str:
        """Do it; a sentence that says what was done. Raises: ClusterError."""

    @abstractmethod
    def heal(self) -> None:
        """Undo it; may be repeated. Does not wait until nodes are ready. Raises: ClusterError."""


class KillContainer(ContainerFault):
    """`docker kill`: SIGKILL for all processes of the container."""

    name = "kill"
    ends_nodes = True

    def apply(self) -> str:
        self.cluster.kill(self.nodes)
        return f"killed {self.target} (docker kill): what was in the page cache is still there"

    def heal(self) -> None:
        for node in self.nodes:
            self.cluster.start(node)


class StopContainer(KillContainer):
    """`docker compose stop`: SIGTERM, and the clean end is waited for."""

    name = "stop"

    def apply(self) -> str:
        self.cluster.stop(self.nodes)
        return f"stopped {self.target} cleanly (docker compose stop)"


class PauseContainer(ContainerFault):
    """`docker pause`: connections stand, nothing answers."""

    name = "pause"

    def apply(self) -> str:
        self.cluster.pause(self.nodes)
        return f"paused {self.target} (docker pause): connections stand, nothing answers"

    def heal(self) -> None:
        self.cluster.resume(self.nodes)


class DisconnectContainer(ContainerFault):
    """`docker network disconnect`: no other container reaches it, and its published ports are gone."""

    name = "partition"

    def apply(self) -> str:
        self.cluster.disconnect(self.nodes)
        return f"took {self.target} off the network (docker network disconnect)"

    def heal(self) -> None:
        self.cluster.connect(self.nodes)


class CutContainers(ContainerFault):
    """Packets between some containers are dropped; clients outside reach all of them."""

    name = "partition"

    def __init__(self, cluster: ComposeCluster, shape: Shape) -> None:
        taking_part = {name for direction in shape.directions for name in direction}
        super().__init__(cluster, [node for node in cluster.nodes if node.name in taking_part])
        self._shape = shape
        self._pairs: list[Pair] = []

    def apply(self) -> str:
        links = ContainerLinks(self.cluster.project)
        addresses = {node.name: address for node, address in self.cluster.addresses().items()}
        # a container that does not run has no address, and nothing to cut
        self._pairs = [
            (addresses[one], addresses[other])
            for one, other in self._shape.directions
            if one in addresses and other in addresses
        ]
        if self._pairs:
            links.cut(self._pairs)
        return self._shape.words

    def heal(self) -> None:
        if self._pairs:
            ContainerLinks(self.cluster.project).mend(self._pairs)


class SlowLinksOfContainers(ContainerFault):
    """What one side sends to the other arrives later, in both directions, as long as this process lives."""

    name = "slow-links"

    def __init__(
        self, cluster: ComposeCluster, one: Sequence[Node], other: Sequence[Node], delay_ms: int
    ) -> None:
        super().__init__(cluster, (*one, *other))
        self._directions = shapes.both_ways(one, other)
        self._packets = DelayedPackets(delay_ms)
        self._words = (
            f"between {shapes.names(one)} and {shapes.names(other)} everything takes {delay_ms} ms longer"
        )

    def apply(self) -> str:
        addresses = {node.name: address for node, address in self.cluster.addresses().items()}
        pids = {node.name: pid for node, pid in self.cluster.pids().items()}
        senders: dict[int, list[str]] = {}
        for source, sink in self._directions:
            if source in addresses and sink in pids:  # one that does not run neither sends nor hears
                senders.setdefault(pids[sink], []).append(addresses[source])
        self._packets.start(senders)
        return self._words

    def heal(self) -> None:
        self._packets.stop()


class PowerLossOfContainers(KillContainer):
    """What was not synced is lost: their disks take nothing more, then the containers are killed."""

    name = "power-loss"

    def apply(self) -> str:
        disks = _disks_of(self.cluster)
        states = self.cluster.states()
        hit = [node for node in self.nodes if states.get(node) in ("running", "paused")]
        # silent first, so that no process sees the errors of a disk without power
        self.cluster.pause([node for node in hit if states[node] == "running"])
        for node in hit:
            disks.cut_power(self.cluster.service(node), self.cluster.volume_folder(node))
        self.cluster.kill(hit)
        return f"cut the power of {self.target}: what was not synced is lost"


class FrozenDiskOfContainers(ContainerFault):
    """Writes and fsyncs wait and do not fail, as on a disk that hangs."""

    name = "frozen-disk"

    def apply(self) -> str:
        _disks_of(self.cluster)
        for node in self.nodes:
            freeze(self.cluster.volume_folder(node))
        return f"froze the disk of {self.target}: writes wait"

    def heal(self) -> None:
        for node in self.nodes:
            thaw(self.cluster.volume_folder(node))


class SlowDiskOfContainers(ContainerFault):
    """The disk stands still for most of the time, so each write and fsync takes long."""

    name = "slow-disk"

    def __init__(self, cluster: ComposeCluster, nodes: Sequence[Node]) -> None:
        super().__init__(cluster, nodes)
        self._alternations: list[Alternation] = []

    def apply(self) -> str:
        _disks_of(self.cluster)
        for node in self.nodes:
            self._alternations.append(Alternation(self.cluster.volume_folder(node), STILL_S, GOES_S))
            self._alternations[-1].start()
        return f"slowed down the disk of {self.target}: writes wait up to {STILL_S * 1000:.0f} ms"

    def heal(self) -> None:
        for alternation in self._alternations:
            alternation.stop()


def _thaw_if_mounted(volume: Path) -> None:
    with suppress(OSError):  # it has no power, or is not mounted
        thaw(volume)


def _disks_of(cluster: ComposeCluster) -> ContainerDisks:
    if cluster.disks is None:
        raise FaultRefused(
            "the containers keep their data on a disk of this machine, which is not touched: only a run that "
            "makes its own cluster (`chaos run`, `chaos soak`), as root, gives each a disk of its own"
        )
    return cluster.disks


CONTAINER_FAULTS: dict[str, type[ContainerFault]] = {
    fault.name: fault
    for fault in (
        KillContainer,
        StopContainer,
        PauseContainer,
        DisconnectContainer,
        PowerLossOfContainers,
        FrozenDiskOfContainers,
        SlowDiskOfContainers,
    )
}


def heal_containers(cluster: ComposeCluster) -> list[str]:
    """Unpause, reconnect and start what is not as `up` leaves it; what was done. Raises: ClusterError.

    Of a project that was taken away, the disks that its run has left.
    """
    healed = []
    states = cluster.states()
    project = cluster.project_asked_for
    if not states and project is not None and cluster.is_gone(project):
        left = detach_left(project, [cluster.service(node) for node in cluster.nodes])
        if left:
            return [f"{image} was still a loop device" for image in left]
    if cluster.disks is not None:
        for node, state in states.items():
            if state in ("running", "paused"):
                _thaw_if_mounted(cluster.volume_folder(node))
    for node, state in states.items():
        if state == "paused" and cluster.disks is not None and has_no_power(cluster.volume_folder(node)):
            cluster.kill([node])
            cluster.start(node)
            healed.append(f"{node.name} was without power")
        elif state == "paused":
            cluster.resume([node])
            healed.append(f"{node.name} was paused")
        if state in ("exited", "created"):
            cluster.start(node)
            healed.append(f"{node.name} did not run")
    off = cluster.disconnected()
    if off:
        cluster.connect(off)
        healed += [f"{node.name} was off the network" for node in off]
    if ContainerLinks(cluster.project).clear():
        healed.append("packets between containers were dropped")
    return healed


@contextmanager
def healing_containers(cluster: ComposeCluster) -> Iterator[None]:
    """Heal every fault of the containers when the block ends, in any way."""
    try:
        yield
    finally:
        with undisturbed():
            heal_containers(cluster)
