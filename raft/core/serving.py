"""How a member handles its peers' requests: votes, begin and end of epochs, fetches, DescribeQuorum (K6,
K10).

Owns nothing; every function takes the member and adds the answer to its effects.
"""

from dataclasses import replace

from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.fetch import CONSUMER_REPLICA_ID, FetchRequest, FetchResponse
from holdfast.protocol.messages.quorum import (
    AddRaftVoterRequest,
    BeginQuorumEpochRequest,
    DescribeQuorumRequest,
    EndQuorumEpochRequest,
    FetchSnapshotRequest,
    QuorumEpochResponse,
    QuorumReplica,
    RemoveRaftVoterRequest,
    ResignQuorumLeaderRequest,
    ResignQuorumLeaderResponse,
    UpgradeQuorumRequest,
    VoteRequest,
    VoteResponse,
)
from holdfast.raft.core import answers, election, voter_changes
from holdfast.raft.core.effects import RaftRequest, Read, ReadPiece
from holdfast.raft.core.leadership import Leader
from holdfast.raft.core.member import Member
from holdfast.raft.core.progress import UNKNOWN_OFFSET, ParkedFetch, Progress
from holdfast.raft.core.quorum import FIRST_EPOCH, LogPosition
from holdfast.raft.core.snapshot_format import SnapshotId


def serve(member: Member, token: int, request: RaftRequest, wall_ms: int) -> None:
    """Answer the request now; a fetch may wait until there is news."""
    match request:
        case FetchRequest():
            _fetch(member, token, request)
        case FetchSnapshotRequest():
            _fetch_snapshot(member, token, request)
        case VoteRequest():
            _vote(member, token, request)
        case BeginQuorumEpochRequest():
            _begin_epoch(member, token, request)
        case EndQuorumEpochRequest():
            _end_epoch(member, token, request)
        case DescribeQuorumRequest():
            _describe(member, token, wall_ms)
        case AddRaftVoterRequest():
            _add_voter(member, token, request)
        case ResignQuorumLeaderRequest():
            _resign(member, token, request)
        case RemoveRaftVoterRequest() | UpgradeQuorumRequest():
            voter_changes.ask(member, token, request)


def _vote(member: Member, token: int, request: VoteRequest) -> None:
    kraft_version = member.state.kraft_version
    is_named = kraft_version >= 1 and request.voter_directory_id is not None
    refusal = answers.check_vote(request, member.config, member.state.raft_epoch, kraft_version) or (
        answers.check_named(request.voter_directory_id, member.state)
        if is_named
        else answers.check_directory(request.candidate_id, request.directory_id, member.voters.directories)
    )
    granted = False
    if refusal is None:
        if request.raft_epoch > member.state.raft_epoch:
            member.become_unattached(request.raft_epoch)
        candidate = LogPosition(request.last_epoch, request.last_epoch_end_offset)
        own = LogPosition(max(FIRST_EPOCH, member.shape.last_epoch), member.shape.log_end_offset)
        is_first = request.bootstraps and own.end_offset == candidate.end_offset == 0
        # A set that names this directory proves that it has lost nothing (K30).
        if not (member.state.is_admitted or is_first or is_named):
            pass  # a new directory votes in the first election of a cluster only (K8)
        elif request.pre_vote:
            granted = election.may_grant_pre_vote(member.role, own, candidate)
        else:
            candidate_id, directory_id = request.candidate_id, request.directory_id
            granted = election.may_grant_vote(member.state, candidate_id, directory_id, own, candidate)
            if granted:
                member.vote_for(candidate_id, directory_id)
    code, text = refusal or (ErrorCode.NONE, None)
    state = member.state
    member.reply(
        token,
        VoteResponse(code, text, state.raft_epoch, member.leader_hint, granted, state.directory_id),
    )


def _begin_epoch(member: Member, token: int, request: BeginQuorumEpochRequest) -> None:
    refusal = answers.check_begin(request, member.config, member.state)
    if refusal is None:
        member.voters.addresses.told_of(request.leader_id, request.leader_endpoint)
        if member.voters.may_lead(request.leader_id):
            member.learn(request.raft_epoch, request.leader_id)
            assert member.state.leader_id == request.leader_id, "one leader in an epoch (Q-1)"
        else:
            refusal = answers.not_known(request.leader_id, member.voters.ids)
    _answer_epoch(member, token, refusal)


