"""What the controllers say about the cluster and the drill's partition.

Owns the requests; each is repeated until a node answers. Decides nothing and changes nothing.
"""

import re
import urllib.request
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from holdfast.cli.inspect.metadata_log import fetch_log
from holdfast.cli.inspect.partition_story import story_of
from holdfast.client.admin import Admin
from holdfast.drills.demo.watch import ClusterWatch
from holdfast.drills.outcome import Election
from holdfast.drills.partition_sets import Sets
from holdfast.localcluster.nodes import ClusterError, Node
from holdfast.localcluster.processes import LocalCluster
from holdfast.protocol.messages.topics import DescribedPartition
from holdfast.runtime.api import Runtime
from holdfast.runtime.real.machine import run

_REPLIES = re.compile(r"^kafka_controller_unclean_recovery_replies_total\{(.*)\} (\S+)$", re.MULTILINE)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Moment:
    """Registrations and then the partition, as one node knows them."""

    #: {broker id: broker epoch}
    epochs: dict[int, int]
    fenced: tuple[int, ...]
    partition: DescribedPartition

    @property
    def sets(self) -> Sets:
        """The partition's sets, ascending."""
        row = self.partition
        elr, known = row.eligible_leader_replicas or (), row.last_known_elr or ()
        return Sets(row.leader_id, tuple(sorted(row.isr)), tuple(sorted(elr)), tuple(sorted(known)))


class View:
    """Questions about one partition and its cluster."""

    def __init__(self, cluster: LocalCluster, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._controllers = ClusterWatch(cluster.bootstrap_controllers)

    def ask(self, question: Callable[[Admin], Awaitable[T]]) -> T:
        """Ask the controllers, which answer even when no broker does."""
        return self._controllers.ask(question)

    def moment(self) -> Moment:
        """The partition, and the registrations, read before it."""

        async def look(admin: Admin) -> Moment | None:
            found = await admin.describe_cluster()
            partitions = (await admin.describe_topics([self._topic]))[0].partitions
            if not partitions:
                return None  # a controller that has just started knows no topic yet
            epochs = {broker.broker_id: broker.broker_epoch for broker in found.brokers}
            fenced = tuple(sorted(broker.broker_id for broker in found.brokers if broker.is_fenced))
            return Moment(epochs, fenced, partitions[0])

        while (seen := self.ask(look)) is None:
            pass
        return seen

    def sets(self) -> Sets:
        """Leader, ISR, ELR and LastKnownELR."""
        return self.moment().sets

    def fenced(self) -> tuple[int, ...]:
        """Ids of fenced brokers."""
        return self.moment().fenced

    def min_isr(self) -> int:
        """The effective min ISR (R109)."""
        return self.moment().partition.min_isr

    def active_controller(self) -> Node:
        """The node of the active controller."""
        return self._cluster.node(f"controller-{self._controllers.active_controller()}")

    def high_watermark(self) -> int:
        """The high watermark (exclusive); waits for a leader that knows it."""
        watch = ClusterWatch(self._cluster.bootstrap_servers)
        found = watch.ask(lambda admin: admin.list_offsets({(self._topic, 0): -1}))
        return next(iter(found.values())).offset

    def replies(self, broker_id: int) -> int:
        """Number of answers about logs that the active controller has got from this broker, valid or not."""
        port = self.active_controller().http_port
        try:
            with urllib.request.urlopen(f"http://{self._cluster.host}:{port}/metrics", timeout=10) as answer:
                text = answer.read().decode()
        except OSError as error:
            raise ClusterError(f"the active controller shows no metrics: {error}") from error
        return sum(
            int(float(value))
            for labels, value in _REPLIES.findall(text)
            if f'broker="{broker_id}"' in labels.split(",")
        )

    def unclean_elections(self) -> tuple[Election, ...]:
        """The elections of this partition that may have lost records, in order."""
        found: list[Election] = []

        async def work(runtime: Runtime) -> int:
            log = await fetch_log(runtime, self._cluster.bootstrap_controllers, 30_000)
            for step in story_of(log.records, self._topic, 0, log.base).steps:
                decision, after = step.decision, step.after
                if decision is None or after is None or after.leader is None or decision.reason is None:
                    continue
                if decision.reason.is_unclean:
                    loss = decision.cause.predicted_loss(after.leader)
                    most = decision.cause.most_lost(after.leader)
                    found.append(Election(after.leader, decision.reason.value, loss, most))
            return 0

        run(work)
        return tuple(found)
