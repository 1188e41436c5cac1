"""Mutants of what records mean: every node, and the observer too, replays them wrongly in the same way.

Owns wrong functions only; each docstring says which rule is gone.
"""

from holdfast.metadata.delta import MetadataDelta
from holdfast.metadata.partition import PartitionRegistration
from holdfast.sim.mutants.mutant import Changes, Setting, mutant
from holdfast.sim.mutants.source_patch import begin, patch
from holdfast.sim.mutants.unclean_recovery import BY_OPERATORS

#: topics are configured
CONFIGURED = Setting(faults={"change_flush": 4, "change_min_isr": 3, "kill_leader": 1}, gap_ms=700)


@mutant(breaks="D7", by="K20", setting=CONFIGURED, killed_by="K20@1")
def configuration_is_never_taken_away() -> Changes:
    """A key that is deleted keeps its value."""
    return begin(MetadataDelta, "_replay_config", "if record.value is None: return")


@mutant(breaks="D7, R2", by="Refinement", setting=BY_OPERATORS, killed_by="Refinement@1")
def rows_recover_by_any_change() -> Changes:
    """Any change of a partition that was elected uncleanly makes it recovered."""
    return patch(
        PartitionRegistration,
        "merge",
        "self.leader_recovery_state\n                if",
        "0\n                if",
    )


@mutant(breaks="D7", by="R107", killed_by="R107@1")
def who_leaves_stays_in_the_index() -> Changes:
    """A partition that a broker gave up is still looked for there."""
    return patch(
        MetadataDelta, "_index", "self._assigned[broker_id].delete(key)", "self._assigned[broker_id]"
    )
