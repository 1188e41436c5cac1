"""The driver on real logs, servers and channels, over the in-memory runtime."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.quorum import DescribeQuorumRequest, VoteRequest, VoteResponse
from holdfast.raft.core.config import RaftConfig
from holdfast.raft.core.effects import Effect, Event, Reply, Truncated
from holdfast.raft.core.quorum import BadQuorumState, QuorumState
from holdfast.raft.driver import NotLeader
from holdfast.rpc.channel import Channel
from holdfast.runtime.api import DiskError
from holdfast.runtime.memory.disk import MemoryDisk
from holdfast.runtime.memory.machine import memory_runtime, settle
from holdfast.runtime.pump import Tap
from holdfast.storage.checkpoint import read_text, write_atomically
from holdfast.storage.core.config import LogConfig
from tests.unit.raft.cluster import FOLDER, Cluster, Machine


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    cluster = Cluster(voter_count=3, observer_count=1)
    yield cluster
    await cluster.stop()


def append(machine: Machine, *values: bytes) -> int:
    return machine.driver.append(values, machine.driver.raft_epoch)


def others(cluster: Cluster, leader: Machine) -> list[Machine]:
    return [cluster[id] for id in cluster.voters if id != leader.id]


async def test_committed_records_reach_every_member_in_order_and_once(cluster: Cluster) -> None:
    leader = await cluster.boot()
    first = append(leader, b"a", b"b")
    second = append(leader, b"c")
    await cluster.clock.advance(100)
    assert second == first + 2
    for machine in cluster.machines.values():
        assert machine.recorder.values == [b"a", b"b", b"c"]
        assert [entry.offset for entry in machine.recorder.entries] == [first, first + 1, second]
        assert {entry.raft_epoch for entry in machine.recorder.entries} == {leader.driver.raft_epoch}
        assert machine.recorder.offsets == sorted(set(machine.recorder.offsets))


async def test_a_commit_needs_no_timer(cluster: Cluster) -> None:
    leader = await cluster.boot()
    await cluster.clock.advance(1_000)
    append(leader, b"a")
    assert leader.recorder.values == []
    await settle()
    for machine in cluster.machines.values():
        assert machine.recorder.values == [b"a"], f"{machine.id} waits for the clock"


async def test_nothing_commits_before_a_majority_has_flushed_it(cluster: Cluster) -> None:
    """K11, K13: the leader's own page cache and those of the followers do not count."""
    leader = await cluster.boot()
    for machine in cluster.machines.values():
        machine.disk.hold_flushes()
    append(leader, b"a")
    await settle()
    assert leader.recorder.values == []
    leader.disk.release_flushes()
    await settle()
    assert leader.recorder.values == []
    others(cluster, leader)[0].disk.release_flushes()
    await settle()
    assert leader.recorder.values == [b"a"]


async def test_appends_of_one_turn_share_one_flush_and_one_answer(cluster: Cluster) -> None:
    """D6: five records cost every voter one fsync."""
    leader = await cluster.boot()
    await cluster.clock.advance(1_000)
    before = {id: cluster[id].disk.flush_count for id in cluster.voters}
    for number in range(5):
        append(leader, b"%d" % number)
    await settle()
    assert len(leader.recorder.values) == 5
    assert {id: cluster[id].disk.flush_count - before[id] for id in cluster.voters} == {1: 1, 2: 1, 3: 1}


async def test_killed_leader_is_replaced_at_once_and_nothing_is_lost(cluster: Cluster) -> None:
    """D9: reset and then refused is evidence; no voter waits for the fetch timeout of 2 s."""
    leader = await cluster.boot()
    append(leader, b"a")
    await cluster.clock.advance(50)
    await leader.kill()
    successor = await cluster.leader(within_ms=200)
    append(successor, b"b")
    await leader.boot()
    await cluster.clock.advance(300)
    for machine in cluster.machines.values():
        assert machine.recorder.values == [b"a", b"b"]


async def test_cut_off_leader_resigns_and_its_tail_is_cut(cluster: Cluster) -> None:
    """K7, K14: it cannot commit alone, resigns, and later takes the log of the new leader."""
    leader = await cluster.boot()
    cluster.network.cut_off(cluster.voters[leader.id][1])
    lost = append(leader, b"never acknowledged")
    for machine in others(cluster, leader):
        assert machine.recorder.values == []
    await cluster.clock.advance(3_100)
    assert not leader.driver.is_leader
    successor = await cluster.leader(within_ms=4_000)
    assert successor is not leader
    kept = append(successor, b"acknowledged")
    await cluster.clock.advance(100)
    cluster.network.mend(cluster.voters[leader.id][1])
    await cluster.clock.advance(3_000)
    assert kept >= lost
    for machine in cluster.machines.values():
        assert machine.recorder.values == [b"acknowledged"]


