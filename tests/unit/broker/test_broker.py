"""The core as a whole: roles from metadata (D-2), the controller, proposals, deletion."""

import pytest

from broker.events import (
    CallFailed,
    ConfigureLog,
    ControllerChanged,
    DeleteLog,
    Failure,
    Flush,
    LogsLoaded,
    ShutdownWanted,
    Started,
    Stop,
)
from broker.lifecycle import BrokerState
from broker.partition import Role, TopicPartition
from cli.lone_partition import LAG_MS_MAX, MemoryLog
from metadata.records import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnfenceBrokerRecord,
)
from protocol.errors import ErrorCode
from protocol.messages.alter_partition import (
    AlterPartitionPartitionResponse,
    AlterPartitionRequest,
    AlterPartitionResponse,
)
from protocol.messages.broker_registration import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from protocol.messages.producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    InitProducerIdRequest,
)
from tests.unit.broker.core_harness import KEY, TOPIC, CoreHarness, batch, change, partition, register

REGISTERED = BrokerRegistrationResponse(ErrorCode.NONE, None, 4, True)


def registered(isr: tuple[int, ...], partition_epoch: int) -> AlterPartitionResponse:
    row = AlterPartitionPartitionResponse(TOPIC, 0, ErrorCode.NONE, 1, 0, isr, 0, partition_epoch, 2)
    return AlterPartitionResponse(ErrorCode.NONE, None, (row,))


def sent(harness: CoreHarness, kind: type) -> list[object]:
    return [call.request for call in harness.calls if type(call.request) is kind]


# --- roles -------------------------------------------------------------------------------------------------


def test_no_role_before_the_own_registration_record_was_replayed() -> None:
    """D-2: what older metadata says about us is about an incarnation that may have held more."""
    harness = CoreHarness()
    harness.post(Started(), LogsLoaded({}, {}), ControllerChanged(101, 1))
    harness.answer_call(REGISTERED)
    harness.metadata(register(2, 0), register(3, 1), TopicRecord("t", TOPIC), partition(1))
    assert harness.core.partitions == {}
    assert not harness.core.has_roles
    assert all(call.request.want_fence for call in harness.calls)
    harness.calls.clear()
    harness.metadata(register(1, 4))
    assert harness.partition.role is Role.LEADER
    assert harness.core.has_roles


def test_the_role_is_the_one_of_the_image_at_the_registration() -> None:
    """D-2: led before, removed by the registration."""
    harness = CoreHarness()
    harness.post(Started(), LogsLoaded({}, {}), ControllerChanged(101, 1))
    harness.answer_call(BrokerRegistrationResponse(ErrorCode.NONE, None, 6, False))
    former = register(1, 2)
    harness.metadata(register(2, 0), register(3, 1), former, TopicRecord("t", TOPIC), partition(1))
    assert harness.core.partitions == {}
    harness.metadata(change(leader=2, isr=(2, 3)), register(1, 6))
    assert harness.partition.role is Role.FOLLOWER
    assert harness.partition.leader_epoch == 1


def test_no_role_before_the_logs_are_loaded() -> None:
    harness = CoreHarness()
    harness.post(Started(), ControllerChanged(101, 1))
    harness.answer_call(REGISTERED)
    harness.metadata(register(2, 0), register(3, 1), TopicRecord("t", TOPIC), partition(1), register(1, 4))
    assert not harness.core.has_roles
    harness.logs[KEY] = MemoryLog(7, 0)
    harness.post(LogsLoaded(harness.logs, {KEY: 5}))
    assert harness.core.has_roles
    assert harness.partition.high_watermark == 5


