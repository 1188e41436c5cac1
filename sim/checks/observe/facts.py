"""What properties hear of. A fact is told, after the step that made it, to each property that has a method of
its name (`WriteRefused`: `write_refused`), with its fields.

Owns the facts. News is a class here, and the line that notes it where it goes in or out of a core
(`sim.checks.observe.taps`) or tells it where something has changed (`sim.checks.observe.observer`).
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from holdfast.broker.core.events import AnswerFetch, ReadRow
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.image import MetadataImage
from holdfast.metadata.records import MetadataRecord
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.alter_partition import AlterPartitionRequest
from holdfast.protocol.messages.broker_registration import BrokerHeartbeatRequest, BrokerRegistrationRequest
from holdfast.protocol.messages.fetch import FetchResponse
from holdfast.protocol.messages.producer_ids import InitProducerIdRequest, InitProducerIdResponse
from holdfast.raft.core.member import Snapshot
from holdfast.sim.checks.observe.batches import BatchMark
from holdfast.sim.checks.observe.views import Before, Change, Judged, ReplicaView, Support
from holdfast.sim.cluster.nodes import SimBroker, SimController, SimNode
from holdfast.sim.load.clients import Polled
from holdfast.sim.load.invalid_requests import InvalidRequest
from holdfast.sim.load.operators import Act
from holdfast.sim.load.single_node_client import Answer


class ReplicaLoaded(NamedTuple):
    """A process has opened the log; `prior` is the replica as the last process of this broker left it."""

    view: ReplicaView
    prior: ReplicaView | None


class ReplicaChanged(NamedTuple):
    """After a step that changed a replica; also after `replica_loaded`."""

    view: ReplicaView
    before: Before
    appended: Sequence[BatchMark]


class Acknowledged(NamedTuple):
    """The broker has told a producer with acks=all that its batch is in the log."""

    view: ReplicaView
    base_offset: int
    leader_epoch: int


class AcknowledgedByLeader(NamedTuple):
    """The same with acks=1."""

    view: ReplicaView
    base_offset: int
    leader_epoch: int


class WriteRefused(NamedTuple):
    """The broker has told a producer that waits for an answer that its batch is not, or may not be, in
    the log."""

    view: ReplicaView
    acks: int
    error: ErrorCode


class WriteDropped(NamedTuple):
    """A broker has ended a write with acks=0 as it should not."""

    broker: SimBroker
    why: str


class Shown(NamedTuple):
    """The broker answers a consumer's fetch."""

    view: ReplicaView
    row: ReadRow


class ConsumerAnswered(NamedTuple):
    """A broker has answered a consumer's fetch, with what it has read by then."""

    broker: SimBroker
    asked: AnswerFetch
    told: FetchResponse


class BrokerEnds(NamedTuple):
    """Its process is about to end, by itself or not."""

    broker: SimBroker


class BrokerStepped(NamedTuple):
    """After each step of a broker that stops."""

    broker: SimBroker


class HeartbeatSent(NamedTuple):
    """The broker tells the active controller that it lives. `offline`: its replicas in failed dirs."""

    broker: SimBroker
    request: BrokerHeartbeatRequest
    offline: Sequence[PartitionId]


class CeilingStored(NamedTuple):
    """What the replica promises not to be counted above has reached its disk (R68)."""

    view: ReplicaView
    ceiling: int


class BatchJudged(NamedTuple):
    """The leader's log takes a batch of an idempotent producer for a repetition, or refuses it."""

    view: ReplicaView
    judged: Judged


class ProducerIdGiven(NamedTuple):
    """A producer is told of its id and epoch."""

    broker: SimBroker
    asked: InitProducerIdRequest
    given: InitProducerIdResponse


class BrokerCalled(NamedTuple):
    """After each step in which a broker's core took something in, and after what it has changed."""

    broker: SimBroker


class PartitionChanged(NamedTuple):
    """A record about a partition was committed."""

    index: int  # type: ignore[assignment]
    change: Change


class RecordCommitted(NamedTuple):
    """Any record was committed."""

    offset: int
    record: MetadataRecord
    before: MetadataImage


class MetadataCommitted(NamedTuple):
    """An atomic batch of records was committed."""


class ImageFollowed(NamedTuple):
    """A node has replayed further records."""

    node: SimNode
    image: MetadataImage


class ProposalHandled(NamedTuple):
    """The active controller has taken an AlterPartition request in."""

    request: AlterPartitionRequest
    before: MetadataImage
    after: MetadataImage


class RegistrationHandled(NamedTuple):
    """The active controller has taken a registration in."""

    request: BrokerRegistrationRequest
    before: MetadataImage
    after: MetadataImage


class ControllerWarned(NamedTuple):
    """An active controller has told of elections that may lose records."""

    node: SimController
    lines: Sequence[str]


class VoterChanged(NamedTuple):
    """After a step of a voter that changed its epoch, role, or what it knows to be committed."""

    node: SimController
    voter: Snapshot


class SupportGiven(NamedTuple):
    """A voter has granted a vote or a pre-vote."""

    node: SimController
    support: Support


class Consumed(NamedTuple):
    """A consumer was given a record."""

    polled: Polled


class NodeAnswered(NamedTuple):
    """The client that asks each node alone has heard from one."""

    answer: Answer


class Intruded(NamedTuple):
    """Something that no correct peer sends was answered."""

    intrusion: InvalidRequest


class ActSucceeded(NamedTuple):
    """Operators were told that what they have asked for is done."""

    name: str
    act: Act


class ControllerSaid(NamedTuple):
    """A controller's core wants these carried out."""

    effects: Sequence[Any]


#: {method of a property: the fact that it hears of}
FACTS: dict[str, type[Any]] = {
    re.sub(r"(?<!^)(?=[A-Z])", "_", one.__name__).lower(): one
    for one in tuple(vars().values())
    if isinstance(one, type) and issubclass(one, tuple) and one.__module__ == __name__
}


def hearers(listeners: Iterable[object]) -> dict[type[Any], list[Callable[..., None]]]:
    """{fact: the methods that hear of it, in the order of the listeners}."""
    known = list(listeners)
    return {fact: [getattr(one, name) for one in known if hasattr(one, name)] for name, fact in FACTS.items()}
