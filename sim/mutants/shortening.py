"""Mutants of what is deleted: by retention, and with a topic; and of where a follower begins behind it.

Owns wrong functions only; each docstring says which rule is gone.
"""

from holdfast.broker.core.replicas.partition import Partition
from holdfast.broker.core.replicas.replica_manager import ReplicaManager
from holdfast.sim.mutants.mutant import Changes, Setting, mutant
from holdfast.sim.mutants.source_patch import begin, patch
from holdfast.storage import epoch_file, log
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


@mutant(breaks="R80, R62", by="R80", setting=SHORT, killed_by="R80@12")
def expired_logs_forget() -> Changes:
    """A log that all has gone from does not know its last epoch after a start: a comparison of logs prefers
    one that has lost its end."""
    return patch(epoch_file, "_divided", "return rows[0], rows[2:]", "return None, rows[2:]")


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


@mutant(breaks="R87, R107", by="R87", setting=REMADE, killed_by="R87@1")
def rows_of_deleted_logs_stay() -> Changes:
    """What is stored of a deleted log counts for the next one of its name."""
    return begin(LogDir, "has_rows_of", "return False")


@mutant(breaks="R107", by="L-7", setting=AWAY_MEANWHILE, killed_by="L-7@2")
def keeps_what_went_while_it_was_away() -> Changes:
    """A broker that returns keeps the logs of topics that were deleted, and of partitions that were moved."""
    return patch(ReplicaManager, "maybe_take_roles", "self._delete(key)", "pass")


@mutant(breaks="D5", by="D5", setting=SHORT, killed_by="D5@1")
def segments_grow_for_ever() -> Changes:
    """A segment is as large as what is written while it is the newest."""
    return begin(Log, "needs_roll", "return False")


@mutant(breaks="F6", by="L-10", setting=Setting(shape={"more_acts": True}), killed_by="L-10@1")
def looks_behind_the_time() -> Changes:
    """Who asks for what is as old as a record is told what is younger."""
    return begin(Segment, "find_timestamp", "timestamp_ms += 1")


@mutant(breaks="D5", by="D5", setting=CALM, killed_by="D5@1")
def deletes_nothing() -> Changes:
    """Logs grow for ever, though their topics ask for deletion."""
    return begin(log, "old_count", "return 0")


#: a log has time to grow old before it is large
SLOW = Setting(
    faults={"kill_leader": 1},
    shape={"retention": True, "producers": 1, "partitions": 4, "send_gap_ms": 400},
    seconds=40,
    gap_ms=20_000,
)


@mutant(breaks="D5", by="D5", setting=SLOW, killed_by="D5@8")
def nothing_is_ever_old() -> Changes:
    """retention.ms deletes nothing."""
    return begin(retention, "is_past_time", "return False")


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


@mutant(breaks="R118", by="R118", setting=DELETING, killed_by="R118@1")
def deletes_alone() -> Changes:
    """A leader tells that records are deleted when it has deleted them itself."""
    return begin(Partition, "follower_begins", "log_start_offset = 1 << 60")