def test_lost_registration_drops_all_roles_until_the_next_one() -> None:
    """R24, D-2."""
    harness = CoreHarness().join(partition(1))
    waiting = harness.produce(batch(), timeout_ms=10_000)
    harness.tick(2000)
    harness.answer_call(BrokerHeartbeatResponse(ErrorCode.STALE_BROKER_EPOCH, "who?", False, True, False))
    assert not harness.core.has_roles
    assert harness.row(waiting)[0] == "NOT_LEADER_OR_FOLLOWER"
    assert harness.row(harness.produce(batch(), acks=1))[0] == "NOT_LEADER_OR_FOLLOWER"
    harness.tick(1000)
    (request,) = sent(harness, BrokerRegistrationRequest)
    assert isinstance(request, BrokerRegistrationRequest)
    assert request.previous_broker_epoch == -1
    epoch = harness.core.image.offset
    harness.answer_call(BrokerRegistrationResponse(ErrorCode.NONE, None, epoch, False))
    assert not harness.core.has_roles
    harness.metadata(register(1, epoch))
    assert harness.core.has_roles


def test_topic_that_is_deleted_while_the_registration_is_lost_leaves_nothing_behind() -> None:
    harness = CoreHarness().join(partition(1))
    harness.tick(2000)
    harness.answer_call(BrokerHeartbeatResponse(ErrorCode.STALE_BROKER_EPOCH, "who?", False, True, False))
    harness.tick(1000)
    harness.metadata(RemoveTopicRecord(TOPIC))
    epoch = harness.core.image.offset
    harness.answer_call(BrokerRegistrationResponse(ErrorCode.NONE, None, epoch, False))
    harness.metadata(register(1, epoch))
    assert harness.core.partitions == {}
    assert DeleteLog(KEY) in harness.others
    assert harness.row(harness.produce(batch()))[0] == "UNKNOWN_TOPIC_OR_PARTITION"


def test_new_leader_forgets_followers_and_old_fetches() -> None:
    """R54, R55."""
    harness = CoreHarness().join(partition(1))
    harness.fetch(2, 0)
    harness.metadata(change(leader=1))
    assert harness.fetch_rows(harness.fetch(2, 0, session=2, epoch=0))[0][0] == "FENCED_LEADER_EPOCH"


def test_unknown_partition_of_this_broker_gets_a_log() -> None:
    harness = CoreHarness().join(partition(1))
    harness.metadata(partition(2, index=4))
    assert TopicPartition(TOPIC, 4) in harness.logs


def test_deleted_topic_takes_its_log_along() -> None:
    harness = CoreHarness().join(partition(1))
    waiting = harness.produce(batch())
    harness.metadata(RemoveTopicRecord(TOPIC))
    assert DeleteLog(KEY) in harness.others
    assert harness.row(waiting)[0] == "NOT_LEADER_OR_FOLLOWER"
    assert harness.row(harness.produce(batch()))[0] == "UNKNOWN_TOPIC_OR_PARTITION"


def test_log_of_a_topic_that_was_deleted_meanwhile_goes_when_the_broker_is_back() -> None:
    harness = CoreHarness()
    stray = TopicPartition(b"old" + bytes(13), 0)
    harness.logs[stray] = MemoryLog(10, 0)
    harness.join(partition(1))
    assert DeleteLog(stray) in harness.others


def test_topic_settings_reach_the_log_and_the_rules() -> None:
    """D6: from the next moment on flushed offsets count."""
    harness = CoreHarness().join(partition(1))
    harness.metadata(harness.topic_config("flush.messages", "1"))
    assert harness.flushes == [Flush(KEY)]
    configured = harness.others[-1]
    assert isinstance(configured, ConfigureLog)
    assert configured.config.flush_messages == 1
    assert harness.partition.counts_flushed


def test_leader_flushes_before_an_append_counts() -> None:
    """D6, A-21."""
    harness = CoreHarness().join(partition(1, (1,), min_isr=1))
    harness.metadata(harness.topic_config("flush.messages", "1"))
    name = harness.produce(batch(2))
    assert name not in harness.answers
    assert harness.partition.high_watermark == 0
    harness.finish_flushes()
    assert harness.row(name) == ("NONE", 0)


# --- ISR ---------------------------------------------------------------------------------------------------


def test_caught_up_follower_is_proposed_and_let_in_by_the_answer() -> None:
    harness = CoreHarness().join(partition(1, (1, 2)))
    harness.fetch(3, 0)
    (request,) = sent(harness, AlterPartitionRequest)
    assert isinstance(request, AlterPartitionRequest)
    assert [member.broker_id for member in request.partitions[0].new_isr] == [1, 2, 3]
    harness.answer_call(registered((1, 2, 3), 1))
    assert harness.partition.registration is not None
    assert harness.partition.registration.isr == (1, 2, 3)


