"""A leader without room for records hands its leaderships to followers that have some."""

import pytest

from holdfast.controller.core.decisions import CauseKind
from holdfast.controller.core.metrics import families
from holdfast.controller.core.partitions import short_leaders
from holdfast.controller.core.partitions.election import ElectionReason
from holdfast.metadata.partition import PartitionRegistration
from holdfast.metadata.records import TopicRecord
from holdfast.protocol.messages.broker_registration import OfflineTopic
from tests.unit.controller.harness import Quorum, make_config
from tests.unit.controller.test_recovery_in_slices import go_on

TOPIC_ID = b"t" * 16
MINUTE_MS = 60_000


def led_by_1(count: int = 1, isr: tuple[int, ...] = (1, 2, 3), **properties: str) -> Quorum:
    """Three brokers; 1 leads all partitions, which 2 and 3 follow."""
    quorum = Quorum(make_config(broker_session_timeout_ms="2000000", **properties), now_ms=0)
    quorum.start_brokers(1, 2, 3)
    partition = PartitionRegistration((1, 2, 3), isr, 1, 1, 1, 2)
    quorum.inject(TopicRecord("t", TOPIC_ID), *(partition.to_record(TOPIC_ID, n) for n in range(count)))
    return quorum


def short(*indexes: int) -> tuple[OfflineTopic, ...]:
    return (OfflineTopic(TOPIC_ID, indexes), OfflineTopic(b"deleted topic id", (0,)))


def leaders(quorum: Quorum) -> list[int | None]:
    return [partition.leader for _, partition in sorted(quorum.topic("t").partitions.items())]


def test_leader_without_room_stays_in_the_isr_and_a_follower_leads() -> None:
    quorum = led_by_1(2)
    quorum.heartbeat(1, low_on_space=short(1, 7))
    assert leaders(quorum) == [1, 2], "only the replica in the short log dir"
    row = quorum.partition("t", 1)
    assert (row.leader_epoch, row.isr) == (2, (1, 2, 3))
    entry = list(quorum.core.decisions)[-1]
    assert (entry.decision.cause.kind, entry.decision.cause.broker_id) == (CauseKind.LOW_ON_SPACE, 1)
    assert entry.decision.reason is ElectionReason.ISR
    assert str(entry.decision.cause) == "too little is left of the disk of leader 1"


def test_follower_that_is_short_itself_is_passed_over() -> None:
    quorum = led_by_1()
    quorum.heartbeat(2, low_on_space=short(0))
    quorum.heartbeat(1, low_on_space=short(0))
    assert leaders(quorum) == [3]


def test_unreachable_leader_is_replaced_by_a_follower_with_room() -> None:
    """The first of the assignment is short, and would hand the leadership back to the one that none hears."""
    quorum = led_by_1()
    quorum.heartbeat(1, low_on_space=short(0))
    assert leaders(quorum) == [2]
    quorum.heartbeat(1, low_on_space=short(0), unreachable=(2,))
    quorum.heartbeat(3, unreachable=(2,))
    assert leaders(quorum) == [3]


@pytest.mark.parametrize(
    ("isr", "also_short"),
    [
        pytest.param((1,), (), id="no follower in sync"),
        pytest.param((1, 2, 3), (2, 3), id="all short"),
    ],
)
def test_leader_stays_where_no_follower_may_take_over_and_moves_once_one_may(
    isr: tuple[int, ...], also_short: tuple[int, ...]
) -> None:
    quorum = led_by_1(isr=isr)
    for broker_id in (*also_short, 1):
        quorum.heartbeat(broker_id, low_on_space=short(0))
    assert leaders(quorum) == [1]
    quorum.inject(PartitionRegistration((1, 2, 3), (1, 2, 3), 1, 1, 1, 2).to_record(TOPIC_ID, 0))
    for broker_id in also_short:
        quorum.heartbeat(broker_id)
    quorum.heartbeat(1, low_on_space=short(0))
    assert leaders(quorum) == [2]


def test_a_later_report_is_about_the_partitions_that_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not about what was left of the one before."""
    monkeypatch.setattr(short_leaders, "PASS_MAX", 1)
    quorum = led_by_1(4)
    quorum.heartbeat(1, low_on_space=short(0, 1, 2))
    assert leaders(quorum) == [2, 1, 1, 1]
    quorum.heartbeat(1, low_on_space=short(3))
    go_on(quorum)
    assert leaders(quorum) == [2, 1, 1, 2]


def test_two_short_brokers_do_not_pass_a_leadership_to_and_fro() -> None:
    quorum = led_by_1(isr=(1, 2))
    seen = []
    for _ in range(3):
        for broker_id in (1, 2):
            quorum.heartbeat(broker_id, low_on_space=short(0))
            seen.append(leaders(quorum)[0])
    assert seen == [2, 2, 2, 2, 2, 2]


def test_preferred_replica_leads_again_only_when_it_has_room() -> None:
    quorum = led_by_1()
    quorum.heartbeat(1, low_on_space=short(0))
    quorum.fire_timer(5 * MINUTE_MS)
    assert leaders(quorum) == [2]
    quorum.heartbeat(1)
    quorum.fire_timer(10 * MINUTE_MS)
    assert leaders(quorum) == [1]


def test_one_event_moves_a_bounded_number_and_the_next_ones_follow_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(short_leaders, "PASS_MAX", 2)
    quorum = led_by_1(5)
    quorum.heartbeat(1, low_on_space=short(*range(5)))
    seen = [leaders(quorum).count(1)]
    while quorum.core.next_deadline_ms() == 0:
        quorum.fire_timer(quorum.now_ms)
        seen.append(leaders(quorum).count(1))
    assert seen == [3, 1, 0]


def test_active_controller_counts_the_replicas_without_room() -> None:
    quorum = led_by_1(3)
    quorum.heartbeat(1, low_on_space=short(0, 1))
    by_name = {family.name: family for family in families(quorum.core)}
    (sample,) = by_name["kafka_controller_low_on_space_replicas"].samples
    assert sample.value == 3, "of a deleted topic, too, until the broker reports anew"
