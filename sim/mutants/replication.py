"""Mutants of a replica: high watermark, ISR, divergence, what followers do with answers.

Owns wrong functions only; each docstring says which rule is gone.
"""

from dataclasses import replace
from typing import Any

from holdfast.broker.core.replicas.ceiling import Ceiling
from holdfast.broker.core.replicas.fetcher import Fetchers
from holdfast.broker.core.replicas.leadership import AlterVerdict
from holdfast.broker.core.replicas.partition import Partition, RoleChange
from holdfast.broker.core.requests.fetch_path import FetchPath
from holdfast.protocol.errors import ErrorCode
from holdfast.sim.mutants.mutant import Patch, Setting, mutant

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
#: without ELR the last replica standing leads: logs are cut below the high watermark
LOSING = Setting(
    band="no-elr",
    faults={
        "power_leader": 5,
        "power_broker": 5,
        "kill_leader": 3,
        "kill_all_brokers": 2,
        "isolate_leader": 2,
    },
    gap_ms=400,
)


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
#: what leaders are granted comes before what they are told of it
LATE_METADATA = Setting(faults={"late_metadata": 6}, gap_ms=3_000)
#: followers that send heartbeats and do not reach their leader
CUT_OFF_FOLLOWERS = Setting(faults={"cut_followers": 6, "cut_pair": 4, "starve_follower": 2}, gap_ms=1_500)
#: who asks to join is fenced by then
REFUSED = Setting(faults={"refuse_join": 1}, gap_ms=5_000, seconds=20)
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


@mutant(Partition, "advance_high_watermark", breaks="F1", by="A-2 I-8", setting=LAGGING, killed_by="A-2@1")
def gate_by_maximal_isr(original: Any, self: Partition, now_ms: int) -> Any:
    """The size of the maximal ISR opens the high watermark, not that of the committed one."""
    registration, leadership = self.registration, self.leadership
    if registration is None or leadership is None:
        return original(self, now_ms)
    self.registration = replace(registration, isr=leadership.maximal_isr)
    try:
        return original(self, now_ms)
    finally:
        self.registration = registration


@mutant(
    Partition,
    "advance_high_watermark",
    breaks="F1, A-2",
    by="A-2 I-8",
    setting=LAGGING,
    killed_by="I-8@1",
)
def no_gate(original: Any, self: Partition, now_ms: int) -> Any:
    """The high watermark moves below min ISR too, as before KIP-966."""
    registration = self.registration
    if registration is None:
        return original(self, now_ms)
    self.registration = replace(registration, min_isr=0)
    try:
        return original(self, now_ms)
    finally:
        self.registration = registration


@mutant(
    Partition,
    "advance_high_watermark",
    breaks="F3",
    by="I-7 I-8 A-2",
    setting=LAGGING,
    killed_by="Refinement@3",
)
def ignores_pending_expansion(original: Any, self: Partition, now_ms: int) -> Any:
    """The high watermark counts the committed ISR, not the members asked for."""
    registration, leadership = self.registration, self.leadership
    if registration is None or leadership is None:
        return original(self, now_ms)
    progress, maximal_isr = leadership.progress, leadership.maximal_isr
    leadership.progress = {r: one for r, one in progress.items() if r in registration.isr}
    leadership.maximal_isr = registration.isr
    try:
        return original(self, now_ms)
    finally:
        leadership.progress, leadership.maximal_isr = progress, maximal_isr


@mutant(Partition, "advance_high_watermark", breaks="R68", by="G-4", killed_by="G-4@1")
def passes_its_ceiling(original: Any, self: Partition, now_ms: int) -> Any:
    """The high watermark moves before its ceiling is stored."""
    self.ceiling.limit = max(self.ceiling.limit, self.log.log_end_offset)
    return original(self, now_ms)


@mutant(Ceiling, "promise", breaks="R68", by="G-4", killed_by="G-4@1")
def counts_promises_at_once(original: Any, self: Ceiling, end: int, now_ms: int, *, may_lower: bool) -> Any:
    """A ceiling counts when it is asked for, not when it is durable."""
    self.limit = original(self, end, now_ms, may_lower=may_lower)
    return self.limit


