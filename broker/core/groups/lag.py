"""How far groups are behind, as this broker knows it: for /v1/groups, so for the live page and for `watch`.

A coordinator knows what its groups have committed. Where a partition ends its own replica of it says, if it
has one; a follower hears of the end a moment later.
"""

import heapq
from bisect import insort
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from typing import Any

from holdfast.broker.core.groups.group import Group
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.image import MetadataImage

#: Offsets and groups looked at between two turns of the event loop.
ROWS_A_STEP = 1_000
#: Partitions that are named of a group, those with the most lag.
WORST_MAX = 3


@dataclass(slots=True, eq=False)
class _Row:
    """A group as far as it has been looked at. The least is the one with least lag."""

    group: Group
    lag: int = 0
    partitions: int = 0
    unknown: int = 0
    #: (-lag, topic, index), most lag first
    worst: list[tuple[int, str, int]] = field(default_factory=list)

    def __lt__(self, other: "_Row") -> bool:
        if self.lag != other.lag:
            return self.lag < other.lag
        return self.group.group_id > other.group.group_id

    def add(self, topic: str, partition_index: int, lag: int) -> None:
        self.lag += lag
        if lag:
            insort(self.worst, (-lag, topic, partition_index))
            del self.worst[WORST_MAX:]

    def body(self) -> dict[str, Any]:
        return {
            "group": self.group.group_id,
            "state": self.group.state.value,
            "members": len(self.group.members),
            "partitions": self.partitions,
            "lag": self.lag,
            "unknown": self.unknown,
            "worst": [{"topic": name, "partition": index, "lag": -lag} for lag, name, index in self.worst],
        }


def group_bodies(
    groups: Iterable[Group],
    image: MetadataImage,
    end_of: Callable[[PartitionId], int | None],
    limit: int,
) -> Generator[None, None, dict[str, Any]]:
    """`groups` as plain values, most lag first and at most `limit`; `count` of all.

    end_of: where consumers' records end; None where this broker has no replica, or does not know it yet.
    """
    shown: list[_Row] = []  # a heap
    count = looked_at = 0
    for group in groups:
        row = _Row(group)
        for partition, stored in list(group.offsets.items()):
            looked_at += 1
            if looked_at % ROWS_A_STEP == 0:
                yield
            topic = image.topics.get(partition.topic_id)
            if topic is None:
                continue
            row.partitions += 1
            end = end_of(partition)
            if end is None:
                row.unknown += 1
            else:
                row.add(topic.name, partition.partition_index, max(0, end - stored.offset))
        count += 1
        looked_at += 1
        if looked_at % ROWS_A_STEP == 0:
            yield
        if len(shown) < limit:
            heapq.heappush(shown, row)
        else:
            heapq.heappushpop(shown, row)
    return {"groups": [row.body() for row in sorted(shown, reverse=True)], "count": count}
