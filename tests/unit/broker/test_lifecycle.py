"""Register, heartbeat, be unfenced, leave (R29, R23)."""

from dataclasses import replace
from typing import Any

import pytest

from holdfast.broker.core.registration.lifecycle import (
    HURRY_MS,
    RETRY_MS_MAX,
    RETRY_MS_MIN,
    SILENCE_MS_MAX,
    Identity,
    Lifecycle,
)
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.broker_registration import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)

IDENTITY = Identity(1, "cluster", b"i" * 16, (), None, (), (b"d" * 16,), previous_broker_epoch=7)


def lifecycle(**changes: Any) -> Lifecycle:
    settings = {
        "heartbeat_ms": 2000,
        "registration_timeout_ms": 60_000,
        "controlled_shutdown": True,
        "shutdown_timeout_ms": 30_000,
        "now_ms": 0,
    }
    return Lifecycle(IDENTITY, **{**settings, **changes})


def accepted(epoch: int, *, clean: bool = True) -> BrokerRegistrationResponse:
    return BrokerRegistrationResponse(ErrorCode.NONE, None, epoch, clean)


def refused(code: ErrorCode) -> BrokerRegistrationResponse:
    return BrokerRegistrationResponse(code, "no", -1, False)


def beat(
    *, fenced: bool = False, shut_down: bool = False, error: ErrorCode = ErrorCode.NONE
) -> BrokerHeartbeatResponse:
    return BrokerHeartbeatResponse(error, None, True, fenced, shut_down)


def heartbeat(life: Lifecycle, now_ms: int, offset: int = 100) -> BrokerHeartbeatRequest:
    request = life.next_request(offset, now_ms)
    assert isinstance(request, BrokerHeartbeatRequest)
    return request


def state(life: Lifecycle) -> str:
    return life.state.value


def running() -> Lifecycle:
    """Registered with epoch 12 at 0 ms, unfenced at 10 ms."""
    life = lifecycle()
    life.next_request(0, 0)
    life.registered(accepted(12), 0)
    life.caught_up(5)
    heartbeat(life, 5)
    life.heartbeat_answered(beat(), 10)
    assert state(life) == "RUNNING"
    return life


def test_registration_carries_the_epoch_of_the_last_clean_stop() -> None:
    request = lifecycle().next_request(0, 0)
    assert isinstance(request, BrokerRegistrationRequest)
    assert request.previous_broker_epoch == 7
    assert request.incarnation_id == IDENTITY.incarnation_id


def test_heartbeats_want_the_fence_until_the_broker_has_caught_up() -> None:
    """N-2, R23: registered is not ready."""
    life = lifecycle()
    life.next_request(0, 0)
    life.registered(accepted(12), 10)
    first = heartbeat(life, 10, offset=3)
    assert first.want_fence
    assert first.broker_epoch == 12
    assert first.current_metadata_offset == 3
    life.heartbeat_answered(beat(fenced=True), 20)
    assert state(life) == "STARTING"
    life.caught_up(100)
    assert state(life) == "RECOVERY"
    assert not heartbeat(life, 100).want_fence
    life.heartbeat_answered(beat(fenced=True), 110)
    assert state(life) == "RECOVERY"
    assert life.next_deadline_ms(True) == 110 + HURRY_MS
    heartbeat(life, 110 + HURRY_MS)
    life.heartbeat_answered(beat(), 230)
    assert state(life) == "RUNNING"
    assert life.next_deadline_ms(True) == 230 + 2000


def test_one_request_at_a_time() -> None:
    life = lifecycle()
    assert life.next_request(0, 0) is not None
    assert life.next_request(0, 50_000) is None


def test_failed_requests_are_repeated_ever_more_slowly() -> None:
    life = lifecycle()
    pauses = []
    now_ms = 0
    for _ in range(8):
        assert life.next_request(0, now_ms) is not None
        life.failed(now_ms)
        pauses.append(life.next_deadline_ms(True) - now_ms)
        now_ms = life.next_deadline_ms(True)
    assert pauses[:3] == [50, 100, 200]
    assert pauses[-1] == RETRY_MS_MAX


def test_a_new_controller_is_asked_at_once() -> None:
    """K27: what was sent to the former one is not waited for."""
    life = running()
    heartbeat(life, 2010)
    life.controller_changed(2100)
    assert heartbeat(life, 2100).broker_epoch == 12


def test_refusal_for_good_stops_the_broker_and_others_are_repeated() -> None:
    """R30."""
    life = lifecycle()
    life.next_request(0, 0)
    assert life.registered(refused(ErrorCode.DUPLICATE_BROKER_REGISTRATION), 0) is None
    life.next_request(0, 50)
    reason = life.registered(refused(ErrorCode.INCONSISTENT_CLUSTER_ID), 60)
    assert reason is not None
    assert reason.is_failure


def test_a_broker_that_cannot_register_gives_up() -> None:
    life = lifecycle()
    assert life.check_times(59_999) is None
    reason = life.check_times(60_000)
    assert reason is not None
    assert reason.is_failure
    assert running().check_times(10**9) is None


def test_a_controller_that_still_takes_out_the_earlier_process_is_waited_for() -> None:
    """With many partitions that takes many events; who answers so is alive."""
    life = lifecycle()
    for now_ms in (0, 50_000, 100_000):
        life.next_request(0, now_ms)
        life.registered(refused(ErrorCode.OPERATION_NOT_ATTEMPTED), now_ms)
        assert life.check_times(now_ms + 59_999) is None
    assert life.check_times(160_000) is not None


def test_a_broker_that_gives_up_says_what_the_controller_said() -> None:
    life = lifecycle()
    life.next_request(0, 0)
    life.registered(refused(ErrorCode.DUPLICATE_BROKER_REGISTRATION), 59_999)
    reason = life.check_times(60_000)
    assert reason is not None
    assert reason.text.endswith("; the controller said: no")


