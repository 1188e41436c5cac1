"""A log dir of a broker fails: its replicas there leave, the broker stays (R27, B24)."""

from holdfast.controller.core.operators.operations import UpdateFeature
from holdfast.controller.core.partitions.election import Rejection
from holdfast.metadata.records import ELR_FEATURE
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.broker_registration import OfflineTopic
from tests.unit.controller.harness import Quorum, make_config
from tests.unit.controller.test_topics import create


def started(*broker_ids: int, partitions: int = 2, **properties: str) -> Quorum:
    quorum = Quorum(make_config(**{"min_insync_replicas": "2", **properties}))
    quorum.start_brokers(*broker_ids)
    assert create(quorum, "t", partitions, len(broker_ids)).error_code == ErrorCode.NONE
    return quorum


def lose(quorum: Quorum, broker_id: int, *indexes: int, want_fence: bool = False) -> None:
    """The broker reports these partitions of topic t."""
    rows = (OfflineTopic(quorum.topic("t").topic_id, indexes),)
    answer = quorum.heartbeat(broker_id, offline=rows, want_fence=want_fence)
    assert answer.error_code == ErrorCode.NONE


def leads(quorum: Quorum, index: int = 0) -> int:
    leader = quorum.partition("t", index).leader
    assert leader is not None
    return leader


def test_replicas_in_a_failed_dir_lose_leadership_and_seats_and_the_others_stay() -> None:
    """R27; the other partition of the broker is as it was."""
    quorum = started(1, 2, 3)
    hit, other = leads(quorum), quorum.partition("t", 1)
    lose(quorum, hit, 0)
    after = quorum.partition("t")
    assert after.leader not in (hit, None)
    assert hit not in after.isr + after.elr
    assert quorum.partition("t", 1) == other
    assert quorum.unfenced() == [1, 2, 3]
    decision = list(quorum.core.decisions)[-1].decision
    assert str(decision.cause) == f"a log dir of broker {hit} failed, or its replica is damaged"
    assert (hit, Rejection.LOG_DIR_FAILED) in decision.rejected


def test_last_member_of_the_isr_in_a_failed_dir_is_not_shown_as_eligible() -> None:
    """B24: its clean-shutdown mark will never be written, so it is out as R32 would have it, at once."""
    quorum = started(1, 2, partitions=1)
    first = leads(quorum)
    second = 3 - first
    quorum.vanish(second)
    lose(quorum, first, 0)
    after = quorum.partition("t")
    assert (after.leader, after.isr, after.elr, after.last_known_elr) == (None, (), (second,), (first,))
    assert quorum.register(second, quorum.image.brokers[second].broker_epoch).clean_shutdown
    quorum.heartbeat(second)
    assert quorum.partition("t").leader == second


def test_last_member_that_was_kept_without_elr_is_not_eligible_once_it_leaves_with_elr() -> None:
    """F7, B24: its dir failed while no other replica could lead, then ELR was switched on."""
    quorum = started(1, 2, 3, partitions=1, eligible_leader_replicas_enabled="false")
    leader = leads(quorum)
    quorum.alter("t", (leader,))
    lose(quorum, leader, 0)
    assert quorum.partition("t").isr == (leader,)
    quorum.request(UpdateFeature(ELR_FEATURE, 1))
    quorum.vanish(leader)
    after = quorum.partition("t")
    assert (after.leader, after.isr, after.elr, after.last_known_elr) == (None, (), (), (leader,))


def test_replica_in_a_failed_dir_is_elected_on_no_path() -> None:
    """A-13 for replicas: not by an operator, not uncleanly, not as last known leader with the manager off."""
    quorum = started(1, partitions=1, min_insync_replicas="1", unclean_recovery_manager_enabled="false",
                     unclean_leader_election_enable="true")  # fmt: skip
    lose(quorum, 1, 0)
    assert quorum.partition("t").leader is None
    quorum.fire_timer(quorum.now_ms + 600_000)
    assert quorum.partition("t").leader is None


def test_leader_may_not_ask_such_a_replica_into_the_isr() -> None:
    """R41: it is refused as a fenced one is."""
    quorum = started(1, 2, 3, partitions=1)
    leader = leads(quorum)
    hit = next(b for b in (1, 2, 3) if b != leader)
    lose(quorum, hit, 0)
    row = quorum.alter("t", (1, 2, 3)).partitions[0]
    assert row.error_code == ErrorCode.INELIGIBLE_REPLICA


def test_report_that_comes_again_writes_nothing() -> None:
    quorum = started(1, 2, 3)
    lose(quorum, 1, 0, 1)
    end_offset = quorum.end_offset
    lose(quorum, 1, 0, 1)
    assert quorum.end_offset == end_offset


