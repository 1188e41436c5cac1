"""Rows that are too many for one request, in the portions that are sent one after the other."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Row = TypeVar("Row")


def portions(
    rows: Iterable[Row], cost_max: int, cost: Callable[[Row], int] = lambda row: 1
) -> Iterator[tuple[Row, ...]]:
    """The rows in order, in portions that cost at most `cost_max`; one that costs more is a portion alone."""
    portion: list[Row] = []
    left = cost_max
    for row in rows:
        row_cost = cost(row)
        if portion and row_cost > left:
            yield tuple(portion)
            portion, left = [], cost_max
        portion.append(row)
        left -= row_cost
    if portion:
        yield tuple(portion)
