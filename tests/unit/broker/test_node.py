"""Brokers as whole processes: real raft, rpc, storage and controller over the in-memory runtime."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from holdfast.metadata.ids import PartitionId
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.topics import DeleteTopicsRequest
from holdfast.rpc.channel import CallRefused
from holdfast.runtime.api import DiskError, NetworkError
from holdfast.runtime.memory.machine import settle
from holdfast.runtime.tasks import HeldTasks
from tests.unit.broker.cluster import Cluster, batch, values


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    made = await Cluster().boot()
    yield made
    await made.end()


async def test_what_is_acknowledged_is_the_same_bytes_everywhere(cluster: Cluster) -> None:
    await cluster.topic(min_insync_replicas="2")
    leader = await cluster.leader()
    for number in range(5):
        row = await cluster.produce(leader.id, batch(f"a{number}", f"b{number}"))
        assert (row.error_code, row.base_offset) == (0, 2 * number)
    assert cluster[1].bytes() == cluster[2].bytes() == cluster[3].bytes()
    fetched = await cluster.fetch(leader.id, 4)
    assert values(fetched.records) == ["a2", "b2", "a3", "b3", "a4", "b4"]
    assert fetched.high_watermark == 10
    await cluster.clock.advance(200)
    assert [m.partition().high_watermark for m in cluster.machines.values()] == [10, 10, 10]


async def test_killed_leader_is_followed_by_one_that_has_everything(cluster: Cluster) -> None:
    await cluster.topic(min_insync_replicas="2")
    first = await cluster.leader()
    await cluster.produce(first.id, batch("one"))
    await first.kill()
    second = await cluster.leader(not_one_of=(first.id,))
    row = await cluster.produce(second.id, batch("two"))
    assert (row.error_code, row.base_offset, row.leader_epoch) == (0, 1, 1)
    await first.boot()
    await cluster.in_sync(1, 2, 3)
    assert first.values() == ["one", "two"]
    assert first.node.core.lifecycle.was_clean is False


async def test_clean_stop_is_proven_at_the_next_start(cluster: Cluster) -> None:
    """R32-R35, A-19."""
    await cluster.topic(min_insync_replicas="2")
    leader = await cluster.leader()
    await cluster.produce(leader.id, batch("one"))
    await leader.stop()
    assert await cluster.leader(not_one_of=(leader.id,)) is not leader
    await leader.boot()
    await cluster.in_sync(1, 2, 3)
    assert leader.node.core.lifecycle.was_clean is True
    assert leader.partition().registration is not None


async def test_old_leader_comes_back_as_follower_and_drops_what_only_it_had(cluster: Cluster) -> None:
    """R80-R82, I-10: its own tail of the old epoch parts from the new leader's at the same offset."""
    await cluster.topic(min_insync_replicas="2")
    old = await cluster.leader()
    await cluster.produce(old.id, batch("everywhere"))
    third, second = (machine for machine in cluster.machines.values() if machine is not old)
    await third.stop()
    await second.stop()
    assert (await cluster.produce(old.id, batch("only here", "too"), acks=1)).base_offset == 1
    await old.kill()
    await second.boot()
    new = await cluster.leader()
    assert new is second, "the ELR member leads (R13)"
    assert (await cluster.produce(new.id, batch("instead"), acks=1)).base_offset == 1
    await third.boot()
    await old.boot()
    await cluster.in_sync(1, 2, 3)
    assert old.values() == ["everywhere", "instead"]
    assert cluster[1].bytes() == cluster[2].bytes() == cluster[3].bytes()
    assert [counts for counts in old.node.core.fetchers.truncated.values() if any(counts)] == [[2, 0]]


async def test_two_brokers_down_refuse_acks_all_and_hide_acks_one(cluster: Cluster) -> None:
    """F1, F4, F5; with the ISR back everything is visible."""
    await cluster.topic(min_insync_replicas="2")
    leader = await cluster.leader()
    await cluster.produce(leader.id, batch("seen"))
    others = [machine for machine in cluster.machines.values() if machine is not leader]
    for machine in others:
        await machine.kill()
    await cluster.in_sync(leader.id)
    refused = await cluster.produce(leader.id, batch("refused"))
    assert refused.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    hidden = await cluster.produce(leader.id, batch("hidden"), acks=1)
    assert (hidden.error_code, hidden.base_offset) == (0, 1)
    assert await cluster.latest(leader.id) == ("NONE", 1)
    assert values((await cluster.fetch(leader.id)).records) == ["seen"]
    await others[0].boot()
    await cluster.eventually(lambda: leader.partition().high_watermark == 2)
    assert values((await cluster.fetch(leader.id)).records) == ["seen", "hidden"]


