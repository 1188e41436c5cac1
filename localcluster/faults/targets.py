"""Nodes by id or by what they do now: `3`, `leader of t-0`, `active controller`, `most leaders`.

One resolver for tests, drills and commands; where several nodes match, a seed draws one.
"""

import random
import re
from collections import Counter
from collections.abc import Sequence

from holdfast.client.core.errors import ClientError
from holdfast.localcluster.asker import Asker
from holdfast.localcluster.nodes import ClusterError, Node, Nodes
from holdfast.protocol.messages.topics import DescribedPartition

_ASK_TIMEOUT_MS = 10_000
_OF_PARTITION = re.compile(r"(leader|follower|followers|replicas) of (.+)-(\d+)")
_ROLES = (
    "active controller",
    "most leaders",
    "random",
    "random node",
    "random broker",
    "random controller",
    "all brokers",
    "all controllers",
)
_NAMES = re.compile(r"((broker-|controller-)?\d+)([ ,]+(broker-|controller-)?\d+)*")
POSSIBLE = (
    "an id or a name (3, broker-3), `leader of t-0`, `follower of t-0`, `followers of t-0`, "
    "`replicas of t-0`, `active controller`, `most leaders`, `random broker`, `random controller`, "
    "`all brokers`, `all controllers`"
)


def problem_of(words: str) -> str:
    """Why the words cannot name a node of any cluster; empty when they may."""
    words = " ".join(words.split())
    if words in _ROLES or _NAMES.fullmatch(words) or _OF_PARTITION.fullmatch(words):
        return ""
    return f"no target {words!r}; possible: {POSSIBLE}"


def partition_of(words: str) -> tuple[str, int] | None:
    """(topic, partition) that a target is found by; None for one that no partition says."""
    found = _OF_PARTITION.fullmatch(" ".join(words.split()))
    return None if found is None else (found[2], int(found[3]))


class Targets:
    """Finds nodes of one cluster. Close it at the end."""

    def __init__(self, nodes: Nodes, seed: int = 0) -> None:
        self._nodes = nodes
        self._chance = random.Random(f"{seed}:targets")
        #: controllers know even when no broker is left
        is_reached = all(node.port for node in nodes.controllers)  # in containers only their HTTP is
        self._asker = Asker(
            nodes.bootstrap_controllers if is_reached else nodes.bootstrap_servers, "holdfast-faults"
        )

    def close(self) -> None:
        """End the connections."""
        self._asker.close()

    def find(self, words: str) -> tuple[Node, ...]:
        """The nodes that the words name now, at least one. Raises: ClusterError with what is possible."""
        words = " ".join(words.split())
        if found := _OF_PARTITION.fullmatch(words):
            role, topic, partition = found.groups()
            return self._of_partition(role, topic, int(partition))
        match words:
            case "active controller":
                return (self._active_controller(),)
            case "most leaders":
                return (self._with_most_leaders(),)
            case "random" | "random node":
                return (self._chance.choice(self._nodes.nodes),)
            case "random broker":
                return (self._chance.choice(self._nodes.brokers),)
            case "random controller":
                return (self._chance.choice(self._nodes.controllers),)
            case "all brokers":
                return self._nodes.brokers
            case "all controllers":
                return self._nodes.controllers
        return tuple(self._named(name) for name in re.split(r"[ ,]+", words))

    def one(self, words: str) -> Node:
        """The only node that the words name now. Raises: ClusterError."""
        found = self.find(words)
        if len(found) != 1:
            raise ClusterError(f"{words} are {len(found)} nodes; name one")
        return found[0]

    def topic_id(self, topic: str) -> bytes:
        """The id of a topic. Raises: ClusterError."""
        try:
            (found,) = self._asker.ask(lambda admin: admin.describe_topics([topic]))
        except ClientError as error:
            raise ClusterError(f"{topic} is not known: {error}") from error
        return found.topic_id

    def _named(self, name: str) -> Node:
        for node in self._nodes.nodes:
            if name in (node.name, str(node.node_id)):
                return node
        names = ", ".join(node.name for node in self._nodes.nodes)
        raise ClusterError(
            f"no target {name!r}: give an id or a name ({names}), `leader of t-0`, `follower of t-0`, "
            "`active controller`, `most leaders`, `random broker` or `random controller`"
        )

    def _of_partition(self, role: str, topic: str, partition: int) -> tuple[Node, ...]:
        row = next((row for row in self._partitions(topic) if row.partition_index == partition), None)
        if row is None:
            raise ClusterError(f"there is no {topic}-{partition}")
        if role == "replicas":
            return self._by_id(row.replicas)
        if role == "leader":
            if row.leader_id < 0:
                raise ClusterError(f"{topic}-{partition} has no leader now")
            return self._by_id([row.leader_id])
        others = self._by_id([id for id in row.replicas if id != row.leader_id])
        if not others:
            raise ClusterError(f"{topic}-{partition} has no follower")
        return others if role == "followers" else (self._chance.choice(others),)

    def _active_controller(self) -> Node:
        try:
            leader_id = self._asker.ask(
                lambda admin: admin.describe_quorum(timeout_ms=_ASK_TIMEOUT_MS)
            ).leader_id
        except ClientError as error:
            raise ClusterError(f"no active controller is known: {error}") from error
        return self._by_id([leader_id])[0]

    def _with_most_leaders(self) -> Node:
        counts = Counter(row.leader_id for row in self._partitions(None) if row.leader_id >= 0)
        if not counts:
            raise ClusterError("no partition has a leader")
        return self._by_id([min(counts, key=lambda id: (-counts[id], id))])[0]

    def _partitions(self, topic: str | None) -> list[DescribedPartition]:
        try:
            topics = [topic] if topic is not None else self._asker.ask(lambda admin: admin.list_topics())
            described = self._asker.ask(
                lambda admin: admin.describe_topics(topics, timeout_ms=_ASK_TIMEOUT_MS)
            )
        except ClientError as error:
            raise ClusterError(f"who leads is not known: {error}") from error
        return [row for one in described for row in one.partitions]

    def _by_id(self, ids: Sequence[int]) -> tuple[Node, ...]:
        by_id = {node.node_id: node for node in self._nodes.nodes}
        return tuple(by_id[id] for id in ids)
