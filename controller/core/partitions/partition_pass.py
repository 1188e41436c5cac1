"""A pass over many partitions in slices: an event visits some of them, and the next event goes on.

Owns which partitions are left. To look at all of them in each slice would take longer than what a slice
does. What others change between two slices is visited at the end, so that a pass that is over has left
nothing.
"""

from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import TypeAlias

from holdfast.controller.core.draft import Draft
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.image import MetadataImage, PartitionRow
from holdfast.metadata.partition import PartitionRegistration

#: Whether a partition is to be visited, as it is now.
IsWanted: TypeAlias = Callable[[PartitionId, PartitionRegistration], bool]


class PartitionPass:
    """One pass, as often as it is begun."""

    def __init__(self) -> None:
        #: partitions to visit, the next one last
        self._left: list[PartitionId] = []
        #: visited ones, as they were then: the same is not visited twice
        self._visited: dict[PartitionId, PartitionRegistration] = {}
        #: the last slice has left nothing
        self.is_over = False

    def visits(
        self,
        draft: Draft,
        keys: Callable[[MetadataImage], Iterable[PartitionId]],
        is_wanted: IsWanted,
        visits_max: int | None = None,
    ) -> Iterator[PartitionRow]:
        """The partitions of one slice, by topic name and index, as they were when it began. Only those among
        `keys` of the image that are wanted."""
        image, is_begun_here, count = draft.image, False, 0
        self.is_over = False
        while True:
            if not self._left:
                if is_begun_here:
                    break
                is_begun_here, image = True, draft.image
                self._left = self._found(image, keys(image), is_wanted)
                continue
            if count == visits_max:
                return
            key = self._left.pop()
            topic = image.topics.get(key.topic_id)
            partition = None if topic is None else topic.partitions.get(key.partition_index)
            if topic is None or partition is None or not is_wanted(key, partition):
                continue
            if visits_max is not None:
                self._visited[key] = partition
            count += 1
            yield topic, key.partition_index, partition
        self._visited = {}
        self.is_over = True

    def _found(
        self, image: MetadataImage, keys: Iterable[PartitionId], is_wanted: IsWanted
    ) -> list[PartitionId]:
        topics, visited = image.topics, self._visited
        found: dict[bytes, list[PartitionId]] = {}
        topic_id, partitions, of_topic = None, None, []
        for key in keys:
            if key.topic_id != topic_id or partitions is None:
                topic_id = key.topic_id
                partitions, of_topic = topics[topic_id].partitions, found.setdefault(topic_id, [])
            partition = partitions[key.partition_index]
            if is_wanted(key, partition) and not (visited and visited.get(key) is partition):
                of_topic.append(key)
        # by topic: to sort twenty thousand keys at once takes four times as long
        return [
            key
            for topic_id in sorted(found, key=lambda topic_id: topics[topic_id].name, reverse=True)
            for key in sorted(found[topic_id], key=_index_of, reverse=True)
        ]


_index_of = attrgetter("partition_index")
