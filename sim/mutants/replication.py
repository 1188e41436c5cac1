"""Mutants of a replica: high watermark, ISR, divergence, what followers do with answers.

Owns wrong functions only; each docstring says which rule is gone.
"""

from typing import Any

from holdfast.broker.core.replicas.ceiling import Ceiling
from holdfast.broker.core.replicas.fetcher import Fetchers
from holdfast.broker.core.replicas.partition import Partition
from holdfast.broker.core.requests.fetch_path import FetchPath
from holdfast.sim.mutants.mutant import Changes, Setting, mutant, replacing
from holdfast.sim.mutants.source_patch import begin, patch

#: followers fall behind and brokers leave the ISR
LAGGING = Setting(
    faults={
        "kill_broker": 2,
        "isolate_broker": 3,
        "pause_broker": 3,
        "slow_disk": 1,
        "kill_leader": 2,
        "clog": 2,
    }
)
#: leaders change while followers hold more than the new leader
DIVERGING = Setting(
    faults={"kill_busy_leader": 4, "isolate_leader": 4, "pause_leader": 3, "kill_leader": 2, "kill_broker": 1}
)
#: brokers lose what they have not flushed
POWER = Setting(
    faults={
        "power_broker": 4,
        "power_leader": 4,
        "kill_busy_leader": 2,
        "kill_leader": 1,
        "isolate_leader": 1,
    }
)
#: whole logs lose their tails at once, and become last known
TAILS_GONE = Setting(
    band="over-budget",
    faults={"power_all": 4, "power_broker": 3, "power_leader": 3, "crumble": 3, "kill_all_brokers": 1},
    shape={"recovery_manager": True},
    gap_ms=700,
)
#: traffic ebbs, and comes back while a promise that was too high is lowered
LULLS = Setting(faults={"lull": 1}, shape={"partitions": 1, "send_gap_ms": 100}, gap_ms=8_000, seconds=25)
#: every write is flushed before it counts, and the whole site loses power
FLUSHED = Setting(
    faults={"power_all": 5, "power_broker": 2, "power_leader": 2, "slow_disk": 3, "kill_busy_leader": 1},
    shape={"every_write": True},
)
#: a broker returns, is unfenced, and does not reach the leader that knows its last life
BRIDGED = Setting(faults={"bridge": 6, "kill_broker": 4, "power_broker": 4}, seconds=30, gap_ms=350)


#: some connections are late, so that what was said later is heard first
OVERTAKEN = Setting(
    faults={
        "stall": 8,
        "late_proposal": 4,
        "cut_pair": 4,
        "restart_broker": 2,
        "kill_broker": 2,
        "kill_leader": 2,
        "clog": 2,
    },
    gap_ms=350,
    seconds=25,
)
#: one pair of brokers is cut, and one of them returns meanwhile
PAIRS = Setting(faults={"cut_pair": 8, "restart_broker": 2, "kill_broker": 2}, gap_ms=400, seconds=25)
#: members of the ISR lead one after the other, and what they wrote goes with them
CHAINS = Setting(
    faults={
        "starve_follower": 6,
        "kill_elected": 5,
        "kill_busy_leader": 3,
        "isolate_leader": 2,
        "cut_pair": 2,
    },
    gap_ms=800,
    seconds=25,
)


# --- the high watermark ------------------------------------------------------------------------------------


@mutant(breaks="F1", by="A-2 I-8", setting=LAGGING, killed_by="A-2@1")
def gate_by_maximal_isr() -> Changes:
    """The size of the maximal ISR opens the high watermark, not that of the committed one."""
    return patch(
        Partition, "advance_high_watermark", "len(registration.isr) <", "len(leadership.maximal_isr) <"
    )


@mutant(breaks="F1, A-2", by="A-2 I-8", setting=LAGGING, killed_by="I-8@1")
def no_gate() -> Changes:
    """The high watermark moves below min ISR too, as before KIP-966."""
    return patch(Partition, "advance_high_watermark", "len(registration.isr) < registration.min_isr", "False")


@mutant(breaks="R68", by="G-4", killed_by="G-4@2")
def passes_its_ceiling() -> Changes:
    """The high watermark moves before its ceiling is stored."""
    return patch(Partition, "advance_high_watermark", "end > self.ceiling.limit", "False")


@mutant(breaks="R68", by="G-4", setting=TAILS_GONE, killed_by="G-4@1")
def finds_ceilings_too_high_out_of_sync() -> Changes:
    """Who has lost its tail looks for promises that are too high for what is left, and lowers them."""
    return (
        patch(Partition, "is_ceiling_too_high", "self.broker_id in registration.isr", "True"),
        patch(Ceiling, "promise", "if may_lower else", "if True else"),
    )


@mutant(breaks="R68", by="G-4", setting=LULLS, killed_by="G-4@1")
def lowers_ceilings_late() -> Changes:
    """While a lower ceiling is written the high watermark still moves up to the higher one."""
    return patch(Ceiling, "promise", "self.limit = min(self.limit, self._promised)", "pass")


