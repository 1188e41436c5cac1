"""Mutants of unclean recovery: which answers count, how long it waits, which log is the best.

Owns wrong functions only; each docstring says which rule is gone. All of it in the band with the recovery
manager, where every process may be killed and min ISR - 1 may lose what they have not flushed.
"""

from typing import Any

from holdfast.broker.core.requests import log_info
from holdfast.controller.core.partitions import replication_control, unclean_recovery
from holdfast.controller.core.partitions.replication_control import ReplicationControl
from holdfast.controller.core.partitions.unclean_recovery import (
    Recovery,
    UncleanRecovery,
)
from holdfast.sim.mutants.mutant import Changes, Setting, mutant, replacing
from holdfast.sim.mutants.source_patch import begin, patch

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
#: a replica outside the last known ELR has a later epoch, of which nothing was committed
FIGURE_8 = Setting(
    band="manager", faults={"figure_eight": 1}, shape={"partitions": 1}, gap_ms=10_000, seconds=25
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
#: beyond the budget a broker does not know yet that its leader leads no more, and is fed by it
STILL_FED = Setting(
    band="over-budget",
    faults={"stale_answer": 6},
    shape={"recovery_manager": True},
    gap_ms=5_000,
)


@mutant(breaks="R64, R65", by="I-8 I-13 A-14 B-", setting=ALL_DOWN, killed_by="A-14@1")
def recovers_on_first_reply() -> Changes:
    """Recovery elects on the first answer."""
    return begin(unclean_recovery, "_is_decided", "return bool(valid)")


@mutant(breaks="R66", by="A-14 A-17 I-8", setting=ALL_DOWN, killed_by="Refinement@1")
def recovers_at_random() -> Changes:
    """Recovery elects the first replica that has answered, with any log."""
    return begin(unclean_recovery, "best_log", "return min(replies)")


@mutant(breaks="R66, B22", by="A-17 BestLogWins I-8 I-13", setting=CRUMBLING, killed_by="A-14@1")
def longest_log_before_epoch() -> Changes:
    """The longest log wins, whichever epoch it ends in."""
    return patch(unclean_recovery, "best_log", "            replies[replica].last_epoch,\n", "")


@mutant(breaks="R66", by="A-14 A-17 I-8", setting=ALL_DOWN, killed_by="Refinement@1")
def shortest_log_wins() -> Changes:
    """The log that ends first wins."""
    return begin(
        unclean_recovery,
        "best_log",
        "return min(replies, key=lambda replica: (replies[replica].end_offset, replica))",
    )


@mutant(breaks="R61, R64", by="A-14 A-17 I-8", setting=ALL_DOWN, killed_by="A-14@1")
def recovers_without_fenced_seats() -> Changes:
    """Recovery does not wait for members of the last known ELR that are fenced."""
    return patch(
        unclean_recovery,
        "_statement",
        "if fenced:",
        "if fenced and active:\n            return AskForLogs(active, ())\n        if fenced:",
    )


@mutant(breaks="R69", by="A-13 I-8 I-13", setting=ALL_DOWN, killed_by="Refinement@1")
def manager_is_off() -> Changes:
    """The recovery manager is configured, and the last known leader is trusted all the same."""
    return begin(ReplicationControl, "compares_logs", "return False")


class _Anything:
    """Equal to all that it is compared with."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return True


@replacing(
    Recovery, "identity", breaks="R60", by="A-14 L-9 Refinement", setting=BY_OPERATORS, killed_by="OwnBug@1"
)
def recovery_outlives_its_partition(original: Any, self: Any) -> Any:
    """A recovery goes on, with the answers it has, though the partition has changed or had a leader."""
    return _Anything()


@mutant(breaks="R62, F44", by="A-14 I-8 Refinement", setting=STILL_FED, killed_by="A-14@1")
def counts_answers_of_other_epochs() -> Changes:
    """An answer counts though the broker follows a former leader still, and may yet cut its log."""
    return (
        patch(UncleanRecovery, "take_log_info", "event.leader_epoch < recovery.leader_epoch", "False"),
        patch(UncleanRecovery, "take_log_info", "event.leader_epoch > recovery.leader_epoch", "False"),
    )


@mutant(breaks="R64, R66", by="A-14 I-8 Refinement", setting=FIGURE_8, killed_by="A-14@1")
def believes_later_epochs() -> Changes:
    """The highest epoch wins, also that of a replica outside the last known ELR (the KIP's text)."""
    return begin(unclean_recovery, "_provable", "return replies")


@mutant(breaks="R66", by="A-14 Refinement", setting=ALL_EMPTY, killed_by="A-14@9")
def elects_empty_logs() -> Changes:
    """A last known ELR without records sets the epoch, and a replica outside it with records is left out."""
    return patch(unclean_recovery, "_provable", "best.end_offset == 0", "False")


@mutant(breaks="R68", by="G-4", setting=ALL_EMPTY, killed_by="G-4@50")
def bounds_by_any_ceiling() -> Changes:
    """The ceiling of a replica that was left behind bounds the loss too."""
    return begin(unclean_recovery, "_counted", "return partition.replicas")


@mutant(breaks="R68, R10", by="G-4", setting=GIVEN_UP, killed_by="G-4@42")
def bounds_by_seats_given_up() -> Changes:
    """Seats that stay after an unclean election bound the loss of the next history too."""
    return begin(
        unclean_recovery, "_counted", "return (*partition.isr, *partition.elr, *partition.last_known_elr)"
    )


@mutant(breaks="R68, G-4", by="G-4", setting=ALL_DOWN, killed_by="G-4@1")
def tells_of_no_loss() -> Changes:
    """An unclean election is told like any other."""
    return patch(replication_control, "_line", "records may be lost", "all is well")


@mutant(breaks="R66", by="R66", setting=CRUMBLING, killed_by="A-14@1")
def tells_what_is_committed() -> Changes:
    """A replica tells of its high watermark as the end of its log."""
    return patch(
        log_info,
        "_row",
        "log_end_offset=replica.log.log_end_offset",
        "log_end_offset=max(0, min(replica.log.log_end_offset, replica.high_watermark))",
    )
