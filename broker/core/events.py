"""Events into the broker's core and effects out of it: frozen values.

The shell carries out the effects of one list in order, and effects on one log in the order in which they were
issued. The result of an effect comes back as an event. `reply_to` is any object that the shell gives with a
request; the core only hands it back.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from holdfast.broker.core.replicas.divergence import LogView
from holdfast.metadata.answer_steps import AnswerSteps
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.snapshot import MetadataState
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.fetch import FetchRequest, FetchResponse
from holdfast.protocol.messages.topics import CreateTopicsRequest
from holdfast.protocol.record_batch import BatchHeader, Buffer
from holdfast.rpc.core.failures import CallFailure
from holdfast.runtime.stats import LogLine
from holdfast.storage.core.config import LogConfig

# --- parts of events and effects ---------------------------------------------------------------------------


class BatchToAppend(NamedTuple):
    """One checked batch of a client. It gets `leader_epoch`, unless the producer state refuses it (R91,
    R92)."""

    key: PartitionId
    leader_epoch: int
    header: BatchHeader
    batch: Buffer


class AppendResult(NamedTuple):
    """Result of one `BatchToAppend`. A duplicate (R91) has the offsets of the first append."""

    key: PartitionId
    leader_epoch: int
    #: -1 when refused
    base_offset: int
    #: exclusive, -1 when refused
    end_offset: int
    size_bytes: int
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    is_duplicate: bool = False
    #: epoch stamped into the batch; for a duplicate the epoch of the first append
    batch_epoch: int = -1
    #: the flush policy asks for a flush now
    must_flush: bool = False


class FetchedRecords(NamedTuple):
    """Whole batches of one answer row. The log takes them only if their crc is valid, they continue the log
    and none has a later epoch than `leader_epoch`, in which they were fetched (R84)."""

    key: PartitionId
    records: Buffer
    leader_epoch: int


class DamagedReplica(NamedTuple):
    """A replica whose log was found damaged and put aside before the logs were loaded."""

    topic_name: str
    partition_index: int
    #: None when it could not be read: of the topic that has the name now
    topic_id: bytes | None
    #: file, byte, what is wrong there, and where the folder is now
    reason: str


class ReadRow(NamedTuple):
    """One row of a fetch answer. With `max_bytes` > 0 the shell reads [fetch_offset, end_offset)."""

    topic_id: bytes
    partition_index: int
    error_code: int
    high_watermark: int
    log_start_offset: int
    log_end_offset: int
    #: (epoch, end offset)
    diverging: tuple[int, int] | None
    leader_id: int
    leader_epoch: int
    fetch_offset: int
    end_offset: int
    max_bytes: int
    #: the follower has refused what was read there: check it first
    verify: bool = False
    #: its bytes count for the leader's throttle
    is_throttled: bool = False


class OffsetRow(NamedTuple):
    """One row of a ListOffsets answer. The shell finds the record of the time `lookup` below `end_offset`."""

    topic_id: bytes
    partition_index: int
    error_code: int
    #: ms since the epoch, or MAX_TIMESTAMP; None when `offset` is the answer
    lookup: int | None
    offset: int
    end_offset: int
    leader_epoch: int


# --- events ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tick:
    """The deadline that the core gave has passed."""


@dataclass(frozen=True, slots=True)
class QueueEmpty:
    """The shell has no other event now: send what has piled up. Comes after every run of events."""


@dataclass(frozen=True, slots=True)
class Started:
    """The node is up: registration may begin."""


@dataclass(frozen=True, slots=True)
class LogsLoaded:
    """All logs of the online dirs are open and recovered. `high_watermarks` and `ceilings` are from the
    checkpoints."""

    logs: Mapping[PartitionId, LogView]
    high_watermarks: Mapping[PartitionId, int]
    ceilings: Mapping[PartitionId, int]
    #: False when a dir has failed: a log that is not here may lie in it
    is_whole: bool = True
    #: replicas that have no log because theirs is damaged
    damaged: tuple[DamagedReplica, ...] = ()


@dataclass(frozen=True, slots=True)
class LogDamaged:
    """This log cannot be right (CorruptLog) and is out of use; its log dir is sound. Comes before events that
    were posted earlier."""

    key: PartitionId
    #: file, byte, and what is wrong there
    reason: str


@dataclass(frozen=True, slots=True)
class LogPutAside:
    """The folder of a damaged log is out of the way, durably: the replica may begin anew."""

    key: PartitionId


@dataclass(frozen=True, slots=True)
class LogsOffline:
    """These logs are out of use until the process ends: their dir failed (R27). Comes before events that were
    posted earlier."""

    keys: tuple[PartitionId, ...]


@dataclass(frozen=True, slots=True)
class DisksStalled:
    """A log dir answers no more, or all do again. Nothing is wrong with its content."""

    is_stalled: bool
    text: str


@dataclass(frozen=True, slots=True)
class SpaceLow:
    """The replicas whose log dirs have too little room to take records of clients are these now."""

    keys: frozenset[PartitionId]


@dataclass(frozen=True, slots=True)
class CleanShutdownDisproved:
    """The proof of a clean stop, told in the registration, does not fit the logs (B25)."""

    #: incarnation of the next registration, which replaces that one
    incarnation_id: bytes


@dataclass(frozen=True, slots=True)
class LogOpened:
    """The answer to OpenLog."""

    key: PartitionId
    log: LogView


@dataclass(frozen=True, slots=True)
class RequestReceived:
    """A client's or a broker's request."""

    reply_to: object
    message: Any
    #: listener that it came through
    listener_name: str = ""


class GroupClient(NamedTuple):
    """Who sends a request about a group."""

    client_id: str
    host: str
    listener_name: str
    #: random, for the id of a new member
    member_suffix: str


@dataclass(frozen=True, slots=True)
class GroupRequestReceived:
    """A request about groups. `wall_ms`: ms since 1970."""

    reply_to: object
    message: Any
    client: GroupClient
    wall_ms: int


@dataclass(frozen=True, slots=True)
class GroupLogRead:
    """The answer to ReadGroupLog; `records` are empty when nothing is there, or because of a `problem`."""

    key: PartitionId
    leader_epoch: int
    start_offset: int
    records: bytes
    problem: str | None
    wall_ms: int


@dataclass(frozen=True, slots=True)
class OffsetsTopicCreated:
    """The answer to CreateOffsetsTopic; `problem` is None when the topic was made."""

    problem: str | None


@dataclass(frozen=True, slots=True)
class Appended:
    """Results of an Append, all in its order, or a part of them."""

    context: object
    results: tuple[AppendResult, ...]


@dataclass(frozen=True, slots=True)
class FetchedAppended:
    """Fetched records were appended, or could not be."""

    #: (partition, None or why not, bytes, whether the flush policy asks for a flush now)
    results: tuple[tuple[PartitionId, str | None, int, bool], ...]


@dataclass(frozen=True, slots=True)
class LogStartStored:
    """The log's `durable_start_offset` may have moved."""

    key: PartitionId