def _end_epoch(member: Member, token: int, request: EndQuorumEpochRequest) -> None:
    refusal = answers.check_end(request, member.config, member.state, member.voters.are_named)
    if refusal is None and member.voters.are_named:
        # The leader itself is no stranger, though the log may leave it out meanwhile.
        is_known = request.leader_id == member.leader_id or member.voters.may_lead(request.leader_id)
        if not is_known:
            refusal = answers.not_known(request.leader_id, member.voters.ids)
    if refusal is None:
        member.learn(request.raft_epoch, request.leader_id)
        successors = request.preferred_successors
        is_first = bool(successors) and successors[0] == member.config.node_id
        # The successor with the longest log runs first, and at once (K6).
        delay_ms = 0 if is_first else member.elections.ranked_delay_ms(successors)
        member.leader_gone(delay_ms)
    _answer_epoch(member, token, refusal)


def _answer_epoch(member: Member, token: int, refusal: answers.Refusal | None) -> None:
    code, text = refusal or (ErrorCode.NONE, None)
    member.reply(token, QuorumEpochResponse(code, text, member.state.raft_epoch, member.leader_hint))


def _describe(member: Member, token: int, wall_ms: int) -> None:
    role, config, epoch = member.role, member.config, member.state.raft_epoch
    if not isinstance(role, Leader):
        member.reply(token, answers.describe_elsewhere(member.leader_hint, epoch))
        return
    to_wall_ms = wall_ms - member.now_ms
    own = QuorumReplica(config.node_id, member.shape.log_end_offset, wall_ms, wall_ms)
    voters = role.describe_voters(own, to_wall_ms)
    observers = role.describe_observers(to_wall_ms)
    if member.voters.are_named:
        voters = tuple(_named(row, member) for row in voters)
        observers = tuple(
            replace(row, directory_id=role.observers[row.replica_id].directory_id) for row in observers
        )
    member.reply(token, answers.describe(config.node_id, epoch, member.high_watermark, voters, observers))


def _named(row: QuorumReplica, member: Member) -> QuorumReplica:
    """The row of a voter with what the log says of it (K30)."""
    voter = member.voters.sets.find(row.replica_id)
    assert voter is not None, "the leader keeps the progress of the voters of its log"
    return replace(row, directory_id=voter.directory_id, endpoint=f"{voter.host}:{voter.port}")


def _resign(member: Member, token: int, request: ResignQuorumLeaderRequest) -> None:
    is_leader, epoch = isinstance(member.role, Leader), member.state.raft_epoch
    refusal = answers.check_resign(
        request.raft_epoch, is_leader, member.config, epoch, member.leader_hint, member.voters.others
    )
    if refusal is None and request.raft_epoch == epoch:
        member.resign("an operator asked for it (K6)")
    member.reply(token, ResignQuorumLeaderResponse(*(refusal or (ErrorCode.NONE, None))))


# --- directories of voters (K8) ------------------------------------------------------------------------


def _add_voter(member: Member, token: int, request: AddRaftVoterRequest) -> None:
    """Name the new directory of a voter in the log; the answer waits until that is committed."""
    leader = member.role
    if member.voters.are_named or request.endpoint is not None:
        voter_changes.ask(member, token, request)
        return
    if not isinstance(leader, Leader):
        text = f"not the leader: ask node {member.leader_hint}, or again later"
        member.reply(token, answers.not_added((ErrorCode.NOT_LEADER_OR_FOLLOWER, text)))
        return
    if leader.change is not None:
        # The set that is about to be written names the directories as they are now.
        text = "a change of the voters is under way: ask again"
        member.reply(token, answers.not_added((ErrorCode.REQUEST_TIMED_OUT, text)))
        return
    voter = leader.voters.get(request.voter_id)
    if voter is None:
        others = sorted(leader.voters)
        text = f"voter {request.voter_id} is not one of the other voters {others}: correct the id"
        member.reply(token, answers.not_added((ErrorCode.VOTER_NOT_FOUND, text)))
        return
    directory_id = request.directory_id or voter.refused_directory
    if directory_id is None:
        text = f"voter {request.voter_id} was not refused for a new directory: start it, or name that"
        member.reply(token, answers.not_added((ErrorCode.INVALID_REQUEST, text)))
        return
    if member.voters.directories.known.get(request.voter_id) == directory_id:
        text = f"voter {request.voter_id} has directory {directory_id.hex()} already: nothing is to be done"
        member.reply(token, answers.not_added((ErrorCode.DUPLICATE_VOTER, text)))
        return
    refusal = _check_replaced(member, leader, voter, request, directory_id)
    if refusal is not None:
        member.reply(token, answers.not_added(refusal))
        return
    # The old directory counts no more, and the new one not before it knows that this is committed.
    voter.counts, voter.refused_directory, voter.end_offset = False, None, UNKNOWN_OFFSET
    leader.additions.append((token, request.voter_id, directory_id))
    member.want_directory(request.voter_id, directory_id)


