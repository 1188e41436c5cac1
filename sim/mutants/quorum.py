"""Mutants of the metadata quorum: votes, commits, what is durable, divergence.

Owns wrong functions only; each docstring says which rule is gone.
"""

from holdfast.raft.core import election, following, leadership, quorum
from holdfast.raft.core.leadership import Leader
from holdfast.raft.core.log_shape import LogShape
from holdfast.raft.core.member import Member
from holdfast.raft.core.node import RaftNode
from holdfast.raft.core.quorum import Votes
from holdfast.raft.log_writer import LogWriter
from holdfast.raft.state_file import StateFile
from holdfast.sim.mutants.mutant import Changes, Setting, mutant
from holdfast.sim.mutants.source_patch import begin, patch

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
#: connections between voters end, and controllers with them
VOTERS_FALL = Setting(
    faults={"kill_active": 3, "isolate_active": 3, "pause_active": 2, "reset": 5, "split": 2, "cut_pair": 2},
    gap_ms=400,
)


# --- votes -------------------------------------------------------------------------------------------------


@mutant(breaks="K5", by="OwnBug Q-1 ElectionSafety", setting=QUORUM, killed_by="OwnBug@2")
def votes_twice() -> Changes:
    """A voter that has voted in an epoch votes again."""
    same = "is_its_directory and state.voted_for == candidate_id"
    return patch(election, "may_grant_vote", same, "candidate >= own")


@mutant(breaks="K5", by="Q-3 OwnBug Q-2 I-13", setting=STALE, killed_by="K4@8")
def votes_for_shorter_logs() -> Changes:
    """A vote does not depend on the candidate's log."""
    return patch(election, "may_grant_vote", "return candidate >= own", "return True")


@mutant(breaks="K5, K4", by="Q-3 OwnBug Q-2 I-13", setting=STALE, killed_by="K4@1")
def elects_shorter_logs() -> Changes:
    """Neither a pre-vote nor a vote depends on the candidate's log."""
    return (
        patch(election, "may_grant_vote", "return candidate >= own", "return True"),
        patch(election, "may_grant_pre_vote", "return candidate >= own", "return True"),
    )


@mutant(breaks="K4", by="K4", setting=QUORUM, killed_by="K4@1")
def grants_every_pre_vote() -> Changes:
    """Every pre-vote is granted."""
    return begin(election, "may_grant_pre_vote", "return True")


@mutant(breaks="K4", by="K4", setting=QUORUM, killed_by="K4@1")
def asks_in_an_epoch_of_its_own() -> Changes:
    """A voter that asks whether it would be supported asks in the next epoch, which no voter is in."""
    return patch(
        RaftNode,
        "_call_of",
        "cluster_id,\n                    epoch,",
        "cluster_id,\n                    epoch + is_pre_vote,",
    )


@mutant(breaks="Q-9, K5", by="Q-9 Q-1", setting=VOTES, killed_by="Q-9@1")
def votes_before_durable() -> Changes:
    """Votes and epochs are told before they are on disk."""
    return (
        patch(Member, "reply", "self._persist_first()", "pass"),
        patch(Member, "send", "self._persist_first()", "pass"),
    )


@mutant(breaks="K1, Q-9", by="Q-6 Q-1", setting=QUORUM, killed_by="Q-6@1")
def forgets_votes() -> Changes:
    """A restarted voter does not know whom it voted for."""
    return patch(
        StateFile,
        "load",
        "self._durable = self._latest = state",
        "state = self._durable = self._latest = "
        "replace(state, voted_for=None, voted_directory=None, leader_id=None)",
    )


@mutant(breaks="K2", by="Q-1 OwnBug ElectionSafety", setting=QUORUM, killed_by="Q-9@1")
def wins_without_majority() -> Changes:
    """The own vote is enough."""
    return patch(Votes, "is_won", "self._needed", "1")


@mutant(breaks="K3, N-1", by="Q-3 Q-2 Q-4", setting=QUORUM, killed_by="OwnBug@10")
def leads_again_after_restart() -> Changes:
    """A leader that restarts goes on leading its epoch."""
    return patch(
        Member,
        "start",
        "self.role = Resigned(self.calls_to(()), soon_ms)",
        "others = config.other_voters\n"
        "            self.role = Leader.elected(others, self.shape.log_end_offset, "
        "self.calls_to(others), self.now_ms)",
    )


