"""Mutants of what is deleted: by retention, and with a topic; and of where a follower begins behind it.

Owns wrong functions only; each docstring says which rule is gone.
"""

from typing import Any

from holdfast.broker.core.replicas.partition import Partition
from holdfast.broker.core.replicas.replica_manager import ReplicaManager
from holdfast.broker.log_manager import LogManager
from holdfast.metadata.delta import MetadataDelta
from holdfast.sim.mutants.mutant import Setting, mutant
from holdfast.storage import epoch_file, log, snapshots
from holdfast.storage.core import retention
from holdfast.storage.log import Log
from holdfast.storage.log_dir import LogDir
from holdfast.storage.segment import Segment

#: logs are cut and opened anew while their beginnings are deleted
SHORT = Setting(
    faults={
        "kill_busy_leader": 5,
        "isolate_leader": 4,
        "power_leader": 4,
        "power_broker": 3,
        "kill_leader": 3,
        "starve_follower": 3,
        "pause_broker": 3,
    },
    shape={"retention": True},
    seconds=25,
    gap_ms=500,
)

#: some processes live for long
CALM = Setting(faults={"kill_leader": 1}, shape={"retention": True}, seconds=25, gap_ms=5_000)


@mutant(log, "old_count", breaks="D5, A-21", by="Refinement I-1 D5", setting=SHORT, killed_by="I-1@1")
def deletes_what_is_needed(
    original: Any, segments: Any, config: Any, wall_ms: Any, log_start_offset: Any, kept_offset: Any
) -> Any:
    """Retention takes what is neither committed nor flushed."""
    end_offset = segments[-1].next_offset
    return original(
        segments, config, wall_ms=wall_ms, log_start_offset=log_start_offset, kept_offset=end_offset
    )


@mutant(snapshots, "write", breaks="R94", by="R94", setting=SHORT, killed_by="R94@1")
async def keeps_one_snapshot(
    original: Any, disk: Any, folder: Any, offset: Any, text: Any, bases: Any
) -> None:
    """Only the newest snapshot of producers is kept, though what is below it may be deleted."""
    await original(disk, folder, offset, text, ())


@mutant(Log, "_rebuildable", breaks="R94", by="D5", setting=SHORT, killed_by="D5@12")
async def deletes_before_snapshots(original: Any, self: Any, count: Any) -> Any:
    """Segments go before the next one has its snapshot on the disk."""
    return count


@mutant(Log, "reset_to", breaks="R83, R94", by="R94", setting=SHORT, killed_by="R94@1")
async def snapshots_outlive_resets(original: Any, self: Any, offset: Any) -> None:
    """A log that begins anew keeps the producers of its former life."""
    kept = self._producers
    await original(self, offset)
    self._producers = kept


@mutant(Log, "reset_to", breaks="R83", by="L-4 L-6", setting=SHORT, killed_by="L-4@1")
async def begins_anew_too_low(original: Any, self: Any, offset: Any) -> None:
    """A follower begins anew right below its leader's log start."""
    await original(self, max(0, offset - 1))


@mutant(Log, "reset_to", breaks="R83", by="L-6 I-8 I-10", setting=SHORT, killed_by="Refinement@1")
async def begins_anew_too_high(original: Any, self: Any, offset: Any) -> None:
    """A follower begins anew one record behind its leader's log start."""
    await original(self, offset + 1)


@mutant(retention, "is_past_time", breaks="D5", by="D5", setting=SHORT, killed_by="D5@1")
def everything_is_old(original: Any, segment: Any, config: Any, wall_ms: Any) -> Any:
    """Every record is older than its topic keeps it."""
    return True


@mutant(epoch_file, "_divided", breaks="R80, R62", by="R80", setting=SHORT, killed_by="R80@12")
def expired_logs_forget(original: Any, rows: Any) -> Any:
    """A log that all has gone from does not know its last epoch after a start: a comparison of logs prefers
    one that has lost its end."""
    _, entries = original(rows)
    return None, entries


