"""Mutants of the metadata quorum: votes, commits, what is durable, divergence.

Owns wrong functions only; each docstring says which rule is gone.
"""

from dataclasses import replace
from typing import Any

from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.fetch import FetchResponse
from holdfast.raft.core import answers, election, following, leadership, quorum
from holdfast.raft.core.effects import Reply, Resign, Send
from holdfast.raft.core.leadership import Leader
from holdfast.raft.core.log_shape import LogShape
from holdfast.raft.core.member import Member
from holdfast.raft.core.node import RaftNode
from holdfast.raft.core.progress import Progress
from holdfast.raft.core.quorum import Votes, majority_offset
from holdfast.raft.core.roles import Prospective
from holdfast.raft.driver import RaftDriver
from holdfast.raft.log_writer import LogWriter
from holdfast.raft.state_file import StateFile
from holdfast.sim.mutants.mutant import Patch, Setting, mutant

#: controllers lose power and connections, the active one most of all
QUORUM = Setting(
    faults={
        "power_controller": 5,
        "kill_active": 4,
        "isolate_active": 4,
        "pause_active": 3,
        "kill_controller": 2,
        "split": 2,
        "crash_at_point": 2,
        "kill_leader": 1,
    },
    gap_ms=500,
)
#: power is lost right where votes are written
VOTES = Setting(
    faults={"crash_at_point": 6, "power_controller": 6, "kill_active": 4, "isolate_active": 3, "split": 2},
    gap_ms=300,
)
#: votes take long to be written, and further ones are asked for meanwhile
SLOW_VOTES = Setting(
    faults={
        "slow_disk": 8,
        "hang_disk": 6,
        "split": 4,
        "kill_active": 5,
        "isolate_active": 4,
        "power_controller": 4,
    },
    gap_ms=250,
    seconds=20,
)
#: voters come back with old logs just when the leader is gone
STALE = Setting(
    faults={
        "kill_controller": 5,
        "kill_active": 5,
        "power_controller": 3,
        "kill_broker": 5,
        "isolate_active": 2,
    },
    gap_ms=250,
)
#: the disk of the active controller is slower than those of its followers
SLOW_DISKS = Setting(faults={"slow_disk": 8, "hang_disk": 6, "kill_broker": 3, "kill_leader": 3}, gap_ms=300)
#: a leader of the quorum writes what no voter gets
PARTED = Setting(
    faults={
        "isolate_active": 6,
        "pause_active": 4,
        "split": 4,
        "kill_leader": 4,
        "kill_broker": 4,
        "kill_active": 2,
    },
    gap_ms=400,
)


#: a majority must do without the others
CORE = Setting(shape={"core_first": True}, seconds=5.0)


#: leaders of the quorum come and go, and what they said comes late
LATE_VOTERS = Setting(
    faults={
        "stall": 10,
        "isolate_active": 4,
        "pause_active": 5,
        "kill_active": 3,
        "clog": 4,
        "one_way": 3,
        "reset": 2,
    },
    gap_ms=300,
    seconds=25,
)
#: what a leader of the quorum has told a voter comes when the voter follows the next one
CUT_LATE = Setting(faults={"late_voters": 6}, gap_ms=4_000)


# --- votes -------------------------------------------------------------------------------------------------


#: controllers are stopped in order
STOPPED_IN_ORDER = Setting(faults={"stop_controller": 3, "kill_broker": 1})


@mutant(
    election,
    "may_grant_vote",
    breaks="K5",
    by="OwnBug Q-1 ElectionSafety",
    setting=QUORUM,
    killed_by="OwnBug@2",
)
def votes_twice(original: Any, state: Any, candidate_id: int, own: Any, candidate: Any) -> Any:
    """A voter that has voted in an epoch votes again."""
    if state.leader_id is None and state.voted_for is not None:
        return candidate >= own
    return original(state, candidate_id, own, candidate)


