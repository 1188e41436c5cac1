"""The state of one member of the quorum, and every transition between roles (K1).

Owns role, epoch, vote, leader, log shape and high watermark, and the list of effects being built.
`raft.core.voters` knows who votes, `raft.core.election_times` when this member runs. `raft.core.node`
dispatches events and keeps the timers, `raft.core.serving` answers peers, `raft.core.following` fetches; they
change this state only through the methods here.
"""

from dataclasses import dataclass

from holdfast.protocol.errors import ErrorCode
from holdfast.raft.core import answers
from holdfast.raft.core.config import BATCH_MAX_BYTES, RaftConfig
from holdfast.raft.core.control_records import (
    LeaderChangeRecord,
    Voter,
    VoterNews,
    VotersRecord,
    directory_rows,
    encode_leader_change,
    encode_voters,
)
from holdfast.raft.core.effects import (
    Append,
    Committed,
    Control,
    Effect,
    Flush,
    LeaderChanged,
    Persist,
    RaftRequest,
    RaftResponse,
    Read,
    ReadPiece,
    Reply,
    Send,
    VotersWanted,
)
from holdfast.raft.core.election_times import ElectionTimes
from holdfast.raft.core.fetcher import Fetcher
from holdfast.raft.core.leadership import Leader, VoterChange
from holdfast.raft.core.log_shape import LogShape
from holdfast.raft.core.quorum import START_ANEW, BadQuorumState, QuorumState, Votes
from holdfast.raft.core.roles import LEGAL_MOVES, Candidate, Follower, Prospective, Resigned, Role, Unattached
from holdfast.raft.core.snapshot_format import SnapshotId
from holdfast.raft.core.voter_calls import VoterCalls
from holdfast.raft.core.voter_directories import VoterDirectories
from holdfast.raft.core.voter_sets import VoterSets
from holdfast.raft.core.voters import Voters
from holdfast.runtime.api import Random
from holdfast.runtime.stats import Level, LogLine

_LEADERSHIP_ENDED = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    "the leadership ended before the change was committed: ask again whether it is",
)


@dataclass(slots=True)
class Download:
    """A snapshot of the leader that is being fetched."""

    id: SnapshotId
    #: first byte that is not saved yet
    position: int = 0
    #: a piece is being saved: no fetch before it is
    is_saving: bool = False
    #: where that piece ends; the disk may still owe one of a download before
    saving_to: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A member's state for checkers, metrics and logs."""

    node_id: int
    role: str
    raft_epoch: int
    voted_for: int | None
    leader_id: int | None
    high_watermark: int
    log_end_offset: int
    flushed_offset: int
    last_epoch: int


def _check_may_not_know(config: RaftConfig, state: QuorumState, shape: LogShape, voters: Voters) -> None:
    """Refuse to start a voter whose log is ahead of its quorum-state file. A voter has its epoch on disk
    before its first record (Q-9), so the file was lost, and with it a vote given in this epoch or a later one
    (K5). An observer never votes, and a sole voter appends before its state is written."""
    if config.is_voter and not voters.is_alone:
        raise BadQuorumState(
            f"quorum-state in {config.folder} is missing or older than the log beside it (it knows epoch "
            f"{state.raft_epoch}, the log ends in epoch {shape.last_epoch}), so this voter no longer knows "
            f"whom it voted for: put the file back as it was at the last stop; or, {START_ANEW}"
        )


