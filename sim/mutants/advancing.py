"""Mutants of what a leader does as soon as it may, and of what is told of waiting: what is forgotten the
next write or the next look at followers makes good, and only time is lost.

Owns wrong functions only; each docstring says which rule is gone.
"""

from holdfast.broker.core.broker import Broker
from holdfast.broker.core.replicas import replica_manager
from holdfast.broker.core.replicas.partition import Partition
from holdfast.broker.core.replicas.replica_manager import ReplicaManager
from holdfast.broker.core.requests import produce_path
from holdfast.broker.core.requests.produce_path import ProducePath
from holdfast.sim.mutants.mutant import Changes, Setting, mutant
from holdfast.sim.mutants.source_patch import begin, patch

#: followers are cut off and come back while there is load
CUT_OFF = Setting(faults={"cut_followers": 3, "isolate_broker": 3, "kill_broker": 3, "kill_leader": 1})
#: proposals stay open for long, and others keep up outside meanwhile without ever having all
OPEN = Setting(
    faults={"late_fetches": 4, "kill_active": 4, "isolate_broker": 3, "cut_followers": 2, "flap_isr": 2},
    seconds=25,
    gap_ms=500,
)
#: p3 sends with acks=1, and every write is flushed
EVERY_WRITE = Setting(faults={"kill_leader": 2, "hang_disk": 1}, shape={"every_write": True})
#: brokers are fenced and come back, and there is little load
QUIET = Setting(
    faults={"restart_broker": 4, "kill_broker": 4, "mute_controllers": 4, "cut_controllers": 4},
    shape={"partitions": 8, "send_gap_ms": 1_500, "producers_alike": True},
    gap_ms=600,
)
#: p4 waits for no answer, and leaders change
UNANSWERED = Setting(faults={"kill_leader": 4, "move_partition": 3}, shape={"producers": 5})
#: how often a topic is flushed changes, to every write and back
REFLUSHED = Setting(faults={"change_flush": 1}, shape={"more_acts": True}, gap_ms=300)
#: much comes at once, and promises are stored slowly
BURSTS = Setting(
    faults={"cut_followers": 3, "cut_clients": 4, "slow_disk": 3, "isolate_leader": 2, "lull": 1},
    shape={"partitions": 1, "send_gap_ms": 60},
    gap_ms=600,
)


@mutant(breaks="R52", by="R52", killed_by="R52@1")
def fetches_move_no_high_watermark() -> Changes:
    """What a follower's fetch proves is counted with the next write."""
    return patch(Broker, "_on_fetch", "self._replica_manager.advance(partition, now_ms)", "pass")


@mutant(breaks="R52", by="R52", setting=CUT_OFF, killed_by="R52@1")
def granted_shrinks_move_no_high_watermark() -> Changes:
    """Who need not be waited for any more is waited for until the next write (KAFKA-15021)."""
    return patch(ReplicaManager, "_leader_updated", "self.advance(partition, now_ms)", "pass")


@mutant(breaks="R52, R68", by="R52", setting=BURSTS, killed_by="R52@2")
def raised_ceilings_move_no_high_watermark() -> Changes:
    """What a ceiling has held back on its leader is committed with the next write, or at the next look."""
    return patch(ReplicaManager, "ceilings_stored", "self.advance(partition, now_ms)", "pass")


@mutant(breaks="F3, R50", by="F3", setting=OPEN, killed_by="F3@2")
def goes_on_without_joiners() -> Changes:
    """Only the maximal ISR is waited for, not those who keep up and are about to join."""
    return patch(Partition, "advance_high_watermark", "not progress.is_silent", "False")


@mutant(breaks="R50", by="R50", setting=CUT_OFF, killed_by="R50@1")
def lets_in_at_the_next_look() -> Changes:
    """A follower that has all is proposed when the leader looks at all of them, not when it fetches."""
    return patch(
        Partition,
        "follower_fetched",
        "return self._maybe_expand(leadership, progress, now_ms)",
        "return None",
    )


@mutant(breaks="F4, F5", by="F5", setting=CUT_OFF, killed_by="F5@1")
def refuses_leader_acks_below_min_isr() -> Changes:
    """Below min ISR writes with acks=1 are refused, too."""
    return patch(
        Partition, "check_produce", "required_acks == -1 and self", "required_acks in (-1, 1) and self"
    )


@mutant(breaks="D6", by="D6", setting=EVERY_WRITE, killed_by="D6@1")
def flushes_acknowledge_nothing() -> Changes:
    """Who sends with acks=1 where every write is flushed waits until its time is over."""
    return begin(ProducePath, "flushed", "return []")


@mutant(breaks="D6, G-3", by="D6", setting=REFLUSHED, killed_by="D6@1")
def counts_as_it_was_made() -> Changes:
    """What counts, in the log or on its disk, is what was configured when the replica was made."""
    return (
        patch(ReplicaManager, "_configure", "partition.counts_flushed = config.flush_messages == 1", "pass"),
        patch(ReplicaManager, "_configure", "if partition.counts_flushed:", "if False:"),
    )


@mutant(breaks="D6", by="D6", setting=REFLUSHED, killed_by="D6@1")
def logs_keep_their_first_settings() -> Changes:
    """What is configured of a topic counts for logs that are opened after that."""
    return patch(ReplicaManager, "_configure", "self._effects.append(ConfigureLog(key, config))", "pass")


@mutant(breaks="D5", by="D6", killed_by="D6@1")
def files_say_nothing_of_topics() -> Changes:
    """Where neither topic nor cluster say anything the default counts, not what the file says."""
    return begin(replica_manager, "log_config", 'static = {**static, "log.segment.bytes": 1 << 30}')


@mutant(breaks="F4, D12", by="F4", setting=UNANSWERED, killed_by="F4@1")
def refusals_of_acks_zero_are_for_nobody() -> Changes:
    """A write with acks=0 that is refused ends like one that was taken."""
    return begin(produce_path, "_unanswered", "return EndWithoutAnswer(context.reply_to)")


@mutant(breaks="R50", by="R50", setting=QUIET, killed_by="R50@1")
def unfenced_wait_for_the_next_look() -> Changes:
    """A follower that was complete when its broker was unfenced is let in at the next look (15 s), or with
    the next write."""
    return patch(ReplicaManager, "_expand_again", "partition.retry_expand(now_ms)", "None")


@mutant(breaks="R50", by="R50", setting=QUIET, killed_by="R50@3")
def one_joiner_a_look() -> Changes:
    """Who could not be proposed since another proposal was open waits for the next look, or write."""
    return patch(ReplicaManager, "_leader_updated", "partition.retry_expand(now_ms)", "None")