async def test_power_loss_of_all_keeps_what_was_committed(cluster: Cluster) -> None:
    leader = await cluster.boot()
    for number in range(20):
        append(leader, b"%d" % number)
        await cluster.clock.advance(3)
    append(leader, b"perhaps")
    for machine in cluster.machines.values():
        await machine.lose_power()
    await cluster.boot()
    await cluster.clock.advance(200)
    for machine in cluster.machines.values():
        assert machine.recorder.values[:20] == [b"%d" % number for number in range(20)]
        assert machine.recorder.values == cluster[1].recorder.values


async def test_stopping_leader_hands_over(cluster: Cluster) -> None:
    """K6: the first successor runs at once."""
    leader = await cluster.boot()
    await leader.stop()
    successor = await cluster.leader(within_ms=20)
    assert successor is not leader
    assert leader.recorder.leaders[-1][0] is None


async def test_a_vote_is_durable_before_the_answer_leaves(cluster: Cluster) -> None:
    """Q-9, K1."""
    await cluster.boot()
    voter = cluster[2]
    voter.disk.hold_flushes()
    runtime, _ = memory_runtime(clock=cluster.clock, network=cluster.network)
    channel = Channel(runtime, *cluster.voters[2], "candidate")
    await channel.connect(1_000)
    epoch = voter.driver.raft_epoch + 5
    answer = channel.call_soon(VoteRequest("test", epoch, 1, 2, epoch - 1, 1_000, False), 1_000)
    await settle()
    assert not answer.done()
    voter.disk.release_flushes()
    await settle()
    assert answer.result().vote_granted
    text = await read_text(voter.disk, f"{FOLDER}/quorum-state")
    assert text is not None
    stored = QuorumState.from_json(text, "test")
    assert (stored.raft_epoch, stored.voted_for) == (epoch, 1)
    channel.close()


class Ear(Tap[Event, Effect]):
    """Notes the votes that a driver tells of, and whether they are on its disk by then."""

    def __init__(self, voter: Machine) -> None:
        self.votes: list[tuple[object, bool]] = []
        self._disk = voter.disk

    def sending(self, effect: Effect, message: object) -> None:
        if isinstance(effect, Reply) and isinstance(effect.response, VoteResponse):
            durable = self._disk.durable_bytes(f"{FOLDER}/quorum-state") or b""
            self.votes.append((effect.response, b'"votedId": 1' in durable))


async def test_a_tap_hears_of_a_vote_when_it_is_told_not_when_it_is_decided(cluster: Cluster) -> None:
    await cluster.boot()
    voter = cluster[2]
    assert voter.driver.pump is not None
    ear = Ear(voter)
    voter.driver.pump.add_tap(ear)
    voter.disk.hold_flushes()
    runtime, _ = memory_runtime(clock=cluster.clock, network=cluster.network)
    channel = Channel(runtime, *cluster.voters[2], "candidate")
    await channel.connect(1_000)
    epoch = voter.driver.raft_epoch + 5
    answer = channel.call_soon(VoteRequest("test", epoch, 1, 2, epoch - 1, 1_000, False), 1_000)
    await settle()
    assert ear.votes == []
    voter.disk.release_flushes()
    await settle()
    assert ear.votes == [(answer.result(), True)]
    channel.close()


async def test_a_failed_flush_ends_the_node_and_its_leadership(
    cluster: Cluster, failures_logged: list[str]
) -> None:
    """A-20: never retried as if it had worked; the others go on."""
    leader = await cluster.boot()
    leader.disk.fail("flush", ".log")
    append(leader, b"a")
    assert isinstance(await leader.tasks.failure(), DiskError)
    assert not leader.driver.is_leader
    with pytest.raises(NotLeader):
        append(leader, b"b")
    await leader.kill()
    await cluster.leader(within_ms=200)


async def test_a_failed_append_is_told_to_the_caller(cluster: Cluster, failures_logged: list[str]) -> None:
    leader = await cluster.boot()
    leader.disk.fail("append", ".log")
    with pytest.raises(DiskError):
        append(leader, b"a")
    assert isinstance(await leader.tasks.failure(), DiskError)


