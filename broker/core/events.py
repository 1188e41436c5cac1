"""What goes into the broker's core and what comes out of it: events and effects, all frozen values.

Contract with the shell: effects of one list are carried out in order. Effects on one log
run in the order issued. The result of an effect comes back as an event. `reply_to` is whatever the shell
gave with the request; the core only hands it back.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from holdfast.broker.core.replicas.divergence import LogView
from holdfast.metadata.ids import PartitionId
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.fetch import FetchRequest, FetchResponse
from holdfast.protocol.record_batch import BatchHeader, Buffer
from holdfast.rpc.core.failures import CallFailure
from holdfast.runtime.stats import LogLine
from holdfast.storage.core.config import LogConfig

# --- parts of events and effects ---------------------------------------------------------------------------


class BatchToAppend(NamedTuple):
    """One checked batch of a client. The batch gets `leader_epoch`, unless its producer state refuses it
    (R91, R92)."""

    key: PartitionId
    leader_epoch: int
    header: BatchHeader
    batch: Buffer


class AppendResult(NamedTuple):
    """What became of one `BatchToAppend`. A duplicate (R91) has the offsets of the first time."""

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
    #: epoch stamped into the batch; of a duplicate that of the first time
    batch_epoch: int = -1
    #: the flush policy wants a flush to start now (D6)
    must_flush: bool = False


class FetchedRecords(NamedTuple):
    """Whole batches of one answer row. The log takes them only if their crc is true, they continue it and
    none is of a later epoch than `leader_epoch`, in which they were fetched (R84)."""

    key: PartitionId
    records: Buffer
    leader_epoch: int


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


class OffsetRow(NamedTuple):
    """One row of a ListOffsets answer. With `timestamp` >= 0 the shell looks it up, below `end_offset`."""

    topic_id: bytes
    partition_index: int
    error_code: int
    timestamp: int
    offset: int
    end_offset: int
    leader_epoch: int


# --- events ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tick:
    """The deadline that the core named has passed."""


@dataclass(frozen=True, slots=True)
class QueueEmpty:
    """No other event waits in the shell now: send what has piled up. Follows every run of events."""


@dataclass(frozen=True, slots=True)
class Started:
    """The node runs: registration may begin."""


@dataclass(frozen=True, slots=True)
class LogsLoaded:
    """All logs of the dirs that are online are open and recovered. `high_watermarks` and `ceilings` are from
    the checkpoints."""

    logs: Mapping[PartitionId, LogView]
    high_watermarks: Mapping[PartitionId, int]
    ceilings: Mapping[PartitionId, int]
    #: False when some dir failed: what is not among the logs may lie there
    is_whole: bool = True


@dataclass(frozen=True, slots=True)
class LogsOffline:
    """These logs cannot be used in this process any more: their dir failed (R27). Comes before any event
    that was posted earlier."""

    keys: tuple[PartitionId, ...]


@dataclass(frozen=True, slots=True)
class CleanShutdownDisproved:
    """The proof of a clean stop, told in the registration, does not fit the logs (B25)."""

    #: for the registration that takes it back
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


@dataclass(frozen=True, slots=True)
class Appended:
    """Results of an Append, in its order or in parts of it."""

    context: object
    results: tuple[AppendResult, ...]


@dataclass(frozen=True, slots=True)
class FetchedAppended:
    """Fetched records are in the logs, or could not be put there."""

    #: (partition, None or why not, bytes, the flush policy wants a flush now)
    results: tuple[tuple[PartitionId, str | None, int, bool], ...]


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
    """The log has taken the leader epoch at its end (R54)."""

    key: PartitionId
    leader_epoch: int
    start_offset: int


class CeilingRow(NamedTuple):
    """What is promised of one replica: nobody is shown that it holds more (R68)."""

    key: PartitionId
    offset: int


@dataclass(frozen=True, slots=True)
class CeilingsStored:
    """These promises are durable."""

    rows: tuple[CeilingRow, ...]


@dataclass(frozen=True, slots=True)
class MetadataCommitted:
    """Values of committed metadata records with their offsets, in order; `end_offset` is exclusive."""

    #: (offset, raft epoch, value)
    entries: tuple[tuple[int, int, bytes], ...]
    end_offset: int


@dataclass(frozen=True, slots=True)
class ControllerChanged:
    """The quorum's leader as our observer knows it (K27)."""

    controller_id: int | None
    raft_epoch: int


