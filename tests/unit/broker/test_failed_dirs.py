"""A broker with two log dirs, one of which fails: the rest goes on, and nothing is lost (R27, A-20, B25)."""

import errno
from collections.abc import AsyncIterator

import pytest

from holdfast.metadata.ids import PartitionId
from holdfast.metadata.partition import PartitionRegistration
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.log_dirs import DescribedLogDir, DescribeLogDirsRequest
from tests.unit.broker.cluster import BrokerMachine, Cluster, batch

DIRS = ("/a", "/b")


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """Three brokers with two log dirs each; partition 0 of the topic is in one of them, 1 in the other."""
    made = await Cluster(log_dirs=",".join(DIRS)).boot()
    await made.topic(partitions=2, min_insync_replicas="2")
    yield made
    await made.end()


def partition(cluster: Cluster, index: int) -> PartitionRegistration:
    return cluster.image.topics[cluster.topic_id].partitions[index]


def log_dir(cluster: Cluster, machine: BrokerMachine, index: int) -> str:
    managed = machine.node.log_manager.managed(PartitionId(cluster.topic_id, index))
    assert managed is not None
    return managed.log_dir.path


async def led_by(cluster: Cluster, index: int) -> BrokerMachine:
    await cluster.eventually(lambda: partition(cluster, index).leader is not None)
    leader = partition(cluster, index).leader
    assert leader is not None
    await cluster.eventually(lambda: cluster[leader].partition(index).is_serving)
    return cluster[leader]


def break_dir(machine: BrokerMachine, path: str) -> None:
    """Every write there fails from now on, until the process ends."""
    for name in ("t-0", "t-1"):
        machine.disk.fail("append", f"{path}/{name}/00000000000000000000.log", errno.EIO, 1000)
        machine.disk.fail("flush", f"{path}/{name}/00000000000000000000.log", errno.EIO, 1000)


def mend(machine: BrokerMachine) -> None:
    machine.disk._faults.clear()  # the operator has put another cable in


async def in_sync(cluster: Cluster, index: int) -> None:
    await cluster.eventually(lambda: partition(cluster, index).isr == (1, 2, 3))


async def test_partitions_are_spread_over_the_dirs_also_when_they_are_made_at_once(cluster: Cluster) -> None:
    for machine in cluster.machines.values():
        assert {log_dir(cluster, machine, index) for index in (0, 1)} == set(DIRS)


async def test_a_broker_describes_its_dirs_and_says_why_one_is_offline(cluster: Cluster) -> None:
    hit = await led_by(cluster, 0)
    bad, good = log_dir(cluster, hit, 0), log_dir(cluster, hit, 1)
    assert (await cluster.produce(hit.id, batch("one"))).error_code == ErrorCode.NONE

    async def described(*topics: str) -> dict[str, DescribedLogDir]:
        answer = await cluster.call(hit.id, DescribeLogDirsRequest(topics or None))
        return {one.path: one for one in answer.log_dirs}

    before = await described()
    assert [(one.name, [row.partition_index for row in one.partitions]) for one in before[bad].topics] == [
        ("t", [0])
    ]
    assert before[bad].topics[0].partitions[0].size_bytes == len(batch("one"))
    assert (before[bad].error_code, before[bad].total_bytes) == (ErrorCode.NONE, 1 << 40)
    assert (await described("other"))[bad].topics == ()
    break_dir(hit, bad)
    await cluster.send(hit.id, batch("two"))
    await cluster.eventually(lambda: partition(cluster, 0).leader != hit.id)
    after = await described()
    assert (after[bad].error_code, after[bad].topics) == (ErrorCode.KAFKA_STORAGE_ERROR, ())
    assert f"append {bad}/t-0/" in (after[bad].error_message or "")
    assert [one.name for one in after[good].topics] == ["t"]


