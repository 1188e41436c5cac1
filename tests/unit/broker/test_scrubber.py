"""The scrub of a broker: it finds what nothing reads, once an interval, and goes on after a restart."""

import errno

import pytest

from holdfast.broker.log_manager import LogManager, LogManagerConfig
from holdfast.metadata.ids import PartitionId
from holdfast.protocol.errors import ErrorCode
from holdfast.runtime.memory.disk import MemoryDisk
from holdfast.runtime.memory.machine import ManualClock, memory_runtime, settle
from holdfast.storage.core.config import LogConfig
from holdfast.storage.core.files import SCRUB_CHECKPOINT
from holdfast.storage.core.scrub_plan import ScrubCounts, ScrubPace
from tests.unit.broker.cluster import Cluster, batch
from tests.unit.broker.test_damaged_replicas import FOLDER, SEGMENT, VALUES, flip, healed, in_sync, where
from tests.unit.storage.batches import batch as two_records

INTERVAL_MS = 200_000
TOPIC = b"t" * 16
KEYS = [PartitionId(TOPIC, index) for index in range(3)]
#: a segment holds one batch; four of a log are closed
SIZE = len(two_records(2))
ONE_EACH = LogConfig(segment_bytes=SIZE)
CLOSED = 4
#: a segment a second
RATE = SIZE


class Process:
    """One life of a log manager on a disk and a clock that outlive it."""

    def __init__(self, disk: MemoryDisk, clock: ManualClock) -> None:
        runtime, self.world = memory_runtime(clock=clock, disk=disk)
        self.disk, self.clock = disk, clock
        config = LogManagerConfig(("/a",), scrub=ScrubPace(INTERVAL_MS, RATE))
        self.manager = LogManager(runtime, config, "cluster", 1)
        self.damaged: list[PartitionId] = []

    async def start(self) -> "Process":
        await self.manager.open_dirs()
        await self.manager.take_clean_shutdown()
        await self.manager.load(lambda topic: ONE_EACH)
        self.manager.on_damage(lambda key, why: self.damaged.append(key), lambda key: None)
        self.manager.start(lambda key: 0)
        await settle()
        return self

    async def write(self) -> None:
        for key in KEYS:
            log = await self.manager.create("topic", key.topic_id, key.partition_index, ONE_EACH)
            for _ in range(CLOSED + 1):
                log.append_as_leader(two_records(2), 1)
                await log.roll() if len(log.segments) <= CLOSED else None
            await log.flush()
        await settle()

    @property
    def counts(self) -> ScrubCounts:
        return self.manager._scrubber.counts["/a"]

    async def end(self) -> None:
        closing = self.world.tasks.start("close", self._close())
        await settle()
        assert closing.is_done, "a stop waits for no pause"
        self.disk.process_kill()

    async def _close(self) -> None:
        await self.manager.close(1)


async def test_closed_segments_are_read_once_an_interval_at_the_rate() -> None:
    process = await Process(MemoryDisk(), ManualClock()).start()
    await process.write()
    assert process.counts.read_bytes == 0, "nothing was there at the first pass"
    for number in (1, 2):
        begun_ms = process.clock.now_ms()
        while process.counts.read_bytes < number * len(KEYS) * CLOSED * SIZE:
            await process.clock.advance(1000)
        took_ms = process.clock.now_ms() - begun_ms
        assert INTERVAL_MS - 20_000 <= took_ms <= INTERVAL_MS + 80_000
    assert process.damaged == []
    await process.end()


async def test_damage_costs_the_log_that_has_it_and_the_pass_goes_on() -> None:
    process = await Process(MemoryDisk(), ManualClock()).start()
    await process.write()
    process.disk.rot(f"/a/topic-1/{4:020}.log", flip(70))
    completed_ms = process.counts.completed_ms
    while process.counts.completed_ms == completed_ms:
        await process.clock.advance(1000)
    assert process.damaged == [KEYS[1]]
    assert sorted(process.manager.logs) == [KEYS[0], KEYS[2]]
    assert process.counts.damaged_count == 1
    assert process.counts.read_bytes == (CLOSED + 2 + CLOSED) * SIZE
    await process.end()


async def test_shortage_ends_no_scrub() -> None:
    process = await Process(MemoryDisk(), ManualClock()).start()
    await process.write()
    process.disk.fail("read", f"/topic-1/{4:020}.log", errno.EMFILE, times=3)
    while process.counts.read_bytes < len(KEYS) * CLOSED * SIZE:
        await process.clock.advance(1000)
    assert process.damaged == []
    await process.end()


async def test_restart_goes_on_with_the_pass_and_does_not_begin_another() -> None:
    disk, clock = MemoryDisk(), ManualClock()
    process = await Process(disk, clock).start()
    await process.write()
    while process.counts.read_bytes < 6 * SIZE:
        await clock.advance(500)
    read_bytes = process.counts.read_bytes
    await process.end()
    process = await Process(disk, clock).start()
    await clock.advance(INTERVAL_MS // 2)
    assert read_bytes + process.counts.read_bytes == len(KEYS) * CLOSED * SIZE
    assert process.counts.completed_ms > 0
    await process.end()


@pytest.mark.parametrize("role", ["leader", "follower"])
async def test_damage_that_nothing_reads_is_found_and_heals(role: str) -> None:
    cluster = await Cluster().boot()
    await cluster.topic(partitions=2, min_insync_replicas="2", segment_bytes="1024")
    leader = await cluster.leader()
    for value in VALUES:
        assert (await cluster.produce(leader.id, batch(value))).error_code == ErrorCode.NONE
    await in_sync(cluster)
    hit = await where(cluster, role)
    await hit.stop()
    await hit.disk.unlink(f"/data/{SCRUB_CHECKPOINT}")  # so that a pass is due
    hit.disk.rot(f"{FOLDER}/{SEGMENT}.log", flip(100))
    await hit.boot()
    await healed(cluster, hit)
    (family,) = (one for one in hit.node.metrics() if one.name == "kafka_log_scrub_damaged_total")
    assert [sample.value for sample in family.samples] == [1]
    await cluster.end()
