"""Mutants of a broker's life: the proof of a clean stop, registrations, roles, writes that are answered.

Owns wrong functions only; each docstring says which rule is gone.
"""

from posixpath import join
from typing import Any

from holdfast.broker.__main__ import BrokerNode
from holdfast.broker.core.registration.lifecycle import Lifecycle
from holdfast.broker.core.replicas.partition import Partition
from holdfast.broker.core.replicas.replica_manager import ReplicaManager
from holdfast.broker.core.requests import produce_path
from holdfast.broker.core.requests.produce_path import ProducePath
from holdfast.broker.log_manager import LogManager
from holdfast.metadata.delta import local_view
from holdfast.sim.mutants.mutant import Changes, Patch, Setting, mutant, replacing
from holdfast.sim.mutants.source_patch import begin, patch
from holdfast.storage import checkpoint, clean_shutdown
from holdfast.storage.log import Log
from holdfast.storage.log_guard import LogGuard

#: brokers stop in order, lose power while they do and soon after they are back
STOPPED = Setting(
    faults={"stop_broker": 6, "power_broker": 3, "power_leader": 3, "crash_at_point": 3, "kill_broker": 1}
)
#: brokers stop in order, and again while the next process waits for a controller to register with
STOPPED_EARLY = Setting(
    faults={"stop_broker": 8, "kill_active": 4, "cut_controllers": 4, "isolate_active": 2}, gap_ms=250
)
#: power is lost right between the steps of a stop, and of a start
AT_STEPS = Setting(faults={"crash_at_point": 8, "stop_broker": 3, "power_broker": 2}, gap_ms=500)
#: leaders come and go while writes wait
WAITING = Setting(
    faults={
        "isolate_leader": 4,
        "pause_leader": 4,
        "kill_busy_leader": 3,
        "kill_broker": 3,
        "isolate_broker": 3,
    }
)


#: log dirs fail one by one
DIRS_FAIL = Setting(
    faults={"fail_dir": 6, "kill_broker": 2, "kill_leader": 2, "isolate_broker": 1, "stop_broker": 1},
    shape={"log_dirs": 2},
    gap_ms=600,
)


# --- the proof of a clean stop -----------------------------------------------------------------------------


def _no_digest(original: Any, log: Any) -> Any:
    return ""


#: else what a false proof hides is found when the logs are compared with it (B25)
BLIND = (Patch(clean_shutdown, "digest", _no_digest),)


@replacing(
    LogManager,
    "close",
    breaks="A-19, R34",
    by="I-17 A-19 I-8 A-14",
    setting=AT_STEPS,
    more=BLIND,
    killed_by="I-17@1",
)
async def file_before_flush(original: Any, self: Any, broker_epoch: Any) -> Any:
    """The clean-shutdown file is written before the logs are flushed."""
    if broker_epoch is not None:
        for log_dir in self._dirs:
            mark = clean_shutdown.Mark(broker_epoch, log_dir.directory_id, self._vouched(log_dir))
            await clean_shutdown.write(self._disk, log_dir.path, mark)
    return await original(self, broker_epoch)


@mutant(breaks="A-19", by="I-17 A-19 I-8 G-3 A-14", setting=STOPPED, killed_by="I-17@2")
def stops_without_flush() -> Changes:
    """A stop closes the logs without flushing them, and proves a clean stop all the same."""
    return (begin(Log, "close", "flush = False"), *BLIND)


async def _any_epoch(original: Any, disk: Any, log_dir: Any, directory_id: Any) -> Any:
    path = join(log_dir, clean_shutdown.FILE_NAME)
    return clean_shutdown.decode(await checkpoint.read_text(disk, path))


#: else a file that stayed is void by its epoch (R36)
OLD_FILES = (Patch(clean_shutdown, "read", _any_epoch), *BLIND)


@mutant(breaks="R33, R35", by="I-17 A-14", setting=STOPPED, killed_by="I-17@2")
def keeps_file() -> Changes:
    """The clean-shutdown file stays after the start."""
    return (begin(clean_shutdown, "take", "return await read(disk, log_dir, directory_id)"), *OLD_FILES)


