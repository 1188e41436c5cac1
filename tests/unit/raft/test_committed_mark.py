"""K9: a voter whose log lacks what was committed and durable does not take part."""

from collections.abc import AsyncIterator

import pytest

from holdfast.raft.committed_mark import STORE_MS, read_committed
from holdfast.raft.core.quorum import BadQuorumState
from holdfast.raft.metadata_log import open_voters_log
from holdfast.runtime.memory.disk import MemoryDisk
from holdfast.runtime.memory.machine import memory_runtime
from tests.unit.raft.cluster import FOLDER, Cluster, Machine

LOG = f"{FOLDER}/log"
SEGMENT = f"{LOG}/{0:020d}.log"


@pytest.fixture
async def stopped() -> AsyncIterator[Machine]:
    """A follower that had five records, was killed, and had stored that they were committed."""
    cluster = Cluster()
    leader = await cluster.boot()
    for number in range(5):
        leader.driver.append([b"value %d" % number], leader.driver.raft_epoch)
        await cluster.clock.advance(200)
    await cluster.clock.advance(2 * STORE_MS)
    follower = next(machine for machine in cluster.machines.values() if machine is not leader)
    assert follower.driver.committed_offset == follower.log.log_end_offset >= 6
    await follower.kill()
    yield follower
    await cluster.stop()


async def content_of(disk: MemoryDisk) -> bytes:
    file = await disk.open(SEGMENT, create=False)
    content = bytes(file.read_at(0, file.size))
    await file.close()
    return content


async def replace(disk: MemoryDisk, content: bytes) -> None:
    file = await disk.open(SEGMENT, create=False)
    await file.truncate(0)
    file.append([content])
    await file.flush()
    await file.close()


def flipped(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


@pytest.mark.parametrize("damage", ["first batch", "last batch", "length", "tail", "all", "no file"])
async def test_a_log_that_lost_committed_records_is_refused_and_left_as_it_is(
    stopped: Machine, damage: str
) -> None:
    content = await content_of(stopped.disk)
    damaged = {
        "first batch": flipped(content, 80),
        "last batch": flipped(content, len(content) - 1),
        "length": flipped(content, 11),
        "tail": content[:-1],
        "all": b"",
    }.get(damage)
    if damaged is None:
        await stopped.disk.unlink(SEGMENT)
    else:
        await replace(stopped.disk, damaged)
    runtime, _ = memory_runtime(disk=stopped.disk)
    for _ in range(2):
        with pytest.raises(BadQuorumState, match=r"is damaged.*metadata-quorum readmit"):
            await open_voters_log(runtime, LOG)
    if damaged is not None:
        assert await content_of(stopped.disk) == damaged


async def test_a_torn_end_is_no_damage(stopped: Machine) -> None:
    content = await content_of(stopped.disk)
    await replace(stopped.disk, content + content[:30])
    runtime, _ = memory_runtime(disk=stopped.disk)
    log = await open_voters_log(runtime, LOG)
    assert log.log_end_offset == await read_committed(stopped.disk, LOG)
    assert await content_of(stopped.disk) == content
    await log.close(flush=True)


async def test_the_offset_is_stored_soon_after_a_commit_and_at_a_stop() -> None:
    cluster = Cluster(voter_count=1)
    leader = await cluster.boot()
    await cluster.clock.advance(STORE_MS)
    end_offset = leader.log.log_end_offset
    assert await read_committed(leader.disk, LOG) == end_offset
    leader.driver.append([b"a"], leader.driver.raft_epoch)
    await cluster.clock.advance(10)
    assert await read_committed(leader.disk, LOG) == end_offset
    await leader.stop()
    assert await read_committed(leader.disk, LOG) == end_offset + 1
