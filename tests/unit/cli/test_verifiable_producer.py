"""The pace of `holdfast verifiable-producer`."""

from holdfast.cli.verifiable_producer import PACE_MS, Pace


def test_records_are_due_at_their_rate_and_none_beyond_the_count() -> None:
    pace = Pace(0, 100, 1_000, None)
    assert pace.due(0, 0, goes_on=False) == PACE_MS
    assert pace.due(50, 10, goes_on=False) == 60
    assert pace.due(1_000, 60, goes_on=False) == 100


def test_without_a_rate_a_portion_is_always_due() -> None:
    pace = Pace(0, -1, -1, None)
    assert pace.due(0, 0, goes_on=False) == 1_000
    assert not pace.is_slow(0)


def test_records_behind_the_count_come_at_the_rate_before_it() -> None:
    pace = Pace(0, 100, 1_000, None)
    assert pace.due(500, 100, goes_on=True) == 510


def test_records_behind_the_count_come_at_a_rate_of_their_own() -> None:
    pace = Pace(0, 100, -1, 50)
    assert pace.due(200, 0, goes_on=True) == 100
    assert pace.due(200, 100, goes_on=True) == 100
    assert pace.due(1_200, 100, goes_on=True) == 150
    assert pace.is_slow(100)
    assert pace.due(1_200, 150, goes_on=False) == 100, "standard input has ended"