async def test_partitions_of_a_failed_dir_move_and_the_broker_goes_on_with_the_other(
    cluster: Cluster,
) -> None:
    """R27: no session ends, no role in the other dir is lost, the others have what was acknowledged."""
    hit = await led_by(cluster, 0)
    for index in (0, 1):
        leader = await led_by(cluster, index)
        assert (await cluster.produce(leader.id, batch("one"), index=index)).error_code == ErrorCode.NONE
    before = partition(cluster, 1)
    break_dir(hit, log_dir(cluster, hit, 0))
    answer = await cluster.produce(hit.id, batch("lost"), index=0)
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    await cluster.eventually(lambda: hit.id not in partition(cluster, 0).isr)
    after = partition(cluster, 0)
    assert after.leader not in (hit.id, None)
    assert hit.id not in after.elr
    assert (await led_by(cluster, 0)).values() == ["one"]
    assert partition(cluster, 1) == before
    assert hit.node.is_ready()[0]
    leader = await led_by(cluster, 1)
    assert (await cluster.produce(leader.id, batch("two"), index=1)).error_code == ErrorCode.NONE
    await cluster.eventually(lambda: hit.values(1) == ["one", "two"])


async def test_writes_go_on_at_once_when_a_followers_dir_fails(cluster: Cluster) -> None:
    """F3: who cannot join any more does not hold the high watermark up until it counts as slow."""
    leader = await led_by(cluster, 0)
    hit = next(m for m in cluster.machines.values() if m is not leader)
    break_dir(hit, log_dir(cluster, hit, 0))
    started_ms = cluster.clock.now_ms()
    assert (await cluster.produce(leader.id, batch("one"))).error_code == ErrorCode.NONE
    assert (await cluster.produce(leader.id, batch("two"))).error_code == ErrorCode.NONE
    assert cluster.clock.now_ms() - started_ms < 1000
    assert hit.id not in partition(cluster, 0).isr


async def test_failed_dir_is_not_used_again_before_a_restart_and_then_comes_back_unclean(
    cluster: Cluster,
) -> None:
    """R33, R34: no mark is written, also not in the dir that is fine; the replicas come back in sync."""
    hit = await led_by(cluster, 0)
    break_dir(hit, log_dir(cluster, hit, 0))
    await cluster.produce(hit.id, batch("lost"), index=0)
    await cluster.eventually(lambda: hit.id not in partition(cluster, 0).isr)
    mend(hit)
    leader = await led_by(cluster, 0)
    assert (await cluster.produce(leader.id, batch("one"), index=0)).error_code == ErrorCode.NONE
    await cluster.advance(10_000)
    assert hit.id not in partition(cluster, 0).isr
    await hit.stop()
    await hit.boot()
    for index in (0, 1):
        await in_sync(cluster, index)
    assert hit.node.core.lifecycle.was_clean is False
    assert hit.values(0) == ["one"]


async def test_failed_flush_of_a_dir_acknowledges_nothing_there(cluster: Cluster) -> None:
    """A-20: what the followers tell later must not advance a partition whose log is not trusted."""
    cluster.topic_id = await cluster.make_topic("f", 1, flush_messages="1", min_insync_replicas="2")
    leader = await led_by(cluster, 0)
    leader.disk.fail("flush", f"{log_dir(cluster, leader, 0)}/f-0/00000000000000000000.log", errno.EIO)
    answer = await cluster.produce(leader.id, batch("one"))
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    await cluster.eventually(lambda: leader.id not in partition(cluster, 0).isr)
    assert leader.node.is_ready()[0]


@pytest.mark.usefixtures("failures_logged")
async def test_broker_ends_with_its_last_dir(cluster: Cluster) -> None:
    hit = await led_by(cluster, 0)
    for path in DIRS:
        break_dir(hit, path)
    for index in (0, 1):
        await cluster.send(hit.id, batch("lost"))
        leader = await led_by(cluster, index)
        await cluster.produce(leader.id, batch("one"), index=index)
    ended: list[BaseException] = []

    async def wait() -> None:
        ended.append(await hit.tasks.failure())

    hit.tasks.start("wait", wait())
    await cluster.eventually(lambda: bool(ended))


# --- at the start --------------------------------------------------------------------------------------


async def test_replicas_of_a_dir_that_fails_at_the_start_are_not_made_anew_elsewhere(
    cluster: Cluster,
) -> None:
    """They would look like replicas that lost everything; the other dir serves, and all come back with it."""
    leader = await led_by(cluster, 0)
    await cluster.produce(leader.id, batch("one"), index=0)
    hit = next(m for m in cluster.machines.values() if m is not leader)
    failed, other = log_dir(cluster, hit, 0), log_dir(cluster, hit, 1)
    await hit.kill()
    hit.disk.fail("listdir", failed, errno.EIO, 1)
    await hit.boot()
    await in_sync(cluster, 1)
    await cluster.advance(2_000)
    assert hit.id not in partition(cluster, 0).isr
    assert not await hit.disk.exists(f"{other}/t-0")
    assert (await cluster.describe(0)).offline_replicas == (hit.id,)
    await hit.stop()
    await hit.boot()
    await in_sync(cluster, 0)
    assert log_dir(cluster, hit, 0) == failed