@dataclass(frozen=True, slots=True)
class Flushed:
    """The log's `flushed_offset` has moved."""

    key: PartitionId


@dataclass(frozen=True, slots=True)
class Truncated:
    """A Truncate or Reset is done."""

    key: PartitionId


@dataclass(frozen=True, slots=True)
class EpochStarted:
    """The log has recorded the leader epoch at its end (R54)."""

    key: PartitionId
    leader_epoch: int
    start_offset: int


class CeilingRow(NamedTuple):
    """The ceiling of one replica: an upper bound of the log end that others are shown (R68)."""

    key: PartitionId
    offset: int


@dataclass(frozen=True, slots=True)
class CeilingsStored:
    """These ceilings are durable."""

    rows: tuple[CeilingRow, ...]


@dataclass(frozen=True, slots=True)
class MetadataCommitted:
    """Values of committed metadata records with their offsets, in order; `end_offset` is exclusive."""

    #: (offset, raft epoch, value, wall time of the leader that wrote it)
    entries: tuple[tuple[int, int, bytes, int], ...]
    end_offset: int


@dataclass(frozen=True, slots=True)
class SnapshotLoaded:
    """The state of a snapshot takes the place of the metadata that was committed so far (K14)."""

    state: MetadataState


@dataclass(frozen=True, slots=True)
class LaterSnapshot:
    """A snapshot takes the place of the metadata so far, and a later build wrote it (K29)."""

    reason: str