@mutant(breaks="K3, K7", by="L-8 L-1 L-9 L-4 OwnBug Q-1", setting=LATE_VOTERS, killed_by="OwnBug@2")
def leads_for_ever() -> Changes:
    """A leader steps down neither when it hears of a later epoch nor when no voter follows it."""
    return (
        begin(Member, "learn", "if isinstance(self.role, Leader): return False"),
        begin(Leader, "check_quorum_deadline_ms", "return None"),
    )


# --- commits -----------------------------------------------------------------------------------------------


@mutant(breaks="K1", by="Q-7 Q-1 I-13", setting=QUORUM, killed_by="Q-9@1")
def half_is_a_majority() -> Changes:
    """Half of the voters, rounded down, make a majority."""
    return patch(quorum, "majority_count", "voter_count // 2 + 1", "max(1, voter_count // 2)")


@mutant(breaks="K5", by="L-8", setting=CORE, killed_by="L-8@1")
def needs_all_votes() -> Changes:
    """An election is won when all voters agree."""
    return patch(Votes, "is_won", "self._needed", "self._voter_count")


@mutant(breaks="K7", by="L-8", setting=CORE, killed_by="L-9@1")
def wants_all_to_fetch() -> Changes:
    """A leader resigns unless all other voters fetch from it."""
    return patch(Leader, "check_quorum_deadline_ms", "seen_ms[needed - 1]", "seen_ms[-1]")


@mutant(breaks="K12", by="L-8 L-1", setting=CORE, killed_by="L-8@1")
def commits_what_all_have() -> Changes:
    """A leader of the quorum commits what every voter has flushed."""
    return begin(leadership, "majority_offset", "return min(offsets)")


@mutant(breaks="K12", by="K12 Q-3", setting=PARTED, killed_by="K12@5")
def commits_former_epochs() -> Changes:
    """Records of former epochs are committed by counting copies of them."""
    return patch(Leader, "committed_end", "end_offset > self.epoch_start_offset", "end_offset > 0")


@mutant(breaks="K13", by="Q-7", setting=SLOW_DISKS, killed_by="Q-7@1")
def leader_counts_unflushed_log() -> Changes:
    """The leader counts its own log before it is flushed."""
    return patch(Member, "advance", "self.shape.flushed_offset", "self.shape.log_end_offset")


@mutant(breaks="K11", by="Q-7 K11 OwnBug", setting=QUORUM, killed_by="Q-7@1")
def voters_fetch_unflushed() -> Changes:
    """A voter fetches on before what it has is flushed."""
    return patch(following, "may_fetch", "shape.flushed_offset == shape.log_end_offset", "True")


@mutant(breaks="A-21, K13", by="Q-7 OwnBug", setting=SLOW_DISKS, killed_by="Q-7@2")
def quorum_flush_covers_completion() -> Changes:
    """A flush of the metadata log vouches for what came while it ran."""
    return patch(
        LogWriter, "_flush", "self._flushed(up_to_offset)", "self._flushed(self._log.log_end_offset)"
    )


# --- the log -----------------------------------------------------------------------------------------------


@mutant(breaks="R80, K14", by="Q-2 QuorumLogMatching OwnBug I-10b", setting=PARTED, killed_by="Q-2@2")
def quorum_without_divergence_check() -> Changes:
    """The quorum's leader does not compare the last epoch of who fetches."""
    return patch(
        LogShape,
        "diverging_point",
        "epoch != last_fetched_epoch or end_offset < fetch_offset",
        "fetch_offset > self.log_end_offset",
    )


@mutant(breaks="R81", by="OwnBug K14 Q-3", setting=PARTED, killed_by="OwnBug@1")
def quorum_cuts_everything() -> Changes:
    """A voter that diverges cuts its whole log."""
    return begin(LogShape, "truncation_point", "return 0")


@mutant(breaks="R81", by="L-4 OwnBug Q-2", setting=PARTED, killed_by="L-4@2")
def quorum_never_cuts() -> Changes:
    """A voter that diverges keeps its log."""
    return begin(following, "_truncate", "return")


@mutant(breaks="Q-6, K12", by="Q-7 Q-3 I-13", setting=PARTED, killed_by="Q-7@1")
def followers_commit_all() -> Changes:
    """A follower takes all of its log for committed."""
    return begin(
        Member,
        "raise_high_watermark",
        "to_offset = to_offset if isinstance(self.role, Leader) else self.shape.log_end_offset",
    )


@mutant(breaks="D9, K4", by="K4", setting=VOTERS_FALL, killed_by="K4@1")
def any_failure_is_evidence() -> Changes:
    """A connection that ends counts as a process that has ended."""
    return patch(
        following, "fetch_failed", "failure is CallFailure.REFUSED", "failure is not CallFailure.TIMED_OUT"
    )
