"""What a core tells the controller of failed log dirs, and of a proof that does not hold (R27, B25)."""

from holdfast.broker.core.events import (
    CallAnswered,
    CleanShutdownDisproved,
    ControllerChanged,
    LogOpened,
    LogsLoaded,
    LogsOffline,
    OpenLog,
    SpaceLow,
    Started,
    StoreBrokerEpoch,
)
from holdfast.broker.core.replicas.partition import Role
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.records import ReplicasOfflineRecord, TopicRecord, UnfenceBrokerRecord
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.broker_registration import (
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    OfflineTopic,
)
from holdfast.scenario.partition import MemoryLog
from tests.unit.broker.core_harness import KEY, TOPIC, CoreHarness, batch, partition, register

OTHER = PartitionId(TOPIC, 1)


def heartbeats(harness: CoreHarness, duration_ms: int) -> list[BrokerHeartbeatRequest]:
    """Those sent within that time, each answered at once."""
    found: list[BrokerHeartbeatRequest] = []
    for _ in range(0, duration_ms, 50):
        harness.tick(50)
        requests = [call.request for call in harness.calls]
        found += [request for request in requests if isinstance(request, BrokerHeartbeatRequest)]
        harness.answer_heartbeats()
    return found


def test_offline_replicas_are_reported_at_once_and_until_the_registration_names_them() -> None:
    harness = CoreHarness().join(partition(1), partition(1, index=1))
    harness.post(LogsOffline((KEY,)))
    assert KEY not in harness.core.partitions
    assert harness.core.partitions[OTHER].role is Role.LEADER
    told = heartbeats(harness, 500)
    assert len(told) > 2
    assert {request.offline for request in told} == {(OfflineTopic(TOPIC, (0,)),)}
    harness.metadata(ReplicasOfflineRecord(1, harness.core.lifecycle.broker_epoch, TOPIC, (0,)))
    assert all(not request.offline for request in heartbeats(harness, 10_000)[1:])


def test_writes_that_wait_for_a_log_that_failed_are_refused() -> None:
    """A-18: nothing of it is acknowledged here any more."""
    harness = CoreHarness().join(partition(1))
    name = harness.produce(batch())
    assert name not in harness.answers
    harness.post(LogsOffline((KEY,)))
    assert harness.row(name)[0] == "NOT_LEADER_OR_FOLLOWER"
    assert harness.row(harness.produce(batch()))[0] == "UNKNOWN_TOPIC_OR_PARTITION"


def test_offline_replica_takes_no_role_and_its_log_is_not_opened_again() -> None:
    harness = CoreHarness().join(partition(2))
    harness.post(LogsOffline((KEY,)))
    opened = len([effect for effect in harness.others if isinstance(effect, OpenLog)])
    harness.metadata(partition(1, leader_epoch=5, partition_epoch=9))
    assert KEY not in harness.core.partitions
    assert len([effect for effect in harness.others if isinstance(effect, OpenLog)]) == opened


def test_log_that_was_opened_in_a_dir_that_failed_meanwhile_is_not_used() -> None:
    """The news of the dir overtakes what waits in the shell."""
    harness = CoreHarness()
    harness.opens_slowly = True
    harness.join(partition(1))
    harness.post(LogsOffline((KEY,)))
    harness.post(LogOpened(KEY, MemoryLog()))
    assert KEY not in harness.core.partitions


def test_what_a_start_with_a_failed_dir_did_not_find_is_reported_before_it_is_unfenced() -> None:
    harness = CoreHarness()
    harness.logs[KEY] = MemoryLog()
    harness.post(
        Started(), LogsLoaded({KEY: harness.logs[KEY]}, {}, {}, is_whole=False), ControllerChanged(101, 1)
    )
    harness.answer_call(BrokerRegistrationResponse(ErrorCode.NONE, None, 3, False))
    harness.metadata(TopicRecord("t", TOPIC), partition(1), partition(2, index=1), register(1, 3))
    first = next(r for r in (c.request for c in harness.calls) if isinstance(r, BrokerHeartbeatRequest))
    assert not first.want_fence or not first.offline
    told = heartbeats(harness, 500)
    wishes = [request for request in (first, *told) if not request.want_fence]
    assert wishes
    assert all(request.offline == (OfflineTopic(TOPIC, (1,)),) for request in wishes)
    assert list(harness.core.partitions) == [KEY]
    harness.metadata(UnfenceBrokerRecord(1, 3), partition(1, index=2))
    assert PartitionId(TOPIC, 2) in harness.core.partitions, "what is assigned later is made elsewhere"


# --- proofs ------------------------------------------------------------------------------------------------


def test_epoch_of_a_registration_is_kept_once_metadata_holds_it() -> None:
    """R36; of metadata that is not ours it must not be kept."""
    harness = CoreHarness()
    harness.post(Started(), ControllerChanged(101, 1))
    harness.answer_call(BrokerRegistrationResponse(ErrorCode.NONE, None, 9, True))
    assert not [effect for effect in harness.others if isinstance(effect, StoreBrokerEpoch)]
    harness.metadata(*(register(2, offset) for offset in range(9)), register(1, 9))
    harness.post(LogsLoaded({}, {}, {}))
    assert StoreBrokerEpoch(9, b"i" * 16) in harness.others


def test_proof_that_does_not_hold_is_taken_back_by_another_incarnation() -> None:
    """B25: also when the registration that named it is still under way, whose answer counts for nothing."""
    for is_answered in (False, True):
        harness = CoreHarness()
        harness.post(Started(), ControllerChanged(101, 1))
        if is_answered:
            harness.answer_call(BrokerRegistrationResponse(ErrorCode.NONE, None, 9, True))
        harness.post(CleanShutdownDisproved(b"n" * 16))
        request = harness.calls[-1].request
        assert isinstance(request, BrokerRegistrationRequest)
        assert (request.incarnation_id, request.previous_broker_epoch) == (b"n" * 16, -1)
        *late, _ = [call.call_id for call in harness.calls]
        del harness.calls[:-1]
        harness.answer_call(BrokerRegistrationResponse(ErrorCode.NONE, None, 12, False))
        assert harness.core.lifecycle.broker_epoch == 12
        assert harness.core.lifecycle.was_clean is False
        for call_id in late:
            harness.post(CallAnswered(call_id, BrokerRegistrationResponse(ErrorCode.NONE, None, 9, True)))
        assert harness.core.lifecycle.broker_epoch == 12


def test_replicas_without_room_for_records_are_named_at_once_and_as_long_as_they_are_short() -> None:
    harness = CoreHarness().join(partition(1), partition(1, index=1))
    harness.post(SpaceLow(frozenset({OTHER, KEY})))
    told = heartbeats(harness, 5_000)
    assert len(told) > 1
    assert {request.low_on_space for request in told} == {(OfflineTopic(TOPIC, (0, 1)),)}
    harness.post(SpaceLow(frozenset()))
    assert heartbeats(harness, 5_000)[0].low_on_space == ()