@dataclass(frozen=True, slots=True)
class CallAnswered:
    """The response to a CallController."""

    call_id: int
    response: Any


@dataclass(frozen=True, slots=True)
class CallFailed:
    """There will be no response to a CallController."""

    call_id: int
    failure: CallFailure
    text: str


@dataclass(frozen=True, slots=True)
class FetchAnswered:
    """The response to a SendFetch of that identity (N-4)."""

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
class FetchFailed:
    """There will be no response to a SendFetch of that identity; the connection is closed."""

    source_id: int
    session_id: int
    session_epoch: int
    failure: CallFailure
    text: str


@dataclass(frozen=True, slots=True)
class ShutdownWanted:
    """Somebody wants this broker to stop: begin a controlled shutdown."""


# --- effects -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Respond:
    """Answer a request."""

    reply_to: object
    message: Any


@dataclass(frozen=True, slots=True)
class EndWithoutAnswer:
    """Finish a request without an answer (acks 0)."""

    reply_to: object
    #: why some of it was refused: the connection ends, or its sender would never hear of it
    refusal: str | None = None


@dataclass(frozen=True, slots=True)
class AnswerFetch:
    """Read the rows' records, at most `max_bytes` in all but always the first batch, and answer. With a
    `session`, a follower's, rows whose first batch has no room are left out: RowsOmitted comes back."""

    reply_to: object
    rows: tuple[ReadRow, ...]
    max_bytes: int
    session: object | None = None


@dataclass(frozen=True, slots=True)
class AnswerOffsets:
    """Look the timestamps up and answer a ListOffsets."""

    reply_to: object
    rows: tuple[OffsetRow, ...]


@dataclass(frozen=True, slots=True)
class Append:
    """Append as leader; Appended comes back, once, or once a part when some log is busy."""

    context: object
    batches: tuple[BatchToAppend, ...]


@dataclass(frozen=True, slots=True)
class AppendFetched:
    """Append as follower; FetchedAppended comes back, once, or once a part when some log is busy."""

    fetched: tuple[FetchedRecords, ...]


@dataclass(frozen=True, slots=True)
class Flush:
    """Make durable what is in the log now (A-21); Flushed comes back."""

    key: PartitionId


@dataclass(frozen=True, slots=True)
class Truncate:
    """Cut the log to end at this offset; Truncated comes back."""

    key: PartitionId
    end_offset: int


@dataclass(frozen=True, slots=True)
class Reset:
    """Drop the whole log and start anew at this offset; Truncated comes back."""

    key: PartitionId
    start_offset: int


@dataclass(frozen=True, slots=True)
class StartEpoch:
    """Note the leader epoch at the log's end; EpochStarted comes back."""

    key: PartitionId
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class StoreCeilings:
    """Make these promises durable, those of one partition in order; CeilingsStored comes back, for each log
    dir by itself."""

    rows: tuple[CeilingRow, ...]


@dataclass(frozen=True, slots=True)
class OpenLog:
    """Open the log, make it if there is none; LogOpened comes back."""

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
    """Delete the log with everything in it; an OpenLog behind it waits until that is done."""

    key: PartitionId


@dataclass(frozen=True, slots=True)
class SendFetch:
    """Send on the source's connection, make it first when `request.session_epoch` is 0."""

    source_id: int
    host: str
    port: int
    request: FetchRequest
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class CloseSource:
    """Close the connection to a source (N-4); answers of that session are not wanted any more."""

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
    """Controlled shutdown is over, one way or the other: stop the node."""

    text: str
    is_failure: bool = False


Event: TypeAlias = (
    Tick
    | QueueEmpty
    | Started
    | LogsLoaded
    | LogsOffline
    | CleanShutdownDisproved
    | LogOpened
    | RequestReceived
    | Appended
    | FetchedAppended
    | Flushed
    | Truncated
    | EpochStarted
    | CeilingsStored
    | MetadataCommitted
    | ControllerChanged
    | CallAnswered
    | CallFailed
    | FetchAnswered
    | RowsOmitted
    | FetchFailed
    | ShutdownWanted
)

Effect: TypeAlias = (
    Respond
    | EndWithoutAnswer
    | AnswerFetch
    | AnswerOffsets
    | Append
    | AppendFetched
    | Flush
    | Truncate
    | Reset
    | StartEpoch
    | StoreCeilings
    | OpenLog
    | ConfigureLog
    | DeleteLog
    | SendFetch
    | CloseSource
    | CallController
    | StoreBrokerEpoch
    | LogLine
    | Stop
)
