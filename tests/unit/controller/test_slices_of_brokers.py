"""A broker with many partitions leaves and returns in slices: others get their answers in between."""

import pytest

from holdfast.controller.core import quorum_controller
from holdfast.controller.core.brokers import departures
from holdfast.metadata.partition import PartitionRegistration
from holdfast.protocol.errors import ErrorCode
from tests.unit.controller.harness import NODE_ID, Quorum, make_config
from tests.unit.controller.test_recovery_in_slices import go_on
from tests.unit.controller.test_topics import create

PARTITIONS, SLICE = 10, 4


@pytest.fixture
def quorum(monkeypatch: pytest.MonkeyPatch) -> Quorum:
    """Ten partitions that broker 1 leads; an event changes four."""
    monkeypatch.setattr(departures, "SLICE_RECORDS_MAX", SLICE)
    made = Quorum(make_config(min_insync_replicas="1"))
    made.start_brokers(1, 2, 3)
    create(made, "t", -1, -1, *[(1, 2, 3)] * PARTITIONS)
    return made


def partitions(quorum: Quorum) -> list[PartitionRegistration]:
    return [quorum.partition("t", index) for index in range(PARTITIONS)]


def led_by(quorum: Quorum, broker_id: int | None) -> int:
    return sum(partition.leader == broker_id for partition in partitions(quorum))


def test_a_vanished_broker_is_fenced_after_its_last_partition(quorum: Quorum) -> None:
    """R20."""
    quorum.vanish(1)
    assert (led_by(quorum, 1), quorum.unfenced()) == (6, [1, 2, 3])
    assert not quorum.heartbeat(2).is_fenced
    assert go_on(quorum) == 2
    assert (led_by(quorum, 2), quorum.unfenced()) == (PARTITIONS, [2, 3])
    assert all(partition.isr == (2, 3) for partition in partitions(quorum))


def test_a_session_that_ended_is_over_though_the_broker_speaks_between_two_slices(quorum: Quorum) -> None:
    silent_since_ms = quorum.now_ms
    for broker_id in (2, 3):
        quorum.heartbeat(broker_id, at_ms=silent_since_ms + 8_000)
    quorum.fire_timer(silent_since_ms + 9_000)
    assert led_by(quorum, 1) == 6
    assert not quorum.heartbeat(1).is_fenced
    go_on(quorum)
    assert (led_by(quorum, 1), quorum.unfenced()) == (0, [2, 3])
    assert not quorum.heartbeat(1).is_fenced, "it is unfenced anew"


def test_what_a_broker_asks_for_is_confirmed_when_it_is_done(quorum: Quorum) -> None:
    """An answer waits for what it promises."""
    first = quorum.heartbeat(1, want_fence=True, want_shutdown=True)
    assert (first.is_fenced, first.should_shut_down) == (False, False)
    go_on(quorum)
    second = quorum.heartbeat(1, want_fence=True, want_shutdown=True)
    assert (second.is_fenced, second.should_shut_down) == (True, True)


def test_a_controlled_shutdown_hands_over_in_slices(quorum: Quorum) -> None:
    assert not quorum.heartbeat(1, want_shutdown=True).should_shut_down
    assert led_by(quorum, 1) == 6
    go_on(quorum)
    assert (led_by(quorum, 1), quorum.unfenced()) == (0, [1, 2, 3])
    for broker_id in (2, 3):
        quorum.heartbeat(broker_id)
    assert quorum.heartbeat(1, want_shutdown=True).should_shut_down


def test_a_broker_that_returns_is_elected_in_slices(quorum: Quorum) -> None:
    for broker_id in (3, 2, 1):
        quorum.vanish(broker_id)
        go_on(quorum)
    assert led_by(quorum, None) == PARTITIONS
    quorum.register(1, previous_broker_epoch=quorum.image.brokers[1].broker_epoch)
    quorum.heartbeat(1)
    assert led_by(quorum, 1) == SLICE
    go_on(quorum)
    assert led_by(quorum, 1) == PARTITIONS