@dataclass(frozen=True, slots=True)
class ControllerChanged:
    """The quorum's leader as this broker's observer knows it (K27)."""

    controller_id: int | None
    raft_epoch: int


@dataclass(frozen=True, slots=True)
class CallAnswered:
    """The response to a CallController."""

    call_id: int
    response: Any


@dataclass(frozen=True, slots=True)
class CallFailed:
    """A CallController will get no response."""

    call_id: int
    failure: CallFailure
    text: str


@dataclass(frozen=True, slots=True)
class FetchAnswered:
    """The response to the SendFetch of this source, session and number (N-4)."""

    source_id: int
    session_id: int
    session_epoch: int
    response: FetchResponse


@dataclass(frozen=True, slots=True)
class RowsOmitted:
    """Rows that the answer to a follower had no room for; `session` is that of the AnswerFetch."""

    session: object
    keys: tuple[PartitionId, ...]


@dataclass(frozen=True, slots=True)
class ThrottledSent:
    """An answer to a follower had so many bytes of throttled replicas."""

    size_bytes: int


@dataclass(frozen=True, slots=True)
class FetchFailed:
    """A SendFetch will get no response; the connection is closed."""

    source_id: int
    session_id: int
    session_epoch: int
    failure: CallFailure
    text: str


@dataclass(frozen=True, slots=True)
class ShutdownWanted:
    """The node is asked to stop: begin a controlled shutdown."""


# --- effects -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Respond:
    """Answer a request."""

    reply_to: object
    message: Any


@dataclass(frozen=True, slots=True)
class RespondInSteps:
    """Answer a request with much, in small steps, between which others have their turn."""

    reply_to: object
    #: reads nothing that changes
    steps: AnswerSteps


@dataclass(frozen=True, slots=True)
class EndWithoutAnswer:
    """Finish a request without an answer (acks 0)."""

    reply_to: object
    #: why a part of it was refused: closing the connection is the only way to report that
    refusal: str | None = None


@dataclass(frozen=True, slots=True)
class AnswerFetch:
    """Read the rows' records, in all at most `max_bytes` but always the first batch, and answer. With the
    `session` of a follower, rows whose first batch has no room are left out, and RowsOmitted comes back."""

    reply_to: object
    rows: tuple[ReadRow, ...]
    max_bytes: int
    session: object | None = None


@dataclass(frozen=True, slots=True)
class AnswerOffsets:
    """Look up the timestamps and answer a ListOffsets."""

    reply_to: object
    rows: tuple[OffsetRow, ...]


@dataclass(frozen=True, slots=True)
class Append:
    """Append as leader; Appended comes back once, or in parts when a log is busy."""

    context: object
    batches: tuple[BatchToAppend, ...]


@dataclass(frozen=True, slots=True)
class ReadGroupLog:
    """Read whole batches from `start_offset` on, below `end_offset`; GroupLogRead comes back."""

    key: PartitionId
    leader_epoch: int
    start_offset: int
    end_offset: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class CreateOffsetsTopic:
    """Ask the active controller for this topic; OffsetsTopicCreated comes back."""

    request: CreateTopicsRequest


@dataclass(frozen=True, slots=True)
class AppendFetched:
    """Append as follower; FetchedAppended comes back once, or in parts when a log is busy."""

    fetched: tuple[FetchedRecords, ...]


@dataclass(frozen=True, slots=True)
class Flush:
    """Make durable what is in the log now (A-21); Flushed comes back."""

    key: PartitionId


