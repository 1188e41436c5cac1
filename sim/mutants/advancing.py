"""Mutants of what a broker does by itself, and when: nothing is lost by them at once, and only time, or what
a topic has asked for.

Owns wrong functions only; each docstring says which rule is gone.
"""

from holdfast.broker.core.replicas import replica_manager
from holdfast.broker.core.replicas.partition import Partition
from holdfast.broker.core.replicas.replica_manager import ReplicaManager
from holdfast.broker.core.requests import produce_path
from holdfast.sim.mutants.mutant import Changes, Setting, mutant
from holdfast.sim.mutants.source_patch import begin, patch

#: followers are cut off and come back while there is load
CUT_OFF = Setting(faults={"cut_followers": 3, "isolate_broker": 3, "kill_broker": 3, "kill_leader": 1})
#: p4 waits for no answer, and leaders change
UNANSWERED = Setting(faults={"kill_leader": 4, "move_partition": 3}, shape={"producers": 5})
#: how often a topic is flushed changes, to every write and back
REFLUSHED = Setting(faults={"change_flush": 1}, shape={"more_acts": True}, gap_ms=300)


@mutant(breaks="F4, F5", by="F5", setting=CUT_OFF, killed_by="F5@1")
def refuses_leader_acks_below_min_isr() -> Changes:
    """Below min ISR writes with acks=1 are refused, too."""
    return patch(
        Partition, "check_produce", "required_acks == -1 and self", "required_acks in (-1, 1) and self"
    )


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
