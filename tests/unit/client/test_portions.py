"""Rows in portions: in order, none left out, none beyond what a request may cost."""

import pytest

from holdfast.client.core.portions import portions


@pytest.mark.parametrize(
    ("costs", "expected"),
    [
        ([], []),
        ([2, 3], [(2, 3)]),
        ([2, 3, 1], [(2, 3), (1,)]),
        ([6, 1], [(6,), (1,)]),
        ([1, 6, 1], [(1,), (6,), (1,)]),
        ([5, 5], [(5,), (5,)]),
    ],
    ids=["none", "as much as may be", "more", "one that is too much is alone", "amid others", "each full"],
)
def test_a_portion_costs_no_more_than_may_be(costs: list[int], expected: list[tuple[int, ...]]) -> None:
    assert list(portions(costs, 5, lambda cost: cost)) == expected


def test_without_a_cost_rows_are_counted() -> None:
    assert list(portions("abcde", 2)) == [("a", "b"), ("c", "d"), ("e",)]
