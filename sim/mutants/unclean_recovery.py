"""Mutants of unclean recovery: which answers count, how long it waits, which log is the best.

Owns wrong functions only; each docstring says which rule is gone. All of it in the band with the recovery
manager, where every process may be killed and min ISR - 1 may lose what they have not flushed.
"""

from dataclasses import replace
from typing import Any

from holdfast.broker.core.requests import log_info
from holdfast.controller.core.events import AskForLogs, WaitForReplicas
from holdfast.controller.core.partitions import replication_control, unclean_recovery
from holdfast.controller.core.partitions.replication_control import ReplicationControl
from holdfast.controller.core.partitions.unclean_recovery import (
    AnswerValidity,
    Recovery,
    Strategy,
    UncleanRecovery,
)
from holdfast.sim.mutants.mutant import Setting, mutant

#: all brokers stop uncleanly at once, some with their logs' tails
ALL_DOWN = Setting(
    band="manager",
    faults={
        "kill_all_brokers": 6,
        "power_leader": 3,
        "power_broker": 3,
        "kill_leader": 3,
        "kill_broker": 2,
        "kill_busy_leader": 2,
        "isolate_leader": 2,
    },
    gap_ms=400,
)
#: who has answered goes down again before the choice is made; others part from a chain of leaders
CRUMBLING = Setting(
    band="manager",
    faults={
        "crumble": 6,
        "kill_elected": 3,
        "starve_follower": 3,
        "hang_disk": 2,
        "slow_disk": 2,
        "power_broker": 2,
    },
    gap_ms=700,
    seconds=25,
)
#: as CRUMBLING, while controllers come and go
TAKEN_OVER = replace(
    CRUMBLING, faults={"crumble": 5, "kill_active": 6, "kill_all_brokers": 3, "power_broker": 4}
)
#: a replica outside the last known ELR has a later epoch, of which nothing was committed
FIGURE_8 = Setting(
    band="manager", faults={"figure_eight": 1}, shape={"partitions": 1}, gap_ms=10_000, seconds=25
)
#: as FIGURE_8, the one with the later epoch is longer than what the others have promised, and is elected
LONG_LOGS = Setting(
    band="over-budget",
    faults={"long_figure_eight": 1},
    shape={"partitions": 1, "recovery_manager": True},
    gap_ms=20_000,
    seconds=40,
)
#: beyond the budget whole logs are gone, while one replica lags behind
ALL_EMPTY = Setting(
    band="over-budget",
    faults={
        "power_all": 6,
        "power_leader": 3,
        "starve_follower": 3,
        "power_broker": 3,
        "kill_all_brokers": 1,
    },
    shape={"recovery_manager": True},
    gap_ms=500,
    seconds=15,
)
#: beyond the budget operators elect any live replica, again and again
GIVEN_UP = Setting(
    band="over-budget",
    faults={
        "elect_unclean": 8,
        "crumble": 6,
        "kill_all_brokers": 4,
        "power_leader": 4,
        "kill_broker": 3,
        "power_broker": 3,
        "change_strategy": 3,
    },
    shape={"recovery_manager": True},
    gap_ms=250,
    seconds=30,
)
#: beyond the budget operators elect by hand while logs are compared
BY_OPERATORS = Setting(
    band="over-budget",
    faults={"crumble": 5, "kill_all_brokers": 3, "elect_unclean": 10, "power_broker": 2},
    shape={"recovery_manager": True},
    gap_ms=300,
    seconds=20,
)
#: beyond the budget strategies change, of topics and by hand, while there is no leader
STRATEGIES = Setting(
    band="over-budget",
    faults={
        "change_strategy": 8,
        "elect_unclean": 4,
        "kill_all_brokers": 3,
        "power_all": 2,
        "power_leader": 3,
        "power_broker": 3,
        "fence_leader": 2,
    },
    shape={"recovery_manager": True},
    gap_ms=250,
    seconds=20,
)
#: answers are not waited for for long, and some come late
IMPATIENT = Setting(
    band="over-budget",
    faults={"late_logs": 4, "crumble": 1, "change_strategy": 2},
    shape={"recovery_manager": True, "short_intervals": True},
    gap_ms=1_500,
    seconds=20,
)
#: as ALL_DOWN, while operators change what has no leader
CHANGED = Setting(
    band="manager",
    faults={"act_while_leaderless": 6, "crumble": 3, "power_leader": 3, "kill_leader": 2, "stall": 2},
    gap_ms=500,
    seconds=20,
)
#: beyond the budget a broker does not know yet that its leader leads no more, and is fed by it
STILL_FED = Setting(
    band="over-budget",
    faults={"stale_answer": 6},
    shape={"recovery_manager": True},
    gap_ms=5_000,
)


