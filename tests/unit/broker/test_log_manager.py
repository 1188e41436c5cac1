"""The logs of a broker over its life: start, kill, clean stop, lost dirs (R33-R36, R86, R87, A-19, A-20)."""

import asyncio
import errno

import pytest

from holdfast.broker.log_manager import LogManager, LogManagerConfig
from holdfast.metadata.ids import PartitionId
from holdfast.protocol.topic_names import TOPIC_NAME_MAX
from holdfast.runtime.api import Disk, DiskError, Runtime
from holdfast.runtime.memory.disk import MemoryDisk
from holdfast.runtime.memory.machine import memory_runtime, settle
from holdfast.storage import clean_shutdown
from holdfast.storage.checkpoint import read_offsets, write_atomically, write_offsets
from holdfast.storage.core.config import LogConfig
from holdfast.storage.core.files import CEILING_CHECKPOINT, DELETED_SUFFIX, HIGH_WATERMARK_CHECKPOINT
from holdfast.storage.meta_properties import LogDirRefused
from tests.unit.storage.batches import batch, offsets, read_all
from tests.unit.storage.crashing_disk import Crash, CrashingDisk

TOPIC, OTHER = b"t" * 16, b"o" * 16
DIRS = ("/a", "/b")
SMALL = LogConfig(segment_bytes=300, index_interval_bytes=100)


class Process:
    """One life of a broker's log manager on a disk that outlives it."""

    def __init__(
        self, disk: Disk, log_dirs: tuple[str, ...] = DIRS, config: LogConfig = SMALL, seed: int = 1
    ) -> None:
        runtime, self.world = memory_runtime(seed)
        self.runtime = Runtime(runtime.clock, runtime.random, runtime.network, disk, runtime.tasks)
        self.manager = LogManager(self.runtime, LogManagerConfig(log_dirs), "cluster", 1)
        self.config = config
        self.high_watermarks: dict[PartitionId, int] = {}

    async def start(self) -> int:
        await self.manager.open_dirs()
        broker_epoch = await self.manager.take_clean_shutdown()
        self.high_watermarks = await self.manager.load(lambda topic: self.config)
        self.manager.start(self.high_watermarks.get)
        return broker_epoch

    async def kill(self, disk: MemoryDisk, *, loses_power: bool = False) -> None:
        disk.power_loss() if loses_power else disk.process_kill()
        await settle()
        await self.world.tasks.cancel_all()


def write(process: Process, key: PartitionId, count: int) -> None:
    for _ in range(count):
        process.manager.logs[key].append_as_leader(batch(2), 1)


async def broker_with_two_logs() -> tuple[Process, MemoryDisk]:
    disk = MemoryDisk()
    process = Process(disk)
    assert await process.start() == -1
    for index in (0, 1):
        await process.manager.create("topic", TOPIC, index, SMALL)
        write(process, PartitionId(TOPIC, index), 3 + index)
    return process, disk


# --- stop and start ------------------------------------------------------------------------------------


async def test_after_a_clean_stop_everything_is_there_without_a_scan() -> None:
    process, disk = await broker_with_two_logs()
    process.high_watermarks.update({PartitionId(TOPIC, 0): 6, PartitionId(TOPIC, 1): 4})
    assert await process.manager.close(41)
    await process.kill(disk, loses_power=True)
    process = Process(disk)
    assert await process.start() == 41
    assert {key: log.log_end_offset for key, log in process.manager.logs.items()} == {
        PartitionId(TOPIC, 0): 6,
        PartitionId(TOPIC, 1): 8,
    }
    assert process.high_watermarks == {PartitionId(TOPIC, 0): 6, PartitionId(TOPIC, 1): 4}
    assert all(log.recovery.scanned_bytes == 0 for log in process.manager.logs.values())


async def test_after_a_kill_the_page_cache_is_recovered_and_the_stop_counts_as_unclean() -> None:
    process, disk = await broker_with_two_logs()
    await process.kill(disk)
    process = Process(disk)
    assert await process.start() == -1
    log = process.manager.logs[PartitionId(TOPIC, 1)]
    assert (log.log_end_offset, log.flushed_offset) == (8, 8)
    assert log.recovery.scanned_bytes > 0


async def test_after_a_power_loss_what_was_flushed_is_there() -> None:
    process, disk = await broker_with_two_logs()
    await process.manager.logs[PartitionId(TOPIC, 1)].flush()
    await process.kill(disk, loses_power=True)
    process = Process(disk)
    assert await process.start() == -1
    assert [log.log_end_offset for _, log in sorted(process.manager.logs.items())] == [0, 8]