def _check_replaced(
    member: Member, leader: Leader, voter: Progress, request: AddRaftVoterRequest, directory_id: bytes
) -> answers.Refusal | None:
    """Why the voter's directory is not replaced: one that is alive must stay, or a wrong word of an operator
    ends a quorum for good; and only one that was heard of can take its place."""
    if directory_id != voter.refused_directory:
        text = f"voter {request.voter_id} does not fetch with directory {directory_id.hex()}"
        return ErrorCode.INVALID_REQUEST, f"{text}: start it, or correct the id"
    if member.now_ms - max(leader.elected_at_ms, voter.heard_ms) < member.config.fetch_timeout_ms:
        return ErrorCode.REQUEST_TIMED_OUT, (
            f"voter {request.voter_id} may still fetch with the directory that the log names: stop its "
            "process, and ask again"
        )
    return None


def answer_added(member: Member, leader: Leader) -> None:
    """Answer the requests to replace a directory whose change is committed."""
    for token, directory_id in leader.take_added(member.voters.directories, member.high_watermark):
        member.reply(token, answers.added(directory_id))


def _check_directory(
    member: Member, leader: Leader, request: FetchRequest | FetchSnapshotRequest
) -> answers.Refusal | None:
    """Why a voter's fetch is refused: the log names another directory for it. None if it is not."""
    voter, directory_id = leader.voters.get(request.replica_id), request.voter_directory_id
    if voter is None:
        return None
    if member.voters.are_named:
        return answers.check_key(request.replica_id, directory_id, member.voters.directories)
    refusal = answers.check_directory(request.replica_id, directory_id, member.voters.directories)
    if refusal is not None:
        voter.refused_directory = directory_id
    return refusal


def _take_directory(member: Member, leader: Leader, request: FetchRequest) -> answers.Refusal | None:
    """Look at the directory of a voter that fetches. One that the log names none for is written into it. Why
    the fetch is refused, None if it is not."""
    voter, directory_id = leader.voters.get(request.replica_id), request.voter_directory_id
    refusal = _check_directory(member, leader, request)
    if voter is None or refusal is not None:
        return refusal
    voter.counts = request.is_admitted or member.voters.are_named
    if directory_id is not None and request.replica_id not in member.voters.directories.known:
        member.want_directory(request.replica_id, directory_id)
    return None


# --- fetches -------------------------------------------------------------------------------------------


