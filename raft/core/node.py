"""One member of the metadata quorum, voter or observer: takes an event and `now_ms`, returns effects
(K1-K16).

Owns the dispatch of events and the timers; `raft.core.member` has the state and its transitions. Never waits,
sends, writes or reads the clock: the driver does. The order of the effects says what must be durable before
what (`raft.core.effects`).
"""

from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.fetch import FetchResponse
from holdfast.protocol.messages.quorum import (
    AddRaftVoterResponse,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchSnapshotResponse,
    QuorumEpochResponse,
    VoteRequest,
    VoteResponse,
)
from holdfast.raft.core import following, joining, serving, voter_changes
from holdfast.raft.core.config import RaftConfig
from holdfast.raft.core.control_records import Voter
from holdfast.raft.core.effects import (
    Answered,
    CannotLead,
    Effect,
    Event,
    Flushed,
    Persisted,
    PieceSaved,
    Propose,
    ProposeVoters,
    RaftRequest,
    RaftResponse,
    RequestReceived,
    Resign,
    SendFailed,
    SnapshotInstalled,
    SnapshotRefused,
    SnapshotsKept,
    Start,
    Tick,
    Truncated,
)
from holdfast.raft.core.leadership import Leader
from holdfast.raft.core.log_shape import LogShape
from holdfast.raft.core.member import Member, Snapshot
from holdfast.raft.core.quorum import FIRST_EPOCH, QuorumState
from holdfast.raft.core.roles import Candidate, Follower, Prospective, Resigned, Unattached
from holdfast.raft.core.snapshot_format import SnapshotId
from holdfast.raft.core.voter_directories import VoterDirectories
from holdfast.raft.core.voter_sets import VoterSets
from holdfast.rpc.core.failures import CallFailure
from holdfast.runtime.api import Random