@mutant(Fetchers, "_promise_first", breaks="R68", by="G-4", killed_by="G-4@1")
def shows_logs_above_their_ceilings(original: Any, self: Fetchers, source: Any) -> Any:
    """A follower shows its leader what it has before its ceiling is stored."""
    ready = list(source.ready)
    original(self, source)
    for key in ready:
        if key not in source.ready:
            self.ceiling_stored(key)


@mutant(
    Ceiling,
    "promise",
    breaks="R68",
    by="G-4",
    setting=POWER,
    masked="a new process promises nothing before its log ends above what the last one has promised, or "
    "it is in sync (is_ceiling_too_high), and within one process nothing is lost; the pair is "
    "finds-ceilings-too-high-out-of-sync",
)
def lowers_ceilings_out_of_sync(
    original: Any, self: Ceiling, end: int, now_ms: int, *, may_lower: bool
) -> Any:
    """Who has lost its tail may lower its ceiling to what is left."""
    return original(self, end, now_ms, may_lower=True)


@mutant(
    Partition,
    "is_ceiling_too_high",
    breaks="R68",
    by="G-4",
    setting=TAILS_GONE,
    more=(Patch(Ceiling, "promise", lowers_ceilings_out_of_sync),),
    killed_by="G-4@1",
)
def finds_ceilings_too_high_out_of_sync(original: Any, self: Partition, now_ms: int) -> Any:
    """Who has lost its tail looks for promises that are too high for what is left, and lowers them."""
    return self.registration is not None and self.ceiling.is_too_high(self.log.log_end_offset, now_ms)


@mutant(
    Ceiling,
    "promise",
    breaks="R68",
    by="G-4",
    setting=LULLS,
    killed_by="G-4@1",
)
def lowers_ceilings_late(original: Any, self: Ceiling, end: int, now_ms: int, *, may_lower: bool) -> Any:
    """While a lower ceiling is written the high watermark still moves up to the higher one."""
    limit = self.limit
    offset = original(self, end, now_ms, may_lower=may_lower)
    self.limit = limit
    return offset


@mutant(Partition, "maybe_shrink", breaks="F3, R51", by="I-10 I-7 I-8", setting=LAGGING, killed_by="I-8@1")
def shrinks_before_confirmed(original: Any, self: Partition, now_ms: int) -> Any:
    """A proposed shrink counts at once."""
    proposal = original(self, now_ms)
    if proposal is not None and self.leadership is not None:
        self.leadership.maximal_isr = proposal.isr
    return proposal


@mutant(Partition, "advance_high_watermark", breaks="F1", by="I-8 A-2", killed_by="A-2@1")
def high_watermark_off_by_one(original: Any, self: Partition, now_ms: int) -> Any:
    """The high watermark is taken for inclusive."""
    has_moved = original(self, now_ms)
    if has_moved:
        self.high_watermark = min(self.high_watermark + 1, self.log.log_end_offset)
    return has_moved


@mutant(Partition, "advance_high_watermark", breaks="F3", by="I-8 A-2 I-7", killed_by="A-2@1")
def majority_high_watermark(original: Any, self: Partition, now_ms: int) -> Any:
    """The MinISR-th largest position is taken for committed."""
    registration, leadership = self.registration, self.leadership
    if registration is None or leadership is None or len(registration.isr) < registration.min_isr:
        return original(self, now_ms)
    others = [one.position for r, one in leadership.progress.items() if r in leadership.maximal_isr]
    positions = sorted([self.position, *others], reverse=True)
    end = positions[min(registration.min_isr, len(positions)) - 1]
    original(self, now_ms)
    if end <= self.high_watermark:
        return False
    self.high_watermark = end
    return True


@mutant(Partition, "advance_high_watermark", breaks="F3", by="I-8 A-2 I-7", killed_by="A-2@1")
def counts_nobody_else(original: Any, self: Partition, now_ms: int) -> Any:
    """The leader counts no replica but itself."""
    leadership = self.leadership
    if leadership is None:
        return original(self, now_ms)
    progress, leadership.progress = leadership.progress, {}
    try:
        return original(self, now_ms)
    finally:
        leadership.progress = progress


