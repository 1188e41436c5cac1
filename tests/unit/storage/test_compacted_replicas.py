"""Three replicas of a partition, each compacted by itself at any moment, while leaders change and processes
are killed: all end with the same last record of each key (R119), and no reader stops."""

import random
from dataclasses import replace

import pytest

from holdfast.runtime.memory.disk import MemoryDisk
from holdfast.runtime.memory.machine import settle
from holdfast.storage.log import Log
from tests.cases import slow
from tests.unit.storage.cleaning import (
    CONFIG,
    Pairs,
    append,
    check_reads,
    clean,
    keyed,
    latest,
    open_log,
    records,
)

STEPS = 120
REPLICAS = range(3)


class Replicas:
    """They copy and are elected as brokers do it; a record is committed when two replicas have it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.config = replace(
            CONFIG, segment_bytes=self.random.choice([200, 420, 900]), delete_retention_ms=10
        )
        self.disks = [MemoryDisk() for _ in REPLICAS]
        self.logs: list[Log] = []
        self.leader = self.epoch = self.high_watermark = self.written = 0
        #: leader epoch of the last committed record
        self.committed_epoch = -1
        self.wall_ms = 1_000_000
        self.sequences = {1: 0, 2: 0}

    async def open(self) -> "Replicas":
        self.logs = [await open_log(disk, self.config) for disk in self.disks]
        self.logs[0].start_epoch(0)
        return self

    def has_committed(self, log: Log, offset: int) -> bool:
        """What was committed below `offset` is in this log."""
        if not offset:
            return True
        leader = self.logs[self.leader]
        own, theirs = (one.leader_epoch_cache.epoch_at(offset - 1) for one in (log, leader))
        return log.log_end_offset >= offset and own == theirs

    async def write(self) -> None:
        chosen = self.random
        pairs: Pairs = []
        for _ in range(chosen.randint(1, 3)):
            self.written += 1
            value = None if chosen.random() < 0.15 else f"v{self.written}"
            pairs.append((f"k{chosen.randrange(3)}", value))
        producer_id = chosen.choice([-1, *self.sequences])
        sequence = self.sequences.get(producer_id, 0)
        if producer_id >= 0:
            self.sequences[producer_id] += len(pairs)
        data = keyed(pairs, producer_id=producer_id, sequence=sequence)
        await append(self.logs[self.leader], [data], self.epoch)

    async def fetch(self, follower: Log) -> None:
        leader = self.logs[self.leader]
        while follower.log_end_offset:
            theirs = leader.end_offset_for_epoch(follower.last_epoch)
            if theirs is None:
                await follower.truncate_to(0)
            elif theirs.epoch < follower.last_epoch or theirs.end_offset < follower.log_end_offset:
                own = follower.end_offset_for_epoch(theirs.epoch)
                await follower.truncate_to(min(theirs.end_offset, own.end_offset if own else 0))
            else:
                break
        at, end = follower.log_end_offset, leader.log_end_offset
        if at < end:
            data = leader.read(at, self.random.choice([1, 200, 500]), end)
            if follower.needs_roll(len(data)):
                await follower.roll()
            assert follower.append_as_follower(data, leader_epoch=self.epoch) is not None
            await follower.flush()
            await settle()

    async def compact(self, log: Log) -> None:
        self.wall_ms += self.random.choice([0, 5, 20])
        kept_offset = min(self.high_watermark, log.flushed_offset)
        if not self.has_committed(log, kept_offset):
            kept_offset = 0
        before = records(log)
        memory_bytes = self.random.choice([1, 600, 1 << 20])
        await clean(log, wall_ms=self.wall_ms, kept_offset=kept_offset, memory_bytes=memory_bytes)
        assert {*records(log)} <= {*before}

    def elect(self) -> None:
        able = [
            number
            for number in REPLICAS
            if self.logs[number].log_end_offset >= self.high_watermark
            and (
                not self.high_watermark
                or self.logs[number].leader_epoch_cache.epoch_at(self.high_watermark - 1)
                == self.committed_epoch
            )
        ]
        self.leader = self.random.choice(able)
        self.epoch += 1
        self.logs[self.leader].start_epoch(self.epoch)

    async def restart(self, number: int) -> None:
        log = self.logs[number]
        found, end = records(log), log.log_end_offset
        is_clean = self.random.random() < 0.5
        await log.close(is_clean)
        if not is_clean:
            self.disks[number].process_kill()
        recovery_point = self.random.choice([0, end])
        self.logs[number] = await open_log(
            self.disks[number],
            self.config,
            clean=is_clean,
            recovery_point=recovery_point,
            durable_offset=end,
        )
        assert records(self.logs[number]) == found
        assert self.logs[number].log_end_offset == end

    def commit(self) -> None:
        leader = self.logs[self.leader]
        offset = sorted(log.log_end_offset for log in self.logs)[1]
        offset = min(offset, leader.log_end_offset)
        if offset > self.high_watermark and leader.last_epoch == self.epoch:
            if sum(self.has_committed(log, offset) for log in self.logs) >= 2:
                epoch = leader.leader_epoch_cache.epoch_at(offset - 1)
                assert epoch is not None
                self.high_watermark, self.committed_epoch = offset, epoch

    async def step(self) -> None:
        number = self.random.choice(REPLICAS)
        what = self.random.random()
        if what < 0.45:
            await self.write()
        elif what < 0.62:
            if number != self.leader:
                await self.fetch(self.logs[number])
        elif what < 0.85:
            await self.compact(self.logs[number])
        elif what < 0.93:
            self.elect()
        else:
            await self.restart(number)
        self.commit()

    async def catch_up(self) -> None:
        leader = self.logs[self.leader]
        for log in self.logs:
            while log is not leader and (log.log_end_offset, log.last_epoch) != (
                leader.log_end_offset,
                leader.last_epoch,
            ):
                await self.fetch(log)


@pytest.mark.parametrize("seed", [*range(3), *slow(*range(3, 12))])
async def test_replicas_that_are_compacted_at_any_moment_end_with_the_same_last_records(seed: int) -> None:
    replicas = await Replicas(seed).open()
    for _ in range(STEPS):
        await replicas.step()
    await replicas.catch_up()
    views = [
        {key: one for key, one in latest(records(log)).items() if one.value is not None}
        for log in replicas.logs
    ]
    assert views[0] == views[1] == views[2]
    assert views[0]
    for log in replicas.logs:
        check_reads(log)
