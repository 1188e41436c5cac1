"""What goes into the raft node and what comes out of it: events and effects, all frozen values.

Contract with the shell: effects of one list are carried out in order; Append, AppendFetched
and Truncate take place at once in the order issued; a Send or Reply listed after a Persist waits until that
state is durable (Q-9). Results come back as events: Persisted, Flushed, Truncated, Answered, SendFailed.
"""

from dataclasses import dataclass
from typing import TypeAlias

from holdfast.protocol.messages.fetch import FetchRequest, FetchResponse
from holdfast.protocol.messages.quorum import (
    BeginQuorumEpochRequest,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    EndQuorumEpochRequest,
    QuorumEpochResponse,
    VoteRequest,
    VoteResponse,
)
from holdfast.raft.core.quorum import QuorumState
from holdfast.rpc.core.failures import CallFailure
from holdfast.runtime.stats import LogLine

RaftRequest: TypeAlias = (
    VoteRequest | BeginQuorumEpochRequest | EndQuorumEpochRequest | FetchRequest | DescribeQuorumRequest
)
RaftResponse: TypeAlias = VoteResponse | QuorumEpochResponse | FetchResponse | DescribeQuorumResponse


# --- events --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Start:
    """The first event: take the role that the stored state calls for (K3)."""


@dataclass(frozen=True, slots=True)
class Tick:
    """The deadline that the node named has passed."""


@dataclass(frozen=True, slots=True)
class RequestReceived:
    """A request of a peer. `token` names the exchange in the Reply."""

    token: int
    request: RaftRequest
    #: wall time, a label for DescribeQuorum
    wall_ms: int = -1


@dataclass(frozen=True, slots=True)
class Answered:
    """The response to the Send of that id."""

    request_id: int
    response: RaftResponse


@dataclass(frozen=True, slots=True)
class SendFailed:
    """There will be no response to the Send of that id."""

    request_id: int
    failure: CallFailure


@dataclass(frozen=True, slots=True)
class Propose:
    """The owner of the leader wants these values in the log, as one atomic batch."""

    values: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Persisted:
    """That state, or a later one, is durable."""

    state: QuorumState


@dataclass(frozen=True, slots=True)
class Flushed:
    """Everything below this offset is durable."""

    up_to_offset: int


@dataclass(frozen=True, slots=True)
class Truncated:
    """The log now ends at this offset."""

    end_offset: int


@dataclass(frozen=True, slots=True)
class Resign:
    """The owner of the leader wants another voter to lead."""

    reason: str


Event: TypeAlias = (
    Start
    | Tick
    | RequestReceived
    | Answered
    | SendFailed
    | Propose
    | Persisted
    | Flushed
    | Truncated
    | Resign
)


# --- effects -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Persist:
    """Make this quorum state durable; the Sends and Replies behind it in the list wait for that."""

    state: QuorumState


@dataclass(frozen=True, slots=True)
class Append:
    """The leader's own batch: one record a value, offsets from `base_offset`, in its epoch."""

    base_offset: int
    raft_epoch: int
    values: tuple[bytes, ...]
    #: one LeaderChange record (K12) instead of metadata
    is_control: bool = False


@dataclass(frozen=True, slots=True)
class AppendFetched:
    """Whole batches of the leader, checked, contiguous with the log's end."""

    base_offset: int
    end_offset: int
    records: memoryview


@dataclass(frozen=True, slots=True)
class Truncate:
    """Cut the log to end at this offset. Nothing is appended or flushed until Truncated comes back."""

    end_offset: int


@dataclass(frozen=True, slots=True)
class Flush:
    """Make durable at least what is in the log now; Flushed comes back."""


@dataclass(frozen=True, slots=True)
class Send:
    """A request to a voter. Exactly one Answered or SendFailed comes back."""

    request_id: int
    voter_id: int
    request: RaftRequest
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class Read:
    """Records of an answer: whole batches from `fetch_offset` up to the log's end when it is read."""

    fetch_offset: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a Received. With `read` the shell puts the records into the one row of the response."""

    token: int
    response: RaftResponse
    read: Read | None = None


@dataclass(frozen=True, slots=True)
class Committed:
    """Everything below this offset is committed (K12); rises with each of these."""

    up_to_offset: int


@dataclass(frozen=True, slots=True)
class LeaderChanged:
    """The leader or the epoch that this node knows has changed."""

    leader_id: int | None
    raft_epoch: int
    #: set when this node leads: its log end when it was elected
    epoch_start_offset: int | None


Effect: TypeAlias = (
    Persist | Append | AppendFetched | Truncate | Flush | Send | Reply | Committed | LeaderChanged | LogLine
)