async def test_retry_at_the_new_leader_is_written_once(cluster: Cluster) -> None:
    """R90, R91, D12: followers rebuild producer state from the replicated batches."""
    await cluster.topic(min_insync_replicas="2")
    first = await cluster.leader()
    data = batch("once", "twice", producer=(9, 0, 0))
    assert (await cluster.produce(first.id, data)).base_offset == 0
    await first.kill()
    second = await cluster.leader(not_one_of=(first.id,))
    retried = await cluster.produce(second.id, data)
    assert (retried.error_code, retried.base_offset) == (0, 0)
    assert second.values() == ["once", "twice"]
    following = await cluster.produce(second.id, batch("thrice", producer=(9, 0, 2)))
    assert following.base_offset == 2


async def test_power_loss_everywhere_loses_nothing_when_every_write_is_flushed(cluster: Cluster) -> None:
    """G-3, D6: acknowledged means durable on the whole ISR."""
    await cluster.topic(min_insync_replicas="2", flush_messages="1")
    leader = await cluster.leader()
    sent = [f"r{number}" for number in range(4)]
    for value in sent:
        assert (await cluster.produce(leader.id, batch(value))).error_code == 0
    for machine in cluster.machines.values():
        await machine.lose_power()
    for machine in cluster.machines.values():
        await machine.boot()
    again = await cluster.leader()
    await cluster.eventually(lambda: again.partition().visible_high_watermark == 4)
    assert values((await cluster.fetch(again.id)).records) == sent


async def test_all_killed_at_once_come_back_with_everything(cluster: Cluster) -> None:
    """G-2: process kills are unlimited, the page cache lives."""
    await cluster.topic(min_insync_replicas="2")
    leader = await cluster.leader()
    await cluster.produce(leader.id, batch("one", "two"))
    for machine in cluster.machines.values():
        await machine.kill()
    for machine in cluster.machines.values():
        await machine.boot()
    again = await cluster.leader()
    await cluster.eventually(lambda: again.partition().visible_high_watermark == 2)
    assert values((await cluster.fetch(again.id)).records) == ["one", "two"]


async def test_broken_disk_ends_the_broker_and_nothing_is_acknowledged_after_it(
    cluster: Cluster, failures_logged: list[str]
) -> None:
    """A-20: neither the failed append nor what follows it is acknowledged; no marker is written."""
    await cluster.topic(min_insync_replicas="2")
    leader = await cluster.leader()
    await cluster.produce(leader.id, batch("one"))
    leader.disk.fail("append", ".log", times=1)
    answers = [await cluster.send(leader.id, batch("lost")) for _ in range(3)]
    failed = leader.tasks.start("wait for the failure", _failure(leader.tasks))
    await cluster.eventually(lambda: failed.is_done)
    await cluster.clock.advance(1000)
    await leader.kill()
    second = await cluster.leader(not_one_of=(leader.id,))
    assert second.values() == ["one"]
    await leader.boot()
    assert leader.node.core.lifecycle.identity.previous_broker_epoch == -1
    for answer in answers:
        assert isinstance(answer.exception(), NetworkError | CallRefused)


@pytest.mark.usefixtures("failures_logged")
async def test_nothing_is_acknowledged_after_a_flush_in_the_background_has_failed(cluster: Cluster) -> None:
    """A-20: the followers get the record and ask for the next, but this incarnation is over."""
    await cluster.topic(min_insync_replicas="2")
    leader = await cluster.leader()
    await cluster.produce(leader.id, batch("one"))
    log = leader.node.log_manager.logs[PartitionId(cluster.topic_id, 0)]
    leader.disk.fail("flush", ".log", times=1)
    answer = await cluster.send(leader.id, batch("two"))
    while log.log_end_offset == 1:
        await asyncio.sleep(0)
    cluster.network.cut_off(leader.port)
    with pytest.raises(DiskError):
        await log.flush()
    cluster.network.mend(leader.port)
    await cluster.clock.advance(10_000)
    await settle()
    assert isinstance(answer.exception(), NetworkError | CallRefused)


async def test_deleted_topic_leaves_no_folder(cluster: Cluster) -> None:
    await cluster.topic(partitions=2)
    assert await cluster[1].disk.exists("/data/t-1")
    await cluster.call(2, DeleteTopicsRequest(5000, ("t",)))
    await cluster.eventually(lambda: all(not m.node.core.partitions for m in cluster.machines.values()))
    await cluster.clock.advance(100)
    for machine in cluster.machines.values():
        assert [name for name in await machine.disk.listdir("/data") if name.startswith("t-")] == []


async def test_topic_that_is_made_again_while_its_log_is_being_made_is_served(cluster: Cluster) -> None:
    """R107: an fsync took long, and all three brokers ended themselves."""
    machines = cluster.machines.values()
    for machine in machines:
        machine.disk.hold_flushes()
    await cluster.make_topic("t", 1)
    await cluster.call(1, DeleteTopicsRequest(5000, ("t",)))
    cluster.topic_id = await cluster.make_topic("t", 1)
    await cluster.advance(50)
    for machine in machines:
        machine.disk.release_flushes()
    await cluster.eventually(lambda: all(cluster.has_role(machine) for machine in machines))
    await cluster.send(1, batch("one"))


async def _failure(tasks: HeldTasks) -> None:
    assert isinstance(await tasks.failure(), DiskError)
