"""Shapes of network partitions: which node does not reach which. Pure; for processes and containers."""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import NamedTuple

from holdfast.localcluster.links import CLIENTS, Direction
from holdfast.localcluster.nodes import Node, Nodes


class Shape(NamedTuple):
    """Directions in which nothing passes, and the same in words."""

    directions: list[Direction]
    words: str


def symmetric(one: Sequence[Node], other: Sequence[Node]) -> Shape:
    """Neither side reaches the other."""
    return Shape(both_ways(one, other), f"{names(one)} and {names(other)} do not reach each other")


def one_way(source: Sequence[Node], sink: Sequence[Node]) -> Shape:
    """What `source` sends does not arrive at `sink`; the other direction works."""
    words = f"what {names(source)} sends does not arrive at {names(sink)}; the other way works"
    return Shape(_one_way(source, sink), words)


def bridge(cluster: Nodes, middle: Node) -> Shape:
    """The other nodes are two halves that do not reach each other; `middle` reaches all."""
    others = [node for node in cluster.nodes if node != middle]
    halves = others[0::2], others[1::2]
    words = f"{names(halves[0])} and {names(halves[1])} reach only {middle.name}, not each other"
    return Shape(both_ways(*halves), words)


def isolate(cluster: Nodes, node: Node, *, also_clients: bool = False) -> Shape:
    """No other node reaches this one or is reached; clients neither, if asked for."""
    others = [other for other in cluster.nodes if other != node]
    directions = both_ways([node], others)
    if also_clients:
        directions += [(CLIENTS, node.name), (node.name, CLIENTS)]
    whom = "all other nodes and clients" if also_clients else "all other nodes"
    return Shape(directions, f"{node.name} is cut off from {whom}")


def isolate_from_controllers(cluster: Nodes, node: Node) -> Shape:
    """The node and the controllers do not reach each other; brokers and clients reach it."""
    others = [other for other in cluster.controllers if other != node]
    return Shape(both_ways([node], others), f"{node.name} is cut off from the (other) controllers")


def isolate_from_brokers(cluster: Nodes, node: Node) -> Shape:
    """The node and the (other) brokers do not reach each other: a leader without followers."""
    others = [other for other in cluster.brokers if other != node]
    return Shape(both_ways([node], others), f"{node.name} is cut off from the (other) brokers")


#: How one node can be parted from others, as commands and scenario files spell it.
WAYS: Mapping[str, Callable[[Nodes, Node], Shape]] = {
    "isolate": isolate,
    "from-controllers": isolate_from_controllers,
    "from-brokers": isolate_from_brokers,
    "bridge": bridge,
}


def both_ways(one: Sequence[Node], other: Sequence[Node]) -> list[Direction]:
    return _one_way(one, other) + _one_way(other, one)


def names(nodes: Sequence[Node]) -> str:
    return ", ".join(node.name for node in nodes)


def _one_way(source: Sequence[Node], sink: Sequence[Node]) -> list[Direction]:
    return [(a.name, b.name) for a, b in product(source, sink) if a != b]
