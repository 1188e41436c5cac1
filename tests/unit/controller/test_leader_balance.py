"""Leaderships go back to preferred replicas, a bounded number at a time (R16)."""

import pytest

from holdfast.controller.core.partitions import leader_balance
from holdfast.controller.core.partitions.election import ElectionReason
from holdfast.metadata.partition import PartitionRegistration
from holdfast.metadata.records import MetadataRecord, TopicRecord
from tests.unit.controller.harness import Quorum, make_config

MINUTE_MS = 60_000


def moved_away(count: int, **properties: str) -> Quorum:
    """Two brokers; 2 leads all partitions, all of which prefer 1."""
    quorum = Quorum(make_config(broker_session_timeout_ms="2000000", **properties), now_ms=0)
    quorum.start_brokers(1, 2)
    partition = PartitionRegistration((1, 2), (1, 2), 2, 1, 1, 1)
    records: list[MetadataRecord] = [TopicRecord("t", b"t" * 16)]
    quorum.inject(*records, *(partition.to_record(b"t" * 16, index) for index in range(count)))
    return quorum


def led_by_1(quorum: Quorum) -> int:
    return sum(partition.leader == 1 for partition in quorum.topic("t").partitions.values())


def test_one_pass_moves_a_bounded_number_and_the_next_one_comes_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leader_balance, "PASS_MAX", 3)
    quorum = moved_away(7)
    quorum.fire_timer(5 * MINUTE_MS - 1)
    assert led_by_1(quorum) == 0
    seen = []
    for second in range(4):
        quorum.fire_timer(5 * MINUTE_MS + 1000 * second)
        seen.append(led_by_1(quorum))
    assert seen == [3, 6, 7, 7]
    assert quorum.core.counts.elections[ElectionReason.PREFERRED] == 7


def test_switched_off_nothing_moves_and_no_timer_waits() -> None:
    quorum = moved_away(1, auto_leader_rebalance_enable="false", metadata_max_idle_interval_ms="0")
    quorum.fire_timer(5 * MINUTE_MS)
    assert led_by_1(quorum) == 0


@pytest.mark.parametrize(("percentage", "moved"), [("99", 2), ("100", 0)])
def test_the_interval_and_the_share_are_configured(percentage: str, moved: int) -> None:
    """A broker that misses all of its leaderships misses 100 percent, which is not more than 100."""
    quorum = moved_away(
        2,
        leader_imbalance_check_interval_seconds="60",
        leader_imbalance_per_broker_percentage=percentage,
        metadata_max_idle_interval_ms="0",
    )
    assert quorum.core.next_deadline_ms() == MINUTE_MS
    quorum.fire_timer(MINUTE_MS)
    assert led_by_1(quorum) == moved


def test_partitions_that_cannot_move_take_no_place_in_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """With ELR off a fenced last member stays in the ISR; another replica is not in sync."""
    monkeypatch.setattr(leader_balance, "PASS_MAX", 1)
    quorum = Quorum(
        make_config(broker_session_timeout_ms="2000000", eligible_leader_replicas_enabled="false"), now_ms=0
    )
    quorum.start_brokers(1, 2, 3)
    quorum.inject(
        TopicRecord("t", b"t" * 16),
        PartitionRegistration((1, 2), (1,), 1, 0, 0, 1).to_record(b"t" * 16, 0),
        PartitionRegistration((2, 3), (3,), 3, 0, 0, 1).to_record(b"t" * 16, 1),
        PartitionRegistration((2, 3), (2, 3), 3, 0, 0, 1).to_record(b"t" * 16, 2),
    )
    quorum.heartbeat(1)
    quorum.vanish(1)
    assert quorum.partition("t", 0).leader is None
    quorum.fire_timer(5 * MINUTE_MS)
    assert [quorum.partition("t", index).leader for index in range(3)] == [None, 3, 2]


def test_a_successor_waits_a_whole_interval() -> None:
    """K23: the timer is soft state of the active controller."""
    quorum = moved_away(1)
    quorum.now_ms = 4 * MINUTE_MS
    quorum.fail_over()
    quorum.fire_timer(9 * MINUTE_MS - 1)
    assert led_by_1(quorum) == 0
    quorum.fire_timer(9 * MINUTE_MS)
    assert led_by_1(quorum) == 1
