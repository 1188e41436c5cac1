"""Snapshots on real logs and drivers: made, loaded, refused when damaged, fetched by who lags (K14, K15)."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.quorum import FetchSnapshotRequest, FetchSnapshotResponse
from holdfast.raft.core.quorum import BadQuorumState
from holdfast.raft.core.snapshot_format import SnapshotId, parse_name
from holdfast.raft.metadata_log import open_voters_log
from holdfast.rpc.channel import Channel
from holdfast.runtime.memory.disk import MemoryDisk
from holdfast.runtime.memory.machine import memory_runtime, settle
from tests.unit.raft.cluster import FOLDER, Cluster, Machine

LOG = f"{FOLDER}/log"


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    made = Cluster(voter_count=3, observer_count=1, snapshot_bytes=1_000)
    yield made
    await made.stop()


def others(cluster: Cluster, leader: Machine) -> list[Machine]:
    return [cluster[id] for id in cluster.voters if id != leader.id]


async def write(cluster: Cluster, leader: Machine, count: int, first: int = 0) -> list[bytes]:
    """Append one batch after the other; what was appended."""
    values = [b"%04d" % number * 25 for number in range(first, first + count)]
    for value in values:
        leader.driver.append([value], leader.driver.raft_epoch)
        await cluster.clock.advance(20)
    await cluster.clock.advance(600)
    return values


async def ids_of(machine: Machine) -> list[SnapshotId]:
    names = await machine.disk.listdir(LOG)
    return sorted(id for name in names if (id := parse_name(name)) is not None)


async def damage(machine: Machine, id: SnapshotId) -> None:
    """One byte changes in the middle of the file."""
    file = await machine.disk.open(f"{LOG}/{id.file_name}", create=False)
    content = bytearray(file.read_at(0, file.size))
    content[len(content) // 2] ^= 1
    await file.truncate(0)
    file.append([bytes(content)])
    await file.flush()
    await file.close()


async def test_every_member_keeps_two_snapshots_and_a_log_that_begins_at_one(cluster: Cluster) -> None:
    leader = await cluster.boot()
    values = await write(cluster, leader, 60)
    for machine in cluster.machines.values():
        ids = await ids_of(machine)
        assert len(ids) == 2
        assert machine.recorder.values == values
        assert machine.log.log_start_offset == ids[0].offset > 0
        assert machine.log.size_bytes < 6_000


async def test_a_start_loads_the_newest_snapshot_and_only_the_log_behind_it(cluster: Cluster) -> None:
    leader = await cluster.boot()
    values = await write(cluster, leader, 35)
    for machine in cluster.machines.values():
        await machine.kill()
    await cluster.boot()
    await cluster.clock.advance(3_000)
    for machine in cluster.machines.values():
        newest = (await ids_of(machine))[-1]
        assert machine.recorder.loaded_offset == newest.offset
        assert all(entry.offset >= newest.offset for entry in machine.recorder.entries)
        assert machine.recorder.values == values
        assert machine.driver.has_caught_up


async def test_a_damaged_snapshot_is_refused_and_the_one_before_is_used(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    leader = await cluster.boot()
    values = await write(cluster, leader, 40)
    for machine in cluster.machines.values():
        await machine.kill()
        await damage(machine, (await ids_of(machine))[-1])
    leader = await cluster.boot()
    await cluster.clock.advance(3_000)
    assert "is refused, the one before is used" in caplog.text
    for machine in cluster.machines.values():
        assert machine.recorder.loaded_offset == (await ids_of(machine))[0].offset
        assert machine.recorder.values == values
    values += await write(cluster, leader, 30, first=40)
    assert leader.recorder.values == values


async def test_a_voter_without_a_whole_snapshot_says_what_to_do_and_an_observer_fetches_one(
    cluster: Cluster,
) -> None:
    leader = await cluster.boot()
    values = await write(cluster, leader, 40)
    voter = others(cluster, leader)[0]
    for machine in (voter, cluster[101]):
        await machine.kill()
        for id in await ids_of(machine):
            await damage(machine, id)
    with pytest.raises(BadQuorumState, match="put the missing files back"):
        await voter.boot()
    await voter.kill()
    await cluster[101].boot()
    await cluster.clock.advance(3_000)
    assert cluster[101].recorder.loaded_offset > 0
    assert cluster[101].recorder.values == values


async def test_a_start_keeps_a_snapshot_of_a_later_build_and_says_so(cluster: Cluster) -> None:
    """K29: a voter goes on with its vote and its log, and an observer does not fetch all of it again."""
    leader = await cluster.boot()
    values = await write(cluster, leader, 40)
    voter, observer = others(cluster, leader)[0], cluster[101]
    for machine in (voter, observer):
        await machine.kill()
        kept, log_start = await ids_of(machine), machine.log.log_start_offset
        machine.is_of_earlier_build = True
        await machine.boot()
        told = str(machine.recorder.later_snapshot)
        assert told == f"metadata snapshot at offset {kept[-1].offset}: a later build wrote it"
        assert machine.recorder.loaded == []
        assert (await ids_of(machine), machine.log.log_start_offset) == (kept, log_start)
    values += await write(cluster, leader, 3, first=40)
    for machine in (voter, observer):
        assert machine.log.log_end_offset == leader.log.log_end_offset
        await machine.kill()
        machine.is_of_earlier_build = False
        await machine.boot()
    await cluster.clock.advance(3_000)
    assert voter.recorder.values == observer.recorder.values == values


async def test_who_lags_takes_a_snapshot_of_a_later_build_once_and_says_so(cluster: Cluster) -> None:
    leader = await cluster.boot()
    values = await write(cluster, leader, 5)
    voter, observer = others(cluster, leader)[0], cluster[101]
    for machine in (voter, observer):
        await machine.kill()
        machine.is_of_earlier_build = True
    values += await write(cluster, leader, 60, first=5)
    for machine in (voter, observer):
        await machine.boot()
    await cluster.clock.advance(3_000)
    for machine in (voter, observer):
        (id,) = await ids_of(machine)
        assert f"offset {id.offset}: a later build" in str(machine.recorder.later_snapshot)
        assert machine.log.log_start_offset == id.offset
        assert machine.log.log_end_offset == leader.log.log_end_offset
        await machine.kill()
        machine.is_of_earlier_build = False
        await machine.boot()
    await cluster.clock.advance(3_000)
    assert voter.recorder.values == observer.recorder.values == values


async def test_a_damaged_snapshot_of_a_later_build_is_refused_as_any(cluster: Cluster) -> None:
    leader = await cluster.boot()
    await write(cluster, leader, 40)
    voter = others(cluster, leader)[0]
    await voter.kill()
    older, newest = await ids_of(voter)
    await damage(voter, newest)
    voter.is_of_earlier_build = True
    await voter.boot()
    assert f"offset {older.offset}:" in str(voter.recorder.later_snapshot)


async def test_what_a_stop_left_half_written_is_no_snapshot(cluster: Cluster) -> None:
    leader = await cluster.boot()
    values = await write(cluster, leader, 25)
    observer = cluster[101]
    await observer.kill()
    for suffix in (".tmp", ".part", ".install"):
        name = SnapshotId(10_000, 1).file_name + suffix
        file = await observer.disk.open(f"{LOG}/{name}", create=True)
        file.append([b"half"])
        await file.close()
    await observer.boot()
    await cluster.clock.advance(3_000)
    assert observer.recorder.values == values
    assert not [name for name in await observer.disk.listdir(LOG) if "10000" in name]


@pytest.mark.parametrize("is_wiped", [True, False], ids=["wiped", "lagging"])
async def test_an_observer_behind_the_leaders_log_takes_its_snapshot(
    cluster: Cluster, is_wiped: bool
) -> None:
    leader = await cluster.boot()
    values = await write(cluster, leader, 5)
    observer = cluster[101]
    await observer.kill()
    if is_wiped:
        observer.disk = MemoryDisk()
    values += await write(cluster, leader, 60, first=5)
    await observer.boot()
    await cluster.clock.advance(3_000)
    assert observer.recorder.values == values
    assert observer.recorder.loaded_offset > 0
    assert observer.log.log_start_offset > 0
    values += await write(cluster, leader, 30, first=65)
    assert observer.recorder.values == values


async def test_a_voter_that_lags_takes_the_snapshot_and_can_lead_with_it(cluster: Cluster) -> None:
    leader = await cluster.boot()
    values = await write(cluster, leader, 5)
    voter, other = others(cluster, leader)
    await voter.kill()
    values += await write(cluster, leader, 60, first=5)
    await voter.boot()
    await cluster.clock.advance(3_000)
    assert voter.recorder.loaded_offset > 0
    assert voter.recorder.values == values
    await other.kill()
    values += await write(cluster, leader, 3, first=65)
    await other.boot()
    await leader.kill()
    assert (await cluster.leader(within_ms=5_000)).recorder.values == values


async def test_a_voter_with_a_new_disk_catches_up_by_snapshot_once_it_is_taken_in(cluster: Cluster) -> None:
    leader = await cluster.boot()
    values = await write(cluster, leader, 60)
    voter, other = others(cluster, leader)
    await voter.kill()
    voter.disk = MemoryDisk()
    await voter.boot()
    await cluster.clock.advance(2_500)
    assert voter.recorder.values == []
    answer = await cluster.readmit(leader, voter.id)
    assert answer.error_code == ErrorCode.NONE
    await cluster.clock.advance(3_000)
    assert voter.recorder.values == values
    assert voter.recorder.loaded_offset > 0
    await other.kill()
    values += await write(cluster, leader, 40, first=60)
    assert voter.recorder.values == values
    for machine in (voter, leader):
        await machine.kill()
    for machine in (voter, leader, other):
        await machine.boot()
    assert (await cluster.leader(within_ms=5_000)).recorder.values == values


@pytest.mark.parametrize("is_log_gone", [True, False], ids=["log gone", "log left"])
async def test_an_interrupted_installation_is_finished_by_the_next_start(
    cluster: Cluster, is_log_gone: bool
) -> None:
    leader = await cluster.boot()
    values = await write(cluster, leader, 5)
    voter = others(cluster, leader)[0]
    await voter.stop()
    values += await write(cluster, leader, 60, first=5)
    id = (await ids_of(leader))[-1]
    source = await leader.disk.open(f"{LOG}/{id.file_name}", create=False)
    target = await voter.disk.open(f"{LOG}/{id.file_name}.install", create=True)
    target.append([source.read_at(0, source.size)])
    await target.flush()
    await target.close()
    if is_log_gone:
        for name in await voter.disk.listdir(LOG):
            if name.endswith(".log"):
                await voter.disk.unlink(f"{LOG}/{name}")
    runtime, _ = memory_runtime(disk=voter.disk)
    log = await open_voters_log(runtime, LOG)
    await log.close(flush=True)
    await voter.boot()
    assert voter.recorder.loaded_offset == voter.log.log_start_offset == id.offset
    await cluster.clock.advance(3_000)
    assert voter.recorder.values == values
    assert id in await ids_of(voter)


async def test_a_log_of_an_earlier_build_opens_and_gets_its_first_snapshot() -> None:
    cluster = Cluster()
    leader = await cluster.boot()
    values = await write(cluster, leader, 30)
    for machine in cluster.machines.values():
        await machine.kill()
        assert await ids_of(machine) == []
    cluster.snapshot_bytes = 1_000
    leader = await cluster.boot()
    await cluster.clock.advance(3_000)
    assert leader.recorder.loaded == []
    assert leader.recorder.values == values
    assert len(await ids_of(leader)) == 1
    assert leader.log.log_start_offset == 0
    await cluster.stop()


async def test_a_power_loss_at_any_time_costs_no_committed_record(cluster: Cluster) -> None:
    leader = await cluster.boot()
    values: list[bytes] = []
    for round in range(6):
        values += await write(cluster, leader, 7 + round, first=len(values))
        for machine in cluster.machines.values():
            await machine.lose_power()
        leader = await cluster.boot()
        await cluster.clock.advance(2_000)
        assert leader.recorder.values == values
    assert len(await ids_of(leader)) == 2


async def ask(cluster: Cluster, leader: Machine, id: SnapshotId, position: int) -> FetchSnapshotResponse:
    runtime, _ = memory_runtime(clock=cluster.clock, network=cluster.network)
    channel = Channel(runtime, *cluster.voters[leader.id], "test")
    await channel.connect(1_000)
    request = FetchSnapshotRequest(
        "test", -1, leader.driver.raft_epoch, id.epoch, id.offset, position, 100, None
    )
    call = channel.call_soon(request, 1_000)
    while not call.done():
        await settle()
        await cluster.clock.advance(10)
    channel.close()
    answer: FetchSnapshotResponse = call.result()
    return answer


async def test_pieces_are_served_and_others_refused_with_their_error(cluster: Cluster) -> None:
    leader = await cluster.boot()
    await write(cluster, leader, 20)
    id = (await ids_of(leader))[-1]
    first = await ask(cluster, leader, id, 0)
    assert (first.error_code, first.position, len(first.data)) == (ErrorCode.NONE, 0, 100)
    assert len((await ask(cluster, leader, id, first.size - 30)).data) == 30
    past = await ask(cluster, leader, id, first.size + 1)
    assert past.error_code == ErrorCode.POSITION_OUT_OF_RANGE
    unknown = await ask(cluster, leader, SnapshotId(id.offset + 1, id.epoch), 0)
    assert unknown.error_code == ErrorCode.SNAPSHOT_NOT_FOUND
    follower = others(cluster, leader)[0]
    elsewhere = await ask(cluster, follower, id, 0)
    assert (elsewhere.error_code, elsewhere.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, leader.id)


async def test_the_newest_snapshot_is_seen_in_metrics(cluster: Cluster) -> None:
    leader = await cluster.boot()
    name = "kafka_server_snapshot_emitter_latest_snapshot_generated"
    before = [family.samples[0].value for family in leader.driver.stats() if family.name.startswith(name)]
    assert before == [0, 0, 0]
    await write(cluster, leader, 20)
    shown: dict[str, Any] = {family.name: family.samples[0].value for family in leader.driver.stats()}
    assert shown[f"{name}_offset"] == (await ids_of(leader))[-1].offset
    assert shown[f"{name}_bytes"] > 1_000
    assert shown[f"{name}_age_seconds"] >= 0.6