@replacing(Partition, "maybe_shrink", breaks="F3, R51", by="I-10 I-7 I-8", setting=LAGGING, killed_by="I-8@1")
def shrinks_before_confirmed(original: Any, self: Partition, now_ms: int) -> Any:
    """A proposed shrink counts at once."""
    proposal = original(self, now_ms)
    if proposal is not None and self.leadership is not None:
        self.leadership.maximal_isr = proposal.isr
    return proposal


@mutant(breaks="F3", by="I-8 A-2 I-7", killed_by="A-2@1")
def counts_nobody_else() -> Changes:
    """The leader counts no replica but itself."""
    return patch(
        Partition, "advance_high_watermark", "followers = leadership.progress.values()", "followers = ()"
    )


@mutant(breaks="A-6, F6", by="A-6", setting=DIVERGING, killed_by="A-6@3")
def shows_lagging_high_watermark() -> Changes:
    """A new leader tells consumers its high watermark at once."""
    return patch(
        Partition, "visible_high_watermark", "self.high_watermark < leadership.start_offset", "False"
    )


@mutant(breaks="D6, G-3", by="G-3 I-8 A-2 I-11", setting=FLUSHED, killed_by="A-2@1")
def followers_count_unflushed() -> Changes:
    """With every write flushed, followers fetch before their flush and their log end counts."""
    return (
        begin(Fetchers, "_flush_first", "return []"),
        patch(Partition, "follower_fetched", "if self.counts_flushed else", "if False else"),
    )


# --- joining and leaving the ISR ---------------------------------------------------------------------------


@mutant(breaks="R50, A-5", by="I-8 A-5 I-9", setting=DIVERGING, killed_by="A-5@2")
def joins_below_epoch_start() -> Changes:
    """A follower may join before it has reached the start of the leader's epoch."""
    return (
        patch(Partition, "_may_join", "progress.position >= start_offset", "True"),
        patch(
            Partition, "_may_join", "progress.is_caught_up(self.position, now_ms, self._lag_ms_max)", "True"
        ),
    )


@mutant(breaks="R50", by="I-8 A-5 I-9", setting=LAGGING, killed_by="A-5@1")
def joins_below_high_watermark() -> Changes:
    """A follower may join with its first fetch, wherever it is."""
    return (
        patch(Partition, "_may_join", "progress.position >= self.high_watermark", "True"),
        patch(Partition, "_may_join", "progress.position >= start_offset", "True"),
        patch(
            Partition, "_may_join", "progress.is_caught_up(self.position, now_ms, self._lag_ms_max)", "True"
        ),
    )


# --- divergence --------------------------------------------------------------------------------------------


@mutant(breaks="R80", by="I-8 I-10 A-22", setting=DIVERGING, killed_by="I-8@1")
def no_divergence_check() -> Changes:
    """The leader does not compare the follower's last epoch with its own log."""
    return patch(
        Partition,
        "check_follower",
        "self.log, fetch_offset, last_fetched_epoch",
        "self.log, min(fetch_offset, self.log.log_end_offset), -1",
    )


@mutant(breaks="R81", by="I-8 A-7 I-9 A-16", setting=DIVERGING, killed_by="A-16@3")
def truncates_to_high_watermark() -> Changes:
    """A follower truncates to its own high watermark (the primer)."""
    return begin(Partition, "truncation_offset", "return self.high_watermark")


@mutant(breaks="R81, A-16", by="I-10 A-16", setting=CHAINS, killed_by="L-4@1")
def truncates_to_leaders_end() -> Changes:
    """A follower truncates to the end that the leader names, also where its own log differs below that."""
    return begin(
        Partition,
        "truncation_offset",
        "return max(self.log.log_start_offset, min(leader_end_offset, self.log.log_end_offset))",
    )


@mutant(breaks="R81, A-16", by="A-1 A-16 I-8", setting=DIVERGING, killed_by="A-1@1")
def truncates_everything() -> Changes:
    """A follower that diverges drops its whole log."""
    return begin(Partition, "truncation_offset", "return self.log.log_start_offset")


@mutant(breaks="R52", by="I-1 A-2", killed_by="I-1@1")
def takes_high_watermark_beyond_end() -> Changes:
    """A follower takes the leader's high watermark though its own log is shorter."""
    return begin(
        Partition,
        "leader_answered",
        "self.high_watermark = max(self.high_watermark, leader_high_watermark)\nreturn",
    )


@mutant(breaks="R82", by="I-10 A-7 A-2", setting=DIVERGING, killed_by="I-10@1")
def learns_before_it_truncates() -> Changes:
    """A diverging answer's high watermark counts before the log is cut."""
    return patch(
        Fetchers,
        "_row_answered",
        "effects.extend(self._parted(",
        "partition.leader_answered(answer.high_watermark, answer.log_end_offset)\n"
        "            effects.extend(self._parted(",
    )


@mutant(breaks="F6, I-12", by="A-6 I-12", killed_by="A-6@1")
def shows_uncommitted() -> Changes:
    """Consumers are given records above the high watermark."""
    return patch(
        FetchPath, "_consumer_row", "partition.visible_high_watermark", "partition.log.log_end_offset"
    )