async def test_dir_that_cannot_be_opened_is_offline_from_the_start(cluster: Cluster) -> None:
    hit = cluster[2]
    failed = log_dir(cluster, hit, 0)
    await hit.kill()
    hit.disk.fail("open", f"{failed}/meta.properties", errno.EIO, 1)
    await hit.boot()
    await in_sync(cluster, 1)
    assert hit.id not in partition(cluster, 0).isr
    assert len(cluster.image.brokers[2].log_dirs) == 1
    answer = await cluster.describe(0)
    assert answer.offline_replicas == (2,)


async def test_partitions_made_later_go_to_the_dir_that_is_left(cluster: Cluster) -> None:
    hit = await led_by(cluster, 0)
    failed, other = log_dir(cluster, hit, 0), log_dir(cluster, hit, 1)
    break_dir(hit, failed)
    await cluster.produce(hit.id, batch("lost"), index=0)
    await cluster.eventually(lambda: hit.id not in partition(cluster, 0).isr)
    await cluster.make_topic("u", 3)
    await cluster.eventually(
        lambda: sum(m.partition.topic == "u" for m in hit.node.log_manager._managed.values()) == 3
    )
    assert {m.log_dir.path for m in hit.node.log_manager._managed.values()} == {other}


# --- marks ---------------------------------------------------------------------------------------------


async def test_clean_stop_with_two_dirs_is_clean(cluster: Cluster) -> None:
    hit = await led_by(cluster, 0)
    await cluster.produce(hit.id, batch("one"), index=0)
    await hit.stop()
    await hit.boot()
    await in_sync(cluster, 0)
    assert hit.node.core.lifecycle.was_clean is True


async def test_old_log_under_the_mark_of_a_later_stop_is_an_unclean_start(cluster: Cluster) -> None:
    """B25: the registration that named the mark's epoch is taken back before anybody may be elected by it."""
    hit = await led_by(cluster, 0)
    await cluster.produce(hit.id, batch("one"), index=0)
    await cluster.produce(hit.id, batch("two"), index=0)
    path = f"{log_dir(cluster, hit, 0)}/t-0/00000000000000000000.log"
    await hit.stop()
    file = await hit.disk.open(path, create=False)
    await file.truncate(file.size // 2)
    await file.flush()
    await file.close()
    await hit.boot()
    assert hit.node.core.lifecycle.identity.previous_broker_epoch >= 0
    await in_sync(cluster, 0)
    assert hit.node.core.lifecycle.was_clean is False
    assert hit.values(0) == ["one", "two"]


async def test_a_dir_that_is_left_behind_after_a_clean_stop_takes_the_proof_along(cluster: Cluster) -> None:
    """Else an empty replica, made anew in the other dir, would lead, and its followers drop their records."""
    hit = await led_by(cluster, 0)
    others = [machine for machine in cluster.machines.values() if machine is not hit]
    await cluster.produce(hit.id, batch("one"), index=0)
    await in_sync(cluster, 0)
    late = others[0]
    kept = next(path for path in DIRS if path != log_dir(cluster, late, 0))
    for machine in (hit, others[1], late):
        await machine.stop()
    await late.boot(log_dirs=kept)
    await cluster.eventually(lambda: late.node.core.lifecycle.is_registered)
    assert late.node.core.lifecycle.was_clean is False
    for machine in (hit, others[1]):
        await machine.boot()
    await in_sync(cluster, 0)
    assert all(machine.values(0) == ["one"] for machine in cluster.machines.values())


async def test_missing_log_is_noticed_as_an_old_one_is(cluster: Cluster) -> None:
    hit = await led_by(cluster, 0)
    await cluster.produce(hit.id, batch("one"), index=0)
    folder = f"{log_dir(cluster, hit, 0)}/t-0"
    await hit.stop()
    await hit.disk.remove_folder(folder)
    await hit.boot()
    await in_sync(cluster, 0)
    assert hit.node.core.lifecycle.was_clean is False
    assert hit.values(0) == ["one"]