@dataclass(frozen=True, slots=True)
class Truncate:
    """Truncate the log to end at this offset; Truncated comes back."""

    key: PartitionId
    end_offset: int


@dataclass(frozen=True, slots=True)
class Reset:
    """Drop the log's content and start at this offset; Truncated comes back."""

    key: PartitionId
    start_offset: int


@dataclass(frozen=True, slots=True)
class MoveLogStart:
    """Flush the log, and let it begin at this committed offset from now on."""

    key: PartitionId
    offset: int
    #: store where it begins, durably; then LogStartStored comes back
    is_stored: bool = False


@dataclass(frozen=True, slots=True)
class StartEpoch:
    """Record the leader epoch at the log's end; EpochStarted comes back."""

    key: PartitionId
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class StoreCeilings:
    """Store these ceilings durably, those of one partition in order; CeilingsStored comes back once per log
    dir."""

    rows: tuple[CeilingRow, ...]


@dataclass(frozen=True, slots=True)
class OpenLog:
    """Open the log, or create it if there is none; LogOpened comes back."""

    key: PartitionId
    topic_name: str
    config: LogConfig


@dataclass(frozen=True, slots=True)
class ConfigureLog:
    """The settings of an open log have changed."""

    key: PartitionId
    config: LogConfig


@dataclass(frozen=True, slots=True)
class DeleteLog:
    """Delete the log and its files; an OpenLog after it waits until that is done."""

    key: PartitionId


@dataclass(frozen=True, slots=True)
class ForgetTopic:
    """The topic was deleted: drop what was counted of it."""

    name: str


@dataclass(frozen=True, slots=True)
class SendFetch:
    """Send on the connection to the source; open it first when `request.session_epoch` is 0."""

    source_id: int
    host: str
    port: int
    request: FetchRequest
    timeout_ms: int
    #: without a byte for so long the connection is given up
    silence_ms: int


@dataclass(frozen=True, slots=True)
class CloseSource:
    """Close the connection to a source (N-4); answers of that session are ignored."""

    source_id: int


@dataclass(frozen=True, slots=True)
class CallController:
    """Send to the active controller; CallAnswered or CallFailed comes back."""

    call_id: int
    controller_id: int
    request: Any
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class StoreBrokerEpoch:
    """Store durably that we were registered with this epoch (R36), and that metadata holds it."""

    broker_epoch: int
    incarnation_id: bytes


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop the node: its shutdown is complete or was given up, or it cannot go on."""

    text: str
    is_failure: bool = False


Event: TypeAlias = (
    Tick
    | QueueEmpty
    | Started
    | LogsLoaded
    | LogsOffline
    | DisksStalled
    | SpaceLow
    | LogDamaged
    | LogPutAside
    | CleanShutdownDisproved
    | LogOpened
    | RequestReceived
    | GroupRequestReceived
    | GroupLogRead
    | OffsetsTopicCreated
    | Appended
    | FetchedAppended
    | Flushed
    | LogStartStored
    | Truncated
    | EpochStarted
    | CeilingsStored
    | MetadataCommitted
    | SnapshotLoaded
    | LaterSnapshot
    | ControllerChanged
    | CallAnswered
    | CallFailed
    | FetchAnswered
    | RowsOmitted
    | ThrottledSent
    | FetchFailed
    | ShutdownWanted
)

Effect: TypeAlias = (
    Respond
    | RespondInSteps
    | EndWithoutAnswer
    | AnswerFetch
    | AnswerOffsets
    | Append
    | ReadGroupLog
    | CreateOffsetsTopic
    | AppendFetched
    | Flush
    | Truncate
    | Reset
    | MoveLogStart
    | StartEpoch
    | StoreCeilings
    | OpenLog
    | ConfigureLog
    | DeleteLog
    | ForgetTopic
    | SendFetch
    | CloseSource
    | CallController
    | StoreBrokerEpoch
    | LogLine
    | Stop
)
