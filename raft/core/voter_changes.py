"""How the leader changes the voters that the metadata log names, at an operator's word (K30).

Owns nothing; works on the member and its leadership. One change at a time: a set differs from the one before,
which is committed, by one voter, so that a majority of either has a member in common. It counts from its
record on, committed or not.
"""

from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.quorum import (
    AddRaftVoterRequest,
    RemoveRaftVoterRequest,
    UpgradeQuorumRequest,
)
from holdfast.raft.core import answers
from holdfast.raft.core.control_records import Voter
from holdfast.raft.core.effects import VotersWanted
from holdfast.raft.core.leadership import ChangeKind, Leader, VoterChange
from holdfast.raft.core.member import Member
from holdfast.raft.core.quorum import majority_count
from holdfast.raft.core.voter_sets import parse_endpoint, with_voter, without_voter

#: How long a leader waits until all voters have noted that the log may name them.
UPGRADE_WAIT_MS = 3_000

_KINDS: dict[type, ChangeKind] = {
    AddRaftVoterRequest: ChangeKind.ADD,
    RemoveRaftVoterRequest: ChangeKind.REMOVE,
    UpgradeQuorumRequest: ChangeKind.UPGRADE,
}


def ask(
    member: Member, token: int, request: AddRaftVoterRequest | RemoveRaftVoterRequest | UpgradeQuorumRequest
) -> None:
    """Begin the change, whose answer waits until it is committed; or refuse it."""
    kind, leader = _KINDS[type(request)], member.role
    if not isinstance(leader, Leader):
        text = f"not the leader: ask node {member.leader_hint}, or again later"
        member.reply(token, answers.not_changed(kind, (ErrorCode.NOT_LEADER_OR_FOLLOWER, text)))
        return
    if isinstance(request, UpgradeQuorumRequest):
        refusal = _check_upgrade(member, leader, request)
        change = VoterChange(token, kind, None, deadline_ms=member.now_ms + UPGRADE_WAIT_MS)
    elif isinstance(request, AddRaftVoterRequest):
        refusal, change = _check_added(member, leader, token, request)
    else:
        refusal = _check_removed(member, leader, request)
        change = VoterChange(token, kind, without_voter(member.voters.sets.latest, request.voter_id))
    if refusal is not None:
        member.reply(token, answers.not_changed(kind, refusal))
    elif kind is ChangeKind.UPGRADE and member.voters.are_named:
        member.reply(token, answers.changed(kind, None))  # it is done already
    else:
        member.want_change(change)


# --- checks --------------------------------------------------------------------------------------------


def _check_leader(member: Member, leader: Leader) -> answers.Refusal | None:
    """Why no change can begin now. Without a committed record of its own epoch, a leader may not know of the
    latest committed set."""
    if member.high_watermark <= leader.epoch_start_offset:
        text = "this leader has committed no record of its epoch yet: ask again"
        return ErrorCode.REQUEST_TIMED_OUT, text
    if leader.change is not None or member.voters.sets.latest_offset >= member.high_watermark:
        return ErrorCode.REQUEST_TIMED_OUT, "another change of the voters is under way: ask again"
    return None


def _check_named(member: Member) -> answers.Refusal | None:
    if member.voters.are_named:
        return None
    return ErrorCode.INVALID_REQUEST, (
        "the voters are those of controller.quorum.voters: let the metadata log name them first"
    )


def _check_upgrade(member: Member, leader: Leader, request: UpgradeQuorumRequest) -> answers.Refusal | None:
    if request.kraft_version != 1:
        return ErrorCode.INVALID_REQUEST, f"kraft.version {request.kraft_version} is not known here, 1 is"
    refusal = _check_leader(member, leader)
    if refusal is not None or member.voters.are_named:
        return refusal
    since_ms = member.now_ms - member.config.fetch_timeout_ms
    earlier = [*leader.earlier_voters]
    earlier += [
        id
        for id, one in sorted(leader.observers.items())
        if one.kraft_version < 0 and one.heard_ms >= since_ms
    ]
    if not earlier:
        return None
    # Nothing is written then: the nodes that have this build can still go back.
    return ErrorCode.REQUEST_TIMED_OUT, (
        f"the nodes {earlier} are of an earlier build, which goes by its configuration, or have not fetched "
        "yet: start them with this build, and ask again"
    )


