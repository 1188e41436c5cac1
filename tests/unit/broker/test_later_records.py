"""A broker meets a committed record that only a later build knows (K29): it says so, is fenced and waits."""

import pytest
from msgpack import packb

from holdfast.broker.core.events import (
    ControllerChanged,
    LaterSnapshot,
    LogsLoaded,
    MetadataCommitted,
    ShutdownWanted,
    Started,
    Stop,
)
from holdfast.metadata.records import (
    METADATA_VERSION,
    METADATA_VERSION_MAX,
    FeatureLevelRecord,
    NoOpRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    encode_record,
)
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.broker_registration import BrokerHeartbeatRequest, BrokerRegistrationResponse
from holdfast.rpc.channel import CallRefused
from tests.unit.broker.cluster import Cluster
from tests.unit.broker.cluster import batch as values_batch
from tests.unit.broker.core_harness import TOPIC, CoreHarness, batch, partition, register

LATER = packb([99, 0, []])
LATER_LEVEL = encode_record(FeatureLevelRecord(METADATA_VERSION, METADATA_VERSION_MAX + 1))
BY_A_LATER_BUILD = pytest.mark.parametrize(
    ("value", "told_of"), [(LATER, "kind 99"), (LATER_LEVEL, "metadata.version is at level 2")]
)


def meet(harness: CoreHarness, value: bytes = LATER) -> None:
    """The record is committed behind one that this build knows, in one batch."""
    offset = harness.metadata_offset
    known = (offset, 1, packb([20, 0, []]), -1)
    harness.post(MetadataCommitted((known, (offset + 1, 1, value, -1)), offset + 2))


def asks_to_be_fenced(harness: CoreHarness) -> bool:
    beats = [call.request for call in harness.calls if isinstance(call.request, BrokerHeartbeatRequest)]
    return bool(beats) and beats[-1].want_fence


@BY_A_LATER_BUILD
def test_it_gives_its_roles_up_at_once_and_asks_to_be_fenced(value: bytes, told_of: str) -> None:
    harness = CoreHarness().join(partition(1))
    waiting = harness.produce(batch())
    image = harness.core.image
    meet(harness, value)
    assert not harness.core.has_roles
    assert harness.row(waiting)[0] == "NOT_LEADER_OR_FOLLOWER"
    assert asks_to_be_fenced(harness)
    assert not any(isinstance(effect, Stop) for effect in harness.others)
    assert harness.core.image is image, "a batch is applied whole or not at all"
    (told,) = [note for note in harness.notes if told_of in note]
    assert f"metadata offset {harness.metadata_offset + 1}" in told
    assert "until it is upgraded" in told


def test_what_follows_is_not_applied_though_it_is_known() -> None:
    harness = CoreHarness().join(partition(1))
    meet(harness)
    image = harness.core.image
    harness.metadata(NoOpRecord(), NoOpRecord(), TopicRecord("u", b"u" * 16))
    assert harness.core.image is image
    assert not harness.core.has_roles


def test_a_start_that_meets_it_takes_no_role() -> None:
    harness = CoreHarness()
    harness.post(Started(), LogsLoaded({}, {}, {}), ControllerChanged(101, 1))
    harness.answer_call(BrokerRegistrationResponse(ErrorCode.NONE, None, 4, True))
    harness.metadata(register(2, 0), register(3, 1))
    meet(harness)
    harness.metadata(NoOpRecord(), NoOpRecord(), register(1, 4))
    assert not harness.core.has_roles
    assert asks_to_be_fenced(harness)


def test_a_stop_does_not_wait_for_metadata_that_is_never_applied() -> None:
    harness = CoreHarness().join(partition(1))
    meet(harness)
    harness.post(ShutdownWanted())
    stop = harness.others[-1]
    assert isinstance(stop, Stop)
    assert not stop.is_failure


@pytest.mark.parametrize("is_at_start", [True, False])
def test_a_snapshot_of_a_later_build_is_as_such_a_record(is_at_start: bool) -> None:
    later = LaterSnapshot("metadata snapshot at offset 70: a later build wrote it")
    harness = CoreHarness()
    if is_at_start:
        harness.post(later, Started(), LogsLoaded({}, {}, {}), ControllerChanged(101, 1))
        harness.answer_call(BrokerRegistrationResponse(ErrorCode.NONE, None, 4, True))
    else:
        harness.join(partition(1)).post(later)
    image = harness.core.image
    harness.metadata(NoOpRecord(), register(1, 4))
    assert harness.core.image is image
    assert not harness.core.has_roles
    assert asks_to_be_fenced(harness)
    assert harness.core.later_record == later.reason
    assert [note for note in harness.notes if "offset 70" in note and "until it is upgraded" in note]


def test_a_snapshot_that_is_understood_lets_it_go_on() -> None:
    harness = CoreHarness().join(partition(1))
    own = harness.core.lifecycle.broker_epoch
    meet(harness)
    harness.snapshot(
        register(2, 0),
        register(3, 1),
        *[NoOpRecord()] * (own - 2),
        register(1, own),
        UnfenceBrokerRecord(1, own),
        TopicRecord("t", TOPIC),
        partition(1),
    )
    assert harness.core.has_roles
    assert harness.core.later_record is None
    meet(harness)
    assert not harness.core.has_roles


async def test_the_others_go_on_without_it_and_it_is_back_once_it_knows_the_record() -> None:
    cluster = await Cluster().boot()
    await cluster.topic()
    leader = await cluster.leader()
    offset = leader.node.core.image.offset
    leader.node.server.pump.post(MetadataCommitted(((offset, 1, LATER, -1),), offset + 1))
    other = await cluster.leader(not_one_of=(leader.id,))
    assert cluster.image.brokers[leader.id].is_fenced
    await cluster.produce(other.id, values_batch("a"))
    is_ready, why = leader.node.is_ready()
    assert not is_ready
    assert why.startswith("upgrade this broker: metadata offset")
    refused = await cluster.send(leader.id, values_batch("b"))
    await cluster.eventually(refused.done)
    with pytest.raises(CallRefused, match="BROKER_NOT_AVAILABLE"):
        refused.result()

    await leader.stop()
    await leader.boot()  # as a build whose log holds nothing that it does not know
    await cluster.all_run()
    await cluster.in_sync(1, 2, 3)
    await cluster.end()
