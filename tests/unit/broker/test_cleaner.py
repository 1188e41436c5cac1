"""The cleaner of a broker: it compacts what is due, once, and goes on after trouble and after a restart."""

import errno
from dataclasses import replace

import pytest

from holdfast.broker.log_manager import LogManager, LogManagerConfig
from holdfast.metadata.ids import PartitionId
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.record_batch import Record, decode_records, encode_batch, iter_batches, with_header
from holdfast.runtime.memory.disk import MemoryDisk
from holdfast.runtime.memory.machine import ManualClock, memory_runtime, settle
from holdfast.storage.core.cleaner_plan import CleanerCounts, CleanerPace
from holdfast.storage.core.config import LogConfig
from holdfast.storage.core.files import CLEANED_SUFFIX, CLEANER_CHECKPOINT
from holdfast.storage.core.free_space import FreeSpace
from holdfast.storage.log import Log
from tests.unit.broker.cluster import BrokerMachine, Cluster
from tests.unit.storage.cleaning import append, keyed, latest, records, updates

TOPIC = b"t" * 16
KEYS = [PartitionId(TOPIC, index) for index in range(2)]
CONFIG = LogConfig(segment_bytes=420, index_interval_bytes=90, retention_ms=None, compacts=True)
PACE = CleanerPace(backoff_ms=1_000)


class Process:
    """One life of a log manager on a disk and a clock that outlive it."""

    def __init__(self, disk: MemoryDisk, clock: ManualClock, pace: CleanerPace = PACE) -> None:
        runtime, self.world = memory_runtime(clock=clock, disk=disk)
        self.disk, self.clock = disk, clock
        self.manager = LogManager(runtime, LogManagerConfig(("/a",), cleaner=pace), "cluster", 1)
        self.high_watermark = 1 << 30
        self.damaged: list[PartitionId] = []

    async def start(self, config: LogConfig = CONFIG) -> "Process":
        await self.manager.open_dirs()
        await self.manager.take_clean_shutdown()
        await self.manager.load(lambda topic: config)
        self.manager.on_damage(lambda key, why: self.damaged.append(key), lambda key: None)
        self.manager.start(lambda key: self.high_watermark)
        await settle()
        return self

    async def write(self, config: LogConfig = CONFIG) -> None:
        for key in KEYS:
            log = await self.manager.create("topic", key.topic_id, key.partition_index, config)
            await append(log, updates(0, 24))

    @property
    def counts(self) -> CleanerCounts:
        return self.manager._cleaner.counts["/a"]

    def log(self, number: int = 0) -> Log:
        return self.manager.logs[KEYS[number]]

    async def until(self, is_so: object) -> None:
        for _ in range(100):
            if is_so():  # type: ignore[operator]
                return
            await self.clock.advance(500)
        raise AssertionError("it did not come to that")

    async def rest(self) -> None:
        """Some more rounds of the cleaner."""
        for _ in range(8):
            await self.clock.advance(500)

    async def end(self) -> None:
        closing = self.world.tasks.start("close", self._close())
        await settle()
        assert closing.is_done, "a stop waits for no pause"
        self.disk.process_kill()

    async def _close(self) -> None:
        await self.manager.close(1)


async def begun(pace: CleanerPace = PACE) -> Process:
    process = await Process(MemoryDisk(), ManualClock(), pace).start()
    await process.write()
    return process


async def test_what_is_due_is_compacted_once() -> None:
    process = await begun()
    before = [latest(records(process.log(n))) for n in range(2)]
    await process.until(lambda: process.counts.run_count >= 2)
    await process.rest()
    assert process.counts.run_count == 2
    assert [latest(records(process.log(n))) for n in range(2)] == before
    assert process.counts.removed_bytes > 0
    assert process.counts.removed_records == 96 - sum(len(records(process.log(n))) for n in range(2))
    assert process.counts.dirty_ratio == 0
    names = {family.name for family in process.manager.stats()}
    assert "kafka_log_cleaner_removed_bytes_total" in names
    await process.end()


async def test_nothing_is_done_above_the_high_watermark_nor_when_it_is_switched_off() -> None:
    process = await Process(MemoryDisk(), ManualClock()).start()
    process.high_watermark = 3
    await process.write()
    await process.rest()
    assert process.counts.run_count == 0
    await process.end()
    off = await begun(PACE._replace(is_enabled=False))
    await off.rest()
    assert off.manager._cleaner.counts == {}
    assert not [family for family in off.manager.stats() if "cleaner" in family.name]
    await off.end()


