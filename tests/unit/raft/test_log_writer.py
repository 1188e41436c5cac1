import errno
from collections.abc import AsyncIterator, Callable

import pytest

from holdfast.protocol.record_batch import decode_records, iter_batches
from holdfast.raft.core.control_records import LEADER_CHANGE_KEY
from holdfast.raft.core.effects import Append, AppendFetched, Control, Truncate
from holdfast.raft.log_writer import LogWriter
from holdfast.runtime.api import DiskError, Runtime
from holdfast.runtime.memory.machine import MemoryWorld, memory_runtime, settle
from holdfast.scenario.raft import batches
from holdfast.storage.core.config import LogConfig
from holdfast.storage.log import Log


class Written:
    """A writer on a fresh log and what it tells."""

    def __init__(self, log: Log, runtime: Runtime, world: MemoryWorld) -> None:
        self.log = log
        self.world = world
        self.flushed: list[int] = []
        self.truncated: list[int] = []
        self.failures: list[Exception] = []
        #: called after each append
        self.react: Callable[[], None] = lambda: None
        self.writer = LogWriter(
            runtime,
            log,
            lambda: self.react(),
            self.flushed.append,
            self.truncated.append,
            self.failures.append,
        )


@pytest.fixture
async def written() -> AsyncIterator[Written]:
    runtime, world = memory_runtime()
    log = await Log.open(runtime, "/m/log", LogConfig(retention_ms=None, segment_bytes=300), clean=False)
    yield Written(log, runtime, world)
    await settle()


async def test_an_append_that_lacks_a_handle_waits_and_those_after_it_too(written: Written) -> None:
    written.world.disk.fail("append", ".log", errno.EMFILE, times=2)
    for offset, value in enumerate((b"a", b"b", b"c")):
        written.writer.append(Append(offset, 4, (value,)))
    written.writer.flush()
    await settle()
    assert (written.log.log_end_offset, written.flushed) == (0, [])
    for _ in range(2):
        await written.world.clock.advance(50)
        await settle()
    assert written.log.log_end_offset == 3
    assert written.flushed == [3]
    assert written.failures == []


async def test_batch_carries_offsets_epoch_and_the_mark_of_control_records(written: Written) -> None:
    written.writer.append(Append(0, 4, (b"change",), Control.LEADER_CHANGE))
    written.writer.append(Append(1, 4, (b"a", b"b")))
    await settle()
    read = [pair for start in (0, 1) for pair in iter_batches(written.log.read(start, 1, 9))]
    assert [(h.base_offset, h.next_offset, h.leader_epoch, h.is_control) for h, _ in read] == [
        (0, 1, 4, True),
        (1, 3, 4, False),
    ]
    assert [(r.key, r.value) for _, view in read for r in decode_records(view)] == [
        (LEADER_CHANGE_KEY, b"change"),
        (None, b"a"),
        (None, b"b"),
    ]


async def test_appends_that_come_while_a_flush_runs_share_the_next_one(written: Written) -> None:
    """A-21, D6: the one under way does not count for them."""
    written.world.disk.hold_flushes()
    written.writer.append(Append(0, 1, (b"a",)))
    written.writer.flush()
    await settle()
    for offset in (1, 2):
        written.writer.append(Append(offset, 1, (b"b",)))
        written.writer.flush()
    await settle()
    assert written.flushed == []
    written.world.disk.release_flushes()
    await settle()
    assert written.flushed == [1, 3]


async def test_order_is_kept_over_rolls_and_cuts(written: Written) -> None:
    """D2: an append behind a roll or a cut waits for it, and a flush covers it all the same."""
    for offset in range(12):
        written.writer.append(Append(offset, 1, (b"x" * 100,)))
    written.writer.flush()
    await settle()
    assert written.flushed[-1] == 12
    written.writer.truncate(Truncate(5))
    await settle()
    records = memoryview(batches(5, "2:2"))
    written.writer.append_fetched(AppendFetched(5, 7, records))
    written.writer.flush()
    await settle()
    assert written.truncated == [5]
    assert (written.log.log_end_offset, written.log.flushed_offset, written.log.last_epoch) == (7, 7, 2)
    assert len(written.log.segments) > 1
    assert written.failures == []


@pytest.mark.parametrize("operation", ["append", "flush", "truncate"])
async def test_first_failure_of_the_disk_is_told(written: Written, operation: str) -> None:
    """A-20."""
    written.writer.append(Append(0, 1, (b"a",)))
    written.writer.append(Append(1, 1, (b"a",)))
    written.writer.flush()
    await settle()
    flushed = list(written.flushed)
    written.world.disk.fail(operation, ".log")
    if operation == "truncate":
        written.writer.truncate(Truncate(1))
    else:
        written.writer.append(Append(2, 1, (b"b",)))
        written.writer.flush()
    await settle()
    assert isinstance(written.failures[0], DiskError)
    assert written.flushed == flushed
    assert written.truncated == []


async def test_a_failure_to_read_what_waited_behind_a_roll_is_told_and_the_writer_settles(
    written: Written,
) -> None:
    """A-20: the owner reads what is committed as soon as it is in the log, which may be late in the queue."""
    offset = 0
    while not written.log.needs_roll(0):
        written.writer.append(Append(offset, 1, (b"x" * 100,)))
        offset += 1
    written.writer.append(Append(offset, 1, (b"behind the roll",)))

    def read() -> None:
        written.log.read(offset, 1, offset + 1)

    written.react = read
    written.world.disk.fail("read", ".log")
    task = written.world.tasks.start("settle", written.writer.settle())
    await settle()
    assert [type(error) for error in written.failures] == [DiskError]
    assert task.is_done


async def test_settled_writer_leaves_the_log_to_be_closed(written: Written) -> None:
    """A flush that was still wanted must not meet a closed log."""
    written.world.disk.hold_flushes()
    written.writer.append(Append(0, 1, (b"a",)))
    written.writer.flush()
    await settle()
    written.writer.append(Append(1, 1, (b"b",)))
    written.writer.flush()
    task = written.world.tasks.start("settle", written.writer.settle())
    await settle()
    assert not task.is_done
    written.world.disk.release_flushes()
    await settle()
    assert task.is_done
    assert written.flushed == [1, 2]
    await written.log.close(flush=True)
