"""Network faults between nodes: held or slow links, for clusters made with links (`localcluster.links`).

A held link passes nothing on, in one direction or both: connections stand and nothing arrives, as with a
dropped cable. Healed: what waited goes on.
"""

import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from holdfast.localcluster.faults import shapes
from holdfast.localcluster.faults.fault import Fault, FaultRefused
from holdfast.localcluster.faults.journal import undoes
from holdfast.localcluster.links import Direction
from holdfast.localcluster.links_process import LinksProcess
from holdfast.localcluster.nodes import Node
from holdfast.localcluster.processes import LocalCluster


@undoes("links")
def _forget_order(cluster: LocalCluster, details: Mapping[str, Any]) -> None:
    if cluster.links is not None and cluster.links.is_running:
        cluster.links.order(details["order"], None)


class _Links(Fault):
    """An order to the process that passes bytes on."""

    def __init__(self, cluster: LocalCluster, nodes: Iterable[Node]) -> None:
        super().__init__(cluster, *dict.fromkeys(nodes))
        self._order = secrets.token_hex(8)

    def _give(self, order: Mapping[str, Any]) -> None:
        links = self._links()
        self._step("links", lambda: links.order(self._order, order), order=self._order)

    def _links(self) -> LinksProcess:
        if self.cluster.links is None:
            raise FaultRefused(
                "the nodes of this cluster connect to each other directly: make it with links to part them"
            )
        if not self.cluster.links.is_running:
            raise FaultRefused("no node runs, so there is no link to hold")
        return self.cluster.links


class Partition(_Links):
    """Nothing passes in these directions. The class methods name the usual shapes."""

    name = "partition"

    def __init__(self, cluster: LocalCluster, directions: Sequence[Direction], words: str) -> None:
        names = {name for direction in directions for name in direction}
        super().__init__(cluster, [node for node in cluster.nodes if node.name in names])
        self.directions = directions
        self.words = words

    def apply(self) -> str:
        self._give({"hold": self.directions})
        return self.words

    @classmethod
    def symmetric(cls, cluster: LocalCluster, one: Sequence[Node], other: Sequence[Node]) -> "Partition":
        """Neither side reaches the other."""
        return cls(cluster, *shapes.symmetric(one, other))

    @classmethod
    def one_way(cls, cluster: LocalCluster, source: Sequence[Node], sink: Sequence[Node]) -> "Partition":
        """What `source` sends does not arrive at `sink`; the other direction works."""
        return cls(cluster, *shapes.one_way(source, sink))

    @classmethod
    def bridge(cls, cluster: LocalCluster, middle: Node) -> "Partition":
        """The other nodes are two halves that do not reach each other; `middle` reaches all."""
        return cls(cluster, *shapes.bridge(cluster, middle))

    @classmethod
    def isolate(cls, cluster: LocalCluster, node: Node, *, also_clients: bool = False) -> "Partition":
        """No other node reaches this one or is reached; clients neither, if asked for."""
        return cls(cluster, *shapes.isolate(cluster, node, also_clients=also_clients))

    @classmethod
    def isolate_from_controllers(cls, cluster: LocalCluster, node: Node) -> "Partition":
        """The node and the controllers do not reach each other; brokers and clients reach it."""
        return cls(cluster, *shapes.isolate_from_controllers(cluster, node))

    @classmethod
    def isolate_from_brokers(cls, cluster: LocalCluster, node: Node) -> "Partition":
        """The node and the (other) brokers do not reach each other: a leader without followers."""
        return cls(cluster, *shapes.isolate_from_brokers(cluster, node))


class SlowLinks(_Links):
    """What one side sends to the other arrives later, in both directions."""

    name = "slow-links"

    def __init__(
        self, cluster: LocalCluster, one: Sequence[Node], other: Sequence[Node], delay_ms: int = 200
    ) -> None:
        super().__init__(cluster, (*one, *other))
        self.delay_ms = delay_ms
        self._delays = [(*direction, delay_ms) for direction in shapes.both_ways(one, other)]
        self._words = (
            f"between {shapes.names(one)} and {shapes.names(other)} everything takes {delay_ms} ms longer"
        )

    def apply(self) -> str:
        self._give({"delay": self._delays})
        return self._words