def test_a_broker_whose_controllers_are_gone_by_then_asks_for_them() -> None:
    life = lifecycle()
    life.next_request(0, 0)
    life.registered(refused(ErrorCode.DUPLICATE_BROKER_REGISTRATION), 30_000)
    life.failed(59_000)
    reason = life.check_times(60_000)
    assert reason is not None
    assert "are the controllers of controller.quorum.voters up" in reason.text


@pytest.mark.parametrize("code", [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED])
def test_a_lost_registration_is_made_again_as_unclean(code: ErrorCode) -> None:
    """R24: and nothing is led before the new one was replayed (N-2)."""
    life = running()
    heartbeat(life, 2010)
    assert life.heartbeat_answered(beat(error=code), 2020) is None
    assert not life.is_registered
    assert not life.is_ready
    assert state(life) == "STARTING"
    request = life.next_request(0, 3000)
    assert isinstance(request, BrokerRegistrationRequest)
    assert request.previous_broker_epoch == -1


def test_controlled_shutdown_waits_for_the_controller() -> None:
    """R22, R29."""
    life = running()
    assert life.shutdown_wanted(1000) is None
    assert state(life) == "PENDING_CONTROLLED_SHUTDOWN"
    assert heartbeat(life, 1000).want_shutdown
    assert life.heartbeat_answered(beat(), 1010) is None
    assert heartbeat(life, 1010 + HURRY_MS).want_shutdown
    reason = life.heartbeat_answered(beat(fenced=True, shut_down=True), 1200)
    assert reason is not None
    assert not reason.is_failure
    assert state(life) == "SHUTTING_DOWN"
    assert life.next_request(0, 10_000) is None


def test_a_stop_that_another_asked_for_in_its_name_ends_the_registration() -> None:
    """R22: it would be fenced and unfenced in turn for ever, and be in no ISR."""
    life = running()
    assert life.heartbeat_answered(beat(fenced=True, shut_down=True), 1000) is None
    assert not life.is_registered
    assert state(life) == "STARTING"
    request = life.next_request(0, 1000 + RETRY_MS_MIN)
    assert isinstance(request, BrokerRegistrationRequest)
    assert request.previous_broker_epoch == -1


def test_controlled_shutdown_is_bounded() -> None:
    """R29: too long is still a clean stop."""
    life = running()
    life.shutdown_wanted(1000)
    for now_ms in range(2000, 31_000, 1000):
        heartbeat(life, now_ms)
        assert life.heartbeat_answered(beat(), now_ms) is None
        assert life.check_times(now_ms) is None
    reason = life.check_times(31_000)
    assert reason is not None
    assert not reason.is_failure


def test_controlled_shutdown_ends_when_no_controller_answers() -> None:
    life = running()
    life.shutdown_wanted(1000)
    assert life.check_times(1000 + SILENCE_MS_MAX - 1) is None
    reason = life.check_times(1000 + SILENCE_MS_MAX)
    assert reason is not None
    assert not reason.is_failure


def test_without_registration_or_controlled_shutdown_the_stop_is_at_once() -> None:
    assert lifecycle().shutdown_wanted(0) is not None
    life = lifecycle(controlled_shutdown=False)
    life.next_request(0, 0)
    life.registered(accepted(12), 0)
    assert life.shutdown_wanted(0) is not None


def test_a_fenced_broker_that_is_ready_asks_again_soon() -> None:
    """After a pause of the process (SIGSTOP) the controller has fenced it; it wants to be back."""
    life = running()
    heartbeat(life, 2010)
    life.heartbeat_answered(beat(fenced=True), 2020)
    assert state(life) == "RUNNING"
    assert life.is_fenced
    assert life.next_deadline_ms(True) == 2020 + HURRY_MS


def test_the_session_counts_from_the_sending_of_the_last_heartbeat_that_was_answered() -> None:
    life = running()
    assert not life.is_session_over(1 << 40), "a controller of an earlier build does not say how long it is"
    heartbeat(life, 2010)
    life.heartbeat_answered(replace(beat(), session_timeout_ms=9000), 5000)
    assert not life.is_session_over(11_009)
    assert life.is_session_over(11_010)
    heartbeat(life, 7000)
    life.failed(8000)
    assert life.is_session_over(11_010), "an unanswered heartbeat may never have arrived"


def test_broker_whose_disk_answers_no_more_asks_to_be_fenced_and_back_when_it_does() -> None:
    life = running()
    life.disks_stalled(True, 100)
    request = heartbeat(life, 100)
    assert request.want_fence
    life.heartbeat_answered(beat(fenced=True), 110)
    assert life.next_request(100, 110 + HURRY_MS) is None, "nothing is urgent while the disk hangs"
    life.disks_stalled(False, 500)
    assert not heartbeat(life, 500).want_fence


def test_silence_is_noticed_well_within_a_session() -> None:
    assert lifecycle(heartbeat_ms=2000).answer_timeout_ms == 2000
    assert lifecycle(heartbeat_ms=50).answer_timeout_ms == 1000, "a slow answer is no silence"


def test_a_heartbeat_that_is_refused_unfences_no_broker_and_is_repeated_soon() -> None:
    """R29: only the active controller says who is fenced."""
    life = lifecycle()
    life.next_request(0, 0)
    life.registered(accepted(12), 0)
    life.caught_up(5)
    heartbeat(life, 5)
    assert life.heartbeat_answered(beat(error=ErrorCode.NOT_CONTROLLER), 10) is None
    assert life.is_fenced
    assert state(life) == "RECOVERY"
    assert life.next_deadline_ms(True) == 10 + 50
