"""Vote (52), BeginQuorumEpoch (53), EndQuorumEpoch (54), DescribeQuorum (55), FetchSnapshot (59),
AddRaftVoter (80), RemoveRaftVoter (81), ResignQuorumLeader (1000), UpgradeQuorum (1001) (K1-K16, K30).
"""

from holdfast.protocol.schema.fields import (
    array,
    array_of,
    boolean,
    field,
    int16,
    int32,
    int64,
    message,
    nullable,
    records,
    sentence,
    string,
    uuid,
)


@message
class VoteRequest:
    """Ask for a vote, or with `pre_vote` only whether it would be given (K4)."""

    cluster_id: str = field(string, "Refuses strangers.")
    raft_epoch: int = field(int32, "Epoch to be led; with pre_vote the candidate's present one.")
    candidate_id: int = field(int32, "Who asks.")
    voter_id: int = field(int32, "Who is asked: INVALID_VOTER_KEY when it is another node.")
    last_epoch: int = field(int32, "Epoch of the candidate's last batch.")
    last_epoch_end_offset: int = field(int64, "The candidate's log end offset (K5).")
    pre_vote: bool = field(boolean, "True: changes nothing at the receiver.")
    directory_id: bytes | None = field(
        nullable(uuid),
        "The candidate's directory: INVALID_VOTER_KEY when the metadata log names another (K8).",
        since=1,
        default=None,
    )
    bootstraps: bool = field(
        boolean,
        "The first election of a new cluster: only all voters together grant it (K8).",
        since=1,
        default=False,
    )
    voter_directory_id: bytes | None = field(
        nullable(uuid),
        "The receiver's directory as the candidate's log names it: INVALID_VOTER_KEY when it has another; "
        "null when the log names no voters (K30).",
        since=2,
        default=None,
    )


@message
class VoteResponse:
    """Durable before it is sent (Q-9)."""

    error_code: int = field(int16, "NONE, INCONSISTENT_CLUSTER_ID, INVALID_REQUEST, FENCED_LEADER_EPOCH, ...")
    error_message: str | None = field(nullable(sentence), "What to do about the error.")
    raft_epoch: int = field(int32, "The receiver's epoch.")
    leader_id: int = field(int32, "Leader known there, -1 for none.")
    vote_granted: bool = field(boolean, "Yes or no.")
    directory_id: bytes | None = field(
        nullable(uuid),
        "The directory that answers; a vote of another than expected is none.",
        since=1,
        default=None,
    )


@message
class BeginQuorumEpochRequest:
    """The new leader tells the other voters."""

    cluster_id: str = field(string, "Refuses strangers.")
    leader_id: int = field(int32, "Leader.")
    raft_epoch: int = field(int32, "Its epoch.")
    voter_id: int = field(int32, "Who is told.")
    leader_endpoint: str | None = field(
        nullable(string),
        "host:port of the leader when its log names the voters: the receiver's may not name it yet (K30).",
        since=1,
        default=None,
    )


@message
class EndQuorumEpochRequest:
    """A leader resigns and names who should follow."""

    cluster_id: str = field(string, "Refuses strangers.")
    leader_id: int = field(int32, "The resigning leader.")
    raft_epoch: int = field(int32, "Its epoch.")
    preferred_successors: tuple[int, ...] = field(array(int32), "Voters, longest log first (K6).")


@message
class QuorumEpochResponse:
    """Answer to Begin and End."""

    error_code: int = field(int16, "NONE, FENCED_LEADER_EPOCH, ...")
    error_message: str | None = field(nullable(sentence), "What to do about the error.")
    raft_epoch: int = field(int32, "The receiver's epoch.")
    leader_id: int = field(int32, "Leader known there, -1 for none.")


@message
class DescribeQuorumRequest:
    """Ask the quorum's leader; others answer NOT_LEADER_OR_FOLLOWER with its id."""


@message
class QuorumReplica:
    """One voter or observer."""

    replica_id: int = field(int32, "Node.")
    log_end_offset: int = field(int64, "Its end, -1 when unknown.")
    last_fetch_timestamp_ms: int = field(int64, "Wall time of its last fetch, -1 for none.")
    last_caught_up_timestamp_ms: int = field(int64, "Wall time when it last had all, -1 for never.")
    directory_id: bytes | None = field(
        nullable(uuid),
        "Of a voter as the metadata log names it, of an observer that with which it fetches; null when "
        "unknown, or the log names no voters (K30).",
        since=1,
        default=None,
    )
    endpoint: str | None = field(
        nullable(string),
        "host:port of a voter that the metadata log names, else null (K30).",
        since=1,
        default=None,
    )


@message
class DescribeQuorumResponse:
    """State of the quorum as its leader sees it (K16)."""

    error_code: int = field(int16, "NONE or NOT_LEADER_OR_FOLLOWER.")
    error_message: str | None = field(nullable(sentence), "What to do about the error.")
    leader_id: int = field(int32, "Leader, -1 when unknown.")
    raft_epoch: int = field(int32, "Epoch.")
    high_watermark: int = field(int64, "End of the committed part of the metadata log, exclusive.")
    voters: tuple[QuorumReplica, ...] = field(array_of(QuorumReplica), "By id.")
    observers: tuple[QuorumReplica, ...] = field(array_of(QuorumReplica), "By id.")


