"""The nodes of a cluster, as processes or containers."""

from collections.abc import Sequence
from dataclasses import dataclass


class ClusterError(Exception):
    """An operation on the cluster failed. The text says what to look at."""


@dataclass(frozen=True, slots=True)
class Node:
    """One process of the cluster; a port is 0 where it cannot be reached from here."""

    role: str
    node_id: int
    #: what others connect to
    port: int
    http_port: int
    #: of the listener for Kafka clients; 0 also where there is none, as on controllers
    kafka_port: int = 0
    #: what the process listens at, where links run through another (`localcluster.links`); 0: `port`
    own_port: int = 0

    @property
    def bind_port(self) -> int:
        """The port at which the process itself listens."""
        return self.own_port or self.port

    @property
    def name(self) -> str:
        return f"{self.role}-{self.node_id}"


class Nodes:
    """The nodes of a cluster and their addresses."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = tuple(nodes)

    @property
    def host(self) -> str:
        """The address at which all ports are reached from here."""
        return "127.0.0.1"

    @property
    def brokers(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if node.role == "broker")

    @property
    def controllers(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if node.role == "controller")

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{self.host}:{node.port}" for node in self.brokers)

    @property
    def kafka_bootstrap(self) -> str:
        """For Kafka clients; empty in a cluster that was made without a listener for them."""
        return ",".join(f"{self.host}:{node.kafka_port}" for node in self.brokers if node.kafka_port)

    @property
    def bootstrap_controllers(self) -> str:
        return ",".join(f"{self.host}:{node.port}" for node in self.controllers)

    def node(self, name: str) -> Node:
        """The node called `broker-1` or `controller-101`. Raises: ClusterError."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise ClusterError(f"no node {name} here; there are {', '.join(n.name for n in self.nodes)}")

    def broker(self, broker_id: int) -> Node:
        return self.node(f"broker-{broker_id}")
