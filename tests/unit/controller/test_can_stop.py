"""The verdict on a clean stop of one broker."""

import pytest

from holdfast.controller.core.brokers.can_stop import Severity, StopAdvice, can_stop
from holdfast.protocol.messages.topics import DescribedPartition
from tests.unit.cli.rows import led, partition, topic


def verdict(broker_id: int, *partitions: DescribedPartition, fenced: tuple[int, ...] = ()) -> StopAdvice:
    return can_stop(broker_id, [topic(*partitions)], lambda replica: replica not in fenced)


def test_a_broker_of_a_whole_partition_can_stop() -> None:
    assert verdict(1, led(1, (1, 2, 3))) == StopAdvice(Severity.OK, 1)


def test_a_stop_that_takes_the_isr_below_min_isr_is_a_warning() -> None:
    assert verdict(2, led(1, (1, 2))) == StopAdvice(Severity.WARN, 1, loses_writes=("t-0",))


def test_a_stop_of_the_last_replica_that_may_lead_is_critical() -> None:
    row = led(1, (1,), (3,), min_isr=2)
    assert verdict(1, row, fenced=(3,)) == StopAdvice(Severity.CRIT, 1, goes_offline=("t-0",))
    # an ELR member that is there takes over, but writes are refused already
    assert verdict(1, row) == StopAdvice(Severity.WARN, 1, needs_broker=("t-0",))


@pytest.mark.parametrize("replicas", [(1, 2, 3), (2, 3, 4)])
def test_a_broker_without_a_seat_can_always_stop(replicas: tuple[int, ...]) -> None:
    row = led(2, (2,), (3,), replicas=replicas)
    assert verdict(1, row).severity is Severity.OK
    assert verdict(1, row).hosted == (1 in replicas)


def test_a_partition_without_leader_needs_those_who_may_lead_it() -> None:
    assert verdict(3, partition()).needs_broker == ("t-0",)
    # what the last known one has may be wanted for the recovery (R60)
    assert verdict(2, partition()).needs_broker == ("t-0",)
    assert verdict(1, partition()).severity is Severity.OK


def test_a_broker_in_controlled_shutdown_is_no_help_to_others() -> None:
    row = led(1, (1, 2), min_isr=1)
    assert verdict(1, row, fenced=(2,)).goes_offline == ("t-0",)


def test_partitions_are_named_in_order_and_each_once() -> None:
    rows = [led(1, (1, 2), partition_index=index) for index in (0, 1, 2)]
    found = can_stop(1, [topic(*rows, name="b"), topic(rows[0], name="a")], lambda _: True)
    assert found.loses_writes == ("a-0", "b-0", "b-1", "b-2")
    assert found.hosted == 4