@message
class AddRaftVoterRequest:
    """While voters come from the configuration: take in the new, empty directory of a voter that has lost its
    disk, in place of the old one (K8). When the log names them: make a controller that has it a voter (K30).
    Brokers forward it to the quorum's leader. Answered when a majority has committed it.
    """

    voter_id: int = field(int32, "Node id of the controller.")
    directory_id: bytes | None = field(nullable(uuid), "Its directory; null: the one with which it fetches.")
    endpoint: str | None = field(
        nullable(string),
        "host:port where the other nodes reach it, for a set of voters in the log; else null.",
        since=1,
        default=None,
    )


@message
class AddRaftVoterResponse:
    """From its next fetch on the voter is served, and it votes once it has this change."""

    error_code: int = field(
        int16,
        "NONE, VOTER_NOT_FOUND, DUPLICATE_VOTER, NOT_LEADER_OR_FOLLOWER, INVALID_REQUEST; REQUEST_TIMED_OUT: "
        "not now, ask again.",
    )
    error_message: str | None = field(nullable(sentence), "What to do about the error.")
    directory_id: bytes | None = field(nullable(uuid), "The voter's directory from now on, null on error.")


@message
class RemoveRaftVoterRequest:
    """Take a controller out of the set of voters in the log (K30). Brokers forward it to the quorum's leader.
    Answered when a majority of those that stay has committed it; a leader that goes resigns then."""

    voter_id: int = field(int32, "Voter.")
    directory_id: bytes | None = field(nullable(uuid), "Its directory; null: the one in the set.")


@message
class RemoveRaftVoterResponse:
    """The voter counts no more."""

    error_code: int = field(
        int16,
        "NONE, VOTER_NOT_FOUND, NOT_LEADER_OR_FOLLOWER, INVALID_REQUEST; REQUEST_TIMED_OUT: not now.",
    )
    error_message: str | None = field(nullable(sentence), "What to do about the error.")


@message
class UpgradeQuorumRequest:
    """Let the log name the voters from now on, so that they can be changed (K30). Brokers forward it to the
    quorum's leader. Answered when all voters have noted it, and the set, which is the same, is committed."""

    kraft_version: int = field(int16, "1: the log names the voters.")


@message
class UpgradeQuorumResponse:
    """There is no way back."""

    error_code: int = field(
        int16,
        "NONE, NOT_LEADER_OR_FOLLOWER, INVALID_REQUEST; REQUEST_TIMED_OUT: a voter has not noted it yet.",
    )
    error_message: str | None = field(nullable(sentence), "What to do about the error.")


@message
class FetchSnapshotRequest:
    """Ask the quorum's leader for a piece of a snapshot that a fetch was answered with (K14)."""

    cluster_id: str = field(string, "Refuses strangers.")
    replica_id: int = field(int32, "Node id of a quorum member, -1 for a tool.")
    current_leader_epoch: int = field(int32, "Epoch that the sender believes in.")
    snapshot_epoch: int = field(int32, "Epoch of the snapshot.")
    snapshot_end_offset: int = field(int64, "Its end, exclusive.")
    position: int = field(int64, "First byte that is wanted.")
    max_bytes: int = field(int32, "Most bytes in the answer.")
    voter_directory_id: bytes | None = field(
        nullable(uuid), "Set by voters: INVALID_VOTER_KEY when the metadata log names another (K8)."
    )


@message
class FetchSnapshotResponse:
    """A piece of the snapshot's file."""

    error_code: int = field(
        int16, "NONE, SNAPSHOT_NOT_FOUND, POSITION_OUT_OF_RANGE, NOT_LEADER_OR_FOLLOWER, ..."
    )
    error_message: str | None = field(nullable(sentence), "What to do about the error.")
    leader_id: int = field(int32, "Leader known there, -1 for none.")
    leader_epoch: int = field(int32, "The receiver's epoch.")
    size: int = field(int64, "Bytes of the whole file, -1 on error.")
    position: int = field(int64, "Where the bytes belong.")
    data: memoryview = field(records, "Bytes of the file, some unless it ends there.")


@message
class ResignQuorumLeaderRequest:
    """Let the leader of the metadata quorum hand over to a voter that has its log (K6). Brokers forward it.
    Who asks twice ends one epoch: nothing is to be done about one that is over."""

    raft_epoch: int = field(int32, "The epoch that is to end.")


@message
class ResignQuorumLeaderResponse:
    """The epoch is over; DescribeQuorum tells who leads the next."""

    error_code: int = field(int16, "NONE, NOT_LEADER_OR_FOLLOWER, INVALID_REQUEST for the only voter.")
    error_message: str | None = field(nullable(sentence), "What to do about the error.")