def _check_added(
    member: Member, leader: Leader, token: int, request: AddRaftVoterRequest
) -> tuple[answers.Refusal | None, VoterChange]:
    change = VoterChange(token, ChangeKind.ADD, None)
    voter_id, address = request.voter_id, parse_endpoint(request.endpoint)
    refusal = _check_named(member)
    if refusal is not None:
        return refusal, change
    if voter_id in member.voters.ids:
        text = f"node {voter_id} is a voter already; of another disk: remove it, and add it again"
        return (ErrorCode.DUPLICATE_VOTER, text), change
    if voter_id < 0 or address is None:
        return (ErrorCode.INVALID_REQUEST, f"{request.endpoint} is no host:port for voter {voter_id}"), change
    refusal = _check_leader(member, leader)
    if refusal is not None:
        return refusal, change
    observer = leader.observers.get(voter_id)
    since_ms = member.now_ms - member.config.fetch_timeout_ms
    if observer is not None and observer.last_broker_ms >= max(0, since_ms):
        text = f"node.id {voter_id} is a broker's: a controller needs another one"
        return (ErrorCode.INVALID_REQUEST, text), change
    if observer is None or observer.directory_id is None or observer.kraft_version < 1:
        text = f"no controller {voter_id} of this build fetches the metadata log yet: start it, and ask again"
        return (ErrorCode.REQUEST_TIMED_OUT, text), change
    if request.directory_id not in (None, observer.directory_id):
        found = observer.directory_id.hex()
        return (ErrorCode.INVALID_REQUEST, f"controller {voter_id} fetches with directory {found}"), change
    if not observer.has_caught_up_since(since_ms):
        text = f"controller {voter_id} has not caught up, its log ends at {observer.end_offset}: ask again"
        return (ErrorCode.REQUEST_TIMED_OUT, text), change
    added = Voter(voter_id, observer.directory_id, *address)
    change.voters, change.directory_id = with_voter(member.voters.sets.latest, added), added.directory_id
    return _check_alive(member, leader, change.voters), change


def _check_removed(member: Member, leader: Leader, request: RemoveRaftVoterRequest) -> answers.Refusal | None:
    refusal = _check_named(member)
    if refusal is not None:
        return refusal
    voter = member.voters.sets.find(request.voter_id)
    if voter is None or request.directory_id not in (None, voter.directory_id):
        return ErrorCode.VOTER_NOT_FOUND, (
            f"node {request.voter_id} is not one of the voters {list(member.voters.ids)}, or not with this "
            "directory"
        )
    rest = without_voter(member.voters.sets.latest, request.voter_id)
    if not rest:
        return ErrorCode.INVALID_REQUEST, "the only voter of the quorum has no successor"
    return _check_leader(member, leader) or _check_alive(member, leader, rest)


def _check_alive(member: Member, leader: Leader, voters: tuple[Voter, ...]) -> answers.Refusal | None:
    """Refuse a set that could commit nothing now, not even its own way back."""
    ids = [voter.voter_id for voter in voters]
    alive = leader.living_voters(ids, member.now_ms - member.config.fetch_timeout_ms)
    if len(alive) >= majority_count(len(ids)):
        return None
    return ErrorCode.INVALID_REQUEST, (
        f"of the voters {ids} only {sorted(alive)} fetch, which is no majority: start the others first"
    )


# --- the change under way ------------------------------------------------------------------------------


def go_on(member: Member, leader: Leader) -> None:
    """Do what is due for the change under way, and for a leader that its own set leaves out."""
    change = leader.change
    if change is not None and change.voters is None:
        _go_on_upgrade(member, leader, change)
    elif change is not None and change.offset is not None and change.offset < member.high_watermark:
        leader.change = None
        member.reply(change.token, answers.changed(change.kind, change.directory_id))
    if not leader.is_counted and member.voters.sets.latest_offset < member.high_watermark:
        member.resign("it is no voter any more (K30)")


def _go_on_upgrade(member: Member, leader: Leader, change: VoterChange) -> None:
    missing = [id for id in member.voters.ids if not _has_noted(member, leader, id)]
    if not missing:
        directories = member.voters.directories.known
        change.voters = tuple(
            Voter(id, directories[id], *member.config.voters[id]) for id in member.voters.ids
        )
        change.deadline_ms = None
        member.out.append(VotersWanted())
    elif change.deadline_ms is not None and change.deadline_ms <= member.now_ms:
        leader.change = None
        text = f"the voters {missing} have not noted that the log shall name them: start them with this build"
        member.reply(change.token, answers.not_changed(change.kind, (ErrorCode.REQUEST_TIMED_OUT, text)))


def _has_noted(member: Member, leader: Leader, voter_id: int) -> bool:
    """The voter's disk says that the log may name the voters, so that no build starts on it that takes them
    from its configuration. And the log names its directory."""
    directory_id = member.voters.directories.known.get(voter_id)
    if voter_id == member.config.node_id:
        return (
            member.durable_state.kraft_version >= 1 and directory_id == member.state.directory_id is not None
        )
    voter = leader.voters[voter_id]
    return voter.kraft_version >= 1 and voter.counts and directory_id == voter.directory_id is not None
