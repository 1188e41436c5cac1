"""What an observer has in `quorum-state` promises nothing: where it is damaged, the node goes on without."""

import logging
from collections.abc import Callable

import pytest

from holdfast.storage.checkpoint import read_text, write_atomically
from tests.unit.raft.cluster import Cluster
from tests.unit.raft.test_directories import STATE, stored, write
from tests.unit.raft.test_voter_changes import Changing


def names(leader_id: int, *, by_an_earlier_build: bool) -> Callable[[str, int], str]:
    """The file's text with another leader of the epoch, as a flipped bit makes it."""

    def damage(text: str, known_id: int) -> str:
        other_id = leader_id or known_id % 3 + 1
        text = text.replace(f'"leaderId": {known_id}', f'"leaderId": {other_id}')
        return text.split(', "crc32c"')[0] + "}" if by_an_earlier_build else text

    return damage


@pytest.mark.parametrize(
    ("damage", "is_noticed"),
    [
        (names(0, by_an_earlier_build=False), True),
        (lambda text, _: text.replace('"data_version": 0', '"data_version": 8'), True),
        (names(0, by_an_earlier_build=True), False),
        (names(77, by_an_earlier_build=True), False),
    ],
    ids=["another voter", "a later version", "another voter, no checksum", "no voter, no checksum"],
)
async def test_an_observer_whose_state_names_a_wrong_leader_follows_the_right_one(
    damage: Callable[[str, int], str], is_noticed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster(observer_count=1)
    leader, observer = await cluster.boot(), cluster[101]
    await write(cluster, leader, b"a")
    await observer.stop()
    text = await read_text(observer.disk, STATE)
    assert text is not None
    damaged = damage(text, leader.id)
    assert damaged != text
    await write_atomically(observer.disk, STATE, damaged)
    with caplog.at_level(logging.WARNING):
        await observer.boot()
        await write(cluster, leader, b"b")
        await cluster.clock.advance(3_000)
    assert observer.recorder.values == [b"a", b"b"]
    assert observer.driver.leader_id == (await stored(observer)).leader_id == leader.id
    assert ("is made again" in caplog.text) == is_noticed
    await cluster.stop()


async def test_an_observer_without_its_state_takes_the_voters_from_its_log() -> None:
    """K30: those of its configuration may be gone."""
    cluster = Changing(joiner_count=1, observer_count=1)
    leader = await cluster.add(await cluster.upgraded(), 4)
    await write(cluster, leader, b"a")
    observer = cluster[101]
    await observer.stop()
    await observer.disk.unlink(STATE)
    await observer.boot()
    assert observer.driver.voter_ids == (1, 2, 3, 4)
    await cluster.stop()
