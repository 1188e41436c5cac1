"""Mutants of unclean recovery: which answers count, how long it waits, which log is the best.

Owns wrong functions only; each docstring says which rule is gone. All of it in the band with the recovery
manager, where every process may be killed and min ISR - 1 may lose what they have not flushed.
"""

from holdfast.broker.core.requests import log_info
from holdfast.controller.core.partitions import replication_control, unclean_recovery
from holdfast.sim.mutants.mutant import Changes, Setting, mutant
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
#: beyond the budget operators elect by hand while logs are compared
BY_OPERATORS = Setting(
    band="over-budget",
    faults={"crumble": 5, "kill_all_brokers": 3, "elect_unclean": 10, "power_broker": 2},
    shape={"recovery_manager": True},
    gap_ms=300,
    seconds=20,
)


@mutant(breaks="R64, R65", by="I-8 I-13 A-14 B-", setting=ALL_DOWN, killed_by="A-14@1")
def recovers_on_first_reply() -> Changes:
    """Recovery elects on the first answer."""
    return begin(unclean_recovery, "_is_decided", "return bool(valid)")


@mutant(breaks="R66", by="A-14 A-17 I-8", setting=ALL_DOWN, killed_by="Refinement@1")
def recovers_at_random() -> Changes:
    """Recovery elects the first replica that has answered, with any log."""
    return begin(unclean_recovery, "best_log", "return min(replies)")


@mutant(breaks="R66", by="A-14 A-17 I-8", setting=ALL_DOWN, killed_by="Refinement@1")
def shortest_log_wins() -> Changes:
    """The log that ends first wins."""
    return begin(
        unclean_recovery,
        "best_log",
        "return min(replies, key=lambda replica: (replies[replica].end_offset, replica))",
    )


@mutant(breaks="R64, R66", by="A-14 I-8 Refinement", setting=FIGURE_8, killed_by="A-14@1")
def believes_later_epochs() -> Changes:
    """The highest epoch wins, also that of a replica outside the last known ELR (the KIP's text)."""
    return begin(unclean_recovery, "_provable", "return replies")


@mutant(breaks="R66", by="R66", setting=CRUMBLING, killed_by="A-14@1")
def tells_what_is_committed() -> Changes:
    """A replica tells of its high watermark as the end of its log."""
    return patch(
        log_info,
        "_row",
        "log_end_offset=replica.log.log_end_offset",
        "log_end_offset=max(0, min(replica.log.log_end_offset, replica.high_watermark))",
    )


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