@mutant(
    unclean_recovery,
    "_is_decided",
    breaks="R64, R65",
    by="I-8 I-13 A-14 B-",
    setting=ALL_DOWN,
    killed_by="A-14@1",
)
def recovers_on_first_reply(original: Any, partition: Any, recovery: Any, asked: Any, valid: Any) -> Any:
    """Recovery elects on the first answer."""
    return bool(valid)


@mutant(
    unclean_recovery,
    "best_log",
    breaks="R66",
    by="A-14 A-17 I-8",
    setting=ALL_DOWN,
    killed_by="Refinement@1",
)
def recovers_at_random(original: Any, partition: Any, replies: Any) -> Any:
    """Recovery elects the first replica that has answered, with any log."""
    return min(replies)


@mutant(
    unclean_recovery,
    "best_log",
    breaks="R66, B22",
    by="A-17 BestLogWins I-8 I-13",
    setting=CRUMBLING,
    killed_by="Refinement@1",
)
def longest_log_before_epoch(original: Any, partition: Any, replies: Any) -> Any:
    """The longest log wins, whichever epoch it ends in."""
    return max(replies, key=lambda replica: (replies[replica].end_offset, -replica))


@mutant(
    unclean_recovery, "best_log", breaks="R66", by="A-14 A-17 I-8", setting=ALL_DOWN, killed_by="Refinement@1"
)
def shortest_log_wins(original: Any, partition: Any, replies: Any) -> Any:
    """The log that ends first wins."""
    return min(replies, key=lambda replica: (replies[replica].end_offset, replica))


@mutant(
    unclean_recovery,
    "_statement",
    breaks="R61, R64",
    by="A-14 A-17 I-8",
    setting=ALL_DOWN,
    killed_by="A-14@1",
)
def recovers_without_fenced_seats(original: Any, image: Any, key: Any, partition: Any, strategy: Any) -> Any:
    """Recovery does not wait for members of the last known ELR that are fenced."""
    statement = original(image, key, partition, strategy)
    active = tuple(replica for replica in sorted(partition.replicas) if image.is_active(replica))
    return AskForLogs(active, ()) if isinstance(statement, WaitForReplicas) and active else statement


@mutant(
    unclean_recovery,
    "_valid_replies",
    breaks="R63, N-3",
    by="A-17 BestLogWins I-8 I-13",
    setting=CRUMBLING,
    masked="an unclean start flushes all that it keeps (R86) and nothing is appended without a leader: "
    "what a former incarnation told is true still; the pair is recovered-not-durable",
)
def recovers_without_revalidation(original: Any, image: Any, recovery: Any, asked: Any) -> Any:
    """Answers are checked when they arrive and not when the choice is made."""
    return {
        replica: recovery.replies[replica]
        for replica in asked.must + asked.others
        if replica in recovery.replies
    }


@mutant(
    UncleanRecovery,
    "take_log_info",
    breaks="R62",
    by="A-17 BestLogWins I-8 I-13",
    setting=CRUMBLING,
    masked="a broker is asked only once it is unfenced, and by then its logs are loaded (R23); the "
    "pair is unfenced-before-caught-up",
)
def counts_answers_with_errors(original: Any, self: Any, image: Any, event: Any) -> Any:
    """An answer that is none counts as an empty log."""
    if not event.error_code:
        return original(self, image, event)
    verdict = original(self, image, replace(event, error_code=type(event.error_code)(0)))
    return AnswerValidity.OK if verdict is AnswerValidity.OK else verdict


@mutant(
    ReplicationControl,
    "compares_logs",
    breaks="R69",
    by="A-13 I-8 I-13",
    setting=ALL_DOWN,
    killed_by="A-13@1",
)
def manager_is_off(original: Any, self: Any, image: Any) -> Any:
    """The recovery manager is configured, and the last known leader is trusted all the same."""
    return False