@mutant(
    election,
    "may_grant_vote",
    breaks="K5",
    by="Q-3 OwnBug Q-2 I-13",
    setting=STALE,
    killed_by="K4@8",
)
def votes_for_shorter_logs(original: Any, state: Any, candidate_id: int, own: Any, candidate: Any) -> Any:
    """A vote does not depend on the candidate's log."""
    return state.leader_id is None and state.voted_for in (None, candidate_id)


def _any_log_pre(original: Any, role: Any, own: Any, candidate: Any) -> Any:
    return original(role, own, max(own, candidate))


def _any_log(original: Any, state: Any, candidate_id: int, own: Any, candidate: Any) -> Any:
    return state.leader_id is None and state.voted_for in (None, candidate_id)


@mutant(
    election,
    "may_grant_vote",
    breaks="K5, K4",
    by="Q-3 OwnBug Q-2 I-13",
    setting=STALE,
    more=(Patch(election, "may_grant_pre_vote", _any_log_pre),),
    killed_by="K4@1",
)
def elects_shorter_logs(original: Any, state: Any, candidate_id: int, own: Any, candidate: Any) -> Any:
    """Neither a pre-vote nor a vote depends on the candidate's log."""
    return _any_log(original, state, candidate_id, own, candidate)


@mutant(
    election,
    "may_grant_pre_vote",
    breaks="K4",
    by="K4",
    setting=QUORUM,
    killed_by="K4@1",
)
def grants_every_pre_vote(original: Any, role: Any, own: Any, candidate: Any) -> Any:
    """Every pre-vote is granted."""
    return True


@mutant(
    RaftNode,
    "_call_of",
    breaks="K4",
    by="K4",
    setting=QUORUM,
    killed_by="K4@1",
)
def asks_in_an_epoch_of_its_own(original: Any, self: Any, role: Any, voter_id: int) -> Any:
    """A voter that asks whether it would be supported asks in the next epoch, which no voter is in."""
    request = original(self, role, voter_id)
    if isinstance(role, Prospective):
        return replace(request, raft_epoch=request.raft_epoch + 1)
    return request


def _says_at_once(original: Any, self: Any, voter_id: int, request: Any, timeout_ms: int) -> Any:
    self._requests_sent += 1
    self.out.append(Send(self._requests_sent, voter_id, request, timeout_ms))
    return self._requests_sent


@mutant(
    Member,
    "reply",
    breaks="Q-9, K5",
    by="Q-9 Q-1",
    setting=VOTES,
    more=(Patch(Member, "send", _says_at_once),),
    killed_by="Q-9@1",
)
def votes_before_durable(original: Any, self: Any, token: int, response: Any, read: Any = None) -> Any:
    """Votes and epochs are told before they are on disk."""
    self.out.append(Reply(token, response, read))


@mutant(StateFile, "when_durable", breaks="Q-9", by="Q-9", setting=SLOW_VOTES, killed_by="Q-9@2")
def lets_go_with_the_state_before(original: Any, self: Any, action: Any) -> None:
    """What waits for a later state is said once the one that is being written is durable."""
    if self._writing is None or self._latest == self._durable:
        original(self, action)
    else:
        self._waiting_for_writing.append(action)


@mutant(StateFile, "load", breaks="K1, Q-9", by="Q-6 Q-1", setting=QUORUM, killed_by="Q-6@1")
async def forgets_votes(original: Any, self: Any) -> Any:
    """A restarted voter does not know whom it voted for."""
    state = await original(self)
    self._durable = self._latest = state.of_epoch(state.raft_epoch)
    return self._latest


@mutant(Votes, "is_won", breaks="K2", by="Q-1 OwnBug ElectionSafety", setting=QUORUM, killed_by="Q-9@1")
def wins_without_majority(original: Any, self: Any) -> Any:
    """The own vote is enough."""
    return bool(self._granted)


@mutant(Member, "start", breaks="K3, N-1", by="Q-3 Q-2 Q-4", setting=QUORUM, killed_by="L-8@3")
def leads_again_after_restart(original: Any, self: Any) -> Any:
    """A leader that restarts goes on leading its epoch."""
    original(self)
    state, config = self.state, self.config
    if state.leader_id == config.node_id and len(config.voters) > 1:
        calls = self.calls_to(config.other_voters)
        self.role = Leader.elected(config.other_voters, self.shape.log_end_offset, calls, self.now_ms)


