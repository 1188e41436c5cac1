"""Registration R30-R32, heartbeats R23-R25, fencing R20, D7's late check, D9's fast fencing."""

from typing import Any

import pytest

from holdfast.controller.core.brokers import cluster_control
from holdfast.controller.core.brokers.cluster_control import PROBE_DELAYS_MS, REGISTRATION_BYTES_MAX
from holdfast.controller.core.events import ConnectionClosed, Probed
from holdfast.controller.core.operators.operations import DONE, UnregisterBroker
from holdfast.metadata.records import ELR_FEATURE
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.broker_registration import FeatureRange, ListenerEndpoint
from tests.unit.controller.harness import Quorum, make_config
from tests.unit.controller.test_topics import create


def started(*broker_ids: int, topic: bool = True) -> Quorum:
    quorum = Quorum(make_config(min_insync_replicas="2"))
    quorum.start_brokers(*broker_ids)
    if topic:
        assert create(quorum, "t", 1, len(broker_ids)).error_code == ErrorCode.NONE
    return quorum


# --- registration ----------------------------------------------------------------------------------------


def test_the_broker_epoch_is_the_offset_of_the_registration() -> None:
    """K28."""
    quorum = started(topic=False)
    expected = quorum.end_offset
    answer = quorum.register(7)
    assert (answer.error_code, answer.broker_epoch, answer.clean_shutdown) == (ErrorCode.NONE, expected, True)
    assert quorum.image.brokers[7].is_fenced
    assert quorum.register(8).broker_epoch == expected + 1