class Member:
    """State and transitions. Effects collect in `out` until the node takes them."""

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
        """`state`: content of the quorum-state file, or a new one; `shape`: the recovered log; `directories`
        and `sets`: what it says of the voters; `snapshots`: those that are kept, ascending, whose last one
        the owner has loaded. Raises: BadQuorumState."""
        self.config = config
        self.shape = shape
        self.voters = Voters(config, directories or VoterDirectories(), sets or VoterSets())
        self.elections = ElectionTimes(config, random, self.voters)
        #: the state that is surely on disk (Q-9)
        self.durable_state = state
        if shape.last_epoch > state.raft_epoch:
            # The log proves an epoch that the file does not have.
            _check_may_not_know(config, state, shape, self.voters)
            state = state.of_epoch(shape.last_epoch)
        if not self.voters.are_named and self.voters.is_alone:
            state = state.admitted()  # no other voter has relied on it
        #: epoch, vote and leader; changed by `_set_state`, and the epoch never falls (Q-6)
        self.state = state
        #: changed by `_enter` only
        self.role: Role = Unattached(None)
        #: those that are kept, ascending; the log begins at none above the first
        self.snapshots = snapshots
        #: exclusive end of the committed part; never falls in a process's life. After a restart only that a
        #: snapshot was committed is known (K12, K15)
        self.high_watermark = snapshots[-1].offset if snapshots else 0
        #: the leader's snapshot that is being fetched, None for none
        self.download: Download | None = None
        #: the last piece of a snapshot is saved, and the log is about to begin at its end: no fetches,
        #: elections or appends
        self.is_installing = False
        self.fetcher = Fetcher((), config.retry_backoff_ms)
        #: the request to be made a voter that is under way, and when the next one may be sent (K30)
        self.join_request_id: int | None = None
        self.join_at_ms = 0
        self._read_voters()
        #: a leader has given its high watermark, and this log holds everything below it
        self.has_caught_up = False
        #: a Truncate is under way: no fetches, elections or appends
        self.is_truncating = False
        self.now_ms = 0
        self.out: list[Effect] = []
        self._requests_sent = 0
        #: the state of the last Persist in `out`
        self._persisting: QuorumState | None = None
        #: (leader, epoch) in the last LeaderChanged
        self._announced: tuple[int | None, int] = (None, -1)

    @property
    def leader_id(self) -> int | None:
        """The leader of this epoch, None when unknown or known to be gone."""
        role = self.role
        if isinstance(role, Leader):
            return self.config.node_id
        if isinstance(role, Follower) and not role.is_leader_gone:
            return role.leader_id
        return None

    @property
    def is_log_changing(self) -> bool:
        """The log is being cut or replaced: no fetches, elections or appends."""
        return self.is_truncating or self.is_installing

    @property
    def leader_hint(self) -> int:
        """`leader_id` as on the wire: -1 when unknown."""
        return -1 if self.leader_id is None else self.leader_id

    @property
    def may_run(self) -> bool:
        """It may ask for votes. A new directory only as long as its log is empty, for the first election of a
        new cluster (K8)."""
        return self.state.is_admitted or self.shape.log_end_offset == 0

    # --- voters (K30) ----------------------------------------------------------------------------------

    def _read_voters(self) -> None:
        voters = self.voters
        voters.read(self.state.directory_id, self.high_watermark)
        self.fetcher.others = voters.to_ask
        if voters.are_named:
            self._set_state(self.state.of_version(1))
            if voters.is_counted:
                # The set names the directory: it has lost nothing. Another with this id is another voter.
                self._set_state(self.state.admitted())

    def see_voters(self) -> None:
        """The log's end has moved: take the voters from there."""
        voters, role = self.voters, self.role
        was_voter = voters.is_voter
        self._read_voters()
        if isinstance(role, Leader):
            role.take_voters(voters.others, voters.is_counted, self.now_ms)
        elif isinstance(role, Follower) and was_voter != voters.is_voter:
            role.deadline_ms = self.fetch_deadline_ms()
        elif isinstance(role, Unattached) and was_voter != voters.is_voter:
            role.deadline_ms = self.elections.run_ms(self.now_ms) if voters.is_voter else None

    def hear(self, offset: int, news: VoterNews) -> None:
        """A control batch at `offset`, behind all others, tells of the voters."""
        if news.directories:
            self.voters.directories.append(offset, news.directories)
        if news.kraft_version:
            self._set_state(self.state.of_version(1))
        if news.voters:
            self.voters.sets.append(offset, news.voters)
            self.see_voters()

    @property
    def leader_endpoint(self) -> str | None:
        """What to tell peers of where the leader is; None while the log names no voters."""
        address = None if self.leader_id is None else self.voters.address_of(self.leader_id)
        return f"{address[0]}:{address[1]}" if address is not None and self.voters.are_named else None

    def snapshot(self) -> Snapshot:
        return Snapshot(
            self.config.node_id,
            type(self.role).__name__,
            self.state.raft_epoch,
            self.state.voted_for,
            self.leader_id,
            self.high_watermark,
            self.shape.log_end_offset,
            self.shape.flushed_offset,
            self.shape.last_epoch,
        )

    # --- effects ---------------------------------------------------------------------------------------

    def take_effects(self) -> list[Effect]:
        """Complete and return the list of effects of one event."""
        known = (self.leader_id, self.state.raft_epoch)
        if known != self._announced:
            self._announced = known
            start_offset = self.role.epoch_start_offset if isinstance(self.role, Leader) else None
            self.out.append(LeaderChanged(*known, start_offset))
        self._persist_first()
        out, self.out = self.out, []
        self._persisting = None
        return out

    def _persist_first(self) -> None:
        if self.state not in (self.durable_state, self._persisting):
            self.out.append(Persist(self.state))
            self._persisting = self.state

    def reply(self, token: int, response: RaftResponse, read: Read | ReadPiece | None = None) -> None:
        """Answer a peer. What the answer depends on (vote, epoch, leader) is made durable first (Q-9)."""
        self._persist_first()
        self.out.append(Reply(token, response, read))

    def send(self, voter_id: int, request: RaftRequest, timeout_ms: int) -> int:
        """Send to a voter; returns the request id. What the request reveals is made durable first (Q-9)."""
        self._persist_first()
        self._requests_sent += 1
        self.out.append(Send(self._requests_sent, voter_id, request, timeout_ms))
        return self._requests_sent

    def note(self, text: str) -> None:
        self.out.append(LogLine(Level.WARNING, text))

    # --- deadlines -------------------------------------------------------------------------------------

    def fetch_deadline_ms(self) -> int | None:
        return self.now_ms + self.config.fetch_timeout_ms if self.voters.is_voter else None

    def calls_to(self, voter_ids: tuple[int, ...]) -> VoterCalls:
        return VoterCalls(voter_ids, self.now_ms, self.config.retry_backoff_ms)

    # --- moves -----------------------------------------------------------------------------------------

    def _enter(self, role: Role) -> None:
        """Change the role; the only place that does (Q-5)."""
        assert type(role) in LEGAL_MOVES[type(self.role)], f"{self.snapshot()} to {role}"
        may_vote = self.voters.is_voter or isinstance(role, Resigned)
        assert may_vote or isinstance(role, (Unattached, Follower)), "an observer never runs"
        left, self.role = self.role, role
        if isinstance(left, Leader):
            for parked in left.take_all_parked():
                self.reply(parked.token, self.not_leader())
            for token, _, _ in left.additions:
                text = "the leadership ended before the change was committed: ask again whether it is"
                self.reply(token, answers.not_added((ErrorCode.NOT_LEADER_OR_FOLLOWER, text)))
            if (change := left.change) is not None:
                self.reply(change.token, answers.not_changed(change.kind, _LEADERSHIP_ENDED))
        self.fetcher.reset()
        if not self.is_installing:
            self.download = None

    def _set_state(self, state: QuorumState) -> None:
        is_observer = not self.config.is_voter
        assert self.state.allows(state, is_observer=is_observer), (
            f"{state} breaks what {self.state} promised (Q-6)"
        )
        self.state = state

    def start(self) -> None:
        """Take the role that follows from the stored state (K3)."""
        state, config = self.state, self.config
        # Early, since pre-votes disturb no other voter: a cluster that starts as a whole has a leader at
        # once.
        soon_ms = self.now_ms
        if len(self.voters.ids) > 1:
            soon_ms += self.elections.delay_after_ms(state.leader_id)
        if state.leader_id == config.node_id and config.is_voter:
            # Never leads again silently: others may follow a newer leader, and an epoch has one log (N-1).
            self.role = Resigned(self.calls_to(()), soon_ms)
        elif state.leader_id is not None and state.leader_id in self.voters.ids:
            self.voters.keep_address_of(state.leader_id)
            self.role = Follower(state.leader_id, self.fetch_deadline_ms())
        else:
            self.role = Unattached(soon_ms if self.voters.is_voter else None)

    def become_unattached(self, raft_epoch: int) -> None:
        """Enter a later epoch without a leader."""
        if raft_epoch != self.state.raft_epoch:
            self._set_state(self.state.of_epoch(raft_epoch))
        self._enter(Unattached(self.elections.run_ms(self.now_ms) if self.voters.is_voter else None))

    def vote_for(self, candidate_id: int, directory_id: bytes | None) -> None:
        """Vote in this epoch, which has no leader yet."""
        # A new directory votes in the first election of a cluster only, and counts from then on (K8).
        self._set_state(self.state.with_vote(candidate_id, directory_id).admitted())
        self.become_unattached(self.state.raft_epoch)

    def become_follower(self, raft_epoch: int, leader_id: int) -> None:
        """Follow the leader of this or a later epoch."""
        self._set_state(self.state.of_epoch(raft_epoch, leader_id))
        self.elections.lost_count = 0
        self.voters.keep_address_of(leader_id)
        self._enter(Follower(leader_id, self.fetch_deadline_ms()))

    def become_prospective(self) -> None:
        """Ask for pre-votes; epoch and vote stay (K4)."""
        role, config = self.role, self.config
        leader_id, is_gone = None, False
        if isinstance(role, Follower):
            leader_id, is_gone = role.leader_id, role.is_leader_gone
        if isinstance(role, Candidate) and not role.is_backing_off:
            self.elections.lost_count += 1
        # A new directory cannot know whether the cluster is new, or only its disk: all voters must say (K8).
        votes = Votes(
            len(self.voters.ids),
            config.node_id,
            needs_all=not self.state.is_admitted,
            counts_own=self.voters.is_counted,
        )
        calls = self.calls_to(self.voters.others)
        self._enter(Prospective(leader_id, is_gone, votes, calls, self.elections.timeout_ms(self.now_ms)))
        if votes.is_won:
            self.become_candidate(votes)

    def prospective_lost(self, role: Prospective) -> None:
        """A majority refused the pre-vote, or its time is over (K2)."""
        self.elections.lost_count += 1
        if not self.state.is_admitted:
            others = ", ".join(map(str, self.voters.others))
            self.note(
                f"this voter's directory is new, so it waits. In a new cluster: start the voters {others}, "
                "too, the first election needs all of them. If its disk was lost or replaced: take the new "
                f"one in with `holdfast metadata-quorum readmit --voter {self.config.node_id}`"
            )
        if role.leader_id is None:
            self.become_unattached(self.state.raft_epoch)
            return
        follower = Follower(role.leader_id, self.fetch_deadline_ms())
        if role.is_leader_gone:
            # The leader is still presumed gone, and the others may not know yet: try again soon.
            follower.is_leader_gone = True
            follower.deadline_ms = self.elections.retry_ms(self.now_ms)
        self._enter(follower)

    def become_candidate(self, pre_votes: Votes) -> None:
        """Run for election in a new epoch, with the own vote, after the pre-votes were won (K2)."""
        config, bootstraps = self.config, not self.state.is_admitted
        state = self.state.of_epoch(self.state.raft_epoch + 1)
        self._set_state(state.with_vote(config.node_id, state.directory_id).admitted())
        votes = Votes(len(self.voters.ids), config.node_id, counts_own=self.voters.is_counted)
        votes.directories = dict(pre_votes.directories)
        calls = self.calls_to(self.voters.others)
        self._enter(Candidate(votes, calls, self.elections.timeout_ms(self.now_ms), bootstraps=bootstraps))
        if votes.is_won:
            self.become_leader(votes)

    def candidate_lost(self, role: Candidate) -> None:
        """A majority refused its vote: wait for the randomised back-off (K2)."""
        self.elections.lost_count += 1
        role.is_backing_off = True
        role.deadline_ms = self.elections.retry_ms(self.now_ms)
        role.calls = self.calls_to(())

    def become_leader(self, votes: Votes) -> None:
        """Become the leader of the epoch in which a majority voted for this member."""
        config = self.config
        self._set_state(self.state.of_epoch(self.state.raft_epoch, config.node_id))
        self.elections.lost_count = 0
        begin = self.calls_to(self.voters.others)
        leader = Leader.elected(self.voters.others, self.shape.log_end_offset, begin, self.now_ms)
        leader.is_counted = self.voters.is_counted
        self._enter(leader)
        # Records of older epochs commit only together with one of this epoch (K12).
        directories = votes.directories | self.voters.directories.known
        if self.state.directory_id is not None:
            directories[config.node_id] = self.state.directory_id
        if self.voters.are_named:
            directories = {voter.voter_id: voter.directory_id for voter in self.voters.sets.latest}
        change = LeaderChangeRecord(
            config.node_id, self.voters.ids, votes.granting_voters, directory_rows(directories)
        )
        self.voters.directories.append(self.shape.log_end_offset, directories)
        self.append((encode_leader_change(change),), Control.LEADER_CHANGE)

    def resign(self, reason: str) -> None:
        """Resign, and name the preferred successors (K3, K6)."""
        leader = self.role
        assert isinstance(leader, Leader), "only a leader can resign"
        self.note(f"resigning as leader of epoch {self.state.raft_epoch}: {reason}")
        calls = self.calls_to(self.voters.others)
        self.elections.resigned()
        self._enter(Resigned(calls, self.elections.run_ms(self.now_ms), leader.successors()))

    def leader_gone(self, delay_ms: int) -> None:
        """Evidence says that this epoch's leader is gone: do not wait for the fetch timeout (D9). Safe even
        if wrong, because voters that get answers from the leader refuse the pre-vote."""
        role = self.role
        if isinstance(role, Prospective) and role.leader_id is not None:
            # It asks for pre-votes already; if they are lost it tries again soon.
            role.is_leader_gone = True
        elif isinstance(role, Follower) and role.deadline_ms is not None and not role.is_leader_gone:
            role.is_leader_gone = True
            role.deadline_ms = min(role.deadline_ms, self.now_ms + delay_ms)
            if self.elections.cannot_lead is not None:
                role.deadline_ms = self.elections.run_ms(self.now_ms)

    def learn(self, raft_epoch: int, leader_id: int, *, is_leaders_own: bool = False) -> bool:
        """Adopt a peer's epoch and leader if they are newer (K3). True when that changed this member's role.

        An observer adopts a later epoch only together with its leader. A voter that the others cannot reach
        may stay ahead of them in an epoch without a leader, and the leader that a majority follows answers no
        fetch of a later epoch than its own.

        `is_leaders_own`: that leader itself has served this member. An observer's own state, which may be
        damaged, knows no better.
        """
        known_leader = leader_id if self.voters.may_lead(leader_id) else None
        if raft_epoch < self.state.raft_epoch:
            return False
        if raft_epoch == self.state.raft_epoch:
            # A start with a log that does not name its leader yet leaves it out.
            is_again = self.state.leader_id == known_leader and isinstance(self.role, Unattached)
            is_other = is_leaders_own and not self.config.is_voter and self.state.leader_id != known_leader
            if known_leader is None or not (self.state.leader_id is None or is_again or is_other):
                return False
            if is_other and self.state.leader_id is not None:
                self.note(f"voter {leader_id} leads epoch {raft_epoch}, and not {self.state.leader_id}")
        if known_leader is None and not self.voters.is_voter:
            return False
        if known_leader is None:
            self.become_unattached(raft_epoch)
        else:
            self.become_follower(raft_epoch, known_leader)
        return True

    def heard_leader(self) -> None:
        """The leader answered a fetch with data or a divergence."""
        role = self.role
        assert isinstance(role, Follower), "only a follower has a leader"
        role.has_fetched, role.is_leader_gone = True, False
        role.deadline_ms = self.fetch_deadline_ms()
        self.elections.lost_count = 0
        self.fetcher.succeeded()

    # --- log -------------------------------------------------------------------------------------------

    def want_directory(self, voter_id: int, directory_id: bytes) -> None:
        """The log shall name this directory. The owner, who counts the offsets of its records, says when."""
        leader = self.role
        assert isinstance(leader, Leader), "only the leader appends, in its own epoch (A-15)"
        if leader.wanted.get(voter_id) != directory_id:
            leader.wanted[voter_id] = directory_id
            self.out.append(VotersWanted())

    def name_directories(self) -> None:
        """Append a Voters record with the directories that are wanted (K8), or with the change of the voters
        that is under way (K30)."""
        leader = self.role
        assert isinstance(leader, Leader), "only the leader appends, in its own epoch (A-15)"
        directories = self.voters.directories.known | leader.wanted
        leader.wanted = {}
        record, change, offset = (
            VotersRecord(directory_rows(directories)),
            leader.change,
            self.shape.log_end_offset,
        )
        if change is not None and change.offset is None:
            voters = change.voters or ()
            if voters:
                directories = {voter.voter_id: voter.directory_id for voter in voters}
                change.offset = offset
            record = VotersRecord(directory_rows(directories), 1, voters)
        self.append((encode_voters(record),), Control.VOTERS)
        self.hear(offset, VoterNews(directories, record.kraft_version, record.voters))

    def want_change(self, change: VoterChange) -> None:
        """The log shall have it. The owner, who counts the offsets of its records, says when."""
        leader = self.role
        assert isinstance(leader, Leader), "only the leader appends, in its own epoch (A-15)"
        leader.change = change
        self.out.append(VotersWanted())

    def append(self, values: tuple[bytes, ...], control: Control | None = None) -> None:
        """Append the leader's own batch."""
        assert isinstance(self.role, Leader), "only the leader appends, in its own epoch (A-15)"
        assert values and sum(map(len, values)) <= BATCH_MAX_BYTES, "a batch has a limit: cut it before"
        base_offset = self.shape.log_end_offset
        self.shape.append(self.state.raft_epoch, base_offset, base_offset + len(values))
        self.out += (Append(base_offset, self.state.raft_epoch, values, control), Flush())

    def flushed(self, up_to_offset: int) -> None:
        """Everything below the offset is durable; only now it counts for the commit (K13)."""
        assert up_to_offset <= self.shape.log_end_offset, "a flush covers what was there (A-21)"
        self.shape.flushed_offset = max(self.shape.flushed_offset, up_to_offset)
        self.advance()

    def advance(self) -> None:
        """Advance the leader's high watermark to what a majority holds (K12)."""
        if isinstance(self.role, Leader):
            end_offset = self.role.committed_end(self.shape.flushed_offset)
            if end_offset is not None:
                self.has_caught_up = True
                self.raise_high_watermark(end_offset)

    def raise_high_watermark(self, to_offset: int) -> None:
        """Raise the high watermark; it never falls (Q-6)."""
        if to_offset > self.high_watermark:
            assert to_offset <= self.shape.log_end_offset, "what is committed is in the log"
            self.high_watermark = to_offset
            self.out.append(Committed(to_offset))
            self._see_admission()
            if self.voters.is_voter and not self.voters.is_counted:
                self.see_voters()  # the change that took it out may be committed now

    def installed(
        self, id: SnapshotId, directories: dict[int, bytes], voters: tuple[Voter, ...] = ()
    ) -> None:
        """The log is empty and begins at the end of the leader's snapshot (K14)."""
        assert self.is_installing, "only the snapshot that was fetched is installed"
        self.is_installing, self.download = False, None
        self.snapshots = (id,)
        self.shape.reset_to(id.position)
        self.voters.forget()
        self.see_voters()
        self.hear(id.offset - 1, VoterNews(directories, voters=voters))
        self.raise_high_watermark(id.offset)
        if isinstance(self.role, Follower):
            self.role.deadline_ms = self.fetch_deadline_ms()

    def _see_admission(self) -> None:
        """A committed record that names this directory proves that a majority without it holds all that this
        voter may have held under another, and is in an epoch in which it gave no vote that counts (K8)."""
        state = self.state
        if state.is_admitted or state.directory_id is None:
            return
        named = self.voters.directories
        if named.is_named_below(self.high_watermark, self.config.node_id, state.directory_id):
            self._set_state(state.admitted())

    def not_leader(self, asked_epoch: int | None = None) -> RaftResponse:
        """The answer to a fetch that this member does not serve: why, and where the leader is (K10)."""
        epoch, is_voter = self.state.raft_epoch, self.config.is_voter
        return answers.not_leader(asked_epoch, epoch, self.leader_hint, is_voter, self.leader_endpoint)
