"""A controller meets a committed record that only a later build knows (K29): it applies nothing more and
leads no more, but keeps its vote and its log."""

import pytest
from msgpack import packb

from holdfast.controller.core.events import EntriesCommitted, LaterSnapshot, LeaderChanged, SnapshotLoaded
from holdfast.metadata.records import (
    METADATA_VERSION,
    METADATA_VERSION_MAX,
    FeatureLevelRecord,
    TopicRecord,
    encode_record,
)
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.metadata import DescribeClusterRequest
from holdfast.rpc.channel import CallRefused
from holdfast.runtime.stats import Level
from holdfast.scenario.controller import LogEntry
from tests.unit.controller.harness import NODE_ID, Quorum, make_config
from tests.unit.controller.test_server import VOTERS, Cluster, Node, cluster

__all__ = ["cluster"]
LATER = packb([99, 0, []])
LATER_LEVEL = encode_record(FeatureLevelRecord(METADATA_VERSION, METADATA_VERSION_MAX + 1))
BY_A_LATER_BUILD = pytest.mark.parametrize(
    ("value", "told_of"), [(LATER, "kind 99"), (LATER_LEVEL, "metadata.version is at level 2")]
)
TOPIC = encode_record(TopicRecord("t", b"t" * 16))


def left_behind(value: bytes = LATER) -> Quorum:
    """A standby that met the record, and then one that it knows."""
    quorum = Quorum(make_config())
    quorum.lose(NODE_ID + 1)
    offset = quorum.end_offset
    quorum.handle(EntriesCommitted([LogEntry(offset, 2, TOPIC), LogEntry(offset + 1, 2, value)], offset + 2))
    quorum.handle(EntriesCommitted([LogEntry(offset + 2, 2, TOPIC)], offset + 3))
    return quorum


@BY_A_LATER_BUILD
def test_it_says_so_once_and_applies_nothing_more(value: bytes, told_of: str) -> None:
    quorum = left_behind(value)
    assert not quorum.image.topics
    (told,) = [note for note in quorum.notes if note.level is Level.ERROR]
    assert told.text.startswith(f"metadata offset {quorum.end_offset + 1}: ")
    assert told_of in told.text
    assert "upgrade it" in told.text


@BY_A_LATER_BUILD
def test_it_tells_the_quorum_and_is_not_active_when_it_leads(value: bytes, told_of: str) -> None:
    quorum = left_behind(value)
    assert told_of in str(quorum.cannot_lead)
    end_offset = quorum.end_offset + 4
    quorum.handle(LeaderChanged(NODE_ID, 3, end_offset))
    quorum.handle(EntriesCommitted([], end_offset))
    assert not quorum.core.is_active


def test_a_snapshot_that_is_understood_lets_it_go_on() -> None:
    quorum = left_behind()
    quorum.handle(SnapshotLoaded(quorum.core.state))
    assert quorum.core.later_record is None
    assert quorum.cannot_lead is None
    quorum.elect()
    assert quorum.core.is_active


def test_a_snapshot_of_a_later_build_is_as_such_a_record() -> None:
    quorum = Quorum(make_config())
    quorum.lose(NODE_ID + 1)
    image = quorum.image
    quorum.handle(LaterSnapshot("metadata snapshot at offset 70: a later build wrote it"))
    offset = quorum.end_offset
    quorum.handle(EntriesCommitted([LogEntry(offset, 2, TOPIC)], offset + 1))
    assert quorum.core.committed is image
    assert quorum.cannot_lead == quorum.core.later_record
    assert "snapshot at offset 70" in str(quorum.cannot_lead)


async def test_the_others_go_on_without_it(cluster: Cluster) -> None:
    active = await cluster.active()
    await cluster.clock.advance(600)
    behind, other = (node for node in cluster.nodes.values() if node is not active)
    offset = behind.server.core.committed.offset
    behind.server.pump.post(EntriesCommitted([LogEntry(offset, 1, LATER)], offset + 1))
    is_ready, why = behind.server.is_ready()
    assert not is_ready
    assert why.startswith("upgrade this controller: metadata offset")
    with pytest.raises(CallRefused, match="ask another node") as refused:
        await (await cluster.channel(behind)).call(DescribeClusterRequest(), 1000)
    assert refused.value.error_code == ErrorCode.BROKER_NOT_AVAILABLE

    await active.stop()
    successor = await cluster.active(*(node_id for node_id in VOTERS if node_id != active.node_id))
    assert successor is other
    await active.boot()


def leave_behind(node: Node) -> None:
    offset = node.server.core.committed.offset
    node.server.pump.post(EntriesCommitted([LogEntry(offset, 1, LATER)], offset + 1))


async def one_that_is_not_left_behind(cluster: Cluster) -> Node:
    """The active controller."""
    active = await cluster.active()
    await cluster.clock.advance(600)
    for node in cluster.nodes.values():
        if node is not active:
            leave_behind(node)
    return active


def raft_epoch(cluster: Cluster) -> int:
    return max(node.server.driver.raft_epoch for node in cluster.nodes.values())


async def test_two_that_are_left_behind_let_the_third_one_lead(cluster: Cluster) -> None:
    active = await one_that_is_not_left_behind(cluster)
    before = raft_epoch(cluster)
    active.server.driver.resign("told to")
    for _ in range(20):
        await cluster.clock.advance(1_000)
    assert active.server.core.is_active
    assert raft_epoch(cluster) <= before + 5


async def test_three_that_are_left_behind_elect_each_other_seldom(cluster: Cluster) -> None:
    active = await one_that_is_not_left_behind(cluster)
    await active.stop()
    await active.boot()
    leave_behind(active)
    before = raft_epoch(cluster)
    for _ in range(60):
        await cluster.clock.advance(1_000)
    assert raft_epoch(cluster) <= before + 30
    assert not any(node.server.core.is_active for node in cluster.nodes.values())
