import errno
from collections.abc import Sequence

import pytest

from holdfast.protocol.record_batch import CorruptBatch, Record, encode_batch
from holdfast.raft.committed import CHUNK_BYTES, CommittedEntry, CommittedReader
from holdfast.runtime.memory.machine import memory_runtime, settle
from holdfast.scenario.raft import batches
from holdfast.storage.core.config import LogConfig
from holdfast.storage.log import Log

#: for what is delivered at once
CLOCK = memory_runtime()[0].clock


async def make_log(records: bytes) -> Log:
    runtime, _ = memory_runtime()
    log = await Log.open(runtime, "/m/log", LogConfig(retention_ms=None), clean=False)
    log.append_as_follower(records)
    return log


async def test_nothing_above_the_commit_is_handed_over() -> None:
    """Q-10: what is only in the log may still be cut."""
    calls: list[tuple[list[int], int]] = []

    def deliver(entries: Sequence[CommittedEntry], committed_offset: int) -> None:
        calls.append(([entry.offset for entry in entries], committed_offset))

    failures: list[Exception] = []
    reader = CommittedReader(await make_log(batches(0, "1:3,2:3")), deliver, failures.append, CLOCK)
    reader.read_on()
    reader.advance(2)
    reader.read_on()
    reader.advance(5)
    await settle()
    assert calls == [([0, 1], 2), ([2, 3, 4], 5)]
    assert failures == []


async def test_a_batch_is_handed_over_once_all_of_it_is_committed() -> None:
    """Commits end between batches, unless a peer says otherwise: it must not end this node by that."""
    calls: list[tuple[list[int], int]] = []

    def deliver(entries: Sequence[CommittedEntry], committed_offset: int) -> None:
        calls.append(([entry.offset for entry in entries], committed_offset))

    failures: list[Exception] = []
    records = encode_batch(
        [Record(offset, 0, None, b"v") for offset in range(3)], base_offset=0, leader_epoch=1
    )
    reader = CommittedReader(await make_log(records), deliver, failures.append, CLOCK)
    reader.advance(2)
    await settle()
    assert calls == []
    reader.advance(3)
    await settle()
    assert calls == [([0, 1, 2], 3)]
    assert failures == []


async def test_records_that_cannot_be_read_for_lack_of_handles_are_handed_over_later() -> None:
    runtime, world = memory_runtime()
    log = await Log.open(runtime, "/m/log", LogConfig(retention_ms=None), clean=False)
    log.append_as_follower(batches(0, "1:3"))
    offsets: list[int] = []
    failures: list[Exception] = []
    reader = CommittedReader(
        log,
        lambda entries, _: offsets.extend(entry.offset for entry in entries),
        failures.append,
        runtime.clock,
    )
    world.disk.fail("read", ".log", errno.EMFILE, times=2)
    reader.advance(3)
    assert offsets == []
    await world.clock.advance(100)
    assert offsets == [0, 1, 2]
    assert failures == []


async def test_a_metadata_record_without_a_value_is_told_with_its_offset() -> None:
    """A leader may have sent it, or a tool have written it: that is no bug of this node."""
    records = encode_batch([Record(0, 0, None, None)], base_offset=0, leader_epoch=1)
    reader = CommittedReader(await make_log(records), lambda entries, offset: None, lambda error: None, CLOCK)
    with pytest.raises(CorruptBatch, match="/m/log: metadata record 0 has no value"):
        reader.advance(1)


async def test_owner_that_breaks_in_a_later_turn_ends_the_node() -> None:
    """The node would not hear of it there otherwise."""
    failures: list[Exception] = []
    seen: list[int] = []

    def deliver(entries: Sequence[CommittedEntry], committed_offset: int) -> None:
        seen.append(committed_offset)
        assert len(seen) < 2, "the owner's bug"

    records = b"".join(
        encode_batch([Record(offset, 0, None, bytes(CHUNK_BYTES))], base_offset=offset, leader_epoch=1)
        for offset in range(3)
    )
    reader = CommittedReader(await make_log(records), deliver, failures.append, CLOCK)
    reader.advance(3)
    await settle()
    assert len(seen) == 2
    assert isinstance(failures[0], AssertionError)
