"""The quorum's messages: checks of requests, and how answers and requests look on the wire (K6, K10).

Owns no state and decides nothing about roles. Each refusal is an ErrorCode and a text that says what to do.
"""

from typing import TypeAlias

from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.fetch import (
    CONSUMER_REPLICA_ID,
    METADATA_TOPIC_ID,
    EpochEndOffset,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
)
from holdfast.protocol.messages.quorum import (
    AddRaftVoterResponse,
    BeginQuorumEpochRequest,
    DescribeQuorumResponse,
    EndQuorumEpochRequest,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    QuorumReplica,
    RemoveRaftVoterResponse,
    UpgradeQuorumResponse,
    VoteRequest,
)
from holdfast.raft.core.config import RaftConfig
from holdfast.raft.core.leadership import ChangeKind
from holdfast.raft.core.log_shape import LogShape
from holdfast.raft.core.quorum import QuorumState
from holdfast.raft.core.snapshot_format import SnapshotId
from holdfast.raft.core.voter_directories import VoterDirectories
from holdfast.raft.core.voter_sets import parse_endpoint

Refusal: TypeAlias = tuple[ErrorCode, str]
VoterChanged: TypeAlias = AddRaftVoterResponse | RemoveRaftVoterResponse | UpgradeQuorumResponse

_CHANGED: dict[ChangeKind, type[RemoveRaftVoterResponse] | type[UpgradeQuorumResponse]] = {
    ChangeKind.REMOVE: RemoveRaftVoterResponse,
    ChangeKind.UPGRADE: UpgradeQuorumResponse,
}

#: A request raises the epoch by so many elections at most. A peer that is further ahead is believed once this
#: node has asked a configured voter itself: else one request would use up the epochs, and end all elections.
EPOCH_JUMP_MAX = 1_000

#: Most bytes of a snapshot in one answer.
PIECE_BYTES_MAX = 1 << 20

_NO_RECORDS = memoryview(b"")


# --- checks --------------------------------------------------------------------------------------------


def check_vote(
    request: VoteRequest, config: RaftConfig, raft_epoch: int, kraft_version: int = 0
) -> Refusal | None:
    """Why a vote request is refused (K6), None if it is not. `kraft_version`: what this voter has noted."""
    refusal = _check_cluster(request.cluster_id, config) or _check_voter_key(request.voter_id, config)
    if refusal is not None:
        return refusal
    # A candidate whose log names this voter with its directory may itself be named behind this log's end.
    is_named = kraft_version >= 1 and request.voter_directory_id is not None
    if is_named and (not 0 <= request.candidate_id != config.node_id or request.directory_id is None):
        return ErrorCode.INVALID_REQUEST, (
            f"candidate {request.candidate_id} is not another node, or names no directory: give each "
            "controller its own node.id"
        )
    if not is_named and request.candidate_id not in config.other_voters:
        return ErrorCode.INVALID_REQUEST, (
            f"node {request.candidate_id} is not another voter of {sorted(config.voters)}: "
            "give all voters the same controller.quorum.voters"
        )
    last_possible = request.raft_epoch if request.pre_vote else request.raft_epoch - 1
    if not 0 <= request.last_epoch <= last_possible or request.last_epoch_end_offset < 0:
        return ErrorCode.INVALID_REQUEST, (
            f"a log that ends in epoch {request.last_epoch} at {request.last_epoch_end_offset} cannot run "
            f"for epoch {request.raft_epoch}: this is a bug of the candidate; update it"
        )
    return _check_epoch(request.raft_epoch, raft_epoch)