def test_metadata_ahead_of_the_answer_counts_the_same() -> None:
    """The answer and the record meet in apply_registration."""
    harness = CoreHarness().join(partition(1, (1, 2)))
    harness.fetch(3, 0)
    harness.metadata(change(isr=(1, 2, 3)))
    harness.answer_call(registered((1, 2, 3), 1))
    leadership = harness.partition.leadership
    assert leadership is not None
    assert leadership.proposal is None
    assert leadership.maximal_isr == (1, 2, 3)


def test_follower_that_was_caught_up_joins_when_it_is_unfenced() -> None:
    """An idle follower lists nothing new; unfencing must be enough."""
    harness = CoreHarness().join(partition(1, (1, 2)), FenceBrokerRecord(3, 1))
    harness.metadata(FenceBrokerRecord(3, 1))
    harness.calls.clear()
    harness.fetch(3, 0)
    assert sent(harness, AlterPartitionRequest) == []
    harness.metadata(UnfenceBrokerRecord(3, 1))
    assert len(sent(harness, AlterPartitionRequest)) == 1


def test_leaving_broker_is_not_proposed() -> None:
    """R50: not shutting down; R41 would refuse it."""
    harness = CoreHarness().join(partition(1, (1, 2)))
    broker = harness.core.image.brokers[3]
    harness.metadata(
        BrokerRegistrationChangeRecord(
            3, 1, True, broker.listeners, broker.rack, broker.features, broker.log_dirs
        )
    )
    harness.calls.clear()
    harness.fetch(3, 0)
    assert sent(harness, AlterPartitionRequest) == []


def test_silent_follower_is_proposed_out() -> None:
    """R51."""
    harness = CoreHarness().join(partition(1))
    harness.fetch(2, 0)
    harness.fetch(3, 0)
    harness.produce(batch(), acks=1)
    harness.fetch(2, 1, number=1)
    harness.calls.clear()
    harness.now_ms += LAG_MS_MAX
    harness.fetch(2, None, number=2)
    harness.tick(1)
    (request,) = sent(harness, AlterPartitionRequest)
    assert isinstance(request, AlterPartitionRequest)
    assert [member.broker_id for member in request.partitions[0].new_isr] == [1, 2]


def test_refused_proposals_are_repeated_or_dropped() -> None:
    """R44, R45."""
    harness = CoreHarness().join(partition(1, (1, 2)))
    harness.fetch(3, 0)
    harness.answer_call(AlterPartitionResponse(ErrorCode.NOT_CONTROLLER, "102", ()))
    assert harness.calls == []
    harness.tick(50)
    (call,) = harness.calls
    harness.calls.clear()
    harness.post(CallFailed(call.call_id, Failure.TIMED_OUT, "silence"))
    harness.tick(50)
    assert len(sent(harness, AlterPartitionRequest)) == 1
    row = AlterPartitionPartitionResponse(TOPIC, 0, ErrorCode.INELIGIBLE_REPLICA, -1, -1, (), 0, -1, -1)
    harness.answer_call(AlterPartitionResponse(ErrorCode.NONE, None, (row,)))
    leadership = harness.partition.leadership
    assert leadership is not None
    assert leadership.maximal_isr == (1, 2)
    assert harness.core.counts.failed_isr_updates == 2


@pytest.mark.parametrize("is_fenced_first", [True, False])
def test_follower_that_dies_before_it_joins_holds_the_high_watermark_up_no_more(
    is_fenced_first: bool,
) -> None:
    """F3, KAFKA-15021: nothing else would happen that moves it while all writers wait."""
    harness = CoreHarness().join(partition(1, (1, 2)))
    harness.fetch(3, 0)
    name = harness.produce(batch())
    harness.fetch(2, 1)
    assert name not in harness.answers
    row = AlterPartitionPartitionResponse(TOPIC, 0, ErrorCode.INELIGIBLE_REPLICA, -1, -1, (), 0, -1, -1)
    refused = AlterPartitionResponse(ErrorCode.NONE, None, (row,))
    if is_fenced_first:
        harness.metadata(FenceBrokerRecord(3, 1))
        assert name not in harness.answers
        harness.answer_call(refused)
    else:
        harness.answer_call(refused)
        assert name not in harness.answers
        harness.metadata(FenceBrokerRecord(3, 1))
    assert harness.row(name) == ("NONE", 0)


