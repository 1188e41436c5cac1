"""The cluster as JSON, for `/v1/...` on every node: brokers, health, pages of partitions (docs/http.md).

Owns the shapes and the queries. Brokers and controllers use the same code, each with its own image. Decides
nothing. Answers are computed a few hundred partitions at a time: between two `yield`s the node does other
work, and the image stays that of the request.
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.metadata.broker import BrokerRegistration
from holdfast.metadata.describe import described_features, offline_replicas
from holdfast.metadata.headroom import Headroom, headroom
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.image import MetadataImage, PartitionRow, TopicImage
from holdfast.metadata.partition import PartitionRegistration
from holdfast.metadata.records import RECOVERING
from holdfast.runtime.stats import HttpReply, Steps

#: Partitions handled between two turns of the event loop.
PARTITIONS_A_STEP = 200
#: Default and largest number of rows of a page.
PAGE_ROWS = 100
PAGE_ROWS_MAX = 500

#: A state by which partitions can be selected, as a test of (registration, offline replicas).
STATES: Mapping[str, Callable[[PartitionRegistration, Sequence[int]], bool]] = {
    "leaderless": lambda partition, offline: partition.leader is None,
    "needs_recovery": lambda partition, offline: partition.leader is None and not partition.electable,
    "under_replicated": lambda partition, offline: len(partition.isr) < len(partition.target_replicas),
    "under_min_isr": lambda partition, offline: len(partition.isr) < partition.min_isr,
    "elr_in_use": lambda partition, offline: bool(partition.elr),
    "recovering": lambda partition, offline: partition.leader_recovery_state == RECOVERING,
    "reassigning": lambda partition, offline: partition.is_reassigning,
    "offline_replicas": lambda partition, offline: bool(offline),
}
_PATHS = (
    "/v1/cluster, /v1/health, /v1/decisions, /v1/events, /v1/groups, /v1/partitions and "
    "/v1/partitions/TOPIC/INDEX"
)

Query = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class NodeView:
    """What a node knows at the moment of a request."""

    image: MetadataImage
    cluster_id: str
    node_id: int
    role: str
    is_ready: bool
    #: why it is ready or not, in a few words
    state: str
    #: the quorum's leader as known here, and its epoch
    controller_id: int | None
    controller_epoch: int
    #: ids of the voters
    voters: tuple[int, ...]
    #: this node's replica of a partition, as plain values; None when it has none
    replica_of: Callable[[PartitionId], dict[str, Any] | None] = lambda key: None
    #: who would lead a partition next, and why, as plain values; None on nodes that do not decide it
    next_leader_of: Callable[[str, PartitionId, PartitionRegistration], dict[str, Any] | None] = (
        lambda topic, key, partition: None
    )
    #: the latest changes of partitions with their reasons, as plain values, newest first; at most so many
    decisions: Callable[[int], list[dict[str, Any]]] = lambda limit: []
    #: the groups that this node coordinates, as plain values, most lag first; at most so many
    groups: Callable[[int], Generator[None, None, dict[str, Any]]] = lambda limit: _no_groups()


def _no_groups() -> Generator[None, None, dict[str, Any]]:
    yield from ()
    return {"groups": [], "count": 0}


class BadQuery(Exception):
    """The text says what is wrong and what is allowed."""


def answer(view: NodeView, path: str, query: Query) -> Steps:
    """Answer GET `path`; an unknown path or a bad query is explained, with status 404 or 400."""
    try:
        match path.strip("/").split("/"):
            case ["v1", "cluster"]:
                _parameters(query)
                return (yield from _cluster(view))
            case ["v1", "health"]:
                _parameters(query)
                return (yield from _health(view))
            case ["v1", "decisions"]:
                limit = _number("limit", _parameters(query, "limit").get("limit", "50"), 1, PAGE_ROWS_MAX)
                return HttpReply(200, {"decisions": view.decisions(limit)})
            case ["v1", "groups"]:
                limit = _number("limit", _parameters(query, "limit").get("limit", "50"), 1, PAGE_ROWS_MAX)
                return HttpReply(200, (yield from view.groups(limit)))
            case ["v1", "partitions"]:
                return (yield from _partitions(view, query))
            case ["v1", "partitions", name, index]:
                _parameters(query)
                return _one_partition(view, name, index)
    except BadQuery as error:
        return _refusal(400, "BAD_QUERY", str(error))
    return _refusal(404, "UNKNOWN_PATH", f"there is no {path}; there are {_PATHS}")


def _refusal(status: int, code: str, message: str) -> HttpReply:
    return HttpReply(status, {"error": {"code": code, "message": message}})


def _parameters(query: Query, *known: str) -> dict[str, str]:
    """{name: value}. Raises: BadQuery for an unknown or repeated name."""
    given: dict[str, str] = {}
    for name, value in query:
        if name not in known:
            takes = f"it takes {', '.join(known)}" if known else "it takes none"
            raise BadQuery(f"there is no parameter {name!r} here; {takes}")
        if name in given:
            raise BadQuery(f"parameter {name} is given twice")
        given[name] = value
    return given


def _node(view: NodeView) -> dict[str, Any]:
    return {"id": view.node_id, "role": view.role, "is_ready": view.is_ready, "state": view.state}


# --- /v1/cluster -----------------------------------------------------------------------------------------


def _cluster(view: NodeView) -> Steps:
    image = view.image
    leaderships: dict[int | None, int] = {}
    for seen, (_, _, partition) in enumerate(_rows_from(image, "", 0), 1):
        leaderships[partition.leader] = leaderships.get(partition.leader, 0) + 1
        if seen % PARTITIONS_A_STEP == 0:
            yield
    return HttpReply(
        200,
        {
            **cluster_head(view),
            "features": [
                {
                    "name": row.name,
                    "level": row.finalized_level,
                    "min_level": row.min_supported_level,
                    "max_level": row.max_supported_level,
                }
                for row in described_features(image)
            ],
            "brokers": [
                {
                    **_broker(broker),
                    "replicas": len(image.assigned.get(broker.broker_id, ())),
                    "leaderships": leaderships.get(broker.broker_id, 0),
                }
                for broker in image.sorted_brokers()
            ],
            "topics": len(image.topics),
            "partitions": sum(leaderships.values()),
        },
    )


def cluster_head(view: NodeView) -> dict[str, Any]:
    """Who answers, up to which metadata, and the quorum as known there."""
    return {
        "cluster_id": view.cluster_id,
        "node": _node(view),
        "metadata_offset": view.image.offset,
        "quorum": {
            "leader_id": view.controller_id,
            "epoch": view.controller_epoch,
            "voters": list(view.voters),
        },
    }


def brokers_body(image: MetadataImage) -> list[dict[str, Any]]:
    """The registered brokers, by id, without counts of partitions."""
    return [_broker(broker) for broker in image.sorted_brokers()]


def _broker(broker: BrokerRegistration) -> dict[str, Any]:
    leaving = "stopping" if broker.in_controlled_shutdown else "online"
    return {
        "id": broker.broker_id,
        "state": "fenced" if broker.is_fenced else leaving,
        "epoch": broker.broker_epoch,
        "incarnation_id": broker.incarnation_id.hex(),
        "rack": broker.rack,
        "registered": "clean" if broker.clean_shutdown else "unclean",
        "listeners": [
            {"name": listener.name, "host": listener.host, "port": listener.port}
            for listener in broker.listeners
        ],
        "log_dirs": [directory_id.hex() for directory_id in broker.log_dirs],
        "offline_replicas": len(broker.offline_replicas),
    }


# --- /v1/health ------------------------------------------------------------------------------------------


def _health(view: NodeView) -> Steps:
    image = view.image
    brokers = image.sorted_brokers()
    down = [broker.broker_id for broker in brokers if broker.is_fenced]
    found: dict[str, list[str]] = {state: [] for state in _HEALTH_STATES}
    least: Headroom | None = None
    for seen, (topic, index, partition) in enumerate(_rows_from(image, "", 0), 1):
        for state, names in found.items():
            if STATES[state](partition, ()):
                names.append(f"{topic.name}-{index}")
        left = _headroom(image, partition)
        least = left if least is None else _least(least, left)
        if seen % PARTITIONS_A_STEP == 0:
            yield
    reasons = [
        *(["no active controller is known to this node"] if view.controller_id is None else []),
        *(["this node knows no broker"] if not brokers else []),
        *([f"brokers down: {', '.join(map(str, down))}"] if down else []),
        *(
            f"partitions {words}: {len(found[state])}"
            for state, words in _HEALTH_STATES.items()
            if found[state]
        ),
    ]
    return HttpReply(
        200,
        {
            "is_healthy": not reasons,
            "reasons": reasons,
            "node": _node(view),
            "controller_id": view.controller_id,
            "metadata_offset": image.offset,
            "all_nodes": [*view.voters, *(broker.broker_id for broker in brokers)],
            "nodes_down": down,
            "leaderless_partitions": found["leaderless"],
            "under_replicated_partitions": found["under_replicated"],
            "under_min_isr": found["under_min_isr"],
            "needing_recovery": found["needs_recovery"],
            "headroom": None if least is None else _headroom_body(least),
        },
    )


#: States that make a cluster unhealthy, in words.
_HEALTH_STATES = {
    "leaderless": "without a leader",
    "needs_recovery": "that no replica may lead without loss",
    "under_min_isr": "below min ISR",
    "under_replicated": "whose ISR lacks a replica",
}


def _headroom(image: MetadataImage, partition: PartitionRegistration) -> Headroom:
    brokers = image.brokers
    return headroom(
        partition.isr,
        partition.elr,
        partition.min_isr,
        lambda broker_id: broker_id in brokers and not brokers[broker_id].is_fenced,
    )


def _least(one: Headroom, other: Headroom) -> Headroom:
    return Headroom(min(one.writes, other.writes), min(one.online, other.online), min(one.lossy, other.lossy))


def _headroom_body(left: Headroom) -> dict[str, int]:
    return {"writes": left.writes, "online": left.online, "lossy": left.lossy}


# --- /v1/partitions --------------------------------------------------------------------------------------


def _partitions(view: NodeView, query: Query) -> Steps:
    """A page: rows by topic name and index, and where the next page begins."""
    given = _parameters(query, "topic", "state", "limit", "from")
    image, only = view.image, given.get("topic")
    if only is not None and only not in image.topic_ids:
        return _refusal(404, "UNKNOWN_TOPIC", f"this node knows no topic {only!r}")
    state = given.get("state")
    if state is not None and state not in STATES:
        raise BadQuery(f"there is no state {state!r}; there are {', '.join(STATES)}")
    limit = _number("limit", given.get("limit", str(PAGE_ROWS)), 1, PAGE_ROWS_MAX)
    first_topic, first_index = _start(given.get("from"), only)
    rows: list[dict[str, Any]] = []
    following: str | None = None
    for seen, (topic, index, partition) in enumerate(_rows_from(image, first_topic, first_index, only), 1):
        if seen % PARTITIONS_A_STEP == 0:
            yield
        offline = offline_replicas(image, PartitionId(topic.topic_id, index), partition)
        if state is not None and not STATES[state](partition, offline):
            continue
        if len(rows) == limit:
            following = f"{topic.name}:{index}"
            break
        rows.append(partition_row(view, topic, index, partition, offline))
    return HttpReply(200, {"metadata_offset": image.offset, "partitions": rows, "next": following})


def _one_partition(view: NodeView, name: str, index: str) -> HttpReply:
    number = _number("the index of a partition", index, 0, 2**31 - 1)
    topic = view.image.topic(name)
    if topic is None:
        return _refusal(404, "UNKNOWN_TOPIC", f"this node knows no topic {name!r}")
    partition = topic.partitions.get(number)
    if partition is None:
        text = f"topic {name} has {len(topic.partitions)} partitions, {number} is not one of them"
        return _refusal(404, "UNKNOWN_PARTITION", text)
    offline = offline_replicas(view.image, PartitionId(topic.topic_id, number), partition)
    return HttpReply(200, partition_row(view, topic, number, partition, offline))


def partition_row(
    view: NodeView,
    topic: TopicImage,
    index: int,
    partition: PartitionRegistration,
    offline: tuple[int, ...],
) -> dict[str, Any]:
    """A partition as /v1/partitions shows it."""
    return {
        "topic": topic.name,
        "partition": index,
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "partition_epoch": partition.partition_epoch,
        "replicas": list(partition.replicas),
        "isr": list(partition.isr),
        "elr": list(partition.elr),
        "last_known_elr": list(partition.last_known_elr),
        "last_known_leader": partition.last_known_leader,
        "min_isr": partition.min_isr,
        "adding_replicas": list(partition.adding_replicas),
        "removing_replicas": list(partition.removing_replicas),
        "offline_replicas": list(offline),
        "states": [state for state, holds in STATES.items() if holds(partition, offline)],
        "headroom": _headroom_body(_headroom(view.image, partition)),
        "next_leader": view.next_leader_of(topic.name, PartitionId(topic.topic_id, index), partition),
        "replica": view.replica_of(PartitionId(topic.topic_id, index)),
    }


def _rows_from(
    image: MetadataImage, first_topic: str, first_index: int, only: str | None = None
) -> Iterator[PartitionRow]:
    """Partitions from that one on, by topic name and index; of one topic if `only`."""
    for name in sorted(image.topic_ids) if only is None else [only]:
        if name < first_topic:
            continue
        topic = image.topics[image.topic_ids[name]]
        for index, partition in topic.sorted_partitions():
            if name > first_topic or index >= first_index:
                yield topic, index, partition


def _start(text: str | None, only: str | None) -> tuple[str, int]:
    """(topic, index) where a page begins; topic names have no colon."""
    if text is None:
        return "", 0
    name, _, index = text.rpartition(":")
    if not name:
        raise BadQuery(f"from={text!r}: take it from `next` of the previous page; it is TOPIC:INDEX")
    if only is not None and name != only:
        raise BadQuery(f"from={text!r} is not in topic {only}")
    return name, _number("the index in `from`", index, 0, 2**31 - 1)


def _number(what: str, text: str, low: int, high: int) -> int:
    if text.isascii() and text.isdecimal() and len(text) <= 10 and low <= int(text) <= high:
        return int(text)
    raise BadQuery(f"{what} must be a number from {low} to {high}, not {text[:40]!r}")