async def test_after_its_node_raised_a_member_ends_and_says_nothing(
    cluster: Cluster, failures_logged: list[str]
) -> None:
    """A-20: it neither votes, nor fetches, nor answers; the others go on."""
    leader = await cluster.boot()
    assert leader.driver.pump is not None
    leader.driver.pump.post(Truncated(5))
    assert isinstance(await leader.tasks.failure(), AssertionError)
    with pytest.raises(NotLeader):
        append(leader, b"a")
    other = await cluster.leader(within_ms=5_000)
    append(other, b"b")
    await cluster.clock.advance(1_000)
    assert other.recorder.values == [b"b"]
    assert leader.recorder.values == []
    assert len(failures_logged) == 1


async def test_what_the_owner_appends_while_it_is_told_is_in_the_log_before_it_goes_on(
    cluster: Cluster,
) -> None:
    """It numbers its next records by that, and is told of things between two events only."""
    offsets: list[int] = []
    for machine in cluster.machines.values():

        def react(leader_id: int | None, epoch: int, start: int | None, machine: Machine = machine) -> None:
            if start is not None:
                offsets.extend(machine.driver.append([value], epoch) for value in (b"a", b"b"))
                assert machine.driver.log_end_offset == offsets[-1] + 1

        await machine.boot()
        machine.recorder.react = react
    leader = await cluster.leader(within_ms=1_000)
    await cluster.clock.advance(100)
    assert leader.recorder.values == [b"a", b"b"]
    assert offsets[1] == offsets[0] + 1


async def test_only_the_leader_of_the_epoch_appends(cluster: Cluster) -> None:
    leader = await cluster.boot()
    with pytest.raises(NotLeader) as refused:
        append(others(cluster, leader)[0], b"a")
    assert refused.value.leader_id == leader.id
    with pytest.raises(NotLeader):
        leader.driver.append([b"a"], leader.driver.raft_epoch - 1)


async def test_the_owner_may_append_as_soon_as_it_hears_that_it_leads(cluster: Cluster) -> None:
    """The epoch's LeaderChange lies before it in the log (K12)."""
    for machine in cluster.machines.values():
        await machine.boot()

        def react(
            leader_id: int | None, raft_epoch: int, start: int | None, machine: Machine = machine
        ) -> None:
            if start is not None:
                assert machine.driver.append([b"claimed"], raft_epoch) == start + 1

        machine.recorder.react = react
    await cluster.leader(within_ms=1_000)
    await cluster.clock.advance(50)
    for machine in cluster.machines.values():
        assert machine.recorder.values == [b"claimed"]


async def test_a_long_log_is_handed_over_in_chunks(cluster: Cluster) -> None:
    leader = await cluster.boot()
    values = [bytes([number]) * 400_000 for number in range(6)]
    for value in values:
        append(leader, value)
    await cluster.clock.advance(50)
    follower = others(cluster, leader)[0]
    await follower.kill()
    await follower.boot()
    await cluster.clock.advance(100)
    assert follower.recorder.values == values
    assert len(follower.recorder.offsets) > 2


async def test_segments_roll_between_appends() -> None:
    cluster = Cluster(log_config=LogConfig(retention_ms=None, segment_bytes=1_000))
    leader = await cluster.boot()
    values = [b"%d" % number * 100 for number in range(60)]
    for value in values:
        append(leader, value)
        if value[0] % 3 == 0:
            await cluster.clock.advance(1)
    await cluster.clock.advance(100)
    for machine in cluster.machines.values():
        assert machine.recorder.values == values
        assert len(machine.log.segments) > 3
    await cluster.stop()


async def test_one_voter_is_a_quorum() -> None:
    cluster = Cluster(voter_count=1, observer_count=1)
    leader = await cluster.boot()
    append(leader, b"a")
    await settle()
    epoch = leader.driver.raft_epoch
    await leader.lose_power()
    await leader.boot()
    leader = await cluster.leader(within_ms=50)
    assert leader.driver.raft_epoch > epoch
    append(leader, b"b")
    await cluster.clock.advance(300)
    for machine in cluster.machines.values():
        assert machine.recorder.values == [b"a", b"b"]
    await cluster.stop()


async def test_quorum_is_described_by_its_leader(cluster: Cluster) -> None:
    """K16."""
    leader = await cluster.boot()
    await cluster.clock.advance(600)
    runtime, _ = memory_runtime(clock=cluster.clock, network=cluster.network)
    channel = Channel(runtime, *cluster.voters[leader.id], "tool")
    await channel.connect(1_000)
    call = channel.call_soon(DescribeQuorumRequest(), 1_000)
    await settle()
    described = call.result()
    assert (described.leader_id, described.high_watermark) == (leader.id, leader.driver.committed_offset)
    assert [row.replica_id for row in described.voters] == [1, 2, 3]
    assert [row.replica_id for row in described.observers] == [101]
    now_ms = cluster.clock.wall_ms()
    assert all(now_ms - row.last_caught_up_timestamp_ms <= 600 for row in described.voters)
    channel.close()