async def test_a_topic_that_becomes_compacted_is_compacted_from_then_on() -> None:
    process = await Process(MemoryDisk(), ManualClock()).start(replace(CONFIG, compacts=False))
    await process.write(replace(CONFIG, compacts=False))
    await process.rest()
    assert process.manager._cleaner.counts == {}
    managed = process.manager.managed(KEYS[1])
    assert managed is not None
    process.manager.configure(managed, CONFIG)
    await process.until(lambda: process.counts.run_count)
    await process.rest()
    assert (len(records(process.log(0))), process.counts.run_count) == (48, 1)
    assert len(records(process.log(1))) < 48
    await process.end()


async def test_a_restart_goes_on_where_the_cleaner_has_stopped() -> None:
    disk, clock = MemoryDisk(), ManualClock()
    process = await Process(disk, clock).start()
    await process.write()
    await process.until(lambda: process.counts.run_count >= 2)
    await process.rest()
    clean_offset = process.log().cleaning.clean_offset
    await process.end()
    process = await Process(disk, clock).start()
    await process.rest()
    assert process.counts.run_count == 0
    assert process.log().cleaning.clean_offset == clean_offset > 0
    await process.end()
    for number in range(2):
        await disk.unlink(f"/a/topic-{number}/{CLEANER_CHECKPOINT}")
    process = await Process(disk, clock).start()
    await process.until(lambda: process.counts.run_count >= 2)
    assert process.counts.removed_records == 0
    await process.end()


async def test_a_log_that_is_fetched_anew_is_compacted_from_its_beginning() -> None:
    disk, clock, config = MemoryDisk(), ManualClock(), replace(CONFIG, delete_retention_ms=500)
    process = await Process(disk, clock).start(config)
    await process.write(config)
    await process.until(lambda: process.counts.run_count >= 2)
    await process.rest()
    await process.manager.delete(TOPIC, 0)
    log = await process.manager.create("topic", TOPIC, 0, config)
    await append(log, [keyed([("gone", "old")]), keyed([("gone", None)]), *updates(0, 22)])
    await process.end()
    process = await Process(disk, clock).start(config)
    for run in range(3):
        await append(process.log(), updates(100 + 40 * run, 40))
        await process.until(lambda: process.log().cleaning.dirt(config, 1 << 30, 0).dirty_bytes == 0)
        assert {one.value for one in records(process.log()) if one.key == b"gone"} <= {None}
        await clock.advance(1_000)
    await process.end()


async def test_a_log_without_room_for_its_copy_does_not_hold_up_others() -> None:
    class Space(FreeSpace):
        def has_room_for_copy(self, size_bytes: int) -> bool:
            return size_bytes < CONFIG.segment_bytes

    process = await Process(MemoryDisk(), ManualClock()).start()
    process.high_watermark = 0
    await process.write()
    (log_dir,) = process.manager._dirs
    log_dir.space = Space()
    process.log(1).config = replace(CONFIG, segment_bytes=CONFIG.segment_bytes - 1)
    process.high_watermark = 1 << 30
    await process.until(lambda: process.counts.run_count)
    assert process.counts.failed_count >= 1
    assert process.log(0).cleaning.clean_offset == 0 < process.log(1).cleaning.clean_offset
    await process.end()


async def test_no_room_for_the_checkpoint_costs_nothing_else() -> None:
    process = await Process(MemoryDisk(), ManualClock()).start()
    process.disk.fail("append", f"{CLEANER_CHECKPOINT}.tmp", errno.ENOSPC, times=3)
    await process.write()
    await process.until(lambda: process.counts.run_count >= 2)
    assert process.manager.is_whole
    assert sorted(process.manager.logs) == KEYS
    assert process.counts.failed_count >= 1
    await process.end()


async def test_a_full_disk_stops_the_cleaner_until_there_is_room() -> None:
    process = await begun()
    process.disk.fail("append", CLEANED_SUFFIX, errno.ENOSPC, times=2)
    await process.until(lambda: process.counts.failed_count == 2)
    assert process.manager.is_whole
    await process.until(lambda: process.counts.run_count >= 2)
    assert sorted(process.manager.logs) == KEYS
    await process.end()