def _fetch(member: Member, token: int, request: FetchRequest) -> None:
    config, shape = member.config, member.shape
    refusal = None
    if member.voters.are_named and request.voter_ids is not None:
        refusal = answers.check_earlier_build(request, member.voters.ids)
        request = replace(request, voter_ids=None)
    refusal = refusal or answers.check_fetch(request, config)
    if refusal is not None:
        member.reply(token, FetchResponse(*refusal, ()))
        return
    row = request.partitions[0]
    epochs_ahead = row.current_leader_epoch - member.state.raft_epoch
    is_other = member.voters.directories.is_other(request.replica_id, request.voter_directory_id) or (
        member.voters.are_named and request.voter_directory_id is None
    )
    is_voters = request.replica_id in member.voters.ids and not is_other
    if is_voters and 0 < epochs_ahead <= answers.EPOCH_JUMP_MAX:
        # Only voters' epochs are believed (K3), so that no other node can disturb the quorum.
        member.become_unattached(row.current_leader_epoch)
    role = member.role
    if not isinstance(role, Leader) or row.current_leader_epoch != member.state.raft_epoch:
        member.reply(token, member.not_leader(row.current_leader_epoch))
        return
    refusal = _take_directory(member, role, request)
    if refusal is not None:
        member.reply(token, FetchResponse(*refusal, ()))
        return
    role.calls.done(request.replica_id)
    voter = role.voters.get(request.replica_id)
    if voter is not None:  # it tells its build also where it tells no progress
        voter.kraft_version = request.kraft_version
    is_empty = row.fetch_offset == 0 and request.replica_id != CONSUMER_REPLICA_ID
    if member.snapshots and (is_empty or shape.needs_snapshot(row.last_fetched_epoch, row.fetch_offset)):
        # Its log tells no progress that could be counted; that it asks is what check-quorum needs.
        if voter is not None:
            voter.heard_ms = member.now_ms
        id, epoch = member.snapshots[-1], member.state.raft_epoch
        member.reply(token, answers.snapshot_first(config.node_id, epoch, shape, id))
        return
    point = shape.diverging_point(row.last_fetched_epoch, row.fetch_offset)
    if point is not None:
        # No progress: the replica's log differs from this one below its fetch offset (R82).
        member.reply(token, answers.diverging(config.node_id, member.state.raft_epoch, shape, point))
        return
    max_bytes = max(0, min(row.max_bytes, request.max_bytes, config.fetch_max_bytes))
    if request.replica_id == CONSUMER_REPLICA_ID:
        # A tool that reads the log: it has no progress, and it never waits.
        has_records = row.fetch_offset < shape.log_end_offset
        member.reply(token, _data(member, role), Read(row.fetch_offset, max_bytes) if has_records else None)
        return
    progress = role.progress_of(request.replica_id)
    wait_ms = max(0, min(request.max_wait_ms, config.fetch_max_wait_ms))
    if progress.parked is not None:
        # An earlier fetch of the same node, which no longer waits for it, or one of another node with its id.
        member.reply(progress.parked.token, answers.displaced(request.replica_id))
    progress.parked = ParkedFetch(token, row.fetch_offset, max_bytes, member.now_ms + wait_ms)
    progress.fetches_from(request.voter_directory_id, request.kraft_version, member.now_ms)
    progress.on_fetch(row.fetch_offset, shape.log_end_offset, member.now_ms)
    member.advance()


def _fetch_snapshot(member: Member, token: int, request: FetchSnapshotRequest) -> None:
    """A piece of a snapshot that is kept; the shell, which has the file, refuses a position outside of it."""
    config, epoch = member.config, member.state.raft_epoch
    refusal = answers.check_fetch_snapshot(request, config)
    role = member.role
    if refusal is None and (not isinstance(role, Leader) or request.current_leader_epoch != epoch):
        text = f"not the leader of epoch {request.current_leader_epoch}: ask node {member.leader_hint}"
        refusal = ErrorCode.NOT_LEADER_OR_FOLLOWER, text
        if request.current_leader_epoch < epoch:
            refusal = ErrorCode.FENCED_LEADER_EPOCH, text
    if refusal is None and isinstance(role, Leader):
        refusal = _check_directory(member, role, request)
    id = SnapshotId(request.snapshot_end_offset, request.snapshot_epoch)
    if refusal is None and id not in member.snapshots:
        text = f"there is no snapshot at {id.offset} of epoch {id.epoch} any more: fetch the log again"
        refusal = ErrorCode.SNAPSHOT_NOT_FOUND, text
    if refusal is not None:
        member.reply(token, answers.no_piece(refusal, member.leader_hint, epoch))
        return
    assert isinstance(role, Leader), "others have refused"
    if (voter := role.voters.get(request.replica_id)) is not None:
        voter.heard_ms = member.now_ms  # it is alive (K7), though it tells no progress
    read = ReadPiece(id, request.position, min(request.max_bytes, answers.PIECE_BYTES_MAX))
    member.reply(token, answers.piece(config.node_id, epoch, request.position), read)


def answer_parked(member: Member, leader: Leader) -> None:
    """Answer the parked fetches for which there is news or whose time is over (K10)."""
    end_offset = member.shape.log_end_offset
    for parked in leader.take_parked(end_offset, member.high_watermark, member.now_ms):
        has_records = parked.fetch_offset < end_offset
        read = Read(parked.fetch_offset, parked.max_bytes) if has_records else None
        member.reply(parked.token, _data(member, leader), read)


def _data(member: Member, leader: Leader) -> FetchResponse:
    """With high watermark 0 until a record of this epoch is committed (K12). Before, more may be committed
    than this node was told or its snapshot proves: who took that for all would count as caught up (R113)."""
    committed = member.high_watermark if member.high_watermark > leader.epoch_start_offset else 0
    return answers.data(member.config.node_id, member.state.raft_epoch, member.shape, committed)