@mutant(Partition, "epoch_started", breaks="A-6, F6", by="I-8 A-2 A-6", setting=DIVERGING, killed_by="I-8@1")
def new_leader_commits_all(original: Any, self: Partition, leader_epoch: int, start_offset: int) -> Any:
    """A new leader takes its log end for the high watermark (the primer)."""
    has_begun = original(self, leader_epoch, start_offset)
    if has_begun:
        self.high_watermark = start_offset
    return has_begun


@mutant(Partition, "visible_high_watermark", breaks="A-6, F6", by="A-6", setting=DIVERGING, killed_by="A-6@3")
def shows_lagging_high_watermark(original: Any, self: Partition) -> Any:
    """A new leader tells consumers its high watermark at once."""
    return self.high_watermark if self.is_serving else original(self)


def _log_end(original: Any, self: Partition) -> Any:
    return self.log.log_end_offset


def _counts_fetch_offset(
    original: Any,
    self: Partition,
    replica_id: int,
    broker_epoch: int,
    fetch_offset: int,
    flushed_offset: int,
    now_ms: int,
) -> Any:
    return original(self, replica_id, broker_epoch, fetch_offset, fetch_offset, now_ms)


@mutant(Partition, "position", breaks="D6, G-3", by="G-3 I-8 A-2 I-11", setting=FLUSHED, killed_by="D6@2")
def leader_counts_unflushed(original: Any, self: Partition) -> Any:
    """With every write flushed, the leader counts its log end instead of its flushed end."""
    return _log_end(original, self)


@mutant(
    Fetchers,
    "_flush_first",
    breaks="D6, G-3",
    by="G-3 I-8 A-2 I-11",
    setting=FLUSHED,
    more=(Patch(Partition, "follower_fetched", _counts_fetch_offset),),
    killed_by="A-2@1",
)
def followers_count_unflushed(original: Any, self: Fetchers, source: Any) -> Any:
    """With every write flushed, followers fetch before their flush and their log end counts."""
    return []


@mutant(
    Partition,
    "follower_fetched",
    breaks="D6",
    by="G-3",
    setting=FLUSHED,
    masked="followers list a row only once it is flushed (D6); the pair is followers-count-unflushed",
)
def believes_fetch_offsets(
    original: Any,
    self: Partition,
    replica_id: int,
    broker_epoch: int,
    fetch_offset: int,
    flushed_offset: int,
    now_ms: int,
) -> Any:
    """With every write flushed, the leader counts what a follower fetched, not what it flushed."""
    return original(self, replica_id, broker_epoch, fetch_offset, fetch_offset, now_ms)


# --- joining and leaving the ISR ---------------------------------------------------------------------------


@mutant(Partition, "_may_join", breaks="R50, A-5", by="I-8 A-5 I-9", setting=DIVERGING, killed_by="A-5@2")
def joins_below_epoch_start(
    original: Any, self: Partition, leadership: Any, progress: Any, now_ms: int
) -> Any:
    """A follower may join before it has reached the start of the leader's epoch."""
    return (
        leadership.start_offset is not None
        and progress.position >= self.high_watermark
        and self._is_eligible(progress)
    )


@mutant(Partition, "_may_join", breaks="R50", by="I-8 A-5 I-9", setting=LAGGING, killed_by="A-5@1")
def joins_below_high_watermark(
    original: Any, self: Partition, leadership: Any, progress: Any, now_ms: int
) -> Any:
    """A follower may join with its first fetch, wherever it is."""
    return leadership.start_offset is not None and self._is_eligible(progress)


def _member_epoch_of_metadata(original: Any, self: Partition, leadership: Any, replica_id: int) -> Any:
    return self._brokers.acceptable.get(replica_id, -1)


@mutant(
    Partition,
    "_is_eligible",
    breaks="R50, KAFKA-15221",
    by="A-5 I-8",
    setting=PAIRS,
    more=(Patch(Partition, "_member_epoch", _member_epoch_of_metadata),),
    killed_by="Refinement@1",
)
def joins_in_old_incarnation(original: Any, self: Partition, progress: Any) -> Any:
    """What a former incarnation fetched counts for the present one, and is named with its epoch."""
    return progress.replica_id in self._brokers.acceptable and progress.broker_epoch >= 0