class RaftNode:
    """A voter or an observer. Call `start` once, then `handle` for every event."""

    def __init__(
        self,
        config: RaftConfig,
        random: Random,
        state: QuorumState,
        shape: LogShape,
        directories: VoterDirectories | None = None,
        snapshots: tuple[SnapshotId, ...] = (),
        sets: VoterSets | None = None,
    ) -> None:
        """`state`: content of the quorum-state file; `shape`: the recovered log; `directories` and `sets`:
        what it says of the voters; `snapshots`: those that are kept. Raises: ValueError, BadQuorumState."""
        config.validate()
        self._config = config
        self._member = Member(config, random, state, shape, directories, snapshots, sets)

    @property
    def raft_epoch(self) -> int:
        return self._member.state.raft_epoch

    @property
    def leader_id(self) -> int | None:
        """The leader of this epoch, None when unknown or known to be gone."""
        return self._member.leader_id

    @property
    def is_leader(self) -> bool:
        return isinstance(self._member.role, Leader)

    @property
    def durable_state(self) -> QuorumState:
        """Epoch, vote and leader as they are on disk."""
        return self._member.durable_state

    @property
    def epoch_start_offset(self) -> int | None:
        """Where the leader's own epoch begins in the log, None when it does not lead."""
        role = self._member.role
        return role.epoch_start_offset if isinstance(role, Leader) else None

    @property
    def high_watermark(self) -> int:
        """Exclusive end of the records that this node knows to be committed."""
        return self._member.high_watermark

    @property
    def has_caught_up(self) -> bool:
        """True once `high_watermark` has been all that the leader knew to be committed."""
        return self._member.has_caught_up

    @property
    def log_end_offset(self) -> int:
        """Offset of the next Append."""
        return self._member.shape.log_end_offset

    def directories_below(self, offset: int) -> dict[int, bytes]:
        """`{voter: directory id}` as the log names them below `offset`."""
        return self._member.voters.directories.below(offset)

    def voters_below(self, offset: int) -> tuple[Voter, ...]:
        """The voters, by id, as the log names them below `offset`; empty when it leaves that to the
        configuration."""
        return self._member.voters.sets.below(offset)

    @property
    def voter_ids(self) -> tuple[int, ...]:
        """The voters at the log's end, ascending, committed or not."""
        return self._member.voters.ids

    @property
    def earlier_voters(self) -> tuple[int, ...]:
        """Other voters, ascending, that fetch from this leader as a build that knows of no voters in the log
        does, or have not fetched yet. None unless this node leads."""
        role = self._member.role
        return role.earlier_voters if isinstance(role, Leader) else ()

    def address_of(self, node_id: int) -> tuple[str, int] | None:
        """(host, port) of a voter or a leader, None when it is not known."""
        return self._member.voters.address_of(node_id)

    def address_missed(self, node_id: int, address: tuple[str, int]) -> bool:
        """No connection to the node was made there. True when another address is tried next."""
        return self._member.voters.addresses.missed(node_id, address, self._member.voters.sets)

    @property
    def now_ms(self) -> int:
        """Time of the last event."""
        return self._member.now_ms

    @property
    def is_installing(self) -> bool:
        """The leader's snapshot is taking the place of the log."""
        return self._member.is_installing

    @property
    def log_start_offset(self) -> int:
        """Where the log begins."""
        return self._member.shape.start.end_offset

    def snapshot_at(self, offset: int) -> SnapshotId:
        """The id of a snapshot of what is below `offset`, which is committed and no lower than the start."""
        return SnapshotId(offset, self._member.shape.epoch_below(offset))

    def snapshot(self) -> Snapshot:
        """A copy of the state for checkers, metrics and logs."""
        return self._member.snapshot()

    def next_deadline_ms(self) -> int | None:
        """When to send a Tick if no event comes before; None for never."""
        member, role = self._member, self._member.role
        times: list[int | None] = []
        if isinstance(role, Leader):
            times.append(role.check_quorum_deadline_ms(self._config.check_quorum_timeout_ms))
            times.append(role.next_parked_deadline_ms())
            times.append(member.elections.hand_over_ms(role, member.high_watermark))
            times.append(None if role.change is None else role.change.deadline_ms)
        elif not member.is_log_changing:
            times.append(role.deadline_ms)
        if isinstance(role, (Unattached, Follower)):
            if following.may_fetch(member):
                times.append(member.fetcher.ready_at_ms)
            times.append(joining.due_ms(member))
        else:
            times.append(role.calls.next_due_ms())
        return min((time_ms for time_ms in times if time_ms is not None), default=None)

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """Handle one event; returns the effects in the order in which to carry them out."""
        member = self._member
        assert now_ms >= member.now_ms, "monotonic time"
        member.now_ms = now_ms
        match event:
            case Start():
                member.start()
            case Tick():
                pass
            case RequestReceived(token, request, wall_ms):
                serving.serve(member, token, request, wall_ms)
            case Answered(request_id, response):
                self._answered(request_id, response)
            case SendFailed(request_id, failure):
                self._send_failed(request_id, failure)
            case Propose(values):
                member.append(values)
            case ProposeVoters():
                member.name_directories()
            case Flushed(up_to_offset):
                member.flushed(up_to_offset)
            case Truncated(end_offset):
                assert member.is_truncating and end_offset == member.shape.log_end_offset
                member.is_truncating = False
            case SnapshotsKept(ids, log_start):
                member.snapshots = ids
                if log_start is not None:
                    member.shape.trim_to(log_start.position)
            case PieceSaved() | SnapshotRefused():
                following.piece_saved(member, event)
            case SnapshotInstalled(id, directories, voters):
                member.installed(id, directories, voters)
            case Persisted(state):
                member.durable_state = state
            case Resign(reason):
                if isinstance(member.role, Leader):
                    member.resign(reason)
            case CannotLead(reason):
                member.elections.owner_cannot_lead(reason, member.now_ms)
        return self._finish()

    def _finish(self) -> list[Effect]:
        """Run due timers, send due requests and complete the list of effects."""
        self._run_timers()
        self._send_calls()
        following.send_fetch(self._member)
        joining.send(self._member)
        return self._member.take_effects()

    # --- timers ----------------------------------------------------------------------------------------

    def _run_timers(self) -> None:
        member, role = self._member, self._member.role
        if isinstance(role, Leader):
            deadline_ms = role.check_quorum_deadline_ms(self._config.check_quorum_timeout_ms)
            hand_over_ms = member.elections.hand_over_ms(role, member.high_watermark)
            if deadline_ms is not None and deadline_ms <= member.now_ms:
                member.resign("too few voters have fetched for 1.5 times the fetch timeout (K7)")
            elif hand_over_ms is not None and hand_over_ms <= member.now_ms:
                member.resign(f"another voter should lead (K29): {member.elections.cannot_lead}")
            else:
                serving.answer_parked(member, role)
                serving.answer_added(member, role)
                voter_changes.go_on(member, role)
            return
        if role.deadline_ms is None or role.deadline_ms > member.now_ms or member.is_log_changing:
            return
        match role:
            case Unattached() | Follower() | Candidate():
                cannot_lead = member.elections.cannot_lead is not None
                if isinstance(role, Follower) and cannot_lead and not role.is_leader_gone:
                    member.leader_gone(0)  # others run first (K29), and need its pre-vote
                elif member.may_run:
                    member.become_prospective()
                else:
                    # a leader of the others calls it (K8)
                    role.deadline_ms = member.elections.timeout_ms(member.now_ms)
            case Prospective():
                member.prospective_lost(role)
            case Resigned():
                member.become_unattached(member.state.raft_epoch + 1)

    def _send_calls(self) -> None:
        member, role = self._member, self._member.role
        if isinstance(role, (Unattached, Follower)):
            return
        for voter_id in role.calls.due(member.now_ms):
            request = self._call_of(role, voter_id)
            role.calls.sent(voter_id, member.send(voter_id, request, self._config.request_timeout_ms))

    def _call_of(self, role: Leader | Prospective | Candidate | Resigned, voter_id: int) -> RaftRequest:
        """The request of a role to each of the other voters."""
        cluster_id, node_id = self._config.cluster_id, self._config.node_id
        state, shape = self._member.state, self._member.shape
        epoch = state.raft_epoch
        match role:
            case Leader():
                endpoint = self._member.leader_endpoint
                return BeginQuorumEpochRequest(cluster_id, node_id, epoch, voter_id, endpoint)
            case Resigned():
                return EndQuorumEpochRequest(cluster_id, node_id, epoch, role.preferred_successors)
            case Prospective() | Candidate():
                last_epoch = max(FIRST_EPOCH, shape.last_epoch)
                named = self._member.voters.sets.find(voter_id)
                is_pre_vote = isinstance(role, Prospective)
                return VoteRequest(
                    cluster_id,
                    epoch,
                    node_id,
                    voter_id,
                    last_epoch,
                    shape.log_end_offset,
                    is_pre_vote,
                    state.directory_id,
                    bootstraps=role.bootstraps if isinstance(role, Candidate) else not state.is_admitted,
                    voter_directory_id=named.directory_id if named is not None else None,
                )

    # --- outcomes of requests --------------------------------------------------------------------------

    def _answered(self, request_id: int, response: RaftResponse) -> None:
        match response:
            case FetchResponse():
                # A late answer to an earlier fetch must not change the log (N-4).
                if request_id == self._member.fetcher.request_id:
                    following.fetch_answered(self._member, response)
            case FetchSnapshotResponse():
                if request_id == self._member.fetcher.request_id:
                    following.piece_answered(self._member, response)
            case VoteResponse():
                self._vote_answered(request_id, response)
            case QuorumEpochResponse():
                self._call_answered(request_id, response)
            case AddRaftVoterResponse():
                joining.answered(self._member, request_id, response)
            case _:
                raise AssertionError(f"never asked for {type(response).__name__}")

    def _call_answered(self, request_id: int, response: VoteResponse | QuorumEpochResponse) -> int | None:
        """The voter that answered a call of the present role; None when the answer no longer matters."""
        member = self._member
        if response.error_code not in (ErrorCode.NONE, ErrorCode.FENCED_LEADER_EPOCH):
            member.note(f"a voter refused a request of this node: {response.error_message}")
            self._call_failed(request_id)
            return None
        if member.learn(response.raft_epoch, response.leader_id):
            return None
        if isinstance(member.role, (Unattached, Follower)):
            return None
        return member.role.calls.answered(request_id)

    def _vote_answered(self, request_id: int, response: VoteResponse) -> None:
        voter_id = self._call_answered(request_id, response)
        member, role = self._member, self._member.role
        if voter_id is None or not isinstance(role, (Prospective, Candidate)):
            return
        granted = response.vote_granted and not self._is_of_other_directory(role, voter_id, response)
        role.votes.record(voter_id, granted, response.directory_id)
        match role:
            case Prospective():
                if role.votes.is_won:
                    member.become_candidate(role.votes)
                elif role.votes.is_lost:
                    member.prospective_lost(role)
            case Candidate():
                if role.votes.is_won:
                    member.become_leader(role.votes)
                elif role.votes.is_lost:
                    member.candidate_lost(role)

    def _is_of_other_directory(
        self, role: Prospective | Candidate, voter_id: int, response: VoteResponse
    ) -> bool:
        """The vote comes from another directory than the log names, or than gave the pre-vote: from a disk
        that does not hold what this voter promised (K8)."""
        asked = role.votes.directories.get(voter_id, response.directory_id)
        directories = self._member.voters.directories
        if asked == response.directory_id and not directories.is_other(voter_id, response.directory_id):
            return False
        self._member.note(f"voter {voter_id} votes from another directory than before: that counts nothing")
        return True

    def _send_failed(self, request_id: int, failure: CallFailure) -> None:
        self._call_failed(request_id)
        joining.failed(self._member, request_id)
        if request_id == self._member.fetcher.request_id:
            following.fetch_failed(self._member, failure)

    def _call_failed(self, request_id: int) -> None:
        if not isinstance(self._member.role, (Unattached, Follower)):
            self._member.role.calls.failed(request_id, self._member.now_ms)
