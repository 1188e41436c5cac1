"""When a core lets a damaged replica begin anew, and what it tells the controller meanwhile (R27)."""

import pytest

from holdfast.broker.core.events import (
    ControllerChanged,
    DamagedReplica,
    DeleteLog,
    LogDamaged,
    LogPutAside,
    LogsLoaded,
    Started,
)
from holdfast.broker.core.replicas.damaged_replicas import DAMAGES_MAX
from holdfast.broker.core.replicas.partition import Role
from holdfast.metadata.records import (
    METADATA_VERSION,
    FeatureLevelRecord,
    PartitionRecord,
    RemoveTopicRecord,
    ReplicasOfflineRecord,
    TopicRecord,
)
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.broker_registration import BrokerRegistrationResponse, OfflineTopic
from tests.unit.broker.core_harness import KEY, TOPIC, CoreHarness, partition, register
from tests.unit.broker.test_offline_report import heartbeats

ROW = (OfflineTopic(TOPIC, (0,)),)


def offline(harness: CoreHarness, *, are_online: bool = False) -> ReplicasOfflineRecord:
    epoch = harness.core.lifecycle.broker_epoch
    return ReplicasOfflineRecord(1, epoch, TOPIC, (0,), are_online=are_online)


def damaged(leader: int = 1) -> CoreHarness:
    harness = CoreHarness().join(partition(leader))
    harness.post(LogDamaged(KEY, "bad crc"))
    return harness


def elsewhere(epoch: int = 1, isr: tuple[int, ...] = (2, 3), leader: int = 2) -> PartitionRecord:
    return partition(leader, isr, leader_epoch=epoch, partition_epoch=epoch)


def test_damaged_replica_is_reported_and_begins_anew_when_nothing_counts_on_it() -> None:
    harness = damaged()
    assert KEY not in harness.core.partitions
    assert harness.core.damaged_replicas == {KEY: "bad crc"}
    assert {request.offline for request in heartbeats(harness, 300)} == {ROW}
    harness.post(LogPutAside(KEY))
    harness.metadata(elsewhere(), offline(harness))
    assert harness.partition.role is Role.FOLLOWER
    assert not harness.core.damaged_replicas
    told = heartbeats(harness, 500)
    assert {request.online for request in told[1:]} == {ROW}
    assert not any(request.offline for request in told)
    harness.metadata(offline(harness, are_online=True))
    assert not any(request.online for request in heartbeats(harness, 10_000)[1:])


def test_replica_that_begins_anew_is_not_reported_until_controllers_may_record_it() -> None:
    """K31. Reports that change nothing would follow one another in haste."""
    harness = damaged()
    harness.post(LogPutAside(KEY))
    harness.metadata(FeatureLevelRecord(METADATA_VERSION, 0), elsewhere(), offline(harness))
    assert harness.partition.role is Role.FOLLOWER
    told_why = "leader 2 has what was damaged; it joins the ISR after a restart, or at metadata.version 1"
    assert f"t-0: begins anew, {told_why}" in harness.notes
    heartbeats(harness, 500)
    told = heartbeats(harness, 10_000)
    assert not any(request.online for request in told)
    assert len(told) <= 10_000 // harness.core.config.heartbeat_ms + 1
    harness.metadata(FeatureLevelRecord(METADATA_VERSION, 1))
    assert heartbeats(harness, 10_000)[0].online == ROW


@pytest.mark.parametrize(
    ("is_aside", "is_recorded", "row"),
    [
        pytest.param(False, True, elsewhere(), id="its folder is still in the way"),
        pytest.param(True, False, elsewhere(), id="the controller has not recorded it"),
        pytest.param(True, True, elsewhere(isr=(1, 2)), id="it counts as in sync"),
        pytest.param(True, True, elsewhere(isr=(), leader=-1), id="no broker leads: it may be the last one"),
    ],
)
def test_damaged_replica_waits(is_aside: bool, is_recorded: bool, row: PartitionRecord) -> None:
    harness = damaged()
    if is_aside:
        harness.post(LogPutAside(KEY))
    harness.metadata(row, *([offline(harness)] if is_recorded else []))
    heartbeats(harness, 5_000)
    assert KEY not in harness.core.partitions
    assert KEY in harness.core.damaged_replicas


def test_replica_that_is_damaged_again_before_it_is_recorded_as_online_is_reported_again() -> None:
    harness = damaged()
    harness.post(LogPutAside(KEY))
    harness.metadata(elsewhere(), offline(harness))
    harness.post(LogDamaged(KEY, "again"))
    harness.metadata(offline(harness, are_online=True))  # in answer to a report from before
    assert heartbeats(harness, 300)[-1].offline == ROW


def test_replica_that_is_damaged_again_and_again_stays_out_of_use() -> None:
    harness = damaged()
    for number in range(1, DAMAGES_MAX + 3):
        harness.post(LogPutAside(KEY))
        harness.metadata(elsewhere(number), offline(harness))
        if number < DAMAGES_MAX:
            assert not harness.core.damaged_replicas
            harness.metadata(offline(harness, are_online=True))
            harness.post(LogDamaged(KEY, "again"))
    assert KEY in harness.core.damaged_replicas


@pytest.mark.parametrize("topic_id", [TOPIC, None])
def test_what_the_start_found_damaged_is_reported_before_the_broker_is_unfenced(
    topic_id: bytes | None,
) -> None:
    harness = CoreHarness()
    found = DamagedReplica("t", 0, topic_id, "bad crc")
    harness.post(Started(), LogsLoaded({}, {}, {}, damaged=(found,)), ControllerChanged(101, 1))
    harness.answer_call(BrokerRegistrationResponse(ErrorCode.NONE, None, 3, True))
    harness.metadata(TopicRecord("t", TOPIC), partition(2), register(1, 3))
    wishes = [request for request in heartbeats(harness, 500) if not request.want_fence]
    assert wishes
    assert all(request.offline == ROW for request in wishes)
    assert KEY not in harness.core.partitions
    harness.metadata(elsewhere(5), ReplicasOfflineRecord(1, 3, TOPIC, (0,)))
    assert harness.partition.role is Role.FOLLOWER


def test_damaged_replica_of_a_deleted_topic_is_forgotten_with_its_folder() -> None:
    harness = damaged()
    harness.post(LogPutAside(KEY))
    harness.metadata(RemoveTopicRecord(TOPIC))
    assert DeleteLog(KEY) in harness.others
    assert not harness.core.damaged_replicas
    assert not any(request.offline for request in heartbeats(harness, 10_000)[1:])