def check_begin(request: BeginQuorumEpochRequest, config: RaftConfig, state: QuorumState) -> Refusal | None:
    """Why a leader is refused, None if it is not. One that says where it is may be named later than this log
    ends (K30)."""
    refusal = _check_cluster(request.cluster_id, config) or _check_voter_key(request.voter_id, config)
    if refusal is not None or request.leader_endpoint is None or not state.kraft_version:
        return refusal or _check_leader(request.leader_id, request.raft_epoch, config, state)
    is_other = 0 <= request.leader_id != config.node_id
    if parse_endpoint(request.leader_endpoint) is None or not is_other:
        return ErrorCode.INVALID_REQUEST, f"{request.leader_endpoint} is not where another node is reached"
    return _check_epochs_leader(request.leader_id, request.raft_epoch, state)


def not_known(leader_id: int, voter_ids: tuple[int, ...]) -> Refusal:
    """Why a leader that the log names no more, and that does not say where it is, cannot be followed."""
    return ErrorCode.INVALID_REQUEST, (
        f"node {leader_id} is not one of the voters {list(voter_ids)} of the metadata log, and does not say "
        "where it is reached"
    )


def check_end(
    request: EndQuorumEpochRequest, config: RaftConfig, state: QuorumState, names_voters: bool = False
) -> Refusal | None:
    """Why a resignation is refused, None if it is not. `names_voters`: the log does, and the configuration
    need not know the leader (K30)."""
    refusal = _check_cluster(request.cluster_id, config)
    if refusal is not None or not names_voters:
        return refusal or _check_leader(request.leader_id, request.raft_epoch, config, state)
    return _check_epochs_leader(request.leader_id, request.raft_epoch, state)


def check_resign(
    asked_epoch: int,
    is_leader: bool,
    config: RaftConfig,
    raft_epoch: int,
    leader_hint: int,
    other_voters: tuple[int, ...],
) -> Refusal | None:
    """Why an operator's wish that the leader resigns is refused, None if it is not."""
    if not is_leader:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER, f"not the leader: ask node {leader_hint}, or again later"
    if asked_epoch > raft_epoch:
        return ErrorCode.INVALID_REQUEST, (
            f"there was no epoch {asked_epoch} yet: node {config.node_id} leads epoch {raft_epoch}"
        )
    if not other_voters:
        return ErrorCode.INVALID_REQUEST, "the only voter of the quorum has no successor"
    return None


def check_fetch(request: FetchRequest, config: RaftConfig) -> Refusal | None:
    """Why a fetch of the metadata log is refused as a whole, None if it is not."""
    refusal = _check_cluster(request.cluster_id, config)
    if refusal is not None:
        return refusal
    is_reader = request.replica_id == CONSUMER_REPLICA_ID
    if not is_reader and (request.replica_id < 0 or request.replica_id == config.node_id):
        return ErrorCode.INVALID_REQUEST, (
            f"replica {request.replica_id} cannot fetch the metadata log from this node: send its own node.id"
        )
    if request.voter_ids is not None and set(request.voter_ids) != set(config.voters):
        # Two quorums that share a node would each commit its own records.
        return ErrorCode.INVALID_REQUEST, (
            f"node {request.replica_id} is configured with the voters {sorted(request.voter_ids)}, node "
            f"{config.node_id} with {sorted(config.voters)}: give all nodes the same controller.quorum.voters"
        )
    if len(request.partitions) != 1:
        return ErrorCode.INVALID_REQUEST, "the metadata log is fetched alone: send exactly one partition"
    row = request.partitions[0]
    if row.topic_id != METADATA_TOPIC_ID or row.partition_index != 0:
        return ErrorCode.UNKNOWN_TOPIC_ID, "controllers serve the metadata log only: ask a broker for topics"
    if row.fetch_offset < 0 or (row.fetch_offset > 0 and row.last_fetched_epoch < 0):
        return ErrorCode.INVALID_REQUEST, (
            f"fetch offset {row.fetch_offset} without the epoch of the batch before it: send both"
        )
    return None


def check_fetch_snapshot(request: FetchSnapshotRequest, config: RaftConfig) -> Refusal | None:
    """Why a fetch of a snapshot is refused as a whole, None if it is not."""
    refusal = _check_cluster(request.cluster_id, config)
    if refusal is not None:
        return refusal
    if request.replica_id == config.node_id or request.position < 0 or request.max_bytes < 1:
        return ErrorCode.INVALID_REQUEST, (
            f"replica {request.replica_id} cannot fetch {request.max_bytes} bytes at {request.position} from "
            "this node: send its own node.id, and a position"
        )
    return None


