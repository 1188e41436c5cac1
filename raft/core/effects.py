"""Events into the raft node and effects out of it: frozen values.

The shell carries out the effects of one list in order. Append, AppendFetched and Truncate take place at once,
in the order issued; a Send or Reply listed after a Persist waits until that state is durable (Q-9). Results
come back as events: Persisted, Flushed, Truncated, Answered, SendFailed.
"""

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from holdfast.protocol.messages.fetch import FetchRequest, FetchResponse
from holdfast.protocol.messages.quorum import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    BeginQuorumEpochRequest,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    EndQuorumEpochRequest,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    QuorumEpochResponse,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
    ResignQuorumLeaderRequest,
    ResignQuorumLeaderResponse,
    UpgradeQuorumRequest,
    UpgradeQuorumResponse,
    VoteRequest,
    VoteResponse,
)
from holdfast.raft.core.control_records import Voter
from holdfast.raft.core.quorum import QuorumState
from holdfast.raft.core.snapshot_format import SnapshotId
from holdfast.rpc.core.failures import CallFailure
from holdfast.runtime.stats import LogLine

RaftRequest: TypeAlias = (
    VoteRequest
    | BeginQuorumEpochRequest
    | EndQuorumEpochRequest
    | FetchRequest
    | DescribeQuorumRequest
    | AddRaftVoterRequest
    | FetchSnapshotRequest
    | ResignQuorumLeaderRequest
    | RemoveRaftVoterRequest
    | UpgradeQuorumRequest
)
RaftResponse: TypeAlias = (
    VoteResponse
    | QuorumEpochResponse
    | FetchResponse
    | DescribeQuorumResponse
    | AddRaftVoterResponse
    | FetchSnapshotResponse
    | ResignQuorumLeaderResponse
    | RemoveRaftVoterResponse
    | UpgradeQuorumResponse
)


class Control(Enum):
    """What a control batch of the leader holds."""

    #: the first batch of its epoch (K12)
    LEADER_CHANGE = "LeaderChange"
    #: the voters' directories (K8), or the voters (K30)
    VOTERS = "Voters"


# --- events --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Start:
    """The first event: take the role that the stored state calls for (K3)."""


@dataclass(frozen=True, slots=True)
class Tick:
    """The deadline that the node gave has passed."""


@dataclass(frozen=True, slots=True)
class RequestReceived:
    """A peer's request. `token` identifies it in the Reply."""

    token: int
    request: RaftRequest
    #: wall-clock time, used in DescribeQuorum only
    wall_ms: int = -1


@dataclass(frozen=True, slots=True)
class Answered:
    """The response to the Send with that id."""

    request_id: int
    response: RaftResponse


@dataclass(frozen=True, slots=True)
class SendFailed:
    """The Send with that id will get no response."""

    request_id: int
    failure: CallFailure


@dataclass(frozen=True, slots=True)
class Propose:
    """The owner of the leading node appends these values as one atomic batch."""

    values: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class ProposeVoters:
    """The owner of the leading node gives the Voters record that was wanted its place in the log."""


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
class SnapshotsKept:
    """These snapshots of this node are whole, ascending; the log shall begin at the first of them now (K15),
    None: it stays as it is."""

    ids: tuple[SnapshotId, ...]
    log_start: SnapshotId | None


@dataclass(frozen=True, slots=True)
class PieceSaved:
    """The piece of a SavePiece is written, and more shall follow."""

    id: SnapshotId
    end_position: int


@dataclass(frozen=True, slots=True)
class SnapshotInstalled:
    """The snapshot whose last piece was saved is whole, the owner has its state, and the log is empty and
    begins at its end."""

    id: SnapshotId
    #: {voter: directory id} that it names (K8)
    directories: dict[int, bytes]
    #: the voters that it names, by id; empty when they are those of the configuration (K30)
    voters: tuple[Voter, ...] = ()


@dataclass(frozen=True, slots=True)
class SnapshotRefused:
    """The snapshot whose last piece was saved is no snapshot: it was deleted."""

    id: SnapshotId
    why: str


@dataclass(frozen=True, slots=True)
class Resign:
    """The owner of the leading node asks it to resign."""

    reason: str


@dataclass(frozen=True, slots=True)
class CannotLead:
    """Why the owner does nothing when this node leads, None when it can again. Until then the node leads only
    where no other voter does, and for a while (K29)."""

    reason: str | None


Event: TypeAlias = (
    Start
    | Tick
    | RequestReceived
    | Answered
    | SendFailed
    | Propose
    | ProposeVoters
    | Persisted
    | Flushed
    | Truncated
    | SnapshotsKept
    | PieceSaved
    | SnapshotInstalled
    | SnapshotRefused
    | Resign
    | CannotLead
)


# --- effects -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Persist:
    """Make this quorum state durable; Sends and Replies after it in the list wait for that."""

    state: QuorumState


@dataclass(frozen=True, slots=True)
class Append:
    """The leader's own batch in its epoch: one record per value, offsets from `base_offset`."""

    base_offset: int
    raft_epoch: int
    values: tuple[bytes, ...]
    #: a control record instead of metadata
    control: Control | None = None


@dataclass(frozen=True, slots=True)
class AppendFetched:
    """Whole batches from the leader, checked, continuing the log."""

    base_offset: int
    end_offset: int
    records: memoryview


@dataclass(frozen=True, slots=True)
class Truncate:
    """Truncate the log to end at this offset. No appends and flushes until Truncated comes back."""

    end_offset: int


@dataclass(frozen=True, slots=True)
class Flush:
    """Make durable at least what is in the log now; Flushed comes back."""


@dataclass(frozen=True, slots=True)
class Send:
    """Send a request to a voter. Exactly one Answered or SendFailed comes back."""

    request_id: int
    voter_id: int
    request: RaftRequest
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class Read:
    """Records for an answer: whole batches from `fetch_offset` up to the log's end at the time of reading."""

    fetch_offset: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class ReadPiece:
    """Bytes for an answer: of the file of a snapshot that is kept."""

    id: SnapshotId
    position: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a Received. With `read`, the shell puts the records into the response's only row, or the
    piece of a snapshot into the response."""

    token: int
    response: RaftResponse
    read: Read | ReadPiece | None = None


@dataclass(frozen=True, slots=True)
class SavePiece:
    """Write a piece of the leader's snapshot aside, at `position`; 0 begins anew. PieceSaved comes back;
    after the last one SnapshotInstalled or SnapshotRefused."""

    id: SnapshotId
    position: int
    data: memoryview
    is_last: bool


@dataclass(frozen=True, slots=True)
class Committed:
    """Everything below this offset is committed (K12); each of these is higher than the last."""

    up_to_offset: int


@dataclass(frozen=True, slots=True)
class LeaderChanged:
    """This node's view of the leader or the epoch has changed."""

    leader_id: int | None
    raft_epoch: int
    #: set when this node leads: its log end at the election
    epoch_start_offset: int | None


@dataclass(frozen=True, slots=True)
class VotersWanted:
    """This leader wants to append a Voters record (K8): its owner, who knows what else it is about to append,
    answers with ProposeVoters."""


Effect: TypeAlias = (
    Persist
    | Append
    | AppendFetched
    | Truncate
    | Flush
    | Send
    | Reply
    | Committed
    | LeaderChanged
    | VotersWanted
    | SavePiece
    | LogLine
)
