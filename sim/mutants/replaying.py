"""Mutants of what records mean: every node, and the observer too, replays them wrongly in the same way.

Owns wrong functions only; each docstring says which rule is gone.
"""

from dataclasses import replace
from typing import Any

from holdfast.metadata.delta import MetadataDelta
from holdfast.metadata.partition import PartitionRegistration
from holdfast.sim.mutants.mutant import Setting, mutant
from holdfast.sim.mutants.unclean_recovery import BY_OPERATORS

#: brokers stop in order
LEAVING = Setting(faults={"stop_broker": 4, "kill_broker": 1}, gap_ms=700)
#: topics are configured
CONFIGURED = Setting(faults={"change_flush": 4, "change_min_isr": 3, "kill_leader": 1}, gap_ms=700)

#: log dirs of leaders fail
FAILING_DIRS = Setting(faults={"fail_dir": 4, "kill_leader": 1}, shape={"log_dirs": 2}, gap_ms=700)


@mutant(
    MetadataDelta, "_replay_broker_change", breaks="D7, R22", by="R25", setting=LEAVING, killed_by="R25@1"
)
def leaving_is_not_replayed(original: Any, self: Any, record: Any) -> None:
    """A broker that has begun a controlled shutdown is as good as others."""
    original(self, replace(record, in_controlled_shutdown=False))


@mutant(
    MetadataDelta,
    "_replay_replicas_offline",
    breaks="D7, R27",
    by="R25",
    setting=FAILING_DIRS,
    killed_by="R25@1",
)
def one_replica_is_offline(original: Any, self: Any, record: Any) -> None:
    """Of the replicas in a failed log dir the first of each topic counts as offline."""
    original(self, replace(record, partitions=record.partitions[:1]))


@mutant(MetadataDelta, "_replay_config", breaks="D7", by="K20", setting=CONFIGURED, killed_by="K20@1")
def configuration_is_never_taken_away(original: Any, self: Any, record: Any) -> None:
    """A key that is deleted keeps its value."""
    if record.value is not None:
        original(self, record)


@mutant(
    PartitionRegistration,
    "merge",
    breaks="D7, R2",
    by="Refinement",
    setting=BY_OPERATORS,
    killed_by="Refinement@1",
)
def rows_recover_by_any_change(original: Any, self: Any, record: Any) -> Any:
    """Any change of a partition that was elected uncleanly makes it recovered."""
    return replace(original(self, record), leader_recovery_state=record.leader_recovery_state or 0)


@mutant(MetadataDelta, "_index", breaks="D7", by="R107", killed_by="R107@1")
def who_leaves_stays_in_the_index(original: Any, self: Any, key: Any, before: Any, after: Any) -> None:
    """A partition that a broker gave up is still looked for there."""
    kept = self._assigned
    original(self, key, before, after)
    gone = () if before is None or after is None else set(before.replicas) - set(after.replicas)
    for broker_id in gone:
        self._assigned = self._assigned.set(broker_id, kept[broker_id])
