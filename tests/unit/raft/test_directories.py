"""K8: a voter counts with one directory. One that lost its disk neither votes nor counts until it was taken
in again."""

from collections.abc import AsyncIterator

import pytest

from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.fetch import METADATA_TOPIC_ID, FetchPartition, FetchRequest
from holdfast.raft.core.quorum import QuorumState
from holdfast.raft.core.voter_directories import VoterDirectories
from holdfast.runtime.memory.disk import MemoryDisk
from holdfast.storage.checkpoint import read_text, write_atomically
from holdfast.storage.folders import make_durably
from tests.unit.raft.cluster import FOLDER, Cluster, Machine

STATE = f"{FOLDER}/quorum-state"


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    made = Cluster()
    yield made
    await made.stop()


async def stored(machine: Machine) -> QuorumState:
    text = await read_text(machine.disk, STATE)
    assert text is not None
    return QuorumState.from_json(text, "test")


async def wipe(machine: Machine) -> None:
    """Its process ends, and it gets a new disk."""
    if machine.is_running:
        await machine.kill()
    machine.disk = MemoryDisk()


async def write(cluster: Cluster, leader: Machine, value: bytes) -> None:
    leader.driver.append([value], leader.driver.raft_epoch)
    await cluster.clock.advance(700)
    assert value in leader.recorder.values


async def test_a_new_cluster_waits_for_all_voters_and_then_needs_a_majority_only(cluster: Cluster) -> None:
    await cluster[1].boot()
    await cluster[2].boot()
    await cluster.clock.advance(10_000)
    assert not any(cluster[id].driver.is_leader for id in (1, 2))
    await cluster[3].boot()
    leader = await cluster.leader(within_ms=5_000)
    await cluster.clock.advance(600)
    assert all([(await stored(machine)).is_admitted for machine in cluster.machines.values()])
    await leader.kill()
    await cluster.leader(within_ms=5_000)


async def test_acknowledged_records_outlive_a_voter_that_lost_its_disk(cluster: Cluster) -> None:
    """The third voter lags, the second held the records and is new, the first is down: none may lead."""
    leader = await cluster.boot()
    second, third = (machine for machine in cluster.machines.values() if machine is not leader)
    await cluster.clock.advance(600)
    await third.kill()
    await write(cluster, leader, b"acked")
    await leader.kill()
    await wipe(second)
    await second.boot()
    await third.boot()
    await cluster.clock.advance(20_000)
    assert not second.driver.is_leader
    assert not third.driver.is_leader
    await leader.boot()
    again = await cluster.leader(within_ms=5_000)
    await cluster.clock.advance(600)
    assert again is not second
    assert again.recorder.values == third.recorder.values == [b"acked"]
    assert second.recorder.values == []


async def test_a_voter_that_was_taken_in_gets_the_log_and_votes(cluster: Cluster) -> None:
    leader = await cluster.boot()
    await write(cluster, leader, b"a")
    lost, other = (machine for machine in cluster.machines.values() if machine is not leader)
    old_directory = (await stored(lost)).directory_id
    await wipe(lost)
    await lost.boot()
    await cluster.clock.advance(5_000)
    assert not (await stored(lost)).is_admitted
    answer = await cluster.readmit(leader, lost.id)
    assert answer.error_code == ErrorCode.NONE, answer.error_message
    assert answer.directory_id == (await stored(lost)).directory_id != old_directory
    await cluster.clock.advance(2_000)
    assert (await stored(lost)).is_admitted
    assert lost.recorder.values == [b"a"]
    await leader.kill()
    again = await cluster.leader(within_ms=5_000)
    await write(cluster, again, b"b")
    assert other.recorder.values == lost.recorder.values == [b"a", b"b"]


async def test_the_directory_that_was_replaced_counts_no_more(cluster: Cluster) -> None:
    """The lost disk turns up again, and its process with it."""
    leader = await cluster.boot()
    await cluster.clock.advance(600)
    lost, other = (machine for machine in cluster.machines.values() if machine is not leader)
    old_disk = lost.disk
    await wipe(lost)
    await lost.boot()
    await cluster.clock.advance(3_000)
    assert (await cluster.readmit(leader, lost.id)).error_code == ErrorCode.NONE
    await lost.kill()
    lost.disk = old_disk
    await lost.boot()
    await leader.kill()
    await cluster.clock.advance(20_000)
    assert not lost.driver.is_leader
    assert not other.driver.is_leader