async def test_damage_costs_the_log_that_has_it_and_the_other_is_compacted() -> None:
    process = await Process(MemoryDisk(), ManualClock()).start()
    process.high_watermark = 0
    await process.write()
    process.disk.rot(f"/a/topic-1/{0:020}.log", lambda data: data[:150] + b"?" + data[151:])
    process.high_watermark = 1 << 30
    await process.until(lambda: process.counts.run_count >= 1 and process.damaged)
    assert process.damaged == [KEYS[1]]
    assert sorted(process.manager.logs) == [KEYS[0]]
    assert process.manager.is_whole
    await process.end()


async def test_a_log_whose_records_cannot_be_read_is_left_alone() -> None:
    process = await Process(MemoryDisk(), ManualClock()).start()
    process.high_watermark = 0
    await process.write()
    (header, data), *_ = iter_batches(keyed([("a", "1")]))
    bad = with_header(header, bytes(len(data) - 61))
    await append(process.log(1), [bad, *updates(30, 12)])
    process.high_watermark = 1 << 30
    await process.until(lambda: process.counts.run_count >= 1 and process.counts.uncleanable_count)
    await process.rest()
    assert (process.counts.failed_count, process.counts.uncleanable_count) == (1, 1)
    assert sorted(process.manager.logs) == KEYS
    assert process.damaged == []
    await process.end()


async def test_a_topic_is_deleted_while_it_is_compacted() -> None:
    process = await begun(PACE._replace(bytes_per_second=1024))
    await process.until(lambda: process.counts.read_bytes)
    for key in KEYS:
        await process.manager.delete(key.topic_id, key.partition_index)
    await process.rest()
    assert process.manager.is_whole
    assert not [name for name in await process.disk.listdir("/a") if name.startswith("topic")]
    await process.end()


# --- on a cluster --------------------------------------------------------------------------------------


def write(number: int, key: str | None = "k") -> memoryview:
    name = None if key is None else f"{key}{number % 3}".encode()
    return memoryview(encode_batch([Record(0, 1, name, b"%d" % number)], base_offset=0, leader_epoch=-1))


def log_of(machine: BrokerMachine) -> Log:
    (log,) = machine.node.log_manager.logs.values()
    return log


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
async def test_replicas_compact_alone_and_a_consumer_finds_each_last_record(policy: str) -> None:
    cluster = await Cluster(log_cleaner_backoff_ms="1000").boot()
    await cluster.topic(
        cleanup_policy=policy,
        segment_bytes="1024",
        min_cleanable_dirty_ratio="0.1",
        min_insync_replicas="2",
    )
    leader = await cluster.leader()
    for number in range(60):
        assert (await cluster.produce(leader.id, write(number))).error_code == ErrorCode.NONE
    await cluster.eventually(
        lambda: all(len(records(log_of(one))) < 30 for one in cluster.machines.values()), 60_000
    )
    for machine in cluster.machines.values():
        assert {one.value for one in latest(records(log_of(machine))).values()} == {b"57", b"58", b"59"}
    offset, found = 0, list[Record]()
    while offset < 60:
        row = await cluster.fetch(leader.id, offset)
        assert row.error_code == ErrorCode.NONE
        for header, data in iter_batches(row.records):
            found += decode_records(data)
            offset = header.next_offset
    assert {one.value for one in latest(found).values()} == {b"57", b"58", b"59"}
    await cluster.end()


async def test_records_without_a_key_are_refused_in_a_compacted_topic() -> None:
    cluster = await Cluster().boot()
    await cluster.topic(cleanup_policy="compact")
    leader = await cluster.leader()
    row = await cluster.produce(leader.id, write(0, None))
    assert row.error_code == ErrorCode.INVALID_RECORD
    assert "no key" in (row.error_message or "")
    assert (await cluster.produce(leader.id, write(0))).error_code == ErrorCode.NONE
    await cluster.end()


async def test_the_clusters_default_compacts_all_topics_but_the_offsets() -> None:
    cluster = await Cluster(log_cleanup_policy="compact").boot()
    await cluster.topic()
    leader = await cluster.leader()
    assert log_of(leader).config.compacts
    assert log_of(leader).config.retention_ms is None
    await cluster.end()
