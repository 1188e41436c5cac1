"""A leader that its followers cannot fetch from is replaced, though the controller hears it."""

import pytest

from holdfast.controller.core.decisions import CauseKind
from holdfast.controller.core.partitions import unreachable_leaders
from holdfast.controller.core.partitions.election import ElectionReason
from holdfast.metadata.partition import PartitionRegistration
from holdfast.metadata.records import TopicRecord
from tests.unit.controller.harness import Quorum, make_config

TOPIC_ID = b"t" * 16


def led_by_1(count: int = 1, isr: tuple[int, ...] = (1, 2, 3)) -> Quorum:
    """Four brokers; 1 leads all partitions, which 2 and 3 follow."""
    quorum = Quorum(make_config(), now_ms=0)
    quorum.start_brokers(1, 2, 3, 4)
    partition = PartitionRegistration((1, 2, 3), isr, 1, 1, 1, 2)
    quorum.inject(TopicRecord("t", TOPIC_ID), *(partition.to_record(TOPIC_ID, n) for n in range(count)))
    return quorum


def leaders(quorum: Quorum) -> list[int | None]:
    return [partition.leader for _, partition in sorted(quorum.topic("t").partitions.items())]


def test_leader_that_all_followers_of_the_isr_report_is_replaced_and_stays_in_the_isr() -> None:
    quorum = led_by_1()
    quorum.heartbeat(2, unreachable=(1,))
    assert leaders(quorum) == [1], "one follower alone may be the broken one"
    quorum.heartbeat(3, unreachable=(1,))
    row = quorum.partition("t")
    assert (row.leader, row.leader_epoch, row.isr) == (2, 2, (1, 2, 3))
    entry = list(quorum.core.decisions)[-1]
    assert (entry.decision.cause.kind, entry.decision.cause.broker_id) == (CauseKind.LEADER_UNREACHABLE, 1)
    assert entry.decision.reason is ElectionReason.ISR
    assert str(entry.decision.cause) == "followers cannot fetch from leader 1"


@pytest.mark.parametrize(
    ("isr", "reporters"),
    [
        pytest.param((1, 2), (2, 3), id="too few followers in the ISR"),
        pytest.param((1, 2, 3), (2, 4), id="a follower of the ISR is content"),
    ],
)
def test_leader_stays_where_followers_are_content_or_too_few(
    isr: tuple[int, ...], reporters: tuple[int, ...]
) -> None:
    quorum = led_by_1(isr=isr)
    for broker_id in reporters:
        quorum.heartbeat(broker_id, unreachable=(1,))
    assert leaders(quorum) == [1]


def test_reports_that_were_too_few_are_looked_at_again_when_the_silent_follower_is_fenced() -> None:
    quorum = Quorum(make_config(), now_ms=0)
    quorum.start_brokers(1, 2, 3, 4)
    partition = PartitionRegistration((1, 2, 3, 4), (1, 2, 3, 4), 1, 1, 1, 2)
    quorum.inject(TopicRecord("t", TOPIC_ID), partition.to_record(TOPIC_ID, 0))
    for _ in range(2):
        for broker_id in (2, 3):
            quorum.heartbeat(broker_id, unreachable=(1,))
    assert leaders(quorum) == [1]
    quorum.heartbeat(4, want_fence=True)
    quorum.heartbeat(2, unreachable=(1,))
    assert leaders(quorum) == [2]


def test_report_that_was_taken_back_or_whose_broker_is_fenced_does_not_count() -> None:
    quorum = led_by_1()
    quorum.heartbeat(2, unreachable=(1,))
    quorum.heartbeat(2)
    quorum.heartbeat(3, unreachable=(1,))
    assert leaders(quorum) == [1]
    quorum.heartbeat(2, unreachable=(1,), want_fence=True)
    quorum.heartbeat(3, unreachable=(1, 4))
    assert leaders(quorum) == [1]


def test_one_event_replaces_a_bounded_number_and_the_next_ones_follow_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(unreachable_leaders, "PASS_MAX", 2)
    quorum = led_by_1(5)
    quorum.heartbeat(2, unreachable=(1,))
    quorum.heartbeat(3, unreachable=(1,))
    seen = [leaders(quorum).count(1)]
    while quorum.core.next_deadline_ms() == 0:
        quorum.fire_timer(quorum.now_ms)
        seen.append(leaders(quorum).count(1))
    assert seen == [3, 1, 0]