def test_partition_that_a_report_names_in_two_rows_changes_once() -> None:
    quorum = started(1, 2, 3)
    topic_id, before = quorum.topic("t").topic_id, quorum.partition("t")
    rows = (OfflineTopic(topic_id, (0,)), OfflineTopic(topic_id, (1, 0)))
    quorum.heartbeat(leads(quorum), offline=rows)
    after = quorum.partition("t")
    assert (after.leader_epoch, after.partition_epoch) == (
        before.leader_epoch + 1,
        before.partition_epoch + 1,
    )


def test_unknown_and_foreign_partitions_of_a_report_are_passed_over() -> None:
    quorum = started(1, 2, 3)
    end_offset = quorum.end_offset
    quorum.heartbeat(1, offline=(OfflineTopic(b"x" * 16, (0,)),))
    lose(quorum, 1, 9)
    assert quorum.end_offset == end_offset


def test_report_counts_before_the_broker_is_unfenced_by_the_same_heartbeat() -> None:
    """A broker that starts with a failed dir never leads what lies there, not for a moment."""
    quorum = started(1, partitions=1, min_insync_replicas="1")
    quorum.vanish(1)
    epoch = quorum.image.brokers[1].broker_epoch
    assert quorum.partition("t").elr == (1,)
    assert quorum.register(1, epoch).clean_shutdown
    lose(quorum, 1, 0)
    after = quorum.partition("t")
    assert quorum.unfenced() == [1]
    assert (after.leader, after.elr, after.last_known_elr) == (None, (), (1,))
    assert [entry.after.leader for entry in quorum.core.decisions][1:] == [None] * (
        len(quorum.core.decisions) - 1
    )


def test_next_incarnation_has_no_offline_replicas_until_it_says_so() -> None:
    """The dir was repaired: the replica comes back as after any unclean stop."""
    quorum = started(1, 2, 3, partitions=1)
    lose(quorum, 1, 0)
    assert quorum.image.brokers[1].offline_replicas
    quorum.vanish(1)
    assert not quorum.register(1).clean_shutdown
    quorum.heartbeat(1)
    assert not quorum.image.brokers[1].offline_replicas
    assert quorum.alter("t", (1, 2, 3)).partitions[0].error_code == ErrorCode.NONE


def test_offline_replicas_outlive_the_controller() -> None:
    """They are in the log, as all that decides who may lead (D7)."""
    quorum = started(1, 2, 3, partitions=1)
    lose(quorum, 1, 0)
    quorum.fail_over()
    assert quorum.replayed().brokers[1].offline_replicas == quorum.image.brokers[1].offline_replicas
    assert quorum.alter("t", (1, 2, 3)).partitions[0].error_code == ErrorCode.INELIGIBLE_REPLICA


def test_recovery_waits_for_the_broker_of_a_failed_dir_to_come_back() -> None:
    """A replica in a failed dir is not asked for its log: it has none to show (D8, R64)."""
    quorum = started(1, partitions=1, min_insync_replicas="1", unclean_recovery_manager_enabled="true")
    lose(quorum, 1, 0)
    quorum.fire_timer(quorum.now_ms + 1)
    assert quorum.asked == []
    quorum.vanish(1)
    quorum.register(1)
    quorum.heartbeat(1)
    assert [question.broker_id for question in quorum.asked] == [1]


# --- damaged replicas that come back -------------------------------------------------------------------


def begin_anew(quorum: Quorum, broker_id: int, *indexes: int) -> None:
    quorum.heartbeat(broker_id, online=(OfflineTopic(quorum.topic("t").topic_id, indexes),))


def test_replica_that_begins_anew_is_active_and_has_no_seat() -> None:
    """It is empty: it joins the ISR like any follower, when its leader says that it has caught up."""
    quorum = started(1, 2, 3)
    hit = leads(quorum)
    lose(quorum, hit, 0)
    before = quorum.partition("t")
    begin_anew(quorum, hit, 0)
    assert not quorum.image.brokers[hit].offline_replicas
    assert quorum.partition("t") == before
    assert quorum.replayed().brokers[hit].offline_replicas == quorum.image.brokers[hit].offline_replicas


def test_report_of_a_new_beginning_may_be_repeated_and_names_only_what_is_offline() -> None:
    quorum = started(1, 2, 3)
    lose(quorum, 1, 0)
    begin_anew(quorum, 1, 0, 1, 7)
    offset = quorum.image.offset
    begin_anew(quorum, 1, 0, 1, 7)
    assert quorum.image.offset == offset
    assert not quorum.image.brokers[1].offline_replicas
    lose(quorum, 1, 0)
    assert list(quorum.image.brokers[1].offline_replicas) == [(quorum.topic("t").topic_id, 0)]


def test_last_complete_replica_that_is_damaged_leaves_the_partition_to_the_operator() -> None:
    """No other replica is elected in its place, no matter what it has."""
    quorum = started(1, 2, partitions=1)
    first = leads(quorum)
    quorum.vanish(3 - first)
    quorum.register(3 - first)
    quorum.heartbeat(3 - first)
    lose(quorum, first, 0)
    after = quorum.partition("t")
    assert (after.leader, after.isr, after.elr, after.last_known_elr) == (None, (), (), (1, 2))