@pytest.mark.usefixtures("failures_logged")
async def test_a_crash_at_any_step_of_a_clean_stop_never_leaves_a_false_proof() -> None:
    """A-19, I-17: a proof that is durable means that every log is, as it was."""
    broker_epoch, proofs, crash_at = 5, [], 0
    while True:
        disk = MemoryDisk()
        crashing = CrashingDisk(disk)
        process = Process(crashing)
        await process.start()
        contents = {}
        for index in (0, 1):
            log = await process.manager.create("topic", TOPIC, index, SMALL)
            for number in range(6):
                data = batch(2, size=60)
                if log.needs_roll(len(data)):
                    await process.manager.serial(PartitionId(TOPIC, index)).run(log.roll)
                log.append_as_leader(data, number)
            contents[TOPIC, index] = read_all(log)
        crashing.crash_at = len(crashing.steps) + crash_at
        stopped = await process.manager.close(broker_epoch)
        was_dead = crashing.is_dead
        await process.kill(disk, loses_power=True)
        process = Process(disk)
        proven = await process.start()
        proofs.append(proven)
        if proven != -1:
            assert proven == broker_epoch
            found = {key: read_all(log) for key, log in process.manager.logs.items()}
            assert found == contents
            assert all(log.recovery.scanned_bytes == 0 for log in process.manager.logs.values())
        if not was_dead:
            assert stopped
            break
        await process.kill(disk)
        crash_at += 1
    assert crash_at > 20
    assert proofs[-1] == broker_epoch
    assert proofs[: crash_at // 2] == [-1] * (crash_at // 2)


async def test_a_process_that_never_got_an_epoch_leaves_no_proof() -> None:
    process, disk = await broker_with_two_logs()
    assert not await process.manager.close(None)
    await process.kill(disk)
    assert await Process(disk).start() == -1


async def test_a_log_that_failed_leaves_no_proof() -> None:
    process, disk = await broker_with_two_logs()
    disk.fail("flush", "topic-1/00000000000000000000.log", errno.EIO)
    assert not await process.manager.close(41)
    await process.kill(disk)
    assert await Process(disk).start() == -1


async def test_a_clean_start_that_stops_before_it_loads_is_still_clean() -> None:
    process, disk = await broker_with_two_logs()
    assert await process.manager.close(41)
    await process.kill(disk)
    early = Process(disk)
    await early.manager.open_dirs()
    assert await early.manager.take_clean_shutdown() == 41
    assert await early.manager.close(42)
    await early.kill(disk)
    process = Process(disk)
    assert await process.start() == 42
    assert process.manager.logs[PartitionId(TOPIC, 1)].log_end_offset == 8


async def test_an_unclean_start_that_stops_before_it_loads_proves_nothing() -> None:
    process, disk = await broker_with_two_logs()
    await process.kill(disk)
    early = Process(disk)
    await early.manager.open_dirs()
    await early.manager.take_clean_shutdown()
    assert not await early.manager.close(42)


# --- what is not ours ----------------------------------------------------------------------------------


async def test_a_log_dir_in_another_one_is_no_folder_of_a_partition() -> None:
    disk = MemoryDisk()
    dirs = ("/data", "/data/disk-2")
    process = Process(disk, log_dirs=dirs)
    await process.start()
    for index in (0, 1):
        await process.manager.create("topic", TOPIC, index, SMALL)
        write(process, PartitionId(TOPIC, index), 5)
    assert await process.manager.close(7)
    await process.kill(disk)
    process = Process(disk, log_dirs=dirs)
    assert await process.start() == 7
    assert {key: log.log_end_offset for key, log in process.manager.logs.items()} == {
        PartitionId(TOPIC, 0): 10,
        PartitionId(TOPIC, 1): 10,
    }


@pytest.mark.parametrize(
    "name", ["backup-2024/topic-0/0.log", "notes-1", "please-delete", "backup-1/notes", "t-01/x"]
)
async def test_what_people_put_into_a_log_dir_stays(name: str) -> None:
    disk = MemoryDisk()
    folder, _, _ = f"/a/{name}".rpartition("/")
    await disk.make_folder(folder)
    file = await disk.open(f"/a/{name}", create=True)
    file.append([b"the only copy"])
    process = Process(disk)
    await process.start()
    assert process.manager.is_whole
    assert await disk.exists(f"/a/{name}")


async def test_a_vouched_log_whose_files_are_gone_is_damaged_and_the_proof_of_the_others_holds() -> None:
    """Its folder is still there, without what says whose it was."""
    process, disk = await broker_with_two_logs()
    assert await process.manager.close(41)
    await process.kill(disk)
    for name in await disk.listdir("/a/topic-0"):
        await disk.unlink(f"/a/topic-0/{name}")
    process = Process(disk)
    assert await process.start() == 41
    assert not process.manager.is_clean_shutdown_disproved
    (damaged,) = process.manager.damaged_replicas()
    assert (damaged.topic_name, damaged.partition_index, damaged.topic_id) == ("topic", 0, None)
    assert sorted(process.manager.logs) == [(TOPIC, 1)]


# --- whose dirs ----------------------------------------------------------------------------------------


async def test_a_dir_of_another_node_or_cluster_is_refused() -> None:
    process, disk = await broker_with_two_logs()
    await process.kill(disk)
    for cluster_id, node_id, story in (("other", 1, "cluster.id is cluster"), ("cluster", 2, "node.id is 1")):
        runtime, _ = memory_runtime(disk=disk)
        manager = LogManager(runtime, LogManagerConfig(DIRS), cluster_id, node_id)
        with pytest.raises(LogDirRefused, match=story):
            await manager.open_dirs()
        disk.process_kill()


async def test_directory_ids_stay_and_a_copied_dir_is_refused() -> None:
    process, disk = await broker_with_two_logs()
    ids = process.manager.directory_ids
    assert len(set(ids)) == 2
    await process.kill(disk)
    process = Process(disk, seed=9)
    await process.start()
    assert process.manager.directory_ids == ids
    await process.kill(disk)
    original = await disk.open("/a/meta.properties", create=False)
    copy = await disk.open("/b/meta.properties", create=False)
    await copy.truncate(0)
    copy.append([original.read_at(0, original.size)])
    with pytest.raises(LogDirRefused, match="same directory.id"):
        await Process(disk).manager.open_dirs()


async def test_two_processes_never_share_a_dir() -> None:
    _, disk = await broker_with_two_logs()
    with pytest.raises(DiskError, match="another process"):
        await Process(disk).manager.open_dirs()


async def test_a_log_without_its_topic_id_is_put_aside_and_an_empty_folder_swept_away() -> None:
    process, disk = await broker_with_two_logs()
    folder = process.manager.logs[PartitionId(TOPIC, 0)].folder
    await disk.make_folder("/a/half-3")
    await disk.make_folder("/a/__cluster_metadata-0")
    await process.kill(disk)
    process = Process(disk)
    await process.start()
    assert not await disk.exists("/a/half-3")
    assert await disk.exists("/a/__cluster_metadata-0")
    await process.kill(disk)
    await disk.unlink(f"{folder}/partition.metadata")
    for _ in range(2):  # the next start knows it still
        process = Process(disk)
        await process.start()
        (damaged,) = process.manager.damaged_replicas()
        assert damaged.partition_index == 0
        assert "partition.metadata" in damaged.reason
        assert not await disk.exists(folder)
        await process.kill(disk)


COPIES: dict[str, tuple[bool, bool, list[str]]] = {
    # was the true dir registered later; does the other dir know the partition; folders that stay
    "an older log dir is back": (True, True, ["/a/topic-0"]),
    "a folder was copied": (False, False, ["/a/topic-0"]),
    "both dirs know it": (False, True, []),
}


@pytest.mark.parametrize("case", COPIES)
async def test_of_a_replica_in_two_log_dirs_only_the_true_one_is_used(case: str) -> None:
    """It need not be the longer one; what is not used is put aside."""
    is_later, is_known, expected = COPIES[case]
    process, disk = await broker_with_two_logs()
    await process.manager.checkpoints.store_log_offsets()
    epochs = {"/a": 9, "/b": 5 if is_later else 9}
    await process.kill(disk)
    for path, epoch in epochs.items():
        await clean_shutdown.note_registration(
            disk, path, epoch, clean_shutdown.Registration(epoch, b"i" * 16)
        )
    await disk.make_folder("/b/topic-0")
    for name in await disk.listdir("/a/topic-0"):
        source = await disk.open(f"/a/topic-0/{name}", create=False)
        copy = await disk.open(f"/b/topic-0/{name}", create=True)
        copy.append([source.read_at(0, source.size)])
    if is_known:
        await write_offsets(disk, "/b/recovery-point-offset-checkpoint", {("topic", 0): 2, ("topic", 1): 2})
    process = Process(disk)
    await process.start()
    assert [path for path in ("/a/topic-0", "/b/topic-0") if await disk.exists(path)] == expected
    assert len(process.manager.damaged_replicas()) == (not expected)
    assert ((TOPIC, 0) in process.manager.logs) is bool(expected)


# --- create and delete ---------------------------------------------------------------------------------


async def test_new_logs_go_to_the_dir_with_fewest_and_survive_at_once() -> None:
    process, disk = await broker_with_two_logs()
    folders = [log.folder for _, log in sorted(process.manager.logs.items())]
    assert folders == ["/a/topic-0", "/b/topic-1"]
    again = await process.manager.create("topic", TOPIC, 1, SMALL)
    assert again is process.manager.logs[PartitionId(TOPIC, 1)]
    await process.kill(disk, loses_power=True)
    process = Process(disk)
    await process.start()
    assert sorted(process.manager.logs) == [(TOPIC, 0), (TOPIC, 1)]


async def test_a_topic_of_the_same_name_needs_the_old_folder_deleted_first() -> None:
    process, disk = await broker_with_two_logs()
    with pytest.raises(LogDirRefused, match="another topic id"):
        await process.manager.create("topic", OTHER, 0, SMALL)
    deletion = process.runtime.tasks.start("delete", process.manager.delete(TOPIC, 0))
    await asyncio.sleep(0)
    log = await process.manager.create("topic", OTHER, 0, SMALL)
    await deletion.wait()
    assert (log.topic_id, log.log_end_offset) == (OTHER, 0)
    await process.kill(disk, loses_power=True)
    process = Process(disk)
    await process.start()
    assert sorted(process.manager.logs) == [(OTHER, 0), (TOPIC, 1)]


@pytest.mark.parametrize("was_deletion_cut_short", [False, True])
async def test_a_topic_of_the_same_name_inherits_no_checkpoint(was_deletion_cut_short: bool) -> None:
    """R87: the log start of the old life would drop the new log as a whole after a crash."""
    disk = MemoryDisk()
    process = Process(disk, ("/a",))
    await process.start()
    log = await process.manager.create("topic", TOPIC, 0, SMALL)
    await log.reset_to(30)
    write(process, PartitionId(TOPIC, 0), 5)
    await log.flush()
    process.high_watermarks[PartitionId(TOPIC, 0)] = 40
    await process.manager.checkpoints.store_log_offsets()
    await process.manager.checkpoints.store_high_watermarks()
    await process.manager.delete(TOPIC, 0)
    if was_deletion_cut_short:
        await process.kill(disk, loses_power=True)
        process = Process(disk, ("/a",))
        await process.start()
    await process.manager.create("topic", OTHER, 0, SMALL)
    write(process, PartitionId(OTHER, 0), 3)
    await process.kill(disk)
    process = Process(disk, ("/a",))
    await process.start()
    log = process.manager.logs[PartitionId(OTHER, 0)]
    assert (log.log_start_offset, log.log_end_offset) == (0, 6)
    assert process.high_watermarks == {PartitionId(OTHER, 0): 0}


@pytest.mark.usefixtures("failures_logged")
async def test_a_log_dir_that_fails_when_it_is_asked_takes_no_other_one_offline() -> None:
    """R27: a new log is looked for in all dirs, and made in one."""
    process, disk = await broker_with_two_logs()
    offline: list[bytes] = []
    process.manager.on_dir_offline(lambda directory_id, keys: offline.append(directory_id))
    # the two have one log each, so the first dir gets the next
    disk.fail("exists", "/b/topic-2")
    await process.manager.create("topic", TOPIC, 2, SMALL)
    assert offline == process.manager.directory_ids[1:]
    assert sorted(process.manager.logs) == [(TOPIC, 0), (TOPIC, 2)]


@pytest.mark.usefixtures("failures_logged")
async def test_a_log_dir_that_fails_when_it_is_asked_gets_no_new_log() -> None:
    process, disk = await broker_with_two_logs()
    disk.fail("exists", "/a/topic-2")
    await process.manager.create("topic", TOPIC, 2, SMALL)
    assert process.manager.online_directory_ids == process.manager.directory_ids[1:]
    assert sorted(process.manager.logs) == [(TOPIC, 1), (TOPIC, 2)]


@pytest.mark.parametrize("stop", ["clean", "kill"])
@pytest.mark.parametrize(
    "path_end",
    [
        "/a/recovery-point-offset-checkpoint",
        "/topic-0/partition.metadata",
        "/topic-0/leader-epoch-checkpoint",
        "/topic-0/00000000000000000000.log",
    ],
)
async def test_logs_that_find_no_handle_at_a_start_are_loaded_when_there_is_one(
    path_end: str, stop: str
) -> None:
    process, disk = await broker_with_two_logs()
    for log in process.manager.logs.values():
        await log.flush()
    await process.manager.checkpoints.store_log_offsets()
    if stop == "clean":
        await process.manager.close(41)
    await process.kill(disk)
    process = Process(disk)
    disk.fail("read", path_end, errno.EMFILE, times=3)
    starting = process.world.tasks.start("start", _start(process))
    for _ in range(20):
        await process.world.clock.advance(100)
    assert starting.is_done
    assert {key: log.log_end_offset for key, log in process.manager.logs.items()} == {
        PartitionId(TOPIC, 0): 6,
        PartitionId(TOPIC, 1): 8,
    }
    assert process.manager.is_whole
    assert not process.manager.is_clean_shutdown_disproved
    assert not disk._faults, "the shortage was met"


async def _start(process: Process) -> None:
    await process.start()


@pytest.mark.parametrize("how", [Crash.POWER, Crash.POWER_AFTER_NAMES])
@pytest.mark.usefixtures("failures_logged")
async def test_a_deletion_that_a_crash_cut_short_is_finished_by_the_next_start(how: Crash) -> None:
    crash_at = 0
    while True:
        disk = MemoryDisk()
        crashing = CrashingDisk(disk, how=how)
        process = Process(crashing, ("/a",))
        await process.start()
        await process.manager.create("topic", TOPIC, 0, SMALL)
        write(process, PartitionId(TOPIC, 0), 2)
        await process.manager.logs[PartitionId(TOPIC, 0)].flush()
        process.manager.on_dir_offline(lambda directory_id, keys: None)
        crashing.crash_at = len(crashing.steps) + crash_at
        try:
            await process.manager.delete(TOPIC, 0)
        except DiskError:
            crash_at += 1
        await process.kill(disk, loses_power=True)
        was_dead = crashing.is_dead
        process = Process(disk, ("/a",))
        await process.start()
        remaining = process.manager.logs
        # All of it or nothing: never a shorter log.
        assert {key: log.log_end_offset for key, log in remaining.items()} in ({}, {PartitionId(TOPIC, 0): 4})
        if not remaining:
            assert [name for name in await disk.listdir("/a") if name.startswith("topic")] == []
        if not was_dead:
            assert not remaining
            break


@pytest.mark.usefixtures("failures_logged")
async def test_a_topic_with_the_longest_name_is_deleted_like_any_other() -> None:
    """Its folder's name has no room for what a folder that is removed is called."""
    disk = MemoryDisk()
    process = Process(disk, ("/a",))
    await process.start()
    longest = "n" * TOPIC_NAME_MAX
    for index in (0, 1):
        await process.manager.create(longest, TOPIC, index, SMALL)
    await process.manager.delete(TOPIC, 0)
    assert process.manager.is_whole
    assert [name for name in await disk.listdir("/a") if name.startswith("n")] == [f"{longest}-1"]
    disk.fail("remove_folder", DELETED_SUFFIX)  # what is left is the next start's to sweep
    with pytest.raises(DiskError):
        await process.manager.delete(TOPIC, 1)
    await process.kill(disk)
    assert [name for name in await disk.listdir("/a") if name.endswith(DELETED_SUFFIX)] != []
    process = Process(disk, ("/a",))
    await process.start()
    assert process.manager.logs == {}
    assert [name for name in await disk.listdir("/a") if name.startswith("n")] == []


# --- housekeeping --------------------------------------------------------------------------------------


async def test_recovery_points_bound_what_the_next_start_reads() -> None:
    process, disk = await broker_with_two_logs()
    key = PartitionId(TOPIC, 0)
    log = process.manager.logs[key]
    for _ in range(6):
        if log.needs_roll(100):
            await process.manager.serial(key).run(log.roll)
        log.append_as_leader(batch(2), 1)
    await settle()
    await log.flush()
    await process.world.clock.advance(60_000)
    await process.kill(disk, loses_power=True)
    process = Process(disk)
    await process.start()
    recovered = process.manager.logs[key]
    assert recovered.log_end_offset == 18
    assert 0 < recovered.recovery.scanned_bytes < recovered.size_bytes


async def test_what_lies_behind_the_recovery_point_is_read_again_in_every_segment() -> None:
    process, disk = await broker_with_two_logs()
    key = PartitionId(TOPIC, 0)
    log = process.manager.logs[key]
    await log.flush()
    await process.manager.checkpoints.store_log_offsets()
    while len(log.segments) < 4:
        if log.needs_roll(100):
            await process.manager.serial(key).run(log.roll)
        log.append_as_leader(batch(2), 1)
    bases = [base for base, _ in offsets(log)]
    await process.kill(disk)
    segments = [name for name in await disk.listdir(log.folder) if name.endswith(".log")]
    damaged = await disk.open(f"{log.folder}/{segments[1]}", create=False)
    content = damaged.read_at(0, damaged.size)
    await damaged.truncate(0)
    damaged.append([content[:-1], bytes([content[-1] ^ 1])])
    process = Process(disk)
    await process.start()
    recovered = process.manager.logs[key]
    assert len(recovered.segments) == 2
    assert [base for base, _ in offsets(recovered)] == bases[: len(offsets(recovered))]


async def test_a_recovery_point_never_outlives_a_truncation_below_it() -> None:
    process, disk = await broker_with_two_logs()
    key = PartitionId(TOPIC, 1)
    log = process.manager.logs[key]
    await log.flush()
    await process.manager.checkpoints.store_log_offsets()
    await process.manager.serial(key).run(lambda: log.truncate_to(2))
    process.manager.logs[key].append_as_leader(batch(6), 2)
    text = disk.durable_bytes("/b/recovery-point-offset-checkpoint")
    assert text is not None
    assert b"topic 1 2\n" in text


async def test_a_recovery_point_never_outlives_what_a_damaged_disk_lost() -> None:
    process, disk = await broker_with_two_logs()
    await process.manager.logs[PartitionId(TOPIC, 1)].flush()
    await process.manager.checkpoints.store_log_offsets()
    await process.kill(disk)
    file = await disk.open("/b/topic-1/00000000000000000000.log", create=False)
    await file.truncate(file.size // 4 * 3)  # without its last batch
    process = Process(disk)
    await process.start()
    end_offset = process.manager.logs[PartitionId(TOPIC, 1)].log_end_offset
    assert end_offset == 6
    stored = await read_offsets(disk, "/b/recovery-point-offset-checkpoint")
    assert stored == {("topic", 1): end_offset}


async def test_a_stop_while_logs_are_loaded_leaves_the_checkpoints_as_they_are() -> None:
    process, disk = await broker_with_two_logs()
    await process.manager.logs[PartitionId(TOPIC, 0)].flush()
    process.high_watermarks[PartitionId(TOPIC, 0)] = 4
    await process.manager.checkpoints.store_log_offsets()
    await process.manager.checkpoints.store_high_watermarks()
    for turns in range(0, 60, 5):
        await process.kill(disk)
        process = Process(disk)
        loading = process.runtime.tasks.start("load", start_only(process))
        for _ in range(turns):
            await asyncio.sleep(0)
        loading.cancel()
        await loading.wait()
        await process.manager.close(None)
        assert await read_offsets(disk, "/a/recovery-point-offset-checkpoint") == {("topic", 0): 6}
        assert await read_offsets(disk, "/a/replication-offset-checkpoint") == {("topic", 0): 4}


async def start_only(process: Process) -> None:
    await process.start()


async def test_high_watermarks_are_stored_every_few_seconds_and_outlive_the_records_below_them() -> None:
    """R87, R68: what is above a log's end is what it has lost."""
    process, disk = await broker_with_two_logs()
    await process.manager.logs[PartitionId(TOPIC, 0)].flush()
    process.high_watermarks.update({PartitionId(TOPIC, 0): 4, PartitionId(TOPIC, 1): 8})
    await process.world.clock.advance(5_000)
    await process.kill(disk, loses_power=True)
    process = Process(disk)
    await process.start()
    assert process.high_watermarks == {PartitionId(TOPIC, 0): 4, PartitionId(TOPIC, 1): 8}
    assert process.manager.logs[PartitionId(TOPIC, 1)].log_end_offset == 0


async def test_ceilings_outlive_a_power_loss() -> None:
    """R68: of a log without one nothing is known."""
    process, disk = await broker_with_two_logs()
    managed = process.manager.managed(PartitionId(TOPIC, 0))
    assert managed is not None
    assert managed.ceiling == -1
    assert await process.manager.checkpoints.store_ceilings(managed.log_dir, {PartitionId(TOPIC, 0): 70})
    await process.kill(disk, loses_power=True)
    process = Process(disk)
    await process.start()
    assert process.manager.ceilings() == {PartitionId(TOPIC, 0): 70}


async def test_a_ceiling_of_a_topic_that_was_deleted_is_none_of_the_next_of_that_name() -> None:
    """R68: neither the row that was stored, nor one that was on its way."""
    process = Process(MemoryDisk(), ("/a",))
    await process.start()
    await process.manager.create("topic", TOPIC, 0, SMALL)
    before = process.manager.managed(PartitionId(TOPIC, 0))
    assert before is not None
    assert await process.manager.checkpoints.store_ceilings(before.log_dir, {PartitionId(TOPIC, 0): 70})
    assert before.ceiling == 70
    await process.manager.delete(TOPIC, 0)
    await process.manager.create("topic", OTHER, 0, SMALL)
    managed = process.manager.managed(PartitionId(OTHER, 0))
    assert managed is not None
    assert managed.ceiling == -1
    assert await process.manager.checkpoints.store_ceilings(managed.log_dir, {PartitionId(TOPIC, 0): 70})
    assert managed.ceiling == -1


@pytest.mark.parametrize("text", ["", "0\n1\ntopic 0\n", "0\n1\ntopic 0 x\n", "0\n2\ntopic 0 7\n"])
async def test_a_ceiling_file_that_is_garbage_tells_of_nothing(text: str) -> None:
    process, disk = await broker_with_two_logs()
    await process.kill(disk)
    await write_atomically(disk, f"/a/{CEILING_CHECKPOINT}", text)
    process = Process(disk)
    await process.start()
    assert process.manager.ceilings() == {}


async def test_logs_with_flush_ms_are_flushed_in_time_and_the_others_left_alone() -> None:
    disk = MemoryDisk()
    process = Process(disk)
    await process.start()
    timed = await process.manager.create("timed", TOPIC, 0, LogConfig(flush_ms=300))
    other = await process.manager.create("other", OTHER, 0, LogConfig())
    await process.world.clock.advance(1_000)
    for log in (timed, other):
        log.append_as_leader(batch(2), 0)
    await process.world.clock.advance(250)
    timed.append_as_leader(batch(1), 0)
    assert timed.flushed_offset == 0
    await process.world.clock.advance(51)
    assert (timed.flushed_offset, other.flushed_offset) == (3, 0)


async def test_flush_ms_of_a_log_that_was_just_made_or_configured_is_kept_from_its_first_record_on() -> None:
    disk = MemoryDisk()
    process = Process(disk)
    await process.start()
    await process.world.clock.advance(10)
    made = await process.manager.create("made", TOPIC, 0, LogConfig(flush_ms=100))
    other = await process.manager.create("other", OTHER, 0, LogConfig())
    for log in (made, other):
        log.append_as_leader(batch(2), 0)
    await process.world.clock.advance(101)
    assert (made.flushed_offset, other.flushed_offset) == (2, 0)
    await process.world.clock.advance(1_001)
    managed = process.manager.managed(PartitionId(OTHER, 0))
    assert managed is not None
    process.manager.configure(managed, LogConfig(flush_ms=100))
    await process.world.clock.advance(101)
    assert other.flushed_offset == 2


async def test_retention_deletes_what_is_committed() -> None:
    disk = MemoryDisk()
    process = Process(disk, config=LogConfig(segment_bytes=100, retention_ms=1))
    await process.start()
    key = PartitionId(TOPIC, 0)
    log = await process.manager.create("topic", TOPIC, 0, process.config)
    for _ in range(4):
        if log.needs_roll(100):
            await process.manager.serial(key).run(log.roll)
        log.append_as_leader(batch(1), 0)
    await log.flush()
    await process.world.clock.advance(300_000)
    assert log.log_start_offset == 0, "nothing is deleted while the high watermark is unknown"
    process.high_watermarks[key] = 3
    await process.world.clock.advance(300_000)
    assert log.log_start_offset == 3


async def test_a_log_dir_that_answers_no_more_is_noticed_and_so_is_its_return() -> None:
    process, disk = await broker_with_two_logs()
    heard: list[bool] = []
    process.manager.on_stall(lambda is_stalled, text: heard.append(is_stalled))
    log = process.manager.logs[PartitionId(TOPIC, 0)]
    write(process, PartitionId(TOPIC, 0), 1)
    disk.hold_flushes()
    flush = asyncio.ensure_future(log.flush())
    await settle()
    for _ in range(5):
        await process.world.clock.advance(2_500)
    assert heard == [True]
    disk.release_flushes()
    await flush
    await process.world.clock.advance(2_500)
    assert heard == [True, False]
    assert log.failure is None, "late is not wrong"


async def test_a_process_that_was_paused_takes_no_dir_for_stalled() -> None:
    process, disk = await broker_with_two_logs()
    heard: list[bool] = []
    process.manager.on_stall(lambda is_stalled, text: heard.append(is_stalled))
    write(process, PartitionId(TOPIC, 0), 1)
    disk.hold_flushes()
    flush = asyncio.ensure_future(process.manager.logs[PartitionId(TOPIC, 0)].flush())
    await settle()
    process.world.clock._now_ns += 60_000_000_000
    await process.world.clock.advance(0)
    disk.release_flushes()
    await flush
    await process.world.clock.advance(2_500)
    assert heard == []


# --- failing dirs --------------------------------------------------------------------------------------


async def test_a_failed_dir_goes_offline_and_the_others_go_on() -> None:
    process, disk = await broker_with_two_logs()
    heard: list[tuple[bytes, list[PartitionId]]] = []
    process.manager.on_dir_offline(lambda directory_id, keys: heard.append((directory_id, list(keys))))
    disk.fail("append", "/a/topic-0/00000000000000000000.log", errno.ENOSPC)
    with pytest.raises(DiskError):
        write(process, PartitionId(TOPIC, 0), 1)
    first, _ = process.manager.directory_ids
    assert heard == [(first, [(TOPIC, 0)])]
    assert sorted(process.manager.logs) == [(TOPIC, 1)]
    assert first not in process.manager.online_directory_ids
    write(process, PartitionId(TOPIC, 1), 1)
    log = await process.manager.create("new", OTHER, 0, SMALL)
    assert log.folder == "/b/new-0"
    assert not await process.manager.close(7), "all dirs must agree (R33)"


@pytest.mark.usefixtures("failures_logged")
async def test_the_node_ends_with_its_last_dir() -> None:
    disk = MemoryDisk()
    process = Process(disk, ("/a",))
    await process.start()
    await process.manager.create("topic", TOPIC, 0, SMALL)
    disk.fail("append", ".log", errno.ENOSPC)
    with pytest.raises(DiskError):
        write(process, PartitionId(TOPIC, 0), 1)
    failure = await process.world.tasks.failure()
    assert isinstance(failure, DiskError)
    assert failure.errno == errno.ENOSPC
    assert not await process.manager.close(7)


async def test_a_dir_that_cannot_be_read_at_the_start_is_left_out() -> None:
    process, disk = await broker_with_two_logs()
    await process.kill(disk)
    disk.fail("read", "/a/topic-0/00000000000000000000.log", errno.EIO)
    process = Process(disk)
    await process.start()
    assert sorted(process.manager.logs) == [(TOPIC, 1)]
    assert not await process.manager.close(7)


async def test_progress_of_loading_is_told() -> None:
    process, disk = await broker_with_two_logs()
    await process.kill(disk)
    process = Process(disk)
    await process.manager.open_dirs()
    await process.manager.take_clean_shutdown()
    told: list[tuple[int, int]] = []
    await process.manager.load(lambda topic: SMALL, lambda done, total: told.append((done, total)))
    assert told == [(1, 2), (2, 2)]
    assert offsets(process.manager.logs[PartitionId(TOPIC, 0)]) == [(0, 1), (2, 1), (4, 1)]


@pytest.mark.usefixtures("failures_logged")
async def test_checkpoints_of_a_dir_that_fails_meanwhile_stay_as_they_are() -> None:
    """A-20: it has no logs any more, and its files must not say so."""
    process, disk = await broker_with_two_logs()
    process.high_watermarks.update({PartitionId(TOPIC, 0): 6, PartitionId(TOPIC, 1): 4})
    await process.manager.checkpoints.store_high_watermarks()
    managed = process.manager.managed(PartitionId(TOPIC, 1))
    assert managed is not None
    assert await process.manager.checkpoints.store_ceilings(managed.log_dir, {PartitionId(TOPIC, 1): 1000})
    path = managed.log_dir.file(HIGH_WATERMARK_CHECKPOINT)
    assert await read_offsets(disk, path) == {("topic", 1): 4}
    disk.fail("rename", "/b/recovery-point-offset-checkpoint.tmp")
    await managed.log.flush()
    await asyncio.gather(
        process.manager.checkpoints.store_log_offsets(),
        process.manager.checkpoints.store_high_watermarks(),
    )
    assert not managed.log_dir.is_online
    assert await read_offsets(disk, path) == {("topic", 1): 4}
    assert await read_offsets(disk, managed.log_dir.file(CEILING_CHECKPOINT)) == {("topic", 1): 1000}