@pytest.mark.parametrize(
    ("voter", "directory_id", "expected"),
    [
        ("stranger", None, ErrorCode.VOTER_NOT_FOUND),
        ("leader", None, ErrorCode.VOTER_NOT_FOUND),
        ("follower", None, ErrorCode.INVALID_REQUEST),
        ("follower", "its own", ErrorCode.DUPLICATE_VOTER),
        ("follower", "one that it never had", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_what_is_no_new_directory_of_another_voter_is_refused(
    cluster: Cluster, voter: str, directory_id: str | None, expected: ErrorCode
) -> None:
    leader = await cluster.boot()
    await cluster.clock.advance(600)
    follower = next(machine for machine in cluster.machines.values() if machine is not leader)
    directories = {"its own": (await stored(follower)).directory_id, "one that it never had": b"x" * 16}
    own = directories[directory_id] if directory_id else None
    voter_id = {"stranger": 77, "leader": leader.id, "follower": follower.id}[voter]
    answer = await cluster.readmit(leader, voter_id, own)
    assert answer.error_code == expected
    asked_elsewhere = await cluster.readmit(follower, voter_id, own)
    assert asked_elsewhere.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def fetch_as(cluster: Cluster, leader: Machine, voter_id: int, directory_id: bytes) -> None:
    """A stranger fetches in the voter's name, with a directory of its own."""
    row = FetchPartition(METADATA_TOPIC_ID, 0, leader.driver.raft_epoch, 0, 0, -1, 1000)
    fetch = FetchRequest(
        "test", voter_id, -1, 0, 1, 1000, (row,), voter_ids=(1, 2, 3), voter_directory_id=directory_id
    )
    assert (await cluster.ask(leader, fetch)).error_code == ErrorCode.INVALID_VOTER_KEY


async def test_a_new_leader_knows_of_no_voter_yet_that_it_is_gone(cluster: Cluster) -> None:
    first = await cluster.boot()
    await cluster.clock.advance(600)
    voter = next(machine for machine in cluster.machines.values() if machine is not first)
    await first.kill()
    leader = await cluster.leader(within_ms=5_000)
    other = voter if leader is not voter else first
    await fetch_as(cluster, leader, other.id, b"x" * 16)
    answer = await cluster.readmit(leader, other.id, b"x" * 16)
    assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT


async def test_a_voter_whose_directory_is_alive_keeps_it(cluster: Cluster) -> None:
    """Another process fetches in its name: one word of an operator would end the quorum for good."""
    leader = await cluster.boot()
    await cluster.clock.advance(600)
    voter = next(machine for machine in cluster.machines.values() if machine is not leader)
    await fetch_as(cluster, leader, voter.id, b"x" * 16)
    answer = await cluster.readmit(leader, voter.id, b"x" * 16)
    assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert answer.error_message is not None
    assert "stop its process" in answer.error_message
    await voter.kill()
    await cluster.clock.advance(3_000)
    assert (await cluster.readmit(leader, voter.id, b"x" * 16)).error_code == ErrorCode.NONE


async def test_a_voter_of_an_earlier_build_votes_on_and_gets_a_directory(cluster: Cluster) -> None:
    """Its quorum-state has no directory id, and the log names none."""
    for id in cluster.voters:
        await make_durably(cluster[id].disk, FOLDER)
        await write_atomically(cluster[id].disk, STATE, QuorumState(3).to_json("test"))
        assert (await stored(cluster[id])).directory_id is None
    await cluster[1].boot()
    await cluster[2].boot()
    leader = await cluster.leader(within_ms=5_000)
    await cluster[3].boot()
    await cluster.clock.advance(3_000)
    states = [await stored(machine) for machine in cluster.machines.values()]
    assert all(state.is_admitted and state.directory_id is not None for state in states)
    assert len({state.directory_id for state in states}) == 3
    await wipe(cluster[3])
    await cluster[3].boot()
    await cluster.clock.advance(3_000)
    assert (await cluster.readmit(leader, 3)).error_code == ErrorCode.NONE


def test_what_the_log_names_follows_a_cut() -> None:
    first, second = {1: b"a"}, {1: b"a", 2: b"b"}
    directories = VoterDirectories([(0, first), (7, second)])
    assert directories.known == second
    assert directories.is_named_below(8, 2, b"b")
    assert not directories.is_named_below(7, 2, b"b")
    assert directories.is_named_below(1, 1, b"a")
    assert directories.is_other(2, b"c")
    assert not directories.is_other(2, None)
    assert not directories.is_other(3, b"c")
    directories.truncate_to(7)
    assert directories.known == first
    assert not directories.is_other(2, b"c")


def test_a_directory_that_is_named_again_is_named_from_then_on() -> None:
    directories = VoterDirectories([(0, {1: b"a"}), (5, {1: b"b"}), (9, {1: b"a"})])
    assert not directories.is_named_below(9, 1, b"a")
    assert directories.is_named_below(10, 1, b"a")
