"""Which offsets can pass a query's filters: what need not be read is not read.

Pure. A filter only ever narrows ranges; Spark filters the rows that come all the same.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast.durability.read_options import OffsetRange

OFFSET_MAX = (1 << 63) - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a row must be like."""

    #: None for any
    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    #: inclusive
    offset_min: int = 0
    #: exclusive
    offset_end: int = OFFSET_MAX
    #: ms since 1970, inclusive, not negative; None for any
    timestamp_min_ms: int | None = None

    def narrowed(self, column: str, comparison: str, value: Any) -> "Bounds":
        """With one filter more: `=`, `<`, `<=`, `>`, `>=` or `in`. Others change nothing."""
        if column in ("topic", "partition") and comparison in ("=", "in"):
            values = frozenset((value,) if comparison == "=" else _known(value))
            if column == "topic":
                return replace(self, topics=values if self.topics is None else self.topics & values)
            return replace(self, partitions=values if self.partitions is None else self.partitions & values)
        if column == "offset":
            return self._narrowed_offset(comparison, value)
        if column == "timestamp" and comparison in ("=", ">", ">=") and isinstance(value, datetime):
            low = _floor_ms(value)
            # leaders look up times from 1970 on: an earlier one lets everything pass
            return self if low < 0 else replace(self, timestamp_min_ms=max(low, self.timestamp_min_ms or 0))
        return self

    def _narrowed_offset(self, comparison: str, value: Any) -> "Bounds":
        if comparison == "in":
            values = _known(value)
            if not values:
                return self._narrowed_offset("<", 0)
            return self._narrowed_offset(">=", min(values))._narrowed_offset("<=", max(values))
        low, end = self.offset_min, self.offset_end
        if comparison in ("=", ">="):
            low = max(low, value)
        if comparison == ">":
            low = max(low, value + 1)
        if comparison in ("=", "<="):
            end = min(end, value + 1)
        if comparison == "<":
            end = min(end, value)
        return replace(self, offset_min=low, offset_end=end)

    def cut(
        self, ranges: Iterable[OffsetRange], by_time: Mapping[tuple[str, int], int] | None = None
    ) -> list[OffsetRange]:
        """What of the ranges is to be read. `by_time`: the first offset of each partition whose record is of
        `timestamp_min_ms` or younger."""
        kept = []
        for item in ranges:
            if self.topics is not None and item.topic not in self.topics:
                continue
            if self.partitions is not None and item.partition not in self.partitions:
                continue
            first = (by_time or {}).get((item.topic, item.partition), 0)
            start = max(item.start, self.offset_min, first)
            kept.append(replace(item, start=start, end=max(start, min(item.end, self.offset_end))))
        return kept


def _known(values: Iterable[Any]) -> list[Any]:
    """Those of an `in` that a row can equal: NULL equals nothing."""
    return [value for value in values if value is not None]


def _floor_ms(value: datetime) -> int:
    """Spark hands over timestamps in UTC, with or without saying so."""
    aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(milliseconds=1)
