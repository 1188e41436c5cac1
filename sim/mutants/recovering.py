"""Mutants of unclean recovery: which answers count, how long it waits, which log is the best.

Owns wrong functions only; each docstring says which rule is gone. All of it in the band with the recovery
manager, where every process may be killed and min ISR - 1 may lose what they have not flushed.
"""

from dataclasses import replace
from typing import Any

from controller import unclean_recovery
from controller.events import AskForLogs, WaitForReplicas
from controller.replication_control import ReplicationControl
from controller.unclean_recovery import UncleanRecovery, Verdict
from sim.mutants.mutant import Setting, mutant

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


@mutant(unclean_recovery, "_is_decided", row=24, breaks="R64, R65", by="I-8 I-13 A-14 B-", setting=ALL_DOWN)
def recovers_on_first_reply(original: Any, partition: Any, recovery: Any, asked: Any, valid: Any) -> Any:
    """Recovery elects on the first answer."""
    return bool(valid)


@mutant(unclean_recovery, "best_log", row=24, breaks="R66", by="A-14 A-17 I-8", setting=ALL_DOWN)
def recovers_at_random(original: Any, partition: Any, replies: Any) -> Any:
    """Recovery elects the first replica that has answered, whatever its log."""
    return min(replies)


@mutant(
    unclean_recovery,
    "best_log",
    breaks="R66, B22",
    by="A-17 BestLogWins I-8 I-13",
    setting=ALL_DOWN,
    gap="needs a longer log of an older epoch among the answers; faults at leaders just elected would",
)
def longest_log_before_epoch(original: Any, partition: Any, replies: Any) -> Any:
    """The longest log wins, whatever epoch it ends in."""
    return max(replies, key=lambda replica: (replies[replica].end_offset, -replica))


@mutant(unclean_recovery, "best_log", breaks="R66", by="A-14 A-17 I-8", setting=ALL_DOWN)
def shortest_log_wins(original: Any, partition: Any, replies: Any) -> Any:
    """The log that ends first wins."""
    return min(replies, key=lambda replica: (replies[replica].end_offset, replica))


@mutant(unclean_recovery, "_statement", breaks="R61, R64", by="A-14 A-17 I-8", setting=ALL_DOWN)
def recovers_without_fenced_seats(original: Any, image: Any, partition: Any, strategy: Any) -> Any:
    """Recovery does not wait for members of the last known ELR that are fenced."""
    statement = original(image, partition, strategy)
    active = tuple(replica for replica in sorted(partition.replicas) if image.is_active(replica))
    return AskForLogs(active, ()) if isinstance(statement, WaitForReplicas) and active else statement


@mutant(
    unclean_recovery,
    "_valid_replies",
    breaks="R63, D-3",
    by="A-17 BestLogWins I-8 I-13",
    setting=ALL_DOWN,
    gap="needs a replica that dies uncleanly between its answer and the choice; a fault at answers would",
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
    setting=ALL_DOWN,
    gap="needs an asked replica that is still loading; slower disks at the start would",
)
def counts_answers_with_errors(original: Any, self: Any, image: Any, event: Any) -> Any:
    """An answer that is none counts as an empty log."""
    if not event.error_code:
        return original(self, image, event)
    verdict = original(self, image, replace(event, error_code=type(event.error_code)(0)))
    return Verdict.OK if verdict is Verdict.OK else verdict


@mutant(ReplicationControl, "compares_logs", breaks="R69", by="A-13 I-8 I-13", setting=ALL_DOWN)
def manager_is_off(original: Any, self: Any, image: Any) -> Any:
    """The recovery manager is configured, and the last known leader is trusted all the same."""
    return False
