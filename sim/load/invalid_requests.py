"""A peer that sends what no correct one does, to every node, in any other's name: all of it must be refused.

Owns what is sent and what was answered; `sim.checks.properties.invalid_requests` judges it, and all other
properties see what it leads to. It lies only about what a node can know better: a peer that claims to be a
follower and is not cannot be told from one (no peer proves an identity here, D3).
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import google_crc32c

from holdfast.metadata.image import RESOURCE_TOPIC, MetadataImage
from holdfast.metadata.partition import PartitionRegistration
from holdfast.metadata.records import ELR_FEATURE
from holdfast.protocol.api_keys import ApiKey
from holdfast.protocol.envelope import encode_request
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.frames import encode_frame
from holdfast.protocol.messages import APIS
from holdfast.protocol.messages.alter_partition import (
    AlterPartitionPartition,
    AlterPartitionRequest,
    IsrMember,
)
from holdfast.protocol.messages.broker_registration import (
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    FeatureRange,
    ListenerEndpoint,
)
from holdfast.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    ConfigOperation,
    IncrementalAlterConfigsRequest,
)
from holdfast.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from holdfast.protocol.messages.elect_leaders import (
    ElectionKind,
    ElectionTopicPartitions,
    ElectLeadersRequest,
)
from holdfast.protocol.messages.features import FeatureUpdate, UpdateFeaturesRequest, UpgradeType
from holdfast.protocol.messages.fetch import (
    CONSUMER_REPLICA_ID,
    METADATA_TOPIC_ID,
    FetchPartition,
    FetchRequest,
)
from holdfast.protocol.messages.list_offsets import LATEST_TIMESTAMP, ListOffsetsPartition, ListOffsetsRequest
from holdfast.protocol.messages.offset_for_leader_epoch import EpochPartition, OffsetForLeaderEpochRequest
from holdfast.protocol.messages.produce import ProducePartition, ProduceRequest
from holdfast.protocol.messages.producer_ids import AllocateProducerIdsRequest
from holdfast.protocol.messages.quorum import (
    BeginQuorumEpochRequest,
    DescribeQuorumRequest,
    EndQuorumEpochRequest,
    VoteRequest,
)
from holdfast.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from holdfast.protocol.messages.replica_log_info import GetReplicaLogInfoRequest, LogInfoTopic
from holdfast.protocol.messages.topics import CreatableTopic, CreateTopicsRequest, ReplicaAssignment
from holdfast.protocol.record_batch import HEADER_SIZE, LENGTH_PREFIX_SIZE, MAGIC, Record, encode_batch
from holdfast.rpc.channel import CallRefused, Pool
from holdfast.runtime.api import Connection, NetworkError, Runtime
from holdfast.sim.cluster.nodes import BROKER_PORT, CONTROLLER_PORT, SimBroker, SimController, SimNode
from holdfast.sim.load.clients import Load, partition_at
from holdfast.sim.machine.choices import Stream

_TIMEOUT_MS = 1_500
_LONGEST_GAP_MS = 200
#: a node, and an epoch of any kind, that there never is
_NOBODY, _NEVER = 77, 1_000_000
#: an epoch of the quorum that no story reaches, and that a voter may still jump to
_LATER = 900
_CLUSTER, _OTHER_CLUSTER = "simulated", "other"
#: the crc and all that it covers begin here
_CRC_OFFSET = 17
#: how long bytes that are no request may go unanswered before the sender gives up
_SILENCE_MS = 300

Codes = frozenset[ErrorCode]


@dataclass(frozen=True, slots=True)
class InvalidRequest:
    """What was sent, and what it was answered with."""

    what: str
    #: of the node that answered
    host: str
    #: a refusal of it says one of these
    expected: Codes
    #: every code of the answer, those of its rows too
    answered: Codes


@dataclass(frozen=True, slots=True)
class _Attempt:
    what: str
    request: Any
    expected: Codes


@dataclass(frozen=True, slots=True)
class _Known:
    """A partition with load, as it is committed."""

    topic_id: bytes
    topic: str
    index: int
    row: PartitionRegistration


class InvalidRequestClient:
    """Makes the requests out of what is committed."""

    def __init__(self, load: Load, work: Stream, image: Callable[[], MetadataImage | None]) -> None:
        self._load = load
        self._draw = work.draw
        self._image = image

    def known(self) -> tuple[MetadataImage, _Known] | None:
        """The metadata and a partition of it; None while nothing is known."""
        image, places = self._image(), self._load.places
        name, index = partition_at(places[self._draw(len(places))])
        topic = None if image is None else image.topic(name)
        row = None if topic is None else topic.partitions.get(index)
        if image is None or topic is None or row is None:
            return None
        return image, _Known(topic.topic_id, name, index, row)

    # --- brokers ---------------------------------------------------------------------------------------

    def for_broker(self, image: MetadataImage, known: _Known) -> _Attempt:
        """One that no broker may serve, or pass on to a controller that does."""
        topic_id, index, row = known.topic_id, known.index, known.row
        epoch = row.leader_epoch + _NEVER
        match self._draw(16):
            case 0:
                bad = bytearray(_batch())
                bit = _CRC_OFFSET * 8 + self._draw((len(bad) - _CRC_OFFSET) * 8)
                bad[bit // 8] ^= 1 << bit % 8
                return _write("a batch with a turned bit", known, bytes(bad), ErrorCode.CORRUPT_MESSAGE)
            case 1:
                return _write("two batches", known, _batch() * 2, ErrorCode.INVALID_RECORD)
            case 2:
                return _write("control", known, _batch(is_control=True), ErrorCode.INVALID_RECORD)
            case 3:
                unnumbered = _batch(producer_id=_NOBODY, producer_epoch=0)
                return _write("no sequence", known, unnumbered, ErrorCode.INVALID_RECORD)
            case 4:
                return _write("acks 2", known, _batch(), ErrorCode.INVALID_REQUIRED_ACKS, acks=2)
            case 5:
                fetched = FetchPartition(topic_id, index, epoch, 0, -1, -1, 1_000)
                request = FetchRequest(None, CONSUMER_REPLICA_ID, -1, 0, 1, 1_000, (fetched,))
                return _attempt("a fetch in a later epoch", request, ErrorCode.UNKNOWN_LEADER_EPOCH)
            case 6:
                return self._fetch_of_former(known)
            case 7:
                asked = GetReplicaLogInfoRequest(_NOBODY, (LogInfoTopic(topic_id, (index,)),))
                codes = ErrorCode.INVALID_REQUEST, ErrorCode.BROKER_NOT_AVAILABLE
                return _attempt("another broker's log", asked, *codes)
            case 8:
                ends = OffsetForLeaderEpochRequest(-1, (EpochPartition(topic_id, index, epoch, 0),))
                return _attempt("an end in a later epoch", ends, ErrorCode.UNKNOWN_LEADER_EPOCH)
            case 9:
                offsets = ListOffsetsRequest(
                    (ListOffsetsPartition(topic_id, index, epoch, LATEST_TIMESTAMP),)
                )
                return _attempt("an offset in a later epoch", offsets, ErrorCode.UNKNOWN_LEADER_EPOCH)
            case 10:
                return _write("no records", known, _sealed(b"\xff" * 9), ErrorCode.INVALID_RECORD)
            case 11:
                packed = _sealed(b"", codec=7)
                return _write("codec 7", known, packed, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
            case 12:
                future = _batch(timestamp_ms=(1 << 63) - 1)
                return _write("a far future", known, future, ErrorCode.INVALID_TIMESTAMP)
        return self._operation(known)

    def _fetch_of_former(self, known: _Known) -> _Attempt:
        """Of an incarnation older than any: epochs are offsets of records, and never 0."""
        row = known.row
        replica_id = row.replicas[self._draw(len(row.replicas))]
        fetched = FetchPartition(known.topic_id, known.index, row.leader_epoch, 0, -1, 0, 1_000)
        request = FetchRequest(None, replica_id, 0, 0, 1, 1_000, (fetched,), session_id=1)
        codes = (
            ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
            ErrorCode.BROKER_ID_NOT_REGISTERED,
            ErrorCode.FENCED_LEADER_EPOCH,
        )
        return _attempt("a fetch of a former incarnation", request, *codes)

    def _operation(self, known: _Known) -> _Attempt:
        """Of an operator who is mistaken."""
        name, index = known.topic, known.index
        match self._draw(8):
            case 0:
                return _topic(CreatableTopic("no/name", 1, 1, (), ()), ErrorCode.INVALID_TOPIC_EXCEPTION)
            case 1:
                many = CreatableTopic("i", 1, _NOBODY, (), ())
                return _topic(many, ErrorCode.INVALID_REPLICATION_FACTOR)
            case 2:
                nobodys = CreatableTopic("i", -1, -1, (ReplicaAssignment(0, (_NOBODY,)),), ())
                return _topic(nobodys, ErrorCode.INVALID_REPLICA_ASSIGNMENT)
            case 3:
                fewer = CreatePartitionsRequest(_TIMEOUT_MS, False, (CreatePartitionsTopic(name, 0, None),))
                return _attempt("fewer partitions", fewer, ErrorCode.INVALID_PARTITIONS)
            case 4:
                moved = ReassignableTopic(name, (ReassignablePartition(index, (_NOBODY,)),))
                request = AlterPartitionReassignmentsRequest(_TIMEOUT_MS, True, (moved,))
                return _attempt("a move to no broker", request, ErrorCode.INVALID_REPLICA_ASSIGNMENT)
            case 5:
                asked = ElectionTopicPartitions(name, (index,), (_NOBODY,))
                elected = ElectLeadersRequest(ElectionKind.DESIGNATION, (asked,), _TIMEOUT_MS)
                codes = ErrorCode.INELIGIBLE_REPLICA, ErrorCode.INVALID_REQUEST, ErrorCode.ELECTION_NOT_NEEDED
                return _attempt("no broker designated", elected, *codes)
            case 6:
                change = AlterableConfig("min.insync.replicas", ConfigOperation.SET, "none")
                resource = AlterConfigsResource(RESOURCE_TOPIC, name, (change,))
                altered = IncrementalAlterConfigsRequest(False, (resource,))
                return _attempt("a value that is none", altered, ErrorCode.INVALID_CONFIG)
        update = FeatureUpdate(ELR_FEATURE, _NOBODY, UpgradeType.UPGRADE)
        leveled = UpdateFeaturesRequest(_TIMEOUT_MS, False, (update,))
        return _attempt("a level that is none", leveled, ErrorCode.INVALID_UPDATE_VERSION)

    # --- controllers -----------------------------------------------------------------------------------

    def for_controller(self, image: MetadataImage, known: _Known) -> _Attempt:
        """One that no controller may serve."""
        draw, replicas = self._draw, known.row.replicas
        broker_id = replicas[draw(len(replicas))]
        match draw(4):
            case 0:
                sender = broker_id if draw(3) else _NOBODY
                wants = draw(2) == 1, draw(2) == 1
                heartbeat = BrokerHeartbeatRequest(sender, _NEVER, _NEVER, *wants)
                codes = ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED
                return _attempt("a heartbeat of an epoch that never was", heartbeat, *codes)
            case 1:
                return self._proposal(image, known, broker_id)
            case 2:
                return self._registration(image, broker_id)
        block = AllocateProducerIdsRequest(broker_id, _NEVER)
        return _attempt("ids for an epoch that never was", block, ErrorCode.STALE_BROKER_EPOCH)

    def _proposal(self, image: MetadataImage, known: _Known, broker_id: int) -> _Attempt:
        row, registration = known.row, image.brokers.get(broker_id)
        is_stale = registration is None or self._draw(2) == 1
        broker_epoch = _NEVER if registration is None or is_stale else registration.broker_epoch
        leader_epoch = row.leader_epoch + (0 if is_stale else _NEVER)
        alone = (IsrMember(broker_id, -1),)
        proposal = AlterPartitionPartition(
            known.topic_id, known.index, leader_epoch, row.partition_epoch, alone, 0
        )
        request = AlterPartitionRequest(broker_id, broker_epoch, (proposal,))
        return _attempt("a proposal in an epoch that never was", request, ErrorCode.STALE_BROKER_EPOCH)

    def _registration(self, image: MetadataImage, broker_id: int) -> _Attempt:
        """Of a broker that is not there, with something that rules it out."""
        log_dir, cluster, new_id = _NOBODY.to_bytes(16, "big"), _CLUSTER, _NOBODY
        listeners: tuple[ListenerEndpoint, ...] = (ListenerEndpoint("CLIENT", "nowhere", BROKER_PORT),)
        code, other = ErrorCode.INVALID_REGISTRATION, image.brokers.get(broker_id)
        which = self._draw(4)
        if which == 0:
            cluster, code = _OTHER_CLUSTER, ErrorCode.INCONSISTENT_CLUSTER_ID
        elif which == 1:
            new_id = -1
        elif which == 2 or other is None:
            listeners = ()
        else:
            log_dir = other.log_dirs[0]
        levels = (FeatureRange(ELR_FEATURE, 0, 1),)
        request = BrokerRegistrationRequest(
            new_id, cluster, b"intruder" * 2, listeners, None, levels, (log_dir,), -1
        )
        return _attempt("a registration that cannot be", request, code)

    # --- voters ----------------------------------------------------------------------------------------

    def for_voter(self, node_id: int, other: int) -> _Attempt:
        """`other` is another voter: what would otherwise be right is wrong in one thing."""
        draw = self._draw
        is_stranger = draw(2) == 1
        cluster = _CLUSTER if is_stranger else _OTHER_CLUSTER
        code = ErrorCode.INVALID_REQUEST if is_stranger else ErrorCode.INCONSISTENT_CLUSTER_ID
        who = _NOBODY if is_stranger else other
        match draw(6):
            case 0:
                vote = VoteRequest(cluster, _LATER, who, node_id, _LATER - 1, _NEVER, draw(2) == 1)
                return _attempt("a candidate of no such quorum", vote, code)
            case 1:
                vote = VoteRequest(_CLUSTER, _LATER, other, _NOBODY, _LATER - 1, _NEVER, draw(2) == 1)
                return _attempt("a vote of another voter", vote, ErrorCode.INVALID_VOTER_KEY)
            case 2:
                vote = VoteRequest(_CLUSTER, 0, other, node_id, 0, _NEVER, True)
                return _attempt("a candidate of long ago", vote, ErrorCode.FENCED_LEADER_EPOCH)
            case 3:
                begun = BeginQuorumEpochRequest(cluster, who, _LATER, node_id)
                return _attempt("a leader of no such quorum", begun, code)
            case 4:
                ended = EndQuorumEpochRequest(cluster, who, _LATER, (node_id,))
                return _attempt("the end of a leader of no such quorum", ended, code)
        fetched = FetchPartition(METADATA_TOPIC_ID, 0, _LATER, 0, -1, -1, 1_000)
        voters = (node_id, _NOBODY) if is_stranger else None
        request = FetchRequest(cluster, other, -1, 0, 1, 1_000, (fetched,), voter_ids=voters)
        return _attempt("a voter of no such quorum", request, code)

    # --- no requests at all ----------------------------------------------------------------------------

    def noise(self) -> bytes:
        """Bytes that are no request."""
        draw = self._draw
        harmless = DescribeQuorumRequest()
        good = b"".join(encode_request(APIS[ApiKey.DESCRIBE_QUORUM], 0, 1, "noise", harmless))
        match draw(6):
            case 0:
                return bytes(draw(256) for _ in range(1 + draw(64)))
            case 1:
                return good[: 1 + draw(len(good) - 1)]
            case 2:
                bad = bytearray(good)
                bad[draw(len(bad))] ^= 1 << draw(8)
                return bytes(bad)
            case 3:
                return b"".join(encode_frame([draw(100), draw(100), 1, "noise", []]))
            case 4:
                return b"".join(encode_frame([None, {}, [[[]]], -1, 1.5][: draw(6)]))
        return good + b"GET / HTTP/1.1\r\n\r\n"


def invalid_request_client(
    load: Load,
    intrusions: list[InvalidRequest],
    work: Stream,
    active: Callable[[], SimController | None],
    brokers: Sequence[SimBroker],
    controllers: Sequence[SimController],
) -> Callable[[Runtime], object]:
    """Intrudes until the load is over."""
    draw = work.draw

    def image() -> MetadataImage | None:
        controller = active()
        return None if controller is None or controller.server is None else controller.server.core.committed

    one = InvalidRequestClient(load, work, image)

    def choose() -> tuple[SimNode, _Attempt] | None:
        """Whom to send what."""
        broker, controller = brokers[draw(len(brokers))], controllers[draw(len(controllers))]
        if draw(4) == 0 and len(controllers) > 1:
            other = next(voter for voter in controllers if voter is not controller)
            return controller, one.for_voter(controller.node_id, other.node_id)
        known = one.known()
        if known is None:
            return None
        if draw(3):
            leader = next((each for each in brokers if each.node_id == known[1].row.leader), broker)
            return (leader if draw(4) else broker), one.for_broker(*known)
        return ((draw(4) and active()) or controller), one.for_controller(*known)

    async def run(runtime: Runtime) -> None:
        pool = Pool(runtime, "intruder")
        while not load.is_over:
            await runtime.clock.sleep(_LONGEST_GAP_MS - draw(_LONGEST_GAP_MS))
            chosen = choose()
            if chosen is None:
                continue
            node, attempt = chosen
            port = BROKER_PORT if isinstance(node, SimBroker) else CONTROLLER_PORT
            try:
                if draw(5) == 0:
                    connection = await runtime.network.connect(node.name, port, _Deaf(), _TIMEOUT_MS)
                    connection.write([one.noise()])
                    await runtime.clock.sleep(draw(_SILENCE_MS))
                    connection.abort()
                    continue
                codes = frozenset(codes_of(await pool.call(node.name, port, attempt.request, _TIMEOUT_MS)))
            except CallRefused as error:
                codes = frozenset({error.error_code})
            except NetworkError:
                continue
            intrusions.append(InvalidRequest(attempt.what, node.name, attempt.expected, codes))
        pool.close()

    return run


class _Deaf:
    """Hears nothing of a connection."""

    def connection_made(self, connection: Connection) -> None: ...

    def bytes_received(self, data: bytes) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def connection_lost(self, error: NetworkError | None) -> None: ...


def codes_of(message: Any) -> Iterator[ErrorCode]:
    """Every error code of an answer, those of its rows too."""
    if isinstance(message, tuple):
        for row in message:
            yield from codes_of(row)
    elif is_dataclass(message):
        for field in fields(message):
            value = getattr(message, field.name)
            if field.name == "error_code":
                yield ErrorCode(value)
            else:
                yield from codes_of(value)


def _attempt(what: str, request: Any, *expected: ErrorCode) -> _Attempt:
    return _Attempt(what, request, frozenset(expected))


def _topic(topic: CreatableTopic, code: ErrorCode) -> _Attempt:
    return _attempt("a topic that cannot be", CreateTopicsRequest(_TIMEOUT_MS, False, (topic,)), code)


def _write(what: str, known: _Known, records: bytes, code: ErrorCode, *, acks: int = -1) -> _Attempt:
    row = ProducePartition(known.topic_id, known.index, memoryview(records))
    return _attempt(f"a write: {what}", ProduceRequest(acks, _TIMEOUT_MS, (row,)), code)


def _sealed(body: bytes, *, codec: int = 0) -> bytes:
    """A batch of one record with a true crc, and these bytes for the record."""
    header = _batch()[_CRC_OFFSET + 4 : HEADER_SIZE]
    covered = codec.to_bytes(2) + header[2:] + body
    length = _CRC_OFFSET + 4 - LENGTH_PREFIX_SIZE + len(covered)
    return struct.pack(">qiibI", 0, length, -1, MAGIC, google_crc32c.value(covered)) + covered


def _batch(
    *, is_control: bool = False, producer_id: int = -1, producer_epoch: int = -1, timestamp_ms: int = 0
) -> bytes:
    return encode_batch(
        [Record(0, timestamp_ms, None, b"intruder")],
        base_offset=0,
        leader_epoch=-1,
        is_control=is_control,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )
