"""Mutants of the storage: flushes, recovery, truncation, epochs, checkpoints, producers' state.

Owns wrong functions only; each docstring says which rule is gone.
"""

from typing import Any

from holdfast.broker.log_checkpoints import LogCheckpoints
from holdfast.runtime.api import DiskError
from holdfast.sim.mutants.mutant import Changes, Patch, Setting, mutant, replacing
from holdfast.sim.mutants.replication import DIVERGING, POWER
from holdfast.sim.mutants.source_patch import begin, patch
from holdfast.storage import recovery, snapshots
from holdfast.storage.core.leader_epoch_cache import LeaderEpochCache
from holdfast.storage.core.producer_state import ProducerState
from holdfast.storage.flusher import Flusher
from holdfast.storage.log import Log
from holdfast.storage.log_dir import LogDir
from holdfast.storage.segment import Segment

#: every write is flushed, and brokers lose power often
FLUSHED_POWER = Setting(
    faults={"power_broker": 5, "power_leader": 5, "power_all": 3, "crash_at_point": 2, "kill_broker": 1},
    shape={"every_write": True},
    gap_ms=500,
)
#: killed, then without power: what the page cache still had is gone only the second time
TWICE = Setting(faults={"kill_broker": 5, "kill_leader": 4, "power_broker": 4, "power_leader": 4}, gap_ms=300)
#: nothing is flushed but what is full
ROLLING = Setting(faults={"power_broker": 2, "kill_leader": 1}, shape={"every_write": False}, seconds=30)
FAILING_DISKS = Setting(
    faults={"io_error": 3, "power_broker": 3, "power_leader": 3}, shape={"every_write": True}, gap_ms=500
)
#: sequences have gaps and repetitions while leaders change
RETRIES = Setting(
    faults={
        "kill_busy_leader": 5,
        "isolate_leader": 4,
        "reset": 4,
        "pause_leader": 3,
        "cut_clients": 2,
        "clog": 2,
    }
)

#: logs are cut and rolled, and their brokers start anew
CUTS = Setting(
    faults={
        "kill_busy_leader": 5,
        "isolate_leader": 4,
        "power_leader": 4,
        "power_broker": 3,
        "kill_leader": 3,
        "starve_follower": 3,
        "reset": 3,
    },
    seconds=20,
    gap_ms=500,
)

#: the ISR is now below min ISR, now not, while many batches are on their way
FLAPPING = Setting(
    faults={"flap_isr": 1}, shape={"producers": 8, "min_isr": 3, "partitions": 2}, gap_ms=1_200
)


#: what was rolled is long on its way to the disk when the power goes
TORN = Setting(
    faults={"power_broker": 5, "power_leader": 5, "slow_disk": 5, "hang_disk": 3, "starve_follower": 1},
    shape={"every_write": False, "send_gap_ms": 40, "producers": 8},
    gap_ms=500,
    seconds=20,
)


# --- flushes -----------------------------------------------------------------------------------------------


@mutant(breaks="A-21", by="A-21 G-3", setting=FLUSHED_POWER, killed_by="A-21@1")
def flush_covers_completion() -> Changes:
    """The durable offset becomes the log end at the completion of a flush."""
    return patch(Log, "flush", "max(self._flushed_offset, end_offset)", "self._log_end_offset")


@mutant(breaks="A-21", by="A-21 G-3", setting=FLUSHED_POWER, killed_by="A-21@1")
def flush_writes_nothing() -> Changes:
    """A flush reports success and flushes nothing."""
    return patch(Segment, "flush", "await self.log.flush()", "pass")


@mutant(breaks="D6", by="D6", setting=ROLLING, killed_by="D6@1")
def leaves_full_segments_to_the_page_cache() -> Changes:
    """A segment that is full is not flushed for that, and what its producers wrote is not kept beside it."""
    return begin(Log, "_finish_roll", "return")


@mutant(breaks="D4", by="A-21 G-3 A-22", setting=FLUSHED_POWER, killed_by="A-21@1")
def names_not_durable() -> Changes:
    """The folder is not synced after a new segment was made."""
    return begin(Flusher, "sync_names", "return")


@replacing(Segment, "flush", breaks="A-20", by="A-21 G-3 I-16", setting=FAILING_DISKS, killed_by="A-21@1")
async def retries_failed_flush(original: Any, self: Any) -> Any:
    """EIO on fsync is retried, on a file that does not refuse that (as runtime's files do)."""
    for _ in range(5):
        try:
            return await original(self)
        except DiskError:
            getattr(self.log, "_file", self.log)._error = None
    await original(self)


# --- recovery ----------------------------------------------------------------------------------------------


@mutant(breaks="A-22, R86", by="OwnBug A-22 I-10", setting=POWER, killed_by="I-10@1")
def recovery_believes_headers() -> Changes:
    """Recovery keeps a batch whose bytes do not match its crc, and what follows it."""
    return patch(recovery, "check_batch", "crc != header.crc", "False")


class _Believing:
    """A file whose page cache is believed."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    async def drop_cache(self) -> None:
        return None


async def _scan_page_cache(original: Any, found: Any, segment: Any, must_hold: Any) -> Any:
    file, segment.log = segment.log, _Believing(segment.log)
    try:
        await original(found, segment, must_hold)
    finally:
        segment.log = file


@replacing(
    recovery,
    "_make_durable",
    breaks="R86",
    by="A-21 A-22 I-13",
    setting=TWICE,
    more=(Patch(recovery, "_scan", _scan_page_cache),),
    killed_by="A-21@1",
)
async def recovered_not_durable(
    original: Any, disk: Any, folder: str, found: Any, names_changed: bool
) -> Any:
    """Recovery takes for durable what it reads from the page cache."""
    for segment in found.segments:
        segment.flushed_size = segment.size


@mutant(breaks="R87", by="A-22 I-10 G-3", setting=TORN, killed_by="R87@24")
def recovery_point_at_log_end() -> Changes:
    """The recovery point is the log end, flushed or not."""
    return patch(LogCheckpoints, "_log_offsets", "managed.log.flushed_offset", "managed.log.log_end_offset")


# --- truncation and epochs ---------------------------------------------------------------------------------


@mutant(breaks="R85, A-16", by="I-18 OwnBug", setting=DIVERGING, killed_by="I-18@3")
def epochs_not_truncated() -> Changes:
    """The leader epochs are not cut with the log."""
    return begin(LeaderEpochCache, "truncate_from_end", "return")


# --- producers ---------------------------------------------------------------------------------------------


@mutant(breaks="R91", by="R91", setting=RETRIES, killed_by="R91@1")
def refuses_repetitions() -> Changes:
    """A repeated batch of an idempotent producer is out of order, though it is in the log."""
    return patch(
        ProducerState,
        "check",
        "return Duplicate(batch.first_offset, batch.last_offset, batch.timestamp_ms)",
        "return _out_of_order(header, 0)",
    )


@mutant(breaks="R92", by="R92", setting=FLAPPING, killed_by="R92@1")
def appends_behind_gaps() -> Changes:
    """A batch is appended though the one before it is missing."""
    return patch(
        ProducerState,
        "check",
        "return None if first == expected else _out_of_order(header, expected)",
        "return None",
    )


@mutant(breaks="R94", by="R94", setting=CUTS, killed_by="R94@1")
def producers_outlive_cuts() -> Changes:
    """What producers wrote stays known when the log is cut below it."""
    rewinds = ("truncate_to", "begin_within", "reset_to")
    return tuple(patch(Log, name, "self._producers = await", "await") for name in rewinds)


@mutant(breaks="R94", by="R94", setting=CUTS, killed_by="R94@1")
def snapshots_taken_late() -> Changes:
    """The snapshot of a roll is encoded after the flush, and named after the offset before it."""
    return patch(
        Log,
        "_finish_roll",
        "offset, snapshot, bases",
        "offset, snapshots.encode(self._producers, offset), bases",
    )


#: logs are cut, and the power goes soon
CUTS_AND_POWER = Setting(
    faults={
        "starve_follower": 5,
        "kill_busy_leader": 4,
        "isolate_leader": 3,
        "power_broker": 5,
        "power_leader": 4,
        "crash_at_point": 4,
    },
    shape={"every_write": False, "producers": 8, "send_gap_ms": 60},
    seconds=25,
    gap_ms=450,
)


@mutant(breaks="R94", by="R94", setting=CUTS_AND_POWER, killed_by="R94@1")
def snapshots_outlive_cuts() -> Changes:
    """A snapshot above the end of a log that was cut stays, until the log has grown beyond it again."""
    return patch(snapshots, "drop_above", "if found > offset", "if offset < 0")


@mutant(breaks="F6, D5", by="D5", setting=CUTS, killed_by="D5@1")
def cuts_leave_the_newest_time() -> Changes:
    """The newest time of a segment stays when the batch that had it is cut off: who asks for that time is
    told that the disk is broken, and so is the log."""
    return patch(
        Segment, "_restart_from", "self.max_timestamp = entry.max_timestamp_before if entry else -1", "pass"
    )


@mutant(breaks="R87", by="R87", setting=CUTS, killed_by="R87@3")
def recovery_points_outlive_cuts() -> Changes:
    """The recovery point of a log stays where it is when the log is cut below it."""
    return begin(LogDir, "lower", "return")
