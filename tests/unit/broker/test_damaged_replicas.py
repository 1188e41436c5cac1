"""A replica whose log is damaged on the disk: it alone goes offline, and is fetched again from its leader.

A table of what is damaged, where (leader or follower), and when it is met (at a start, or while it is
served). No broker ends, no other replica leaves its ISR, and what was acknowledged stays readable.
"""

import json
from collections.abc import AsyncIterator, Callable

import pytest

from holdfast.metadata.ids import PartitionId
from holdfast.metadata.partition import PartitionRegistration
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.replica_log_info import GetReplicaLogInfoRequest, LogInfoTopic
from holdfast.protocol.messages.topics import DeleteTopicsRequest
from holdfast.runtime.memory.disk import Folder
from holdfast.storage.core.faults import CorruptLog
from tests.unit.broker.cluster import BrokerMachine, Cluster, batch, values
from tests.unit.storage.batches import read_all

#: Two of these batches fill a segment.
VALUES = [f"{number}".rjust(400, ".") for number in range(6)]
FOLDER = "/data/t-0"
SEGMENT = "00000000000000000002"

Change = Callable[[bytes], bytes]


def flip(at: int) -> Change:
    return lambda content: content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :]


def cut(content: bytes) -> bytes:
    return content[:-1]


def empty(content: bytes) -> bytes:
    return b""


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """Three brokers; t-0 has three segments of acknowledged records, t-1 is never damaged."""
    made = await Cluster().boot()
    await made.topic(partitions=2, min_insync_replicas="2", segment_bytes="1024")
    leader = await made.leader()
    for value in VALUES:
        assert (await made.produce(leader.id, batch(value))).error_code == ErrorCode.NONE
    await in_sync(made)
    yield made
    await made.end()


def partition(cluster: Cluster, index: int = 0) -> PartitionRegistration:
    return cluster.image.topics[cluster.topic_id].partitions[index]


async def in_sync(cluster: Cluster) -> None:
    await cluster.eventually(lambda: all(partition(cluster, i).isr == (1, 2, 3) for i in (0, 1)), 60_000)


async def where(cluster: Cluster, role: str) -> BrokerMachine:
    leader = await cluster.leader()
    return leader if role == "leader" else next(m for m in cluster.machines.values() if m is not leader)


def folders(machine: BrokerMachine) -> list[str]:
    data = machine.disk._find("/data")
    assert isinstance(data, Folder)
    return sorted(name for name in data.cached if name.startswith("t-0"))


def log_of(machine: BrokerMachine, cluster: Cluster) -> list[str]:
    """The values of all segments."""
    log = machine.node.log_manager.logs[PartitionId(cluster.topic_id, 0)]
    return values(read_all(log))


async def healed(cluster: Cluster, hit: BrokerMachine) -> None:
    """It was put aside and fetched again, whole; all run, and all acknowledged records are read."""
    await cluster.eventually(lambda: folders(hit) == ["t-0", f"t-0.{cluster.topic_id.hex()}-corrupt"], 60_000)
    await in_sync(cluster)
    assert all(machine.node.is_ready()[0] for machine in cluster.machines.values())
    assert not any(broker.offline_replicas for broker in cluster.image.brokers.values())
    for machine in cluster.machines.values():
        assert log_of(machine, cluster) == VALUES
    leader = await cluster.leader()
    assert (await cluster.produce(leader.id, batch("more"))).error_code == ErrorCode.NONE


# --- met at a start ------------------------------------------------------------------------------------

AT_THE_START: dict[str, tuple[str, Change]] = {
    "first batch of a closed segment": (f"{SEGMENT}.log", flip(16)),
    "length of a batch in a closed segment": (f"{SEGMENT}.log", flip(9)),
    "a closed segment is cut": (f"{SEGMENT}.log", cut),
    "partition.metadata is empty": ("partition.metadata", empty),
}


@pytest.mark.parametrize("damage", AT_THE_START)
@pytest.mark.parametrize("role", ["leader", "follower"])
@pytest.mark.parametrize("stop", ["clean", "unclean"])
async def test_damage_met_at_a_start_costs_one_replica_which_heals(
    cluster: Cluster, damage: str, role: str, stop: str
) -> None:
    hit = await where(cluster, role)
    await hit.node.log_manager.logs[PartitionId(cluster.topic_id, 0)].flush()
    await hit.node.log_manager.checkpoints.store_log_offsets()
    await (hit.stop() if stop == "clean" else hit.kill())
    name, change = AT_THE_START[damage]
    hit.disk.rot(f"{FOLDER}/{name}", change)
    await hit.boot()
    if damage == "partition.metadata is empty":
        unnamed = f"t-0.{'0' * 32}-corrupt"
        await cluster.eventually(lambda: folders(hit) == ["t-0", unnamed])
        await in_sync(cluster)
        assert log_of(hit, cluster) == VALUES
    else:
        await healed(cluster, hit)
    assert hit.node.core.lifecycle.was_clean is (stop == "clean"), "its other replicas keep their seats"