@mutant(breaks="R33", by="R33 CleanStopsCount", setting=STOPPED, killed_by="R33@1")
def finds_no_file() -> Changes:
    """No clean-shutdown file is ever found: each stop costs the broker its seats."""
    return begin(clean_shutdown, "read", "return None")


@mutant(breaks="R36, B11", by="R33 CleanStopsCount", setting=STOPPED_EARLY, killed_by="R33@1")
def proves_only_its_own_epoch() -> Changes:
    """A broker that is stopped before it has registered leaves no proof, though no log has changed."""
    return begin(
        BrokerNode,
        "_epoch_to_prove",
        "return self.core.lifecycle.broker_epoch if self.core.lifecycle.is_registered else None",
    )


@mutant(
    breaks="A-19, A-20",
    by="I-17 A-20 I-16",
    setting=Setting(
        faults={"io_error": 6, "stop_broker": 6}, shape={"every_write": False}, seconds=30, gap_ms=250
    ),
    killed_by="I-17@1",
)
def proves_what_failed_to_flush() -> Changes:
    """A log that could not be flushed at the stop does not take the proof away."""
    return (
        patch(LogManager, "_close_log", "self.failed(managed, error)", "pass"),
        begin(LogGuard, "fail", "return"),
    )


# --- roles -------------------------------------------------------------------------------------------------


@replacing(ReplicaManager, "maybe_take_roles", breaks="N-2", by="I-2 N-2 I-5", killed_by="I-2@3")
def roles_before_registration(original: Any, self: Any, now_ms: int) -> Any:
    """A broker takes roles before it has replayed its own registration."""
    if self.has_roles or not self._logs.are_loaded or not self._lifecycle.is_registered:
        return
    self.has_roles = True
    self._effects += self.fetchers.restart(self._lifecycle.broker_epoch)
    view = local_view(self.image, self.broker_id)
    for local in (*view.leaders, *view.followers):
        self._apply_local(local, now_ms)
    self._lifecycle.caught_up(now_ms)


@mutant(breaks="N-2, R23", by="R23 I-2 N-2", killed_by="R23@1")
def unfenced_before_caught_up() -> Changes:
    """A broker claims to be ready before it has loaded its logs and replayed its registration."""
    return patch(
        Lifecycle,
        "next_request",
        "metadata_offset,\n            want_fence=not self.is_ready or self.is_stalled",
        "self.broker_epoch + 1,\n            want_fence=False",
    )


# --- answers to writes -------------------------------------------------------------------------------------


@mutant(breaks="F5, R52", by="I-16 I-11 lost", setting=WAITING, killed_by="I-16@1")
def acknowledges_at_append() -> Changes:
    """A write of acks=all is acknowledged when the leader has it."""
    return begin(produce_path, "_reached", "return partition.log.log_end_offset")


@mutant(breaks="A-18, F5", by="I-16 lost", setting=WAITING, killed_by="A-18@2")
def acknowledges_in_later_epoch() -> Changes:
    """A broker that leads again acknowledges what it appended in a former epoch."""
    return (
        begin(Partition, "check_waiting", "return ErrorCode.NONE"),
        begin(ProducePath, "state_changed", "return []"),
    )


# --- its life with the controllers -------------------------------------------------------------------------


@mutant(breaks="R22", by="R22", setting=STOPPED, killed_by="R22@3")
def stops_without_asking() -> Changes:
    """A broker that shall stop does not ask to leave: no broker leads what it has led until it is missed."""
    return begin(Lifecycle, "shutdown_wanted", 'return self._stop("at once")')


@mutant(breaks="R27", by="L- A-13 Refinement I-", setting=DIRS_FAIL, killed_by="R27@1")
def hides_failed_dirs() -> Changes:
    """A broker does not tell that a log dir of it has failed."""
    return begin(ReplicaManager, "offline_to_report", "return ()")