@mutant(
    Member,
    "learn",
    breaks="K3",
    by="K7",
    setting=LATE_VOTERS,
    killed_by="K7@14",
)
def ignores_later_epochs(original: Any, self: Any, raft_epoch: int, leader_id: int) -> Any:
    """A leader does not step down when it hears of a later epoch."""
    if isinstance(self.role, Leader):
        return False
    return original(self, raft_epoch, leader_id)


def _no_deadline(original: Any, self: Any, timeout_ms: int) -> Any:
    return None


@mutant(
    Member,
    "learn",
    breaks="K3, K7",
    by="L-8 L-1 L-9 L-4 OwnBug Q-1",
    setting=LATE_VOTERS,
    more=(Patch(Leader, "check_quorum_deadline_ms", _no_deadline),),
    killed_by="K7@2",
)
def leads_for_ever(original: Any, self: Any, raft_epoch: int, leader_id: int) -> Any:
    """A leader steps down neither when it hears of a later epoch nor when no voter follows it."""
    return ignores_later_epochs(original, self, raft_epoch, leader_id)


# --- commits -----------------------------------------------------------------------------------------------


@mutant(quorum, "majority_count", breaks="K1", by="Q-7 Q-1 I-13", setting=QUORUM, killed_by="Q-9@1")
def half_is_a_majority(original: Any, voter_count: int) -> Any:
    """Half of the voters, rounded down, make a majority."""
    return max(1, voter_count // 2)


@mutant(Votes, "is_won", breaks="K5", by="L-8", setting=CORE, killed_by="L-8@1")
def needs_all_votes(original: Any, self: Any) -> Any:
    """An election is won when all voters agree."""
    return len(self._granted) == self._voter_count


@mutant(Leader, "check_quorum_deadline_ms", breaks="K7", by="L-8", setting=CORE, killed_by="L-9@1")
def wants_all_to_fetch(original: Any, self: Any, timeout_ms: int) -> Any:
    """A leader resigns unless all other voters fetch from it."""
    seen_ms = [max(self.elected_at_ms, progress.last_fetch_ms) for progress in self.voters.values()]
    return min(seen_ms) + timeout_ms if seen_ms else None


@mutant(leadership, "majority_offset", breaks="K12", by="L-8 L-1", setting=CORE, killed_by="L-8@1")
def commits_what_all_have(original: Any, offsets: Any) -> Any:
    """A leader of the quorum commits what every voter has flushed."""
    return min(offsets)


@mutant(Leader, "committed_end", breaks="K12", by="K12 Q-3", setting=PARTED, killed_by="K12@5")
def commits_former_epochs(original: Any, self: Any, own_flushed_offset: int) -> Any:
    """Records of former epochs are committed by counting copies of them."""
    ends = [own_flushed_offset, *(progress.end_offset for progress in self.voters.values())]
    end_offset = majority_offset(ends)
    return end_offset if end_offset > 0 else None


@mutant(Member, "advance", breaks="K13", by="Q-7", setting=SLOW_DISKS, killed_by="Q-7@1")
def leader_counts_unflushed_log(original: Any, self: Any) -> Any:
    """The leader counts its own log before it is flushed."""
    flushed, self.shape.flushed_offset = self.shape.flushed_offset, self.shape.log_end_offset
    try:
        return original(self)
    finally:
        self.shape.flushed_offset = flushed


@mutant(following, "may_fetch", breaks="K11", by="Q-7 K11 OwnBug", setting=QUORUM, killed_by="Q-7@1")
def voters_fetch_unflushed(original: Any, member: Any) -> Any:
    """A voter fetches on before what it has is flushed."""
    flushed, member.shape.flushed_offset = member.shape.flushed_offset, member.shape.log_end_offset
    try:
        return original(member)
    finally:
        member.shape.flushed_offset = flushed


@mutant(LogWriter, "_flush", breaks="A-21, K13", by="Q-7 OwnBug", setting=SLOW_DISKS, killed_by="Q-7@2")
async def quorum_flush_covers_completion(original: Any, self: Any) -> Any:
    """A flush of the metadata log vouches for what came while it ran."""
    while self._is_flush_wanted:
        self._is_flush_wanted = False
        await self._log.flush()
        self._flushed(self._log.log_end_offset)
    self._is_flushing = False


@mutant(
    Leader,
    "check_quorum_deadline_ms",
    breaks="K7",
    by="K7",
    setting=PARTED,
    killed_by="K7@1",
)
def never_checks_quorum(original: Any, self: Any, timeout_ms: int) -> Any:
    """A leader without followers stays one."""
    return None


# --- the log -----------------------------------------------------------------------------------------------


@mutant(
    LogShape,
    "diverging_point",
    breaks="R80, K14",
    by="Q-2 QuorumLogMatching OwnBug I-10b",
    setting=PARTED,
    killed_by="Q-2@2",
)
def quorum_without_divergence_check(
    original: Any, self: Any, last_fetched_epoch: int, fetch_offset: int
) -> Any:
    """The quorum's leader does not compare the last epoch of who fetches."""
    return None if fetch_offset <= self.log_end_offset else original(self, last_fetched_epoch, fetch_offset)


@mutant(LogShape, "truncation_point", breaks="R81", by="OwnBug K14 Q-3", setting=PARTED, killed_by="OwnBug@1")
def quorum_cuts_everything(original: Any, self: Any, epoch: int, leader_end_offset: int) -> Any:
    """A voter that diverges cuts its whole log."""
    return 0


@mutant(following, "_truncate", breaks="R81", by="L-4 OwnBug Q-2", setting=PARTED, killed_by="L-4@2")
def quorum_never_cuts(original: Any, member: Any, end_offset: int) -> Any:
    """A voter that diverges keeps its log."""


@mutant(
    following,
    "fetch_answered",
    breaks="A-15, N-4",
    by="Q-2 OwnBug",
    setting=CUT_LATE,
    masked="every change of role forgets the fetch under way, and an answer without error is of who leads "
    "the asked epoch; the pair is takes-any-answer",
)
def takes_answers_of_others(original: Any, member: Any, response: Any) -> Any:
    """An answer counts as if the leader had given it, in the present epoch."""
    row = response.partitions[0] if response.partitions else None
    if row is None or row.error_code or getattr(member.role, "leader_id", None) is None:
        return original(member, response)
    return following._take(member, row)


def _any_request(original: Any, self: Any, request_id: int, response: Any) -> Any:
    if isinstance(response, FetchResponse):
        return following.fetch_answered(self._member, response)
    return original(self, request_id, response)


@mutant(
    following,
    "fetch_answered",
    breaks="A-15, N-4",
    by="OwnBug K14 Q-2 Q-3",
    setting=CUT_LATE,
    more=(Patch(RaftNode, "_answered", _any_request),),
    killed_by="OwnBug@1",
)
def takes_any_answer(original: Any, member: Any, response: Any) -> Any:
    """An answer counts as if the leader had given it in the present epoch, to whichever fetch it is one."""
    return takes_answers_of_others(original, member, response)


@mutant(
    Member, "raise_high_watermark", breaks="Q-6, K12", by="Q-7 Q-3 I-13", setting=PARTED, killed_by="Q-7@1"
)
def followers_commit_all(original: Any, self: Any, to_offset: int) -> Any:
    """A follower takes all of its log for committed."""
    end = to_offset if isinstance(self.role, Leader) else self.shape.log_end_offset
    return original(self, end)


@mutant(Member, "become_prospective", breaks="K4", by="K6", setting=QUORUM, killed_by="K6@1")
def asks_nobody_before_it_runs(original: Any, self: Any) -> None:
    """Who hears of no leader runs for the next epoch at once, without asking for pre-votes."""
    original(self)
    if isinstance(self.role, Prospective):
        self.become_candidate(self.role.votes)


@mutant(Member, "resign", breaks="K6, K3", by="K6", setting=QUORUM, killed_by="K6@1")
def resigns_silently(original: Any, self: Any, reason: str) -> None:
    """A leader that leads no more tells no other voter."""
    original(self, reason)
    self.role.calls = self.calls_to(())


@mutant(RaftDriver, "_post", breaks="K6", by="K6", setting=STOPPED_IN_ORDER, killed_by="K6@1")
def stops_as_a_leader(original: Any, self: Any, event: Any) -> None:
    """A leader that is stopped in order leaves it to the others to find out."""
    if not (type(event) is Resign and event.reason == "this node is stopping"):
        original(self, event)


@mutant(Member, "become_leader", breaks="K6", by="K6", setting=QUORUM, killed_by="K6@1")
def leads_silently(original: Any, self: Any, votes: Any) -> None:
    """An elected voter tells no other: the others find out when they ask around."""
    original(self, votes)
    self.role.calls = self.calls_to(())


@mutant(Member, "leader_gone", breaks="D9, K6", by="K6", setting=QUORUM, killed_by="K6@1")
def waits_for_leaders_that_are_gone(original: Any, self: Any, delay_ms: int) -> None:
    """A voter waits for its whole fetch timeout, also when it knows that its leader is gone."""


@mutant(election, "election_timeout_ms", breaks="K7", by="K6", setting=PARTED, killed_by="K6@1")
def elections_last_as_long_each_time(original: Any, config: Any, random: Any) -> int:
    """The time for an election is not drawn: voters that run at once run at once again."""
    return config.election_timeout_ms  # type: ignore[no-any-return]


@mutant(Member, "fetch_deadline_ms", breaks="K7", by="K6", setting=PARTED, killed_by="K6@1")
def waits_twice_as_long_for_leaders(original: Any, self: Any) -> Any:
    """A follower has more patience with its leader than is configured."""
    deadline_ms = original(self)
    return None if deadline_ms is None else deadline_ms + self.config.fetch_timeout_ms


@mutant(election, "retry_delay_ms", breaks="K2", by="K6", setting=PARTED, killed_by="K6@2")
def backs_off_without_end(original: Any, config: Any, random: Any, failed_elections: int) -> int:
    """The pause after a lost election doubles beyond its bound."""
    return config.election_backoff_max_ms * (2 + failed_elections)  # type: ignore[no-any-return]


#: each controller is asked about the quorum, while its members come and go
DESCRIBED = Setting(
    faults={"kill_controller": 3, "kill_active": 2, "isolate_active": 2, "pause_active": 2},
    shape={"asks_alone": True},
)


@mutant(Progress, "on_fetch", breaks="K16", by="K16", setting=DESCRIBED, killed_by="K16@1")
def notes_the_first_time_only(
    original: Any, self: Any, fetch_offset: int, log_end_offset: int, now_ms: int
) -> None:
    """Who has once caught up is told of as if it had fallen behind ever since."""
    caught_up_ms = self.last_caught_up_ms
    original(self, fetch_offset, log_end_offset, now_ms)
    if caught_up_ms >= 0:
        self.last_caught_up_ms = caught_up_ms


@mutant(leadership, "_rows", breaks="K16", by="K16", setting=DESCRIBED, killed_by="K16@3")
def tells_of_everybody_at_the_end(original: Any, replicas: Any, to_wall_ms: int) -> Any:
    """The leader describes each node that has asked as if it had all that any node has."""
    rows = original(replicas, to_wall_ms)
    end = max((row.log_end_offset for row in rows), default=-1)
    return [replace(row, log_end_offset=end) for row in rows]


@mutant(answers, "describe_elsewhere", breaks="K16", by="K16", setting=DESCRIBED, killed_by="K16@1")
def tells_of_the_quorum_without_leading(original: Any, leader_id: int, raft_epoch: int) -> Any:
    """A voter that does not lead answers as if the quorum had no voters."""
    return replace(original(leader_id, raft_epoch), error_code=ErrorCode.NONE)