@pytest.mark.parametrize("missing", ["00000000000000000000", SEGMENT])
async def test_missing_segment_costs_one_replica_which_heals(cluster: Cluster, missing: str) -> None:
    hit = await where(cluster, "leader")
    await hit.stop()
    await hit.disk.unlink(f"{FOLDER}/{missing}.log")
    await hit.boot()
    await healed(cluster, hit)


# --- met while it is served ----------------------------------------------------------------------------

AT_A_READ: dict[str, Change] = {
    "payload": flip(100),
    "length": flip(9),
    "epoch": flip(14),
    "magic": flip(16),
}


@pytest.mark.parametrize("damage", AT_A_READ)
async def test_consumer_is_never_served_damaged_bytes_and_another_replica_leads(
    cluster: Cluster, damage: str
) -> None:
    hit = await where(cluster, "leader")
    hit.disk.rot(f"{FOLDER}/{SEGMENT}.log", AT_A_READ[damage])
    answer = await cluster.fetch(hit.id, 2)
    assert (answer.error_code, len(answer.records)) == (ErrorCode.KAFKA_STORAGE_ERROR, 0)
    await cluster.eventually(lambda: partition(cluster).leader not in (None, hit.id))
    leader = await cluster.leader(not_one_of=(hit.id,))
    assert values((await cluster.fetch(leader.id, 2)).records)[0] == VALUES[2]
    await healed(cluster, hit)


async def test_follower_that_begins_anew_takes_nothing_damaged_from_a_leader(cluster: Cluster) -> None:
    """The leader's log is damaged where only a follower that lost everything reads: it is found out before
    the follower takes it, and a whole replica leads."""
    hit = await where(cluster, "leader")
    late = await where(cluster, "follower")
    hit.disk.rot(f"{FOLDER}/{SEGMENT}.log", flip(100))
    await late.kill()
    await late.disk.remove_folder(FOLDER)
    await late.boot()
    await cluster.eventually(lambda: partition(cluster).leader not in (None, hit.id))
    await healed(cluster, hit)


async def test_leader_verifies_what_a_follower_has_refused(cluster: Cluster) -> None:
    """Bytes that were appended just now are not checked when they are sent; the follower checks them, and
    says so."""
    hit = await where(cluster, "leader")
    log = hit.node.log_manager.logs[PartitionId(cluster.topic_id, 0)]
    append, spoilt = log.append_as_leader, flip(450)

    def append_and_rot(*args: object, **kwargs: object) -> object:
        result = append(*args, **kwargs)  # type: ignore[arg-type]
        hit.disk.rot(f"{FOLDER}/00000000000000000006.log", spoilt)
        return result

    log.append_as_leader = append_and_rot  # type: ignore[method-assign,assignment]
    answer = await cluster.produce(hit.id, batch("lost".rjust(400, ".")), acks=1)
    assert answer.error_code == ErrorCode.NONE
    await cluster.eventually(lambda: partition(cluster).leader not in (None, hit.id))
    await healed(cluster, hit)


# --- the last complete one -----------------------------------------------------------------------------


async def test_last_complete_replica_waits_for_the_operator_across_restarts(cluster: Cluster) -> None:
    """Nothing empty or short is elected in its place, and the folder says what is damaged."""
    hit = await where(cluster, "leader")
    others = [machine for machine in cluster.machines.values() if machine is not hit]
    for machine in others:
        await machine.stop()
    await cluster.eventually(lambda: partition(cluster).isr == (hit.id,))
    await cluster.produce(hit.id, batch("alone"), acks=1)
    for machine in others:  # they have lost their disks: no longer complete
        await machine.disk.remove_folder("/data")
    hit.disk.rot(f"{FOLDER}/{SEGMENT}.log", flip(100))
    await cluster.fetch(hit.id, 2)
    aside = f"t-0.{cluster.topic_id.hex()}-corrupt"
    await cluster.eventually(lambda: folders(hit) == [aside])
    for machine in others:
        await machine.boot()
    await cluster.all_run()
    for how in (hit.stop, hit.kill):
        await how()
        await hit.boot()
        await cluster.all_run()
        await cluster.advance(3_000)
        assert folders(hit) == [aside]
        assert hit.id not in partition(cluster).isr + partition(cluster).elr
    asked = GetReplicaLogInfoRequest(hit.id, (LogInfoTopic(cluster.topic_id, (0,)),))
    row = (await cluster.call(hit.id, asked)).topics[0].partitions[0]
    assert row.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert aside in row.error_message
    note = json.loads(hit.disk.durable_bytes(f"/data/{aside}/damage.json") or b"")
    assert (note["log_end_offset"], note["high_watermark"]) == (7, 6)


async def test_what_was_put_aside_goes_with_the_partition(cluster: Cluster) -> None:
    hit = await where(cluster, "follower")
    hit.disk.rot(f"{FOLDER}/{SEGMENT}.log", flip(100))
    managed = hit.node.log_manager.managed(PartitionId(cluster.topic_id, 0))
    assert managed is not None
    with pytest.raises(CorruptLog):
        managed.log.read(2, 1, 6)
    await healed(cluster, hit)
    await cluster.call(hit.id, DeleteTopicsRequest(5_000, ("t",)))
    await cluster.eventually(lambda: not folders(hit))
