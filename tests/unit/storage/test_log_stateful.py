"""A log against a plain list: what was flushed always survives and what is there is a prefix."""

import asyncio
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from holdfast.protocol.record_batch import iter_batches
from holdfast.runtime.memory.disk import MemoryDisk
from holdfast.runtime.memory.machine import memory_runtime, settle
from holdfast.runtime.tasks import HeldTasks
from holdfast.storage.core.config import LogConfig
from holdfast.storage.core.leader_epoch_cache import LeaderEpochCache
from holdfast.storage.core.producer_state import ProducerState
from holdfast.storage.log import Log
from tests.unit.storage.batches import batch, read_all

FOLDER = "/data/topic-0"
CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=150, retention_ms=None)

sizes = st.sampled_from([0, 1, 60, 400])
counts = st.integers(1, 4)
epoch_steps = st.sampled_from([0, 0, 0, 1, 3])


class LogAgainstList(RuleBasedStateMachine):
    """The list is the bytes of each batch with its offsets; it is cut wherever the log may have been cut."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.disk = MemoryDisk()
        self.batches: list[tuple[int, int, bytes]] = []  # (base offset, next offset, bytes)
        self.end = 0
        self.start = 0
        self.epoch = 0
        self.timestamp_ms = 1000
        self.recovery_point = 0
        self.log_start = 0
        self.tasks = HeldTasks()
        self.log: Log

    @initialize()
    def open_new(self) -> None:
        self.open(clean=False)

    def open(self, clean: bool) -> None:
        async def work() -> Log:
            await settle()
            await self.tasks.cancel_all()  # the last process is gone
            runtime, world = memory_runtime(disk=self.disk)
            self.tasks = world.tasks

            async def lower(offset: int) -> None:
                self.recovery_point = min(self.recovery_point, offset)
                self.log_start = min(self.log_start, offset)

            return await Log.open(
                runtime,
                FOLDER,
                CONFIG,
                clean=clean,
                recovery_point=self.recovery_point,
                log_start_offset=self.log_start,
                before_rewind=lower,
                on_failure=lambda error: None,
            )

        self.log = self.runner.run(work())

    def next_batch(self, count: int, size: int, step: int) -> bytes:
        self.epoch += step
        self.timestamp_ms += step + count
        return batch(
            count,
            size=size,
            timestamp_ms=self.timestamp_ms,
            base_offset=self.end,
            leader_epoch=self.epoch,
            producer_id=size,
            producer_epoch=0,
            base_sequence=self.end,
        )

    def roll_if_needed(self, size: int) -> None:
        if self.log.needs_roll(size):
            self.runner.run(self.log.roll())

    def took(self, data: bytes) -> None:
        for header, view in iter_batches(data):
            self.batches.append((header.base_offset, header.next_offset, bytes(view)))
            self.end = header.next_offset

    def cut(self, end: int) -> None:
        while self.batches and self.batches[-1][1] > end:
            self.batches.pop()
        self.end = self.batches[-1][1] if self.batches else self.start

    @rule(count=counts, size=sizes, step=epoch_steps)
    def append_as_leader(self, count: int, size: int, step: int) -> None:
        data = self.next_batch(count, size, step)
        self.roll_if_needed(len(data))
        appended = self.log.append_as_leader(data, self.epoch)
        assert (appended.base_offset, appended.record_count) == (self.end, count)
        self.took(data)

    @rule(parts=st.lists(st.tuples(counts, sizes, epoch_steps), min_size=1, max_size=6))
    def append_as_follower(self, parts: list[tuple[int, int, int]]) -> None:
        end, data = self.end, b""
        for count, size, step in parts:
            data += self.next_batch(count, size, step)
            self.end += count
        self.end = end
        self.roll_if_needed(len(data))
        assert self.log.append_as_follower(data, leader_epoch=self.epoch) is not None
        self.took(data)

    @rule()
    def flush(self) -> None:
        assert self.runner.run(self.log.flush()) == self.end

    @rule()
    def roll(self) -> None:
        self.runner.run(self.log.roll())

    @rule()
    def let_background_work_end(self) -> None:
        self.runner.run(settle())

    @rule(step=st.integers(0, 2))
    def lead_without_data(self, step: int) -> None:
        self.epoch += step
        self.log.start_epoch(self.epoch)

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, self.end), "offset")
        self.cut(offset)
        assert self.runner.run(self.log.truncate_to(offset)) == self.end

    @rule(distance=st.integers(-5, 5))
    def reset(self, distance: int) -> None:
        self.start = self.end = max(0, self.end + distance)
        self.batches = []
        self.runner.run(self.log.reset_to(self.start))

    @rule()
    def checkpoint(self) -> None:
        self.recovery_point = self.log.flushed_offset
        self.log_start = self.log.log_start_offset

    @precondition(lambda self: len(self.log.segments) > 1 and self.batches)
    @rule()
    def forget_first_segments(self) -> None:
        self.runner.run(self.log.flush())
        self.log.config = replace(CONFIG, retention_bytes=0)
        self.runner.run(self.log.delete_old_segments(0, self.end))
        self.log.config = CONFIG
        self.start = self.log.log_start_offset
        self.batches = [found for found in self.batches if found[0] >= self.start]

    @rule()
    def lose_power(self) -> None:
        flushed_offset = self.log.flushed_offset
        self.disk.power_loss()
        self.open(clean=False)
        assert flushed_offset <= self.log.log_end_offset <= self.end
        if self.log.log_start_offset < self.start:
            self.start = self.log.log_start_offset  # the checkpoint of a later start was not written yet
            self.batches = []
            self.took(read_all(self.log))
        self.cut(self.log.log_end_offset)
        assert self.log.flushed_offset == self.log.log_end_offset  # R86

    @rule()
    def kill_process(self) -> None:
        self.runner.run(settle())  # the kernel ends an fsync that is under way
        self.disk.process_kill()
        self.open(clean=False)
        assert self.log.log_end_offset == self.end
        self.start = min(self.start, self.log.log_start_offset)
        self.batches = []
        self.end = self.log.log_start_offset
        self.took(read_all(self.log))

    @rule(loses_power=st.booleans())
    def stop_cleanly(self, loses_power: bool) -> None:
        self.checkpoint()
        self.runner.run(self.log.close(True))
        if loses_power:
            self.disk.power_loss()
        self.open(clean=True)
        assert self.log.recovery.scanned_bytes == 0
        assert self.log.log_end_offset == self.end

    @invariant()
    def content_is_the_list(self) -> None:
        if not hasattr(self, "log"):
            return
        assert self.log.log_end_offset == self.end
        wanted = b"".join(data for base, _, data in self.batches if base >= self.log.log_start_offset)
        assert read_all(self.log, max_bytes=300) == wanted
        assert self.log.flushed_offset <= self.end

    @invariant()
    def epochs_are_those_of_the_batches(self) -> None:
        if not hasattr(self, "log"):
            return
        slow = LeaderEpochCache()
        for header, _ in iter_batches(b"".join(data for _, _, data in self.batches)):
            slow.assign(header.leader_epoch, header.base_offset)
        cache = self.log.leader_epoch_cache
        for base, _, _ in self.batches:
            assert cache.epoch_at(base) == slow.epoch_at(base)
        for epoch, _ in slow.entries[:-1]:
            assert cache.end_offset_for(epoch, self.end) == slow.end_offset_for(epoch, self.end)
        if self.batches:
            assert self.log.last_epoch == slow.entries[-1].epoch

    @invariant()
    def producers_are_those_of_the_batches(self) -> None:
        if not hasattr(self, "log"):
            return
        slow = ProducerState()
        for header, _ in iter_batches(b"".join(data for _, _, data in self.batches)):
            slow.apply(header, header.base_offset)
        known = {row[0]: row[2][-1] for row in self.log.producer_state.rows()}
        for producer_id, _, kept in slow.rows():
            assert known[producer_id] == kept[-1]

    def teardown(self) -> None:
        self.runner.close()


LogAgainstList.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestLogAgainstList = pytest.mark.slow(LogAgainstList.TestCase)
