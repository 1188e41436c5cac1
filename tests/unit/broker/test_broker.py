"""The core as a whole: proposals, the controller, shutdown. Roles are in test_roles.py."""

import pytest

from holdfast.broker.core.events import CallFailed, ControllerChanged, ShutdownWanted, Stop
from holdfast.broker.core.registration.lifecycle import BrokerState
from holdfast.broker.core.requests.log_info import UsableLog
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.records import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    RemoveTopicRecord,
    UnfenceBrokerRecord,
)
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.alter_partition import (
    AlterPartitionPartitionResponse,
    AlterPartitionRequest,
    AlterPartitionResponse,
)
from holdfast.protocol.messages.broker_registration import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationResponse,
)
from holdfast.protocol.messages.producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    InitProducerIdRequest,
)
from holdfast.protocol.messages.replica_log_info import GetReplicaLogInfoRequest, LogInfoTopic
from holdfast.rpc.core.failures import CallFailure
from holdfast.scenario.partition import LAG_MS_MAX
from tests.unit.broker.core_harness import TOPIC, CoreHarness, batch, change, partition

REGISTERED = BrokerRegistrationResponse(ErrorCode.NONE, None, 4, True)


def registered(isr: tuple[int, ...], partition_epoch: int) -> AlterPartitionResponse:
    row = AlterPartitionPartitionResponse(TOPIC, 0, ErrorCode.NONE, 1, 0, isr, 0, partition_epoch, 2)
    return AlterPartitionResponse(ErrorCode.NONE, None, (row,))


def sent(harness: CoreHarness, kind: type) -> list[object]:
    return [call.request for call in harness.calls if type(call.request) is kind]


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


def test_a_granted_shrink_moves_the_high_watermark_at_once() -> None:
    """R52, KAFKA-15021: the write would wait for the next one."""
    harness = CoreHarness().join(partition(1))
    harness.fetch(2, 0)
    harness.fetch(3, 0)
    name = harness.produce(batch(), timeout_ms=10 * LAG_MS_MAX)
    harness.fetch(2, 1, number=1)
    harness.calls.clear()
    harness.now_ms += LAG_MS_MAX
    harness.fetch(2, None, number=2)
    harness.tick(1)
    assert name not in harness.answers
    harness.answer_call(registered((1, 2), 1))
    assert harness.row(name) == ("NONE", 0)


def test_refused_proposals_are_repeated_or_dropped() -> None:
    """R44, R45."""
    harness = CoreHarness().join(partition(1, (1, 2)))
    harness.fetch(3, 0)
    harness.answer_call(AlterPartitionResponse(ErrorCode.NOT_CONTROLLER, "102", ()))
    assert harness.calls == []
    harness.tick(50)
    (call,) = harness.calls
    harness.calls.clear()
    harness.post(CallFailed(call.call_id, CallFailure.TIMED_OUT, "silence"))
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
    assert isinstance(request.request, AlterPartitionRequest)
    assert isinstance(old.request, AlterPartitionRequest)
    assert request.request.partitions == old.request.partitions
    assert (old.request.controller_epoch, request.request.controller_epoch) == (1, 2)
    assert request.request.request_number == 1, "each controller counts for itself"


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


def test_followers_of_many_partitions_are_looked_at_in_several_events(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harness = CoreHarness().join(*(partition(1, index=index) for index in range(5)))
    monkeypatch.setattr("holdfast.broker.core.replicas.partition_passes.LOOKS_MAX", 2)
    harness.now_ms += 31_000
    shrunk = []
    for _ in range(3):
        harness.tick()
        shrunk.append(harness.core.counts.isr_shrinks)
    assert shrunk == [2, 4, 5]
    while harness.core.next_deadline_ms() == 0:  # ceilings are looked at behind it
        harness.tick()
    assert harness.core.next_deadline_ms() > harness.now_ms


# --- questions ---------------------------------------------------------------------------------------------


def test_logs_are_told_of_with_what_their_partition_knows() -> None:
    """R66."""
    harness = CoreHarness().join(partition(1, (1, 2)))
    harness.produce(batch(3))
    key, core = harness.partition.key, harness.core
    request = GetReplicaLogInfoRequest(1, (LogInfoTopic(TOPIC, (0,)),))

    def told(log: UsableLog | None) -> tuple[int, int, int, int, int]:
        answer = core.log_info(request, {key: log}.get)
        (row,) = answer.topics[0].partitions
        assert answer.broker_epoch == core.lifecycle.broker_epoch
        return row.error_code, row.log_end_offset, row.current_leader_epoch, row.high_watermark, row.ceiling

    log = UsableLog(harness.logs[key], True, 40)
    assert told(log) == (ErrorCode.NONE, 3, 0, 0, 40)
    assert told(log._replace(is_settled=False))[0] == ErrorCode.REPLICA_NOT_AVAILABLE
    assert told(None)[0] == ErrorCode.REPLICA_NOT_AVAILABLE
    assert (core.lag_of(key, 0), core.lag_of(key, 9)) == (0, 0)
    harness.fetch(2, 3)
    assert (core.lag_of(key, 1), core.lag_of(key, 9)) == (2, 0)
    assert core.lag_of(PartitionId(TOPIC, 1), 1) == 0


def test_questions_are_answered_with_the_listener_and_the_controller() -> None:
    core = CoreHarness().join(partition(1, (1, 2))).core
    asked = core.asked_through("KAFKA")
    assert (asked.listener_name, asked.cluster_id) == ("KAFKA", core.config.cluster_id)
    assert (asked.controller_id, asked.controller_epoch) == (core.controller_id, core.controller_epoch)