def test_a_process_that_restarts_within_its_session_registers_after_the_last_slice(quorum: Quorum) -> None:
    """D14: the old incarnation leaves first."""
    epoch = quorum.image.brokers[1].broker_epoch
    refused = quorum.register(1, previous_broker_epoch=epoch)
    assert refused.error_code is ErrorCode.OPERATION_NOT_ATTEMPTED
    go_on(quorum)
    assert (led_by(quorum, 1), quorum.unfenced()) == (0, [2, 3])
    answer = quorum.register(1, previous_broker_epoch=epoch)
    assert (answer.error_code, answer.clean_shutdown) == (ErrorCode.NONE, True)


def test_an_unclean_restart_leaves_the_elr_in_slices_before_it_registers(quorum: Quorum) -> None:
    """R32."""
    for broker_id in (2, 3, 1):
        quorum.vanish(broker_id)
        go_on(quorum)
    assert all(partition.elr == (1,) for partition in partitions(quorum))
    assert quorum.register(1).error_code is ErrorCode.OPERATION_NOT_ATTEMPTED
    assert sum(partition.elr == () for partition in partitions(quorum)) == SLICE
    assert go_on(quorum) == 2
    assert all(partition.elr == () for partition in partitions(quorum))
    assert quorum.register(1).error_code is ErrorCode.NONE
    assert quorum.core.unclean_registrations == {1: 1}


def test_a_killed_broker_whose_session_lives_is_fenced_with_its_last_slice(quorum: Quorum) -> None:
    """Nothing elects the process that is gone before the new one asks again: it would never be out."""
    quorum.vanish(1, is_refused=False)
    assert quorum.register(1).error_code is ErrorCode.OPERATION_NOT_ATTEMPTED
    assert quorum.unfenced() == [1, 2, 3]
    go_on(quorum)
    assert (led_by(quorum, 1), quorum.unfenced()) == (0, [2, 3])
    answer = quorum.register(1)
    assert (answer.error_code, answer.clean_shutdown) == (ErrorCode.NONE, False)


@pytest.mark.parametrize("leaves", ["vanishes", "restarts"])
def test_a_broker_that_leaves_is_not_elected_again_by_a_takeover(
    quorum: Quorum, monkeypatch: pytest.MonkeyPatch, leaves: str
) -> None:
    """It counts as active until its last slice: each would undo the other for ever."""
    monkeypatch.setattr(quorum_controller, "SLICE_RECORDS_MAX", SLICE)
    create(quorum, "alone", -1, -1, *[(3,)] * 30)
    quorum.vanish(3)
    go_on(quorum)
    quorum.register(3, previous_broker_epoch=quorum.image.brokers[3].broker_epoch)
    quorum.heartbeat(3)
    for _ in range(3):  # it returns, and leads some again
        quorum.fire_timer(quorum.now_ms)
    quorum.fail_over()
    quorum.heartbeat(3)
    if leaves == "vanishes":
        quorum.vanish(3)
    else:
        quorum.register(3, previous_broker_epoch=quorum.image.brokers[3].broker_epoch)
    assert go_on(quorum) < 20
    assert quorum.unfenced() == [1, 2]
    assert all(partition.leader is None for partition in quorum.topic("alone").partitions.values())


def test_the_next_controller_begins_anew(quorum: Quorum) -> None:
    """K23: the broker has a new session, which ends too."""
    quorum.vanish(1)
    quorum.fail_over()
    assert go_on(quorum) == 0
    assert quorum.unfenced() == [1, 2, 3]
    begun_ms = quorum.now_ms
    for broker_id in (2, 3):
        quorum.heartbeat(broker_id, at_ms=begun_ms + 8_000)
    quorum.fire_timer(begun_ms + 9_000)
    go_on(quorum)
    assert quorum.unfenced() == [2, 3]


def test_a_controller_that_leads_again_takes_also_what_was_never_committed(quorum: Quorum) -> None:
    """K23: the rest of a slice begins behind changes that are gone with its leadership."""
    quorum.is_held = True
    quorum.vanish(1)
    quorum.is_held = False
    quorum.lose(NODE_ID + 1)
    quorum.elect()
    assert led_by(quorum, 1) == PARTITIONS
    begun_ms = quorum.now_ms
    for broker_id in (2, 3):
        quorum.heartbeat(broker_id, at_ms=begun_ms + 8_000)
    quorum.fire_timer(begun_ms + 9_000)
    go_on(quorum)
    assert quorum.unfenced() == [2, 3]
    assert all(partition.isr == (2, 3) for partition in partitions(quorum))