def check_directory(
    voter_id: int, directory_id: bytes | None, directories: VoterDirectories
) -> Refusal | None:
    """Why a voter's vote requests and fetches are refused: its directory is not the one that the metadata log
    names (K8). None if they are not."""
    if directory_id is None or not directories.is_other(voter_id, directory_id):
        return None
    return ErrorCode.INVALID_VOTER_KEY, (
        f"the metadata log names directory {directories.known[voter_id].hex()} for voter {voter_id}, this is "
        f"{directory_id.hex()}, which may lack votes and records that the others rely on: put the voter's "
        "metadata.log.dir back; or, if that is lost, take the new one in with "
        f"`holdfast metadata-quorum readmit --voter {voter_id}`"
    )


def check_named(asked_directory: bytes | None, state: QuorumState) -> Refusal | None:
    """Why a vote request to another directory is refused: the candidate's log names that one (K30)."""
    if asked_directory in (None, state.directory_id):
        return None
    return ErrorCode.INVALID_VOTER_KEY, "the candidate's log names another directory for this voter"


def check_key(replica_id: int, directory_id: bytes | None, directories: VoterDirectories) -> Refusal | None:
    """Why the fetch of a voter that the log names is refused: it comes from another directory (K30)."""
    if directory_id is None:
        text = f"node.id {replica_id} is a controller's, which the metadata log names: a broker needs another"
        return ErrorCode.INVALID_VOTER_KEY, text
    if not directories.is_other(replica_id, directory_id):
        return None
    return ErrorCode.INVALID_VOTER_KEY, (
        f"the metadata log names directory {directories.known[replica_id].hex()} for voter {replica_id}, not "
        f"{directory_id.hex()}: put its metadata.log.dir back; or, if that is lost, remove the voter, and "
        "add it again"
    )


def check_earlier_build(request: FetchRequest, voter_ids: tuple[int, ...]) -> Refusal | None:
    """Why a build that takes the voters from its configuration is refused: these are others (K30)."""
    if request.voter_ids is None or request.kraft_version >= 0 or set(request.voter_ids) == set(voter_ids):
        return None
    return ErrorCode.INVALID_REQUEST, (
        f"the metadata log names the voters {list(voter_ids)}, node {request.replica_id} goes by its "
        f"configuration, {sorted(request.voter_ids)}: upgrade it to a build that reads them from the log"
    )


def _check_cluster(cluster_id: str | None, config: RaftConfig) -> Refusal | None:
    if cluster_id == config.cluster_id:
        return None
    return ErrorCode.INCONSISTENT_CLUSTER_ID, (
        f"this is cluster {config.cluster_id}, the request is for {cluster_id}: "
        "correct cluster.id or the addresses"
    )


def _check_voter_key(voter_id: int, config: RaftConfig) -> Refusal | None:
    if config.is_voter and voter_id == config.node_id:
        return None
    return ErrorCode.INVALID_VOTER_KEY, (
        f"this is node {config.node_id}, not voter {voter_id}: correct controller.quorum.voters"
    )


def _check_leader(leader_id: int, raft_epoch: int, config: RaftConfig, state: QuorumState) -> Refusal | None:
    refusal = _check_epoch(raft_epoch, state.raft_epoch)
    if refusal is not None:
        return refusal
    if leader_id not in config.other_voters:
        return ErrorCode.INVALID_REQUEST, (
            f"node {leader_id} is not another voter of {sorted(config.voters)}: "
            "give all voters the same controller.quorum.voters"
        )
    return _check_epochs_leader(leader_id, raft_epoch, state)