@mutant(
    Partition,
    "_may_join",
    breaks="KAFKA-19996",
    by="A-5",
    setting=LAGGING,
    masked="no safety: a member that does not keep up leaves again; the bound is for availability",
)
def joins_whatever_it_lags(
    original: Any, self: Partition, leadership: Any, progress: Any, now_ms: int
) -> Any:
    """The lag behind the leader's end is not bounded for who joins."""
    start = leadership.start_offset
    return (
        start is not None
        and progress.position >= max(start, self.high_watermark)
        and self._is_eligible(progress)
    )


@mutant(
    Partition,
    "apply_registration",
    breaks="R56, N-5",
    by="N-5 I-7 A-2 TypeOK",
    setting=LATE_METADATA,
    killed_by="N-5@2",
)
def takes_old_registrations(original: Any, self: Partition, registration: Any, now_ms: int) -> Any:
    """An older partition epoch of the same leader epoch replaces a newer one."""
    known = self.registration
    if (
        known is not None
        and registration.partition_epoch < known.partition_epoch
        and registration.leader_epoch == known.leader_epoch
    ):
        self.registration = replace(known, partition_epoch=registration.partition_epoch - 1)
    return original(self, registration, now_ms)


@mutant(
    Partition,
    "maybe_shrink",
    breaks="R51",
    by="R51",
    setting=CUT_OFF_FOLLOWERS,
    killed_by="R51@2",
)
def never_shrinks(original: Any, self: Partition, now_ms: int) -> Any:
    """Who lags stays in the ISR for ever."""
    return None


@mutant(
    Partition,
    "advance_high_watermark",
    breaks="R51",
    by="R51",
    setting=CUT_OFF_FOLLOWERS,
    killed_by="R51@2",
)
def forgets_who_was_caught_up(original: Any, self: Partition, now_ms: int) -> Any:
    """A follower that has what the leader had at the beginning of its epoch counts as caught up."""
    leadership = self.leadership
    former = None if leadership is None else leadership.position
    moved = original(self, now_ms)
    if leadership is not None and former is not None:
        leadership.position = former
    return moved


# --- divergence --------------------------------------------------------------------------------------------


@mutant(
    Partition,
    "check_follower",
    breaks="R80",
    by="I-8 I-10 A-22",
    setting=DIVERGING,
    killed_by="I-8@1",
)
def no_divergence_check(
    original: Any,
    self: Partition,
    replica_id: int,
    broker_epoch: int,
    current_leader_epoch: int,
    fetch_offset: int,
    last_fetched_epoch: int,
) -> Any:
    """The leader does not compare the follower's last epoch with its own log."""
    end = min(fetch_offset, self.log.log_end_offset)
    return original(self, replica_id, broker_epoch, current_leader_epoch, end, -1)


@mutant(
    Partition,
    "check_follower",
    breaks="R55",
    by="I-10",
    setting=DIVERGING,
    masked="the divergence check sees to the log, and answers of a former epoch have no row any more; "
    "unit tests of broker.core.replicas.partition check the error code",
)
def serves_any_epoch(
    original: Any,
    self: Partition,
    replica_id: int,
    broker_epoch: int,
    current_leader_epoch: int,
    fetch_offset: int,
    last_fetched_epoch: int,
) -> Any:
    """The leader serves fetches of any leader epoch."""
    return original(self, replica_id, broker_epoch, -1, fetch_offset, last_fetched_epoch)


@mutant(
    Partition,
    "truncation_offset",
    breaks="R81",
    by="I-8 A-7 I-9 A-16",
    setting=DIVERGING,
    killed_by="A-16@3",
)
def truncates_to_high_watermark(
    original: Any, self: Partition, diverging_epoch: int, leader_end_offset: int
) -> Any:
    """A follower truncates to its own high watermark (the primer)."""
    return self.high_watermark


