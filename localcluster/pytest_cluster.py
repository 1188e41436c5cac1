"""The cluster that a test holds in its hands: real processes, by the roles that tests speak of.

Owns the processes' life for as long as `running` is open, and one thread that asks the controllers who leads.
Calls block; a test that runs an event loop puts those that take long into `asyncio.to_thread`.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, TypeVar

from holdfast.client.admin import Admin
from holdfast.client.core.errors import ClientError
from holdfast.localcluster.asker import Asker
from holdfast.localcluster.launch import shared_launcher
from holdfast.localcluster.nodes import Node
from holdfast.localcluster.power.disks import PowerLoss
from holdfast.localcluster.processes import LocalCluster
from holdfast.localcluster.pytest_verdict import ClusterVerdict, has_spark, plain_verdict, spark_verdict
from holdfast.protocol.messages.topics import DescribedPartition

T = TypeVar("T")

#: A silent broker is noticed after two seconds, where a cluster in earnest waits longer.
QUICK_PROPERTIES = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "300",
    "replica.lag.time.max.ms": "2000",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "offsets.topic.num.partitions": "4",
}
_ASK_TIMEOUT_MS = 10_000
_POLL_S = 0.02


class HoldfastCluster:
    """Brokers and controllers of one test, up and ready when the test begins."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._asker: Asker | None = None
        self._topics_named = 0

    @classmethod
    @contextmanager
    def running(
        cls,
        folder: Path,
        *,
        brokers: int = 3,
        controllers: int = 1,
        properties: Mapping[str, str] | None = None,
    ) -> Iterator["HoldfastCluster"]:
        """A cluster with its files in `folder`, which is made; for fixtures of one's own.

        `properties` go into every node's server.properties. In the end all processes are killed; the files
        stay. Raises: ClusterError when the cluster does not come up.
        """
        keys = {**QUICK_PROPERTIES, **(properties or {})}
        cluster = LocalCluster.create(
            folder,
            brokers,
            controllers,
            properties=keys,
            power_loss="tracked",
            launcher=shared_launcher(),
        )
        made = cls(cluster)
        try:
            cluster.up()
            yield made
        finally:
            if made._asker is not None:
                made._asker.close()
            cluster.destroy()

    # --- who is there ---------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """`host:port,host:port` of all brokers, for Producer, Consumer and Admin."""
        return self._cluster.bootstrap_servers

    @property
    def kafka_bootstrap(self) -> str:
        """`host:port,host:port` of all brokers' listeners for Kafka clients."""
        return self._cluster.kafka_bootstrap

    @property
    def bootstrap_controllers(self) -> str:
        """The same of the controllers: an Admin may ask them when no broker is left."""
        return self._cluster.bootstrap_controllers

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Controllers, then brokers."""
        return self._cluster.nodes

    @property
    def brokers(self) -> tuple[Node, ...]:
        """By id, which begin at 1."""
        return self._cluster.brokers

    @property
    def controllers(self) -> tuple[Node, ...]:
        """By id, which begin at 101."""
        return self._cluster.controllers

    @property
    def folder(self) -> Path:
        """Of all files: `<node>/node.log`, `<node>/data/<topic>-<partition>/*.log`."""
        return self._cluster.folder

    def broker(self, broker_id: int) -> Node:
        """The broker with this id. Raises: ClusterError."""
        return self._cluster.broker(broker_id)

    def is_running(self, node: Node) -> bool:
        """True while its process lives, paused or not."""
        return self._cluster.pid(node) is not None

    def log(self, node: Node, lines: int | None = None) -> str:
        """What a node has logged, or only the last lines of it."""
        return self._cluster.last_words(node, lines if lines is not None else 1 << 30)

    # --- topics and their leaders ---------------------------------------------------------------------

    def create_topic(
        self,
        name: str | None = None,
        *,
        partitions: int = 1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
    ) -> str:
        """Create a topic, under a fresh name when none is given; its name, once each partition has a leader.

        Without `replication_factor` there are three replicas, or as many as there are brokers.
        Raises: ClientError.
        """
        if name is None:
            self._topics_named += 1
            name = f"topic-{self._topics_named}"
        topic = name
        self._ask(
            lambda admin: admin.create_topic(
                topic, partitions, replication_factor, configs=configs, timeout_ms=_ASK_TIMEOUT_MS
            )
        )
        self.wait_until(lambda: all(self.leader(topic, index) for index in range(partitions)))
        return topic

    def leader(self, topic: str, partition: int = 0) -> Node | None:
        """Who leads, as the controllers have it; None while there is no leader. Raises: ClientError."""
        leader_id = self._partition(topic, partition).leader_id
        return self.broker(leader_id) if leader_id >= 0 else None

    def followers(self, topic: str, partition: int = 0) -> tuple[Node, ...]:
        """The other replicas, in sync or not, in order of assignment. Raises: ClientError."""
        found = self._partition(topic, partition)
        return tuple(self.broker(id) for id in found.replicas if id != found.leader_id)

    def isr(self, topic: str, partition: int = 0) -> tuple[Node, ...]:
        """In-sync replicas, by id. Raises: ClientError."""
        return tuple(self.broker(id) for id in self._partition(topic, partition).isr)

    def elr(self, topic: str, partition: int = 0) -> tuple[Node, ...]:
        """Eligible leader replicas, by id. Raises: ClientError."""
        return tuple(
            self.broker(id) for id in self._partition(topic, partition).eligible_leader_replicas or ()
        )

    def active_controller(self) -> Node | None:
        """The controller that leads the quorum, None while there is none."""
        with suppress(ClientError):
            leader_id = self._ask(lambda admin: admin.describe_quorum(timeout_ms=_ASK_TIMEOUT_MS)).leader_id
            return next((node for node in self.controllers if node.node_id == leader_id), None)
        return None

    def _partition(self, topic: str, partition: int) -> DescribedPartition:
        (found,) = self._ask(lambda admin: admin.describe_topics([topic], timeout_ms=_ASK_TIMEOUT_MS))
        for row in found.partitions:
            if row.partition_index == partition:
                return row
        raise ClientError(f"there is no {topic}-{partition} (partitions are counted from 0)")

    def _ask(self, question: "Callable[[Admin], Coroutine[Any, Any, T]]") -> T:
        if self._asker is None:
            self._asker = Asker(self.bootstrap_controllers)
        return self._asker.ask(question)

    # --- what happens to them -------------------------------------------------------------------------

    def kill(self, *nodes: Node) -> None:
        """SIGKILL all of `nodes` at once and wait until they are gone. What they wrote is still there."""
        self._cluster.kill(_some(nodes))

    def stop(self, *nodes: Node, timeout_s: float = 60.0) -> None:
        """Stop `nodes` cleanly and wait for it. Raises: ClusterError when one does not end in time."""
        self._cluster.stop(_some(nodes), timeout_s)

    def pause(self, *nodes: Node) -> None:
        """Make `nodes` silent (SIGSTOP): connections stand, nothing answers."""
        for node in _some(nodes):
            self._cluster.pause(node)

    def resume(self, *nodes: Node) -> None:
        """Let paused nodes go on."""
        for node in _some(nodes):
            self._cluster.resume(node)

    def power_loss(self, *nodes: Node, seed: int | None = None) -> list[PowerLoss]:
        """Cut the power of all of `nodes` at once: a part of what was not synced is lost, drawn from `seed`.

        They are down afterwards: `restart` them. Returns what each has lost, in the order given. Needs no
        privileges.
        """
        return self._cluster.power_loss(_some(nodes), seed=seed)

    def restart(self, *nodes: Node, timeout_s: float = 60.0) -> None:
        """Bring `nodes` up and wait until they are ready; those that run are stopped cleanly first.

        Without `nodes`: every node that is down, and paused ones go on. Raises: ClusterError when one is not
        ready in time, as a broker while no controller is active.
        """
        if not nodes:
            self._cluster.up(timeout_s)
            return
        for node in nodes:
            self._cluster.resume(node)
        self._cluster.stop(nodes, timeout_s)
        for node in nodes:
            self._cluster.start(node)
        self._cluster.wait_ready(nodes, timeout_s)

    # --- what became of it ----------------------------------------------------------------------------

    def verdict(
        self, ledger: str | Path, *, min_acked: int = 1, judge: Literal["spark", "plain"] | None = None
    ) -> ClusterVerdict:
        """Whether all that a producer's ledger (a file or a folder) has acknowledged is there, once.

        By `holdfast validate` with all log dirs where the extra `spark` is installed, else by a plain check
        that reads the topics in this process; `judge` chooses. All nodes that hold the topics must be up. Not
        within an event loop. Raises: ClientError, ClusterError.
        """
        chosen = judge or ("spark" if has_spark() else "plain")
        if chosen == "plain":
            return asyncio.run(plain_verdict(Path(ledger), self.bootstrap_servers, min_acked))
        dirs = {node.node_id: self._cluster.log_dirs(node) for node in self.brokers}
        return spark_verdict(Path(ledger), self.bootstrap_servers, dirs, min_acked)

    def wait_until(self, condition: Callable[[], T], timeout_s: float = 30.0) -> T:
        """What `condition` returns, as soon as that is true in Python's sense; asked every 20 ms.

        An answer that the cluster does not give (ClientError) counts as not yet. Raises: TimeoutError.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            problem: ClientError | None = None
            try:
                found = condition()
            except ClientError as error:
                problem = error
            else:
                if found:
                    return found
            if time.monotonic() > deadline:
                down = ", ".join(node.name for node in self.nodes if not self.is_running(node))
                said = f"; the last answer: {problem}" if problem else ""
                raise TimeoutError(
                    f"not so within {timeout_s:g} s; down: {down or 'none'}{said}"
                ) from problem
            time.sleep(_POLL_S)


def _some(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    if not nodes:
        raise ValueError("name at least one node, as cluster.broker(1) or cluster.leader('t')")
    for node in nodes:
        if not isinstance(node, Node):
            raise TypeError(f"{node!r} is no node: give cluster.broker(1), cluster.leader('t') or the like")
    return nodes