def _check_epochs_leader(leader_id: int, raft_epoch: int, state: QuorumState) -> Refusal | None:
    refusal = _check_epoch(raft_epoch, state.raft_epoch)
    if refusal is not None:
        return refusal
    if raft_epoch == state.raft_epoch and state.leader_id not in (None, leader_id):
        return ErrorCode.INVALID_REQUEST, (
            f"epoch {raft_epoch} is led by {state.leader_id}, not by {leader_id}: step down"
        )
    return None


def _check_epoch(asked_epoch: int, raft_epoch: int) -> Refusal | None:
    if asked_epoch > raft_epoch + EPOCH_JUMP_MAX:
        return ErrorCode.INVALID_REQUEST, (
            f"epoch {asked_epoch} is more than {EPOCH_JUMP_MAX} above {raft_epoch}, this node's: try again "
            "when it has asked the other voters"
        )
    if asked_epoch >= raft_epoch:
        return None
    return ErrorCode.FENCED_LEADER_EPOCH, f"epoch {asked_epoch} is over, this is {raft_epoch}: follow it"


# --- answers -------------------------------------------------------------------------------------------


def data(leader_id: int, raft_epoch: int, shape: LogShape, high_watermark: int) -> FetchResponse:
    """The leader's answer, into which the shell puts the records."""
    return _one_row(_row(leader_id, raft_epoch, shape, high_watermark=high_watermark))


def diverging(leader_id: int, raft_epoch: int, shape: LogShape, point: tuple[int, int]) -> FetchResponse:
    """The replica's log is not a prefix of the leader's: where to truncate it (R80). No high watermark
    (R82)."""
    return _one_row(_row(leader_id, raft_epoch, shape, diverging=EpochEndOffset(*point)))


def snapshot_first(leader_id: int, raft_epoch: int, shape: LogShape, id: SnapshotId) -> FetchResponse:
    """The replica's log ends below what this log still has: which snapshot to fetch (K14). No high
    watermark (R82)."""
    return _one_row(_row(leader_id, raft_epoch, shape, snapshot=EpochEndOffset(id.epoch, id.offset)))


def _row(
    leader_id: int,
    raft_epoch: int,
    shape: LogShape,
    *,
    high_watermark: int = -1,
    diverging: EpochEndOffset | None = None,
    snapshot: EpochEndOffset | None = None,
) -> FetchPartitionResponse:
    return FetchPartitionResponse(
        METADATA_TOPIC_ID,
        0,
        ErrorCode.NONE,
        high_watermark,
        shape.start.end_offset,
        shape.log_end_offset,
        diverging,
        leader_id,
        raft_epoch,
        _NO_RECORDS,
        snapshot,
    )


def piece(leader_id: int, raft_epoch: int, position: int) -> FetchSnapshotResponse:
    """The leader's answer, into which the shell puts the bytes and the size of the file."""
    return FetchSnapshotResponse(ErrorCode.NONE, None, leader_id, raft_epoch, -1, position, _NO_RECORDS)


def no_piece(refusal: Refusal, leader_id: int, raft_epoch: int) -> FetchSnapshotResponse:
    """Why there are no bytes of a snapshot, and where the leader is."""
    return FetchSnapshotResponse(*refusal, leader_id, raft_epoch, -1, -1, _NO_RECORDS)


def not_leader(
    asked_epoch: int | None, raft_epoch: int, leader_id: int, is_voter: bool, endpoint: str | None = None
) -> FetchResponse:
    """Where the leader is (K10), -1 when unknown. `asked_epoch` is None when a leadership has just ended."""
    if not is_voter:
        code = ErrorCode.BROKER_NOT_AVAILABLE
    elif asked_epoch is not None and asked_epoch < raft_epoch:
        code = ErrorCode.FENCED_LEADER_EPOCH
    elif asked_epoch is not None and asked_epoch > raft_epoch:
        code = ErrorCode.UNKNOWN_LEADER_EPOCH
    else:
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    row = FetchPartitionResponse(
        METADATA_TOPIC_ID, 0, code, -1, -1, -1, None, leader_id, raft_epoch, _NO_RECORDS
    )
    return FetchResponse(ErrorCode.NONE, None, (row,), leader_endpoint=endpoint)