@pytest.mark.parametrize("text", ["", "{", '{"clusterId": "test"}', QuorumState(3).to_json("another")])
async def test_an_unreadable_vote_is_not_taken_for_none(text: str) -> None:
    """K5: this voter may have promised its vote; it must not start as if it had not."""
    cluster = Cluster()
    machine = cluster[1]
    await machine.disk.make_folder(FOLDER)
    await write_atomically(machine.disk, f"{FOLDER}/quorum-state", text)
    with pytest.raises(BadQuorumState):
        await machine.boot()


async def test_a_voter_that_lost_its_vote_stays_out_until_it_is_taken_in_anew(cluster: Cluster) -> None:
    """Q-9, K5: the log alone does not say whom it voted for. An observer needs no such file."""
    leader = await cluster.boot()
    append(leader, b"a")
    await cluster.clock.advance(100)
    voter = others(cluster, leader)[0]
    for machine in (voter, cluster[101]):
        await machine.stop()
        await machine.disk.unlink(f"{FOLDER}/quorum-state")
    with pytest.raises(BadQuorumState, match="remove that folder"):
        await voter.boot()
    await voter.kill()
    await cluster[101].boot()
    voter.disk = MemoryDisk()
    await voter.boot()
    append(leader, b"b")
    await cluster.clock.advance(2_500)
    assert cluster[101].recorder.values == [b"a", b"b"]
    assert voter.recorder.values == []
    assert (await cluster.readmit(leader, voter.id)).error_code == ErrorCode.NONE
    await cluster.clock.advance(1_500)
    assert voter.recorder.values == [b"a", b"b"]


async def test_a_node_of_another_cluster_does_not_flood_its_own_log(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Every voter refuses it, in turn."""

    class Stranger(Machine):
        @property
        def config(self) -> RaftConfig:
            return replace(super().config, cluster_id="tset")

    await cluster.boot()
    stranger = Stranger(cluster, 102, is_voter=False, log_config=LogConfig(retention_ms=None))
    await stranger.boot()
    await cluster.clock.advance(5_000)
    told = [record.getMessage() for record in caplog.records if "refused" in record.getMessage()]
    assert len(told) == len(set(told)) == 3
    await stranger.kill()


async def test_two_nodes_with_one_id_are_told_and_do_not_drive_each_other_round(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Each fetch of the one takes the place of the other's. Both still get everything."""
    leader = await cluster.boot()
    twin = Machine(cluster, 101, is_voter=False, log_config=LogConfig(retention_ms=None))
    await twin.boot()
    await cluster.clock.advance(3_000)
    append(leader, b"a")
    await cluster.clock.advance(2_000)
    assert twin.recorder.values == cluster[101].recorder.values == [b"a"]
    assert "another node fetches with the id 101, too: give each node its own node.id" in caplog.text
    assert leader.driver._tokens_given < 300
    await twin.kill()


async def lose_first_segment(machine: Machine) -> None:
    await machine.stop()
    await machine.disk.unlink(f"{FOLDER}/log/{0:020}.log")


async def test_an_observer_that_lost_the_first_segment_fetches_everything_again() -> None:
    """K15: the metadata log is kept whole; the others have it."""
    cluster = Cluster(observer_count=1, log_config=LogConfig(retention_ms=None, segment_bytes=300))
    leader = await cluster.boot()
    values = [b"%02d" % number * 50 for number in range(20)]
    for value in values:
        append(leader, value)
        await cluster.clock.advance(50)
    observer = cluster[101]
    await lose_first_segment(observer)
    await observer.boot()
    await cluster.clock.advance(3_000)
    assert observer.recorder.values == values
    assert observer.log.log_start_offset == 0
    await cluster.stop()


async def test_a_voter_that_lost_the_first_segment_says_what_to_do() -> None:
    """K15: it may hold the only copy of something that was committed."""
    cluster = Cluster(log_config=LogConfig(retention_ms=None, segment_bytes=300))
    leader = await cluster.boot()
    for _ in range(20):
        append(leader, bytes(100))
        await cluster.clock.advance(50)
    voter = others(cluster, leader)[0]
    await lose_first_segment(voter)
    with pytest.raises(BadQuorumState, match="put the missing files back"):
        await voter.boot()
    await voter.kill()
    await cluster.stop()
