"""A compacted log against all that was written to it: the last record of each key stays, at its offset, also
while cleanings are disturbed, and when they end in a crash."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from holdfast.protocol.record_batch import Record, decode_records, iter_batches
from holdfast.runtime.api import DiskError
from holdfast.runtime.memory.disk import MemoryDisk
from holdfast.runtime.memory.machine import settle
from holdfast.storage.log import Log
from tests.unit.storage.batches import read_all
from tests.unit.storage.cleaning import CONFIG, append, clean, clean_while, keyed, latest, open_log, records
from tests.unit.storage.crashing_disk import Crash, CrashingDisk

#: One or two batches, a few, or all that there are: from the small ones compaction makes larger ones.
SEGMENT_BYTES = (160, 420, 8000)
#: The second is too little for the keys of all segments.
MEMORY_BYTES = (1 << 20, 100)
#: Until when a tombstone stays after its first cleaning; the clock of a cleaning is before or behind that.
WALL_MS = (1_000_000, 1_000_000 + 2 * CONFIG.delete_retention_ms)

pairs = st.lists(
    st.tuples(st.sampled_from("abcdef"), st.sampled_from([None, "v", "value"])), min_size=1, max_size=3
)
times = st.integers(1000, 1020)
some = st.lists(st.tuples(pairs, times), min_size=1, max_size=5)
shares = st.integers(0, 9).map(lambda tenths: tenths / 10)

Batches = list[tuple[list[tuple[str, str | None]], int]]


class CompactedLog(RuleBasedStateMachine):
    """`written` has every record up to the log's end by its offset, superseded and deleted ones too."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.disk = CrashingDisk(MemoryDisk())
        self.config = CONFIG
        self.written: dict[int, Record] = {}
        self.epoch = 0
        self.log: Log

    @initialize()
    def open_new(self) -> None:
        self.log = self.runner.run(self.opened(clean=False, end=0))

    async def opened(self, *, clean: bool, end: int, start: int = 0) -> Log:
        return await open_log(
            self.disk,
            self.config,
            clean=clean,
            recovery_point=end,
            durable_offset=end,
            log_start_offset=start,
            on_failure=lambda error: None,
        )

    # --- what a leader does ----------------------------------------------------------------------------

    async def write(self, log: Log, found: list[tuple[str, str | None]], time_ms: int) -> None:
        base = log.log_end_offset
        await append(log, [keyed(found, time_ms=time_ms)], self.epoch)
        for offset, (key, value) in enumerate(found, base):
            data = None if value is None else value.encode()
            self.written[offset] = Record(offset, time_ms + offset - base, key.encode(), data)

    @rule(batches=some, is_new_epoch=st.booleans())
    def append(self, batches: Batches, is_new_epoch: bool) -> None:
        self.epoch += is_new_epoch
        for found, time_ms in batches:
            self.runner.run(self.write(self.log, found, time_ms))

    def make_dirty(self, batches: Batches) -> None:
        """So that the next cleaning has something to do."""
        self.append(batches, False)
        self.roll()

    @rule()
    def roll(self) -> None:
        async def work() -> None:
            await self.log.roll()
            await settle()

        self.runner.run(work())

    @rule(segment_bytes=st.sampled_from(SEGMENT_BYTES))
    def set_the_size_of_segments(self, segment_bytes: int) -> None:
        self.config = self.log.config = replace(CONFIG, segment_bytes=segment_bytes)

    # --- what is deleted -------------------------------------------------------------------------------

    async def delete_records(self, log: Log, share: float) -> None:
        start = log.log_start_offset + round(share * (log.log_end_offset - log.log_start_offset))
        log.move_start(start)
        log.start_stored(start)

    async def truncate(self, log: Log, share: float) -> None:
        start = log.log_start_offset
        end = await log.truncate_to(log.log_end_offset - round(share * (log.log_end_offset - start)))
        # Below what was cleaned the log is emptied: the records that superseded others would be missing.
        assert end >= log.cleaning.changed_offset or end <= start
        self.written = {offset: one for offset, one in self.written.items() if offset < end}

    @rule(share=shares)
    def delete_a_share(self, share: float) -> None:
        self.runner.run(self.delete_records(self.log, share))

    @rule(share=shares)
    def truncate_a_share(self, share: float) -> None:
        self.runner.run(self.truncate(self.log, share / 3))

    @rule()
    def delete_segments_below_the_start(self) -> None:
        self.runner.run(self.log.delete_old_segments(0, self.log.log_end_offset))

    # --- cleanings -------------------------------------------------------------------------------------

    @rule(wall_ms=st.sampled_from(WALL_MS), memory_bytes=st.sampled_from(MEMORY_BYTES))
    def clean(self, wall_ms: int, memory_bytes: int) -> None:
        self.runner.run(clean(self.log, wall_ms=wall_ms, memory_bytes=memory_bytes))
        cleaned = [one.key for one in records(self.log) if one.offset < self.log.cleaning.clean_offset]
        assert len(set(cleaned)) == len(cleaned), "a key stays twice below the cleaned point"

    @rule(
        batches=some,
        place=st.sampled_from(["between slices", "before a swap"]),
        step=st.integers(1, 3),
        share=shares,
        how=st.sampled_from(["write", "delete records", "delete segments", "truncate", "look up"]),
    )
    def clean_disturbed(self, batches: Batches, place: str, step: int, share: float, how: str) -> None:
        async def delete_segments(log: Log) -> None:
            await self.delete_records(log, share)
            await log.delete_old_segments(0, log.log_end_offset)

        acts: dict[str, Callable[[Log], Awaitable[None]]] = {
            "write": lambda log: self.write(log, [("a", "new"), ("b", None)], 1010),
            "delete records": lambda log: self.delete_records(log, share),
            "delete segments": delete_segments,
            "truncate": lambda log: self.truncate(log, share),
            "look up": lambda log: self.look_up(log, 1010),
        }
        self.make_dirty(batches)
        self.runner.run(clean_while(self.log, acts[how], place, step))

    @rule(batches=some, steps=st.integers(0, 25), how=st.sampled_from(list(Crash)))
    def crash_during_a_cleaning(self, batches: Batches, steps: int, how: Crash) -> None:
        async def work() -> Log:
            end, start = self.log.log_end_offset, self.log.log_start_offset
            self.disk.how = how
            self.disk.crash_at = len(self.disk.steps) + steps
            try:
                await clean(self.log)
            except DiskError:
                assert self.disk.is_dead
            if not self.disk.is_dead:
                self.disk.crash()
            await settle()
            self.disk = CrashingDisk(self.disk.inner)
            log = await self.opened(clean=False, end=end, start=start)
            assert (log.log_start_offset, log.log_end_offset) == (start, end)
            return log

        self.make_dirty(batches)
        self.log = self.runner.run(work())

    @rule()
    def stop_cleanly(self) -> None:
        async def work() -> Log:
            end, start = self.log.log_end_offset, self.log.log_start_offset
            await self.log.close(flush=True)
            log = await self.opened(clean=True, end=end, start=start)
            assert (log.log_start_offset, log.log_end_offset) == (start, end)
            return log

        self.log = self.runner.run(work())

    # --- what readers find -----------------------------------------------------------------------------

    @precondition(lambda self: self.log.log_start_offset < self.log.log_end_offset)
    @rule(share=shares)
    def read_on(self, share: float) -> None:
        """From any offset on, reads go on to the end without a gap."""
        log = self.log
        first = at = log.log_start_offset + int(share * (log.log_end_offset - log.log_start_offset))
        found: list[Record] = []
        while at < log.log_end_offset:
            for header, data in iter_batches(log.read(at, 1, log.log_end_offset, verify=True)):
                assert header.base_offset <= at < header.next_offset
                at = header.next_offset
                found += decode_records(data)
        assert [one for one in found if one.offset >= first] == [
            one for one in records(log) if one.offset >= first
        ]

    @rule(time_ms=st.integers(999, 1024))
    def look_up_a_time(self, time_ms: int) -> None:
        self.runner.run(self.look_up(self.log, time_ms))

    async def look_up(self, log: Log, time_ms: int) -> None:
        """Among the batches behind the log start, by the records that are left of them."""
        known = [
            (header.base_offset, max((one.timestamp_ms for one in decode_records(data)), default=-1))
            for header, data in iter_batches(read_all(log))
            if header.base_offset >= log.log_start_offset
        ]
        found = await log.times.first_since(time_ms)
        expected = next((base for base, newest in known if newest >= time_ms), None)
        assert (None if found is None else found.base_offset) == expected
        assert await log.times.newest_ms() == max((newest for _, newest in known), default=-1)

    @invariant()
    def no_key_is_lost(self) -> None:
        if not hasattr(self, "log"):
            return
        found, start = records(self.log), self.log.log_start_offset
        assert [one.offset for one in found] == sorted({one.offset for one in found})
        for one in found:
            assert one == self.written[one.offset]
        known, last = latest(found), latest([one for at, one in self.written.items() if at >= start])
        for key, one in last.items():
            # of a tombstone nothing may be left, but then no earlier record either
            assert known.get(key) == one or (one.value is None and key not in known)

    def teardown(self) -> None:
        self.runner.run(settle())
        self.runner.close()


class LongerCompactedLog(CompactedLog):
    """The same for longer."""


CompactedLog.TestCase.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
LongerCompactedLog.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestCompactedLog = CompactedLog.TestCase
TestLongerCompactedLog = pytest.mark.slow(LongerCompactedLog.TestCase)
