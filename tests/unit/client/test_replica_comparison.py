"""Replicas of a partition are compared batch by batch: which one is odd, and where."""

from collections.abc import Mapping, Sequence

import pytest

from holdfast.client.core.replica_comparison import Finding, FindingKind, ReplicaComparison
from holdfast.protocol.record_batch import BatchHeader, Record, encode_batch, parse_header

DIFFERS, BEHIND, UNREADABLE = FindingKind.DIFFERS, FindingKind.BEHIND, FindingKind.UNREADABLE


def header(offset: int, value: str = "same", epoch: int = 1, count: int = 2) -> BatchHeader:
    records = [Record(offset + number, 1, None, value.encode()) for number in range(count)]
    return parse_header(encode_batch(records, base_offset=offset, leader_epoch=epoch))


def compare(
    logs: Mapping[int, Sequence[BatchHeader]], leader: int | None = 1, starts: dict[int, int] | None = None
) -> ReplicaComparison:
    """Read all logs, two batches at a time; a replica that has no more is behind."""
    comparison = ReplicaComparison(list(logs), leader)
    while wanted := comparison.wanted():
        for broker_id, offset in wanted.items():
            start = (starts or {}).get(broker_id, 0)
            if offset < start:
                comparison.begins_at(start)
                continue
            log = logs[broker_id]
            more = [one for one in log if one.next_offset > offset][:2]
            comparison.took(broker_id, log[-1].next_offset if log else 0, more)
        if comparison.wanted() == wanted:
            for broker_id in wanted:
                comparison.give_up(broker_id, BEHIND, "no more")
    return comparison


def found(comparison: ReplicaComparison) -> list[tuple[int, FindingKind, int]]:
    return [(one.broker_id, one.kind, one.offset) for one in comparison.findings]


SAME = [header(offset) for offset in range(0, 20, 2)]


def changed(at: int, **how: object) -> list[BatchHeader]:
    return [header(one.base_offset, **how) if one.base_offset == at else one for one in SAME]  # type: ignore[arg-type]


def test_the_same_replicas_are_compared_to_their_end() -> None:
    comparison = compare({1: SAME, 2: SAME, 3: SAME})
    assert (comparison.findings, comparison.compared_offset) == ([], 20)


@pytest.mark.parametrize("how", [{"value": "other"}, {"epoch": 2}, {"count": 1}, {"count": 4}])
@pytest.mark.parametrize("odd", [1, 2, 3])
def test_one_of_three_that_differs_is_the_odd_one_and_the_others_go_on(
    how: dict[str, object], odd: int
) -> None:
    logs = {broker: changed(8, **how) if broker == odd else SAME for broker in (1, 2, 3)}
    comparison = compare(logs)
    assert found(comparison) == [(odd, DIFFERS, 8)]
    assert "not known" not in comparison.findings[0].reason
    assert comparison.compared_offset == 20


@pytest.mark.parametrize(("leader", "odd"), [(1, 2), (2, 1)])
def test_of_two_the_leader_is_compared_with_and_it_is_said_that_neither_is_proved(
    leader: int, odd: int
) -> None:
    comparison = compare({1: SAME, 2: changed(8, value="other")}, leader)
    assert found(comparison) == [(odd, DIFFERS, 8)]
    assert "which one is right is not known" in comparison.findings[0].reason


def test_two_that_differ_in_different_places_are_both_found() -> None:
    comparison = compare(
        {
            1: SAME,
            2: changed(4, value="x"),
            3: changed(4, value="x"),
            4: SAME,
            5: changed(8, value="y"),
            6: SAME,
        }
    )
    assert found(comparison) == [(2, DIFFERS, 4), (3, DIFFERS, 4), (5, DIFFERS, 8)]


def test_a_short_replica_is_behind_and_what_it_has_was_compared() -> None:
    assert found(compare({1: SAME, 2: SAME[:4], 3: SAME})) == [(2, BEHIND, 8)]
    short = [*SAME[:2], header(4, "other")]
    assert found(compare({1: SAME, 2: short, 3: SAME})) == [(2, DIFFERS, 4)]
    assert found(compare({1: SAME, 2: [], 3: SAME})) == [(2, BEHIND, 0)]


def test_replicas_are_compared_from_where_all_of_them_begin() -> None:
    """Retention runs on each by itself."""
    logs = {1: SAME, 2: SAME[3:], 3: changed(2, value="deleted elsewhere")}
    comparison = compare(logs, starts={2: 6})
    assert (comparison.findings, comparison.start_offset, comparison.compared_offset) == ([], 6, 20)


def test_segments_may_go_while_they_are_read() -> None:
    comparison = ReplicaComparison([1, 2], 1)
    comparison.took(1, 20, SAME[:3])
    comparison.took(2, 20, SAME[:1])
    assert comparison.wanted() == {2: 2}
    comparison.begins_at(10)
    assert comparison.wanted() == {1: 10, 2: 10}
    for broker_id in (1, 2):
        comparison.took(broker_id, 20, SAME[5:])
    assert (comparison.is_over, comparison.findings, comparison.compared_offset) == (True, [], 20)


def test_what_is_written_meanwhile_is_not_waited_for() -> None:
    comparison = ReplicaComparison([1, 2], 1)
    comparison.took(1, 4, SAME[:2])
    comparison.took(2, 2, SAME[:1])
    comparison.took(2, 20, SAME[1:])
    assert comparison.is_over
    assert (comparison.findings, comparison.compared_offset) == ([], 4)


def test_a_replica_that_cannot_be_read_is_left_out() -> None:
    comparison = ReplicaComparison([1, 2, 3], 1)
    comparison.took(1, 20, SAME)
    comparison.give_up(2, UNREADABLE, "it does not answer")
    comparison.took(3, 20, changed(8, value="other"))
    assert comparison.is_over
    assert comparison.findings[0] == Finding(2, UNREADABLE, 0, "it does not answer")
    assert found(comparison)[1] == (3, DIFFERS, 8)
