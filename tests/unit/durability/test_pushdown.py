"""What need not be read for a query's filters is not read, and all else is."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.durability.core.pushdown import Bounds
from holdfast.durability.read_options import OffsetRange

RANGES = [OffsetRange("a", 0, 0, 100), OffsetRange("a", 1, 50, 80), OffsetRange("b", 0, 0, 10)]
SECOND = datetime(1970, 1, 1, 0, 0, 1, 500, tzinfo=UTC)


@pytest.mark.parametrize(
    ("column", "comparison", "value", "kept"),
    [
        ("topic", "=", "b", [("b", 0, 0, 10)]),
        ("topic", "in", ("b", "c"), [("b", 0, 0, 10)]),
        ("partition", "=", 1, [("a", 1, 50, 80)]),
        ("partition", "<", 1, [("a", 0, 0, 100), ("a", 1, 50, 80), ("b", 0, 0, 10)]),
        ("offset", "in", (60, 7), [("a", 0, 7, 61), ("a", 1, 50, 61), ("b", 0, 7, 10)]),
        ("offset", "in", (60, None), [("a", 0, 60, 61), ("a", 1, 60, 61), ("b", 0, 60, 60)]),
        ("offset", "in", (None,), [("a", 0, 0, 0), ("a", 1, 50, 50), ("b", 0, 0, 0)]),
        ("topic", "in", ("b", None), [("b", 0, 0, 10)]),
        ("partition", "in", (None,), []),
        ("value", "=", b"x", [("a", 0, 0, 100), ("a", 1, 50, 80), ("b", 0, 0, 10)]),
    ],
)
def test_a_filter_narrows_ranges(column: str, comparison: str, value: Any, kept: list[Any]) -> None:
    found = Bounds().narrowed(column, comparison, value).cut(RANGES)
    assert [(item.topic, item.partition, item.start, item.end) for item in found] == kept


COMPARED = {
    "=": lambda offset, value: offset == value,
    "<": lambda offset, value: offset < value,
    "<=": lambda offset, value: offset <= value,
    ">": lambda offset, value: offset > value,
    ">=": lambda offset, value: offset >= value,
}


@given(st.lists(st.tuples(st.sampled_from(sorted(COMPARED)), st.integers(-5, 120)), max_size=4))
def test_offsets_that_pass_the_filters_are_those_that_are_read(filters: list[tuple[str, int]]) -> None:
    bounds = Bounds()
    for comparison, value in filters:
        bounds = bounds.narrowed("offset", comparison, value)
    (found,) = bounds.cut(RANGES[:1])
    passing = [o for o in range(100) if all(COMPARED[name](o, value) for name, value in filters)]
    assert list(range(found.start, found.end)) == passing


def test_a_time_is_looked_up_by_whole_milliseconds_and_cuts_the_beginning() -> None:
    bounds = Bounds().narrowed("timestamp", ">", SECOND).narrowed("timestamp", "<", SECOND)
    assert bounds.timestamp_min_ms == 1_000
    naive = Bounds().narrowed("timestamp", ">=", SECOND.replace(tzinfo=None))
    assert naive.timestamp_min_ms == 1_000
    before = Bounds().narrowed("timestamp", ">=", datetime(1969, 12, 31, tzinfo=UTC))
    assert before.timestamp_min_ms is None, "a record may be older than 1970, and no leader looks that up"
    assert before.narrowed("timestamp", ">=", SECOND).timestamp_min_ms == 1_000
    found = bounds.cut(RANGES[:2], {("a", 0): 30, ("a", 1): 80})
    assert [(item.start, item.end) for item in found] == [(30, 100), (80, 80)]
