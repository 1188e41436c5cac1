"""Passes over all partitions of a broker in slices: an event visits some of them, and the next one goes on.

Owns which partitions a pass has not come to. What a visit does is its owner's business.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from holdfast.broker.core.replicas.partition import Partition
from holdfast.metadata.ids import PartitionId

#: Visits that one event makes, of some microseconds each.
LOOKS_MAX = 2_000

#: Visits a partition, at `now_ms`.
Visit: TypeAlias = Callable[[Partition, int], None]


@dataclass(slots=True)
class _Pass:
    #: the next one last
    left: list[PartitionId]
    slice_max: int
    then: Callable[[int], None] | None


class PartitionPasses:
    """The passes under way, the oldest first."""

    def __init__(self, partitions: Mapping[PartitionId, Partition]) -> None:
        self._partitions = partitions
        self._passes: dict[Visit, _Pass] = {}

    @property
    def is_due(self) -> bool:
        """Something is left for the next event, which should follow at once."""
        return bool(self._passes)

    def begin(
        self,
        visit: Visit,
        keys: Iterable[PartitionId],
        now_ms: int,
        *,
        slice_max: int | None = None,
        then: Callable[[int], None] | None = None,
    ) -> None:
        """Visit these and what an earlier pass of the same visits has left, which comes first. The first
        slice, of `slice_max` or LOOKS_MAX, is made now; `then(now_ms)` follows the last one."""
        left = [*keys]
        left.reverse()
        before = self._passes.pop(visit, None)
        if before is not None:
            first = set(before.left)
            left = [*(key for key in left if key not in first), *before.left]
        self._passes[visit] = _Pass(left, slice_max or LOOKS_MAX, then)
        self._slice(visit, now_ms)

    def is_under_way(self, visit: Visit) -> bool:
        """Some partitions were not visited yet."""
        return visit in self._passes

    def end(self, visit: Visit) -> None:
        """Visit no more of them."""
        self._passes.pop(visit, None)

    def go_on(self, now_ms: int) -> None:
        """The next slice of the oldest pass."""
        if self._passes:
            self._slice(next(iter(self._passes)), now_ms)

    def _slice(self, visit: Visit, now_ms: int) -> None:
        one = self._passes[visit]
        for _ in range(min(one.slice_max, len(one.left))):
            partition = self._partitions.get(one.left.pop())
            if partition is not None:
                visit(partition, now_ms)
        if not one.left:
            self._passes.pop(visit, None)
            if one.then is not None:
                one.then(now_ms)