def displaced(replica_id: int) -> FetchResponse:
    """Another fetch with the same id has come, so the earlier sender no longer expects this answer (N-4)."""
    return FetchResponse(
        ErrorCode.DUPLICATE_BROKER_REGISTRATION,
        f"another node fetches with the id {replica_id}, too: give each node its own node.id",
        (),
    )


def _one_row(row: FetchPartitionResponse) -> FetchResponse:
    return FetchResponse(ErrorCode.NONE, None, (row,))


def describe(
    leader_id: int,
    raft_epoch: int,
    high_watermark: int,
    voters: tuple[QuorumReplica, ...],
    observers: tuple[QuorumReplica, ...],
) -> DescribeQuorumResponse:
    """The leader's view of the quorum (K16)."""
    return DescribeQuorumResponse(
        ErrorCode.NONE, None, leader_id, raft_epoch, high_watermark, voters, observers
    )


def describe_elsewhere(leader_id: int, raft_epoch: int) -> DescribeQuorumResponse:
    """The answer of another member: only the leader knows the progress (K16)."""
    where = f"ask node {leader_id}" if leader_id >= 0 else "no leader is known, ask again later"
    return DescribeQuorumResponse(
        ErrorCode.NOT_LEADER_OR_FOLLOWER, f"not the leader: {where}", leader_id, raft_epoch, -1, (), ()
    )


def added(directory_id: bytes) -> AddRaftVoterResponse:
    """The directory counts from now on (K8)."""
    return AddRaftVoterResponse(ErrorCode.NONE, None, directory_id)


def not_added(refusal: Refusal) -> AddRaftVoterResponse:
    """Why a voter's directory is not replaced."""
    return AddRaftVoterResponse(*refusal, None)


def changed(kind: ChangeKind, directory_id: bytes | None) -> VoterChanged:
    """The change of the voters is committed (K30)."""
    if kind is ChangeKind.ADD:
        return AddRaftVoterResponse(ErrorCode.NONE, None, directory_id)
    return _CHANGED[kind](ErrorCode.NONE, None)


def not_changed(kind: ChangeKind, refusal: Refusal) -> VoterChanged:
    """Why it is not made, or not known to be."""
    return not_added(refusal) if kind is ChangeKind.ADD else _CHANGED[kind](*refusal)


# --- requests ------------------------------------------------------------------------------------------


def fetch_request(
    config: RaftConfig, state: QuorumState, shape: LogShape, may_wait: bool, names_voters: bool = False
) -> FetchRequest:
    """Fetch from the log's end. `may_wait`: wait until there is news; `names_voters`: the log does, and what
    the configuration says is of no matter."""
    row = FetchPartition(
        METADATA_TOPIC_ID,
        0,
        state.raft_epoch,
        shape.log_end_offset,
        shape.last_epoch,
        shape.flushed_offset,
        config.fetch_max_bytes,
    )
    max_wait_ms = config.fetch_max_wait_ms if may_wait else 0
    return FetchRequest(
        config.cluster_id,
        config.node_id,
        -1,
        max_wait_ms,
        1,
        config.fetch_max_bytes,
        (row,),
        voter_ids=None if names_voters else tuple(sorted(config.voters)),
        voter_directory_id=state.directory_id if config.is_voter else None,
        is_admitted=state.is_admitted,
        kraft_version=state.kraft_version,
    )


def fetch_snapshot_request(
    config: RaftConfig, state: QuorumState, id: SnapshotId, position: int
) -> FetchSnapshotRequest:
    """The next piece of a snapshot."""
    return FetchSnapshotRequest(
        config.cluster_id,
        config.node_id,
        state.raft_epoch,
        id.epoch,
        id.offset,
        position,
        PIECE_BYTES_MAX,
        state.directory_id if config.is_voter else None,
    )