#: a topic is deleted and made again while brokers die
REMADE = Setting(
    faults={"power_broker": 4, "power_leader": 3, "kill_broker": 3, "kill_leader": 2},
    shape={"remakes": True},
    gap_ms=500,
)


#: topics are deleted, and partitions moved, while brokers are away
AWAY_MEANWHILE = Setting(
    faults={"drop_topic": 5, "make_topic": 6, "kill_broker": 5, "move_partition": 3},
    shape={"brokers": 4},
)


@mutant(LogDir, "has_rows_of", breaks="R87, R107", by="R87", setting=REMADE, killed_by="R87@1")
def rows_of_deleted_logs_stay(original: Any, self: Any, partition: Any) -> Any:
    """What is stored of a deleted log counts for the next one of its name."""
    return False


@mutant(MetadataDelta, "_replay_remove_topic", breaks="R107", by="R107", setting=REMADE, killed_by="R107@1")
def configs_outlive_topics(original: Any, self: Any, record: Any) -> None:
    """The configuration of a topic stays when it is deleted."""
    kept = self._configs
    original(self, record)
    self._configs = kept


@mutant(
    ReplicaManager, "maybe_take_roles", breaks="R107", by="L-7", setting=AWAY_MEANWHILE, killed_by="L-7@2"
)
def keeps_what_went_while_it_was_away(original: Any, self: Any, now_ms: int) -> None:
    """A broker that returns keeps the logs of topics that were deleted, and of partitions that were moved."""
    self._delete = lambda key: None
    try:
        original(self, now_ms)
    finally:
        del self._delete


@mutant(Log, "needs_roll", breaks="D5", by="D5", setting=SHORT, killed_by="D5@1")
def segments_grow_for_ever(original: Any, self: Any, next_size_bytes: int) -> bool:
    """A segment is as large as what is written while it is the newest."""
    return False


@mutant(
    Segment,
    "find_timestamp",
    breaks="F6",
    by="L-10",
    setting=Setting(shape={"more_acts": True}),
    killed_by="L-10@1",
)
def looks_behind_the_time(original: Any, self: Any, timestamp_ms: int) -> Any:
    """Who asks for what is as old as a record is told what is younger."""
    return original(self, timestamp_ms + 1)


@mutant(log, "old_count", breaks="D5", by="D5", setting=CALM, killed_by="D5@1")
def deletes_nothing(
    original: Any, segments: Any, config: Any, wall_ms: Any, log_start_offset: Any, kept_offset: Any
) -> int:
    """Logs grow for ever, though their topics ask for deletion."""
    return 0


#: a log has time to grow old before it is large
SLOW = Setting(
    faults={"kill_leader": 1},
    shape={"retention": True, "producers": 1, "partitions": 4, "send_gap_ms": 400},
    seconds=40,
    gap_ms=20_000,
)


@mutant(
    retention,
    "is_past_time",
    breaks="D5",
    by="D5",
    setting=SLOW,
    killed_by="D5@8",
)
def nothing_is_ever_old(original: Any, segment: Any, config: Any, wall_ms: int) -> bool:
    """retention.ms deletes nothing."""
    return False


#: leaders are lost while records are deleted
DELETING = Setting(
    faults={
        "delete_records": 12,
        "starve_follower": 4,
        "kill_leader": 4,
        "isolate_leader": 3,
        "power_leader": 3,
        "power_broker": 3,
    },
    seconds=20,
    gap_ms=300,
)


@mutant(Partition, "follower_begins", breaks="R118", by="R118", setting=DELETING, killed_by="R118@1")
def deletes_alone(original: Any, self: Any, replica_id: int, log_start_offset: int) -> None:
    """A leader tells that records are deleted when it has deleted them itself."""
    original(self, replica_id, 1 << 60)


@mutant(LogManager, "store_log_start", breaks="R118", by="R118", setting=DELETING, killed_by="R118@3")
async def log_starts_are_not_stored(original: Any, self: Any, managed: Any) -> bool:
    """Where a log begins is told before it is stored."""
    managed.log.start_stored(managed.log.log_start_offset)
    return True