def test_follower_that_falls_behind_outside_the_isr_holds_the_high_watermark_up_no_more() -> None:
    """F3: it was caught up once, and then silent for the lag time."""
    harness = CoreHarness().join(partition(1, (1, 2)))
    harness.fetch(3, 0)
    row = AlterPartitionPartitionResponse(TOPIC, 0, ErrorCode.INELIGIBLE_REPLICA, -1, -1, (), 0, -1, -1)
    harness.answer_call(AlterPartitionResponse(ErrorCode.NONE, None, (row,)))
    name = harness.produce(batch(), timeout_ms=10 * LAG_MS_MAX)
    harness.fetch(2, 1)
    assert name not in harness.answers
    harness.tick(LAG_MS_MAX + 1)
    assert harness.row(name) == ("NONE", 0)


# --- controller --------------------------------------------------------------------------------------------


def test_new_controller_gets_what_the_former_one_did_not_answer() -> None:
    """K27."""
    harness = CoreHarness().join(partition(1, (1, 2)))
    harness.fetch(3, 0)
    (old,) = harness.calls
    harness.calls.clear()
    harness.post(ControllerChanged(102, 2))
    assert [type(call.request) for call in harness.calls] == [BrokerHeartbeatRequest]
    harness.answer_heartbeats()
    harness.tick(50)
    (request,) = harness.calls
    assert request.controller_id == 102
    assert request.request == old.request


def test_nothing_is_sent_while_there_is_no_controller() -> None:
    harness = CoreHarness().join(partition(1, (1, 2)))
    harness.post(ControllerChanged(None, 2))
    harness.fetch(3, 0)
    harness.tick(10_000)
    assert harness.calls == []


def test_others_are_told_at_once_how_far_metadata_was_applied_when_a_broker_leaves() -> None:
    """R23: it may go only when all active brokers have applied its last leadership change."""
    harness = CoreHarness().join(partition(1))
    broker = harness.core.image.brokers[3]
    harness.metadata(
        BrokerRegistrationChangeRecord(
            3, 1, True, broker.listeners, broker.rack, broker.features, broker.log_dirs
        )
    )
    (heartbeat,) = sent(harness, BrokerHeartbeatRequest)
    assert isinstance(heartbeat, BrokerHeartbeatRequest)
    assert heartbeat.current_metadata_offset == harness.core.image.offset


def test_producer_ids_come_from_the_controllers_blocks() -> None:
    """D12."""
    harness = CoreHarness().join(partition(1))
    name = harness.request(InitProducerIdRequest(-1, -1))
    assert len(sent(harness, AllocateProducerIdsRequest)) == 1
    harness.answer_call(AllocateProducerIdsResponse(ErrorCode.NONE, None, 4000, 1000))
    assert harness.answers[name].producer_id == 4000
    assert harness.answers[harness.request(InitProducerIdRequest(-1, -1))].producer_id == 4001


def test_shutdown_is_asked_for_and_then_carried_out() -> None:
    """R29."""
    harness = CoreHarness().join(partition(1))
    harness.post(ShutdownWanted())
    assert harness.core.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN
    harness.answer_call(BrokerHeartbeatResponse(ErrorCode.NONE, None, True, True, True))
    stop = harness.others[-1]
    assert isinstance(stop, Stop)
    assert not stop.is_failure


def test_record_that_does_not_fit_is_counted_and_told() -> None:
    """D7: replay of a committed record never stops a node."""
    harness = CoreHarness().join(partition(1))
    harness.metadata(RemoveTopicRecord(b"?" * 16))
    assert harness.core.counts.metadata_violations == 1
    assert "unknown topic" in harness.notes[-1]