@mutant(
    Partition,
    "truncation_offset",
    breaks="R81, A-16",
    by="I-10 A-16",
    setting=CHAINS,
    killed_by="L-4@1",
)
def truncates_to_leaders_end(
    original: Any, self: Partition, diverging_epoch: int, leader_end_offset: int
) -> Any:
    """A follower truncates to the end that the leader names, also where its own log differs below that."""
    return max(self.log.log_start_offset, min(leader_end_offset, self.log.log_end_offset))


@mutant(Partition, "truncation_offset", breaks="R81", by="L-4 I-10", setting=DIVERGING, killed_by="L-4@1")
def never_truncates(original: Any, self: Partition, diverging_epoch: int, leader_end_offset: int) -> Any:
    """A follower keeps what diverges: safe, and stuck for ever."""
    return self.log.log_end_offset


@mutant(
    Partition,
    "truncation_offset",
    breaks="R81, A-16",
    by="A-1 A-16 I-8",
    setting=DIVERGING,
    killed_by="A-1@1",
)
def truncates_everything(original: Any, self: Partition, diverging_epoch: int, leader_end_offset: int) -> Any:
    """A follower that diverges drops its whole log."""
    return self.log.log_start_offset


@mutant(Partition, "log_was_cut", breaks="R81", by="I-1", setting=LOSING, killed_by="I-1@2")
def keeps_high_watermark_when_cut(original: Any, self: Partition) -> Any:
    """The high watermark stays where it was when the log is cut below it."""


@mutant(Partition, "leader_answered", breaks="R52", by="I-1 A-2", killed_by="N-4@1")
def takes_high_watermark_beyond_end(
    original: Any, self: Partition, leader_high_watermark: int, leader_end: int
) -> Any:
    """A follower takes the leader's high watermark though its own log is shorter."""
    if leader_high_watermark > self.high_watermark:
        self.high_watermark = leader_high_watermark


@mutant(Fetchers, "_row_answered", breaks="R82", by="I-10 A-7 A-2", setting=DIVERGING, killed_by="I-10@1")
def learns_before_it_truncates(
    original: Any, self: Any, row: Any, answer: Any, fetched: Any, effects: Any, now_ms: int
) -> Any:
    """A diverging answer's high watermark counts before the log is cut."""
    if answer.error_code == ErrorCode.NONE and answer.diverging_epoch is not None:
        row.partition.leader_answered(answer.high_watermark, answer.log_end_offset)
    return original(self, row, answer, fetched, effects, now_ms)


@mutant(
    Fetchers,
    "answered",
    breaks="N-4, A-15",
    by="I-10 A-15",
    setting=DIVERGING,
    masked="the connection of a source is closed with its session, so no late answer reaches the core, and a "
    "log takes only batches that continue it (R84); the model, which has no connections, kills it",
)
def takes_stale_answers(original: Any, self: Any, event: Any, now_ms: int) -> Any:
    """A follower takes the answers of a former session."""
    source = self._sources.get(event.source_id)
    if source is not None and source.in_flight:
        event = replace(event, session_id=source.session_id, session_epoch=source.in_flight[0])
    return original(self, event, now_ms)


@mutant(FetchPath, "_consumer_row", breaks="F6, I-12", by="A-6 I-12", killed_by="A-6@1")
def shows_uncommitted(original: Any, self: Any, wanted: Any) -> Any:
    """Consumers are given records above the high watermark."""
    row = original(self, wanted)
    partition = self._partitions.get((wanted.topic_id, wanted.partition_index))
    if partition is None or row.error_code or row.diverging:
        return row
    end = partition.log.log_end_offset
    has_records = wanted.fetch_offset < end
    return row._replace(end_offset=end, max_bytes=max(1, wanted.max_bytes) if has_records else 0)


# --- what leaders must not keep ----------------------------------------------------------------------------


@mutant(
    Partition,
    "alter_answered",
    breaks="R44",
    by="R44",
    setting=REFUSED,
    killed_by="R44@1",
)
def keeps_refused_proposals(original: Any, self: Partition, proposal: Any, answer: Any, now_ms: int) -> Any:
    """A proposal that was refused for good is sent again and again."""
    if answer.error_code in (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED):
        return AlterVerdict.RESEND, RoleChange.IGNORED
    return original(self, proposal, answer, now_ms)