@pytest.mark.parametrize(
    ("broker_id", "changes", "error"),
    [
        (7, {"cluster_id": "other"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        (1, {"cluster_id": "other"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        (1, {"log_dirs": ()}, ErrorCode.DUPLICATE_BROKER_REGISTRATION),
        (7, {"log_dirs": ()}, ErrorCode.INVALID_REGISTRATION),
        (7, {"log_dirs": (b"d" * 16, b"d" * 16)}, ErrorCode.INVALID_REGISTRATION),
        (7, {"log_dirs": (bytes(16),)}, ErrorCode.INVALID_REGISTRATION),
        (7, {"log_dirs": ((1_000_001).to_bytes(16, "big"),)}, ErrorCode.INVALID_REGISTRATION),
        (7, {"listeners": ()}, ErrorCode.INVALID_REGISTRATION),
        (7, {"listeners": (ListenerEndpoint("A", "b2..example", 1),)}, ErrorCode.INVALID_REGISTRATION),
        (7, {"listeners": (ListenerEndpoint("A", "", 1),)}, ErrorCode.INVALID_REGISTRATION),
        (7, {"listeners": (ListenerEndpoint("A", "h", 0),)}, ErrorCode.INVALID_REGISTRATION),
        (7, {"listeners": (ListenerEndpoint("A", "h", 65_536),)}, ErrorCode.INVALID_REGISTRATION),
        (101, {}, ErrorCode.INVALID_REGISTRATION),
        (7, {"features": ()}, ErrorCode.UNSUPPORTED_VERSION),
        (7, {"features": (FeatureRange(ELR_FEATURE, 2, 3),), "log_dirs": ()}, ErrorCode.INVALID_REGISTRATION),
    ],
)
def test_registration_checks_in_their_order(
    broker_id: int, changes: dict[str, Any], error: ErrorCode
) -> None:
    """R30; where two things are wrong the earlier check speaks. Nothing is written."""
    quorum = started(1, topic=False)
    end_offset = quorum.end_offset
    answer = quorum.register(broker_id, **changes)
    assert (answer.error_code, answer.broker_epoch) == (error, -1)
    assert answer.error_message
    assert quorum.end_offset == end_offset


def test_a_broker_does_not_take_the_id_of_a_voter_that_only_the_log_names() -> None:
    """K30."""
    quorum = started(1, topic=False)
    quorum.voter_ids = (7, 101)
    assert quorum.register(7).error_code == ErrorCode.INVALID_REGISTRATION
    quorum.voter_ids = (101,)
    assert quorum.register(7).error_code == ErrorCode.NONE


def test_the_same_incarnation_keeps_its_epoch_and_its_state() -> None:
    """R31: a retry writes nothing; other addresses are taken over."""
    quorum = started(topic=False)
    epoch = quorum.register(7, incarnation=5).broker_epoch
    quorum.heartbeat(7)
    end_offset = quorum.end_offset
    assert quorum.register(7, incarnation=5).broker_epoch == epoch
    assert quorum.end_offset == end_offset
    moved = (ListenerEndpoint("PLAINTEXT", "elsewhere", 1),)
    assert quorum.register(7, incarnation=5, listeners=moved).broker_epoch == epoch
    broker = quorum.image.brokers[7]
    assert (broker.listeners, broker.is_fenced, broker.broker_epoch) == (moved, False, epoch)


@pytest.mark.parametrize(
    "changes",
    [
        {"listeners": tuple(ListenerEndpoint(f"L{n}", "h" * 60, 1) for n in range(1000))},
        {"listeners": tuple(ListenerEndpoint(f"L{n}" + "l" * 30_000, "h", 1) for n in range(300))},
        {"features": tuple(FeatureRange(f"f{n}" + "f" * 30_000, 0, 1) for n in range(300))},
        {"log_dirs": tuple((1 << 80 | n).to_bytes(16, "big") for n in range(4000))},
        {"rack": "r" * 70_000},
    ],
)
def test_a_registration_that_fills_batches_is_refused(changes: dict[str, Any]) -> None:
    """The log takes 8 MiB in a batch, and raft asserts it: the active controller would end, then the next."""
    quorum = started(topic=False)
    answer = quorum.register(7, **changes)
    assert answer.error_code == ErrorCode.INVALID_REGISTRATION
    assert f"at most {REGISTRATION_BYTES_MAX} bytes" in (answer.error_message or "")
    assert 7 not in quorum.image.brokers
    assert quorum.register(7, incarnation=5).error_code == ErrorCode.NONE
    assert quorum.register(7, incarnation=5, **changes).error_code == ErrorCode.INVALID_REGISTRATION


def test_directory_ids_up_to_99_are_reserved() -> None:
    """R30: the last one of them, and the first that is free."""
    quorum = started(topic=False)
    answers = [quorum.register(7, log_dirs=(number.to_bytes(16, "big"),)) for number in (99, 100)]
    assert [answer.error_code for answer in answers] == [ErrorCode.INVALID_REGISTRATION, ErrorCode.NONE]


def test_a_fenced_broker_that_asks_again_since_the_answer_was_lost_keeps_its_epoch() -> None:
    """R31, R32: it names the epoch before that again, and would count as stopped uncleanly."""
    quorum = started(topic=False)
    first = quorum.register(7, incarnation=5)
    end_offset = quorum.end_offset
    again = quorum.register(7, incarnation=5)
    assert (again.broker_epoch, again.clean_shutdown) == (first.broker_epoch, first.clean_shutdown)
    assert quorum.end_offset == end_offset


def test_an_amended_registration_goes_on_with_its_controlled_shutdown() -> None:
    """R31: it would count as active again, and get leaderships on its way out."""
    quorum = started(1, 2, 3)
    leader = quorum.partition("t").leader
    assert leader is not None
    assert not quorum.heartbeat(leader, want_shutdown=True, metadata_offset=0).should_shut_down
    moved = (ListenerEndpoint("PLAINTEXT", "elsewhere", 1),)
    incarnation = int.from_bytes(quorum.image.brokers[leader].incarnation_id, "big")
    assert quorum.register(leader, incarnation=incarnation, listeners=moved).error_code == ErrorCode.NONE
    broker = quorum.image.brokers[leader]
    assert (broker.listeners, broker.in_controlled_shutdown, broker.is_fenced) == (moved, True, False)


def test_a_process_that_was_let_go_and_lives_registers_anew() -> None:
    """R22: another had asked for its stop. With its old epoch it would be fenced again and again."""
    quorum = started(1, 2, 3)
    leader = quorum.partition("t").leader
    assert leader is not None
    old = quorum.image.brokers[leader]
    quorum.heartbeat(leader, want_shutdown=True)
    for other in {1, 2, 3} - {leader}:
        quorum.heartbeat(other)
    assert quorum.heartbeat(leader).should_shut_down
    incarnation = int.from_bytes(old.incarnation_id, "big")
    answer = quorum.register(leader, incarnation=incarnation, previous_broker_epoch=-1)
    assert (answer.error_code, answer.clean_shutdown) == (ErrorCode.NONE, False)
    assert answer.broker_epoch > old.broker_epoch
    quorum.heartbeat(leader)
    broker = quorum.image.brokers[leader]
    assert (broker.in_controlled_shutdown, broker.is_fenced) == (False, False)


def test_a_clean_restart_while_the_old_incarnation_counts_as_alive_removes_it_first() -> None:
    """D14, last part, in one atomic batch: leadership and ISR, then the registration."""
    quorum = started(1, 2, 3)
    leader = quorum.partition("t").leader
    assert leader is not None
    epoch = quorum.image.brokers[leader].broker_epoch
    before = quorum.end_offset
    answer = quorum.register(leader, previous_broker_epoch=epoch)
    assert (answer.error_code, answer.clean_shutdown) == (ErrorCode.NONE, True)
    assert answer.broker_epoch == quorum.end_offset - 1 > before
    partition = quorum.partition("t")
    assert leader not in partition.isr
    assert partition.leader not in (None, leader)
    assert quorum.image.brokers[leader].is_fenced


def restarted(quorum: Quorum, broker_id: int, **changes: Any) -> ErrorCode:
    """Another incarnation registers while the session of the broker lives."""
    assert broker_id in quorum.unfenced()
    return ErrorCode(quorum.register(broker_id, **changes).error_code)


STRANGE_DIRS = (b"s" * 16,)


@pytest.mark.parametrize("proves_clean_stop", [False, True])
@pytest.mark.parametrize("is_connected", [False, True])
def test_a_process_without_a_log_dir_of_a_live_broker_is_no_restart_of_it(
    proves_clean_stop: bool, is_connected: bool
) -> None:
    """D14, A-7: a second broker with the same node.id must not take the place of the first."""
    quorum = started(1, 2, 3)
    epoch = quorum.image.brokers[2].broker_epoch
    if not is_connected:
        quorum.vanish(2, is_refused=False)
    proof = epoch if proves_clean_stop else -1
    answer = restarted(quorum, 2, log_dirs=STRANGE_DIRS, previous_broker_epoch=proof)
    assert answer == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert quorum.image.brokers[2].broker_epoch == epoch
    assert quorum.unfenced() == [1, 2, 3]


def test_a_copy_of_the_log_dirs_beside_the_connected_original_is_refused() -> None:
    quorum = started(1, 2, 3)
    assert restarted(quorum, 2) == ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_a_killed_broker_registers_at_once_when_its_connection_is_closed() -> None:
    """It need not wait for its old session, and is unclean (R32)."""
    quorum = started(1, 2, 3)
    leader = quorum.partition("t").leader
    assert leader is not None
    quorum.vanish(leader, is_refused=False)
    assert restarted(quorum, leader) == ErrorCode.NONE
    partition, broker = quorum.partition("t"), quorum.image.brokers[leader]
    assert not broker.clean_shutdown
    assert broker.is_fenced
    assert leader not in partition.isr + partition.elr
    assert partition.leader not in (None, leader)


def test_who_has_left_a_log_dir_behind_registers_unclean() -> None:
    """R32: the proof was of all logs; some of those that it makes anew may have been in there."""
    quorum = started(topic=False)
    both, other = (b"1" * 16, b"2" * 16), b"3" * 16
    epoch = quorum.register(7, log_dirs=both).broker_epoch
    epoch = quorum.register(7, previous_broker_epoch=epoch, log_dirs=(*both, other)).broker_epoch
    assert quorum.image.brokers[7].clean_shutdown
    assert not quorum.register(7, previous_broker_epoch=epoch, log_dirs=both).clean_shutdown


def test_an_unclean_registration_is_counted_and_told() -> None:
    quorum = started(1, 2)
    quorum.vanish(2)
    answer = quorum.register(2)
    assert (answer.error_code, answer.clean_shutdown) == (ErrorCode.NONE, False)
    assert not quorum.image.brokers[2].clean_shutdown
    assert quorum.core.unclean_registrations == {2: 1}
    assert any("broker 2 registered after an unclean shutdown" in note.text for note in quorum.notes)


def test_a_first_registration_that_claims_an_epoch_is_unclean() -> None:
    quorum = started(topic=False)
    assert not quorum.register(7, previous_broker_epoch=3).clean_shutdown


def test_an_unregistered_broker_is_in_no_set() -> None:
    """R28, B10."""
    quorum = started(1, 2, 3)
    quorum.alter("t", (quorum.partition("t").leader or 0,))
    leader, elr = quorum.partition("t").leader, quorum.partition("t").elr
    assert leader is not None
    assert quorum.request(UnregisterBroker(elr[0])) == DONE
    assert quorum.partition("t").elr == elr[1:]
    assert quorum.request(UnregisterBroker(leader)) == DONE
    again = quorum.request(UnregisterBroker(leader))
    assert again.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    after = quorum.partition("t")
    assert (after.leader, after.isr, after.last_known_elr) == (elr[1], elr[1:], ())
    assert sorted(quorum.image.brokers) == [elr[1]]


# --- heartbeats ------------------------------------------------------------------------------------------


def test_heartbeats_of_strangers_are_refused() -> None:
    """R24."""
    quorum = started(1, topic=False)
    assert quorum.heartbeat(9).error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert quorum.heartbeat(1, broker_epoch=0).error_code == ErrorCode.STALE_BROKER_EPOCH


def test_a_broker_is_unfenced_once_it_has_applied_its_own_registration() -> None:
    """R23, N-2: up to and including the record at its epoch."""
    quorum = started(topic=False)
    epoch = quorum.register(7).broker_epoch
    early = quorum.heartbeat(7, metadata_offset=epoch)
    assert (early.is_caught_up, early.is_fenced) == (False, True)
    unwilling = quorum.heartbeat(7, metadata_offset=epoch + 1, want_fence=True)
    assert (unwilling.is_caught_up, unwilling.is_fenced) == (True, True)
    assert not quorum.heartbeat(7, metadata_offset=epoch + 1).is_fenced
    assert quorum.image.is_active(7)


def test_wishes_of_an_unfenced_broker() -> None:
    """R23: fence, stop at once without leaderships, controlled shutdown with them."""
    quorum = started(1, 2, 3)
    leader = quorum.partition("t").leader
    assert leader is not None
    follower, other = (broker for broker in (1, 2, 3) if broker != leader)
    assert quorum.heartbeat(follower, want_fence=True).is_fenced
    assert not quorum.heartbeat(follower).is_fenced
    stopped = quorum.heartbeat(other, want_shutdown=True)
    assert (stopped.should_shut_down, stopped.is_fenced) == (True, True)
    leaving = quorum.heartbeat(leader, want_shutdown=True, metadata_offset=0)
    assert (leaving.should_shut_down, leaving.is_fenced) == (False, False)
    assert quorum.image.brokers[leader].in_controlled_shutdown
    assert quorum.heartbeat(other, want_shutdown=True).should_shut_down, "a fenced broker may stop at once"


def test_a_leader_that_wants_the_fence_too_may_stop_at_once() -> None:
    """R23: it does not serve, so there is nothing to hand over in an orderly way."""
    quorum = started(1, 2, 3)
    leader = quorum.partition("t").leader
    assert leader is not None
    answer = quorum.heartbeat(leader, want_fence=True, want_shutdown=True)
    assert (answer.should_shut_down, answer.is_fenced) == (True, True)
    assert quorum.partition("t").leader not in (leader, None)


def test_a_controlled_shutdown_survives_a_controller_failover() -> None:
    """R26: Kafka forgets the shutdown offset, so that a broker may go before the new leaders know of it."""
    quorum = started(1, 2, 3)
    leader = quorum.partition("t").leader
    assert leader is not None
    others = [broker for broker in (1, 2, 3) if broker != leader]
    behind = quorum.committed_offset
    assert not quorum.heartbeat(leader, want_shutdown=True).should_shut_down
    shutdown_end = quorum.committed_offset
    quorum.fail_over()
    assert quorum.image.brokers[leader].in_controlled_shutdown
    assert not quorum.heartbeat(leader, want_shutdown=True).should_shut_down
    quorum.heartbeat(others[0])
    quorum.heartbeat(others[1], metadata_offset=behind)
    assert not quorum.heartbeat(leader, want_shutdown=True).should_shut_down
    assert quorum.committed_offset > shutdown_end
    quorum.heartbeat(others[1])
    assert quorum.heartbeat(leader, want_shutdown=True).should_shut_down


def test_a_controlled_shutdown_ends_when_the_others_have_learned_of_it() -> None:
    """R23: the shutdown offset must be below what every active broker has applied."""
    quorum = started(1, 2, 3)
    leader = quorum.partition("t").leader
    assert leader is not None
    others = [broker for broker in (1, 2, 3) if broker != leader]
    for broker in others:
        quorum.heartbeat(broker)
    assert not quorum.heartbeat(leader, want_shutdown=True).should_shut_down
    assert not quorum.heartbeat(leader, want_shutdown=True).should_shut_down
    quorum.heartbeat(others[0])
    assert not quorum.heartbeat(leader, want_shutdown=True).should_shut_down
    quorum.heartbeat(others[1])
    assert quorum.heartbeat(leader, want_shutdown=True).should_shut_down
    assert quorum.image.brokers[leader].is_fenced


# --- sessions --------------------------------------------------------------------------------------------


def test_a_silent_broker_is_fenced_when_its_session_ends_and_not_before() -> None:
    quorum = started(1, 2)
    silent_since_ms = quorum.now_ms
    quorum.now_ms += 5000
    quorum.heartbeat(1)
    assert quorum.core.next_deadline_ms() is not None
    quorum.fire_timer(silent_since_ms + 8999)
    assert quorum.unfenced() == [1, 2]
    quorum.fire_timer(silent_since_ms + 9000)
    assert quorum.unfenced() == [1]
    quorum.fire_timer(silent_since_ms + 13_999)
    assert quorum.unfenced() == [1]
    quorum.fire_timer(silent_since_ms + 14_000)
    assert quorum.unfenced() == []


def test_sessions_that_end_together_over_many_partitions_are_fenced_an_event_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """B13, R25: in order of last contact; in between voters are answered, or no controller stays active."""
    quorum = started(1, 2, 3)
    for at_ms, broker_id in enumerate((3, 1, 2)):
        quorum.heartbeat(broker_id, at_ms=quorum.now_ms + at_ms)
    monkeypatch.setattr(cluster_control, "CHECK_RECORDS_MAX", 1)
    # the check runs a little late: all three have ended by then
    quorum.fire_timer(quorum.now_ms + 9_010)
    for left in ([1, 2], [2], []):
        assert quorum.unfenced() == left
        quorum.fire_timer(quorum.now_ms)


def test_a_check_that_runs_late_itself_extends_all_sessions_and_looks_again() -> None:
    """D7: this process stood still, the heartbeats wait in its sockets."""
    quorum = started(1, 2)
    due_ms = quorum.now_ms + 9000
    quorum.fire_timer(due_ms + 20_000)
    assert quorum.unfenced() == [1, 2]
    deadline_ms = quorum.core.next_deadline_ms()
    assert deadline_ms is not None
    assert deadline_ms <= quorum.now_ms, "again, once the sockets have been read"
    quorum.heartbeat(1)
    quorum.fire_timer(quorum.now_ms)
    assert quorum.unfenced() == [1]


def test_a_check_that_runs_a_little_late_is_good_enough() -> None:
    quorum = started(1, 2)
    quorum.fire_timer(quorum.now_ms + 9000 + 9000 // 8)
    assert quorum.unfenced() == []


def test_a_new_active_controller_gives_whole_new_sessions() -> None:
    """R26."""
    quorum = started(1, 2)
    quorum.now_ms += 8000
    quorum.fail_over()
    started_ms = quorum.now_ms
    quorum.fire_timer(started_ms + 8999)
    assert quorum.unfenced() == [1, 2]
    quorum.fire_timer(started_ms + 9000)
    assert quorum.unfenced() == []


# --- D9 --------------------------------------------------------------------------------------------------


def test_a_closed_connection_and_a_refusing_listener_fence_at_once() -> None:
    quorum = started(1, 2)
    quorum.vanish(2)
    assert quorum.unfenced() == [1]
    assert [(probe.host, probe.port, probe.delay_ms) for probe in quorum.probes] == [("b2", 9092, 0)]


def test_without_a_refusal_the_session_decides() -> None:
    """A few further probes, because a dying process may close its listener last."""
    quorum = started(1, 2)
    quorum.vanish(2, is_refused=False)
    assert quorum.unfenced() == [1, 2]
    assert [probe.delay_ms for probe in quorum.probes] == list(PROBE_DELAYS_MS)


def test_a_heartbeat_on_another_connection_outdoes_the_probe() -> None:
    quorum = started(1, 2)
    quorum.handle(ConnectionClosed(2))
    quorum.heartbeat(2)
    probe = quorum.probes[-1]
    quorum.handle(Probed(probe.broker_id, probe.broker_epoch, probe.attempt, is_refused=True))
    assert quorum.unfenced() == [1, 2]


def test_a_probe_of_an_old_incarnation_says_nothing_about_the_new_one() -> None:
    quorum = started(1, 2)
    quorum.handle(ConnectionClosed(2))
    probe = quorum.probes[-1]
    quorum.register(2, previous_broker_epoch=probe.broker_epoch)
    quorum.heartbeat(2)
    quorum.handle(ConnectionClosed(2))
    quorum.handle(Probed(2, probe.broker_epoch, 0, is_refused=True))
    assert quorum.unfenced() == [1, 2]


def test_a_strangers_connection_is_ignored() -> None:
    quorum = started(1, 2)
    quorum.handle(ConnectionClosed(99))
    assert quorum.probes == []