class _Anything:
    """Equal to all that it is compared with."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return True


@mutant(
    Recovery, "identity", breaks="R60", by="A-14 L-9 Refinement", setting=BY_OPERATORS, killed_by="OwnBug@1"
)
def recovery_outlives_its_partition(original: Any, self: Any) -> Any:
    """A recovery goes on, with the answers it has, though the partition has changed or had a leader."""
    return _Anything()


@mutant(
    UncleanRecovery,
    "take_log_info",
    breaks="R62, N-3",
    by="A-14 I-8 Refinement",
    setting=CRUMBLING,
    masked="an unclean start flushes all that it keeps (R86) and nothing is appended without a leader: "
    "what a former incarnation told is true still; the pair is recovered-not-durable",
)
def counts_answers_of_former_incarnations(original: Any, self: Any, image: Any, event: Any) -> Any:
    """An answer counts whichever incarnation of the broker gave it."""
    broker = image.brokers.get(event.broker_id)
    return original(
        self, image, event if broker is None else replace(event, broker_epoch=broker.broker_epoch)
    )


@mutant(
    UncleanRecovery,
    "take_log_info",
    breaks="R62, F44",
    by="A-14 I-8 Refinement",
    setting=STILL_FED,
    killed_by="A-14@1",
)
def counts_answers_of_other_epochs(original: Any, self: Any, image: Any, event: Any) -> Any:
    """An answer counts though the broker follows a former leader still, and may yet cut its log."""
    recovery = self._recoveries.get((event.topic_id, event.partition_index))
    return original(
        self, image, event if recovery is None else replace(event, leader_epoch=recovery.leader_epoch)
    )


@mutant(
    UncleanRecovery,
    "_strategy",
    breaks="R14, R67",
    by="A-13 A-14 OwnBug Refinement I-8",
    setting=CRUMBLING,
    killed_by="I-8@10",
)
def compares_logs_beside_elr(
    original: Any, self: Any, look: Any, topic_name: str, key: Any, partition: Any
) -> Any:
    """Logs are compared although a member of the ELR is only fenced."""
    return original(self, look, topic_name, key, replace(partition, isr=(), elr=()))


@mutant(
    unclean_recovery,
    "_provable",
    breaks="R64, R66",
    by="A-14 I-8 Refinement",
    setting=FIGURE_8,
    killed_by="A-14@1",
)
def believes_later_epochs(original: Any, partition: Any, replies: Any) -> Any:
    """The highest epoch wins, also that of a replica outside the last known ELR (the KIP's text)."""
    return replies


@mutant(
    unclean_recovery, "_provable", breaks="R66", by="A-14 Refinement", setting=ALL_EMPTY, killed_by="A-14@9"
)
def elects_empty_logs(original: Any, partition: Any, replies: Any) -> Any:
    """A last known ELR without records sets the epoch, and a replica outside it with records is left out."""
    if partition.last_known_elr and set(partition.last_known_elr) <= replies.keys():
        known = [replies[replica] for replica in partition.last_known_elr if replica in replies]
        if max(reply.end_offset for reply in known) == 0:
            return {replica: reply for replica, reply in replies.items() if reply.end_offset == 0}
    return original(partition, replies)


@mutant(unclean_recovery, "_counted", breaks="R68", by="G-4", setting=ALL_EMPTY, killed_by="G-4@50")
def bounds_by_any_ceiling(original: Any, partition: Any) -> Any:
    """The ceiling of a replica that was left behind bounds the loss too."""
    return partition.replicas


@mutant(
    unclean_recovery,
    "_counted",
    breaks="R68, R10",
    by="G-4",
    setting=GIVEN_UP,
    killed_by="G-4@42",
)
def bounds_by_seats_given_up(original: Any, partition: Any) -> Any:
    """Seats that stay after an unclean election bound the loss of the next history too."""
    return (*partition.isr, *partition.elr, *partition.last_known_elr)


@mutant(
    unclean_recovery,
    "most_lost",
    breaks="R68",
    by="G-4",
    setting=LONG_LOGS,
    gap="the story must let two logs part by more than a ceiling is ahead, which no seed below 75 does since "
    "fetches are answered once a turn: unit tests of unclean_recovery.most_lost have such logs",
)
def believes_that_the_elected_log_is_the_same(
    original: Any, partition: Any, replies: Any, ceilings: Any, chosen: int
) -> Any:
    """All that the elected log holds is taken for the leader's, though it may have parted from it."""
    return original(partition, dict.fromkeys(replies, replies[chosen]), ceilings, chosen)


@mutant(replication_control, "_line", breaks="R68, G-4", by="G-4", setting=ALL_DOWN, killed_by="G-4@1")
def tells_of_no_loss(original: Any, name: str, change: Any) -> Any:
    """An unclean election is told like any other."""
    text, level = original(name, change)
    return text.replace("records may be lost", "all is well"), level


@mutant(log_info, "_row", breaks="R66", by="R66", setting=CRUMBLING, killed_by="A-14@1")
def tells_what_is_committed(
    original: Any, image: Any, broker_id: Any, key: Any, replica_of: Any, damage_of: Any
) -> Any:
    """A replica tells of its high watermark as the end of its log."""
    row = original(image, broker_id, key, replica_of, damage_of)
    known = max(0, min(row.log_end_offset, row.high_watermark))
    return row if row.error_code else replace(row, log_end_offset=known)


@mutant(unclean_recovery, "_is_decided", breaks="R64, R65", by="R60", setting=CRUMBLING, killed_by="R60@2")
def recovers_without_asking_the_others(
    original: Any, partition: Any, recovery: Any, asked: Any, valid: Any
) -> Any:
    """Only those are waited for whose answers are needed, as if time were over at once."""
    return original(partition, replace(recovery, has_timed_out=True), asked, valid)


@mutant(unclean_recovery, "_is_decided", breaks="R64, R65", by="R60", setting=IMPATIENT, killed_by="R60@1")
def recovery_waits_for_ever(original: Any, partition: Any, recovery: Any, asked: Any, valid: Any) -> Any:
    """Time for answers is never over: one that hangs keeps a partition without a leader."""
    return original(partition, replace(recovery, has_timed_out=False), asked, valid)


@mutant(UncleanRecovery, "take_log_info", breaks="R64, R65", by="R60", setting=IMPATIENT, killed_by="R60@3")
def answers_begin_time_anew(original: Any, self: Any, image: Any, event: Any) -> Any:
    """With each answer the others have as long again."""
    verdict = original(self, image, event)
    if verdict is AnswerValidity.OK:
        recovery = self._recoveries[event.topic_id, event.partition_index]
        recovery.started_ms += self._config.recovery_timeout_ms
    return verdict


@mutant(unclean_recovery, "_is_decided", breaks="R64", by="R60 R62 I-8", setting=IMPATIENT, killed_by="R60@1")
def time_proves_something(original: Any, partition: Any, recovery: Any, asked: Any, valid: Any) -> Any:
    """Once time is over the best log is elected also where one of the last known ELR has told of none."""
    known = partition.last_known_elr
    has_any = any(replica in valid for replica in known) if known else bool(valid)
    return (recovery.has_timed_out and has_any) or original(partition, recovery, asked, valid)


@mutant(unclean_recovery, "_is_decided", breaks="R65", by="R60", setting=STRATEGIES, killed_by="R60@2")
def aggressive_waits_for_who_is_away(
    original: Any, partition: Any, recovery: Any, asked: Any, valid: Any
) -> Any:
    """The aggressive strategy waits for all replicas, not for those that are there."""
    if recovery.strategy is Strategy.AGGRESSIVE and not recovery.has_timed_out:
        return len(valid) == len(partition.replicas)
    return original(partition, recovery, asked, valid)


@mutant(UncleanRecovery, "start", breaks="R60", by="R60 L-9", setting=TAKEN_OVER, killed_by="R60@1")
def new_controllers_recover_nothing(original: Any, self: Any, image: Any) -> Any:
    """A controller that becomes active does not look for partitions without a leader."""
    original(self, image)
    self._is_all_dirty = False


@mutant(UncleanRecovery, "_configured", breaks="R69", by="R60", setting=STRATEGIES, killed_by="R60@2")
def topics_have_no_strategies(original: Any, self: Any, image: Any, topic_name: str) -> Any:
    """The strategy of the cluster counts, not that of the topic."""
    return original(self, image, "")


@mutant(UncleanRecovery, "_configured", breaks="R69", by="R60", setting=STRATEGIES, killed_by="R60@5")
def recovers_against_the_strategy(original: Any, self: Any, image: Any, topic_name: str) -> Any:
    """A topic that is to wait for an operator is recovered all the same."""
    strategy = original(self, image, topic_name)
    return Strategy.BALANCED if strategy is Strategy.NONE else strategy


@mutant(UncleanRecovery, "force", breaks="R17, R69", by="R60", setting=STRATEGIES, killed_by="R60@5")
def operators_recover_nothing(
    original: Any, self: Any, image: Any, topic: Any, index: int, strategy: Any
) -> Any:
    """A comparison of logs that operators have asked for is not begun."""
