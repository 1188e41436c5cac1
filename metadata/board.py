"""What `/v1/events` says: the state of the cluster first, then what each metadata change changed in it.

Owns the difference between two images and the events that tell it. Decides nothing. A node keeps the images
of the last changes, so that a page that lost its connection gets what it missed, not everything again.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from holdfast.metadata.describe import offline_replicas
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.image import MetadataImage
from holdfast.metadata.status import PARTITIONS_A_STEP, NodeView, brokers_body, cluster_head, partition_row
from holdfast.runtime.stats import BoardEvent

#: Images that a node keeps while pages watch it: what they share is stored once.
IMAGES_KEPT = 128
#: Partitions in one event.
ROWS_AN_EVENT = 100

#: Events in small pieces: others have their turn at each None.
Events: TypeAlias = Iterator[BoardEvent | None]


class Board:
    """The images that the watchers of one node have been shown, newest last."""

    def __init__(self, view: Callable[[], NodeView]) -> None:
        self._view = view
        self._images: OrderedDict[int, MetadataImage] = OrderedDict()

    def watch(self, last_offset: int | None) -> "BoardWatch":
        """For one page. `last_offset` is the id of the last event that it had, None for nothing."""
        known = None if last_offset is None else self._images.get(last_offset)
        return BoardWatch(self, known)

    def look(self) -> NodeView:
        """The node's view of this moment; its image is kept."""
        view = self._view()
        self._images[view.image.offset] = view.image
        if len(self._images) > IMAGES_KEPT:
            self._images.popitem(last=False)
        return view


@dataclass(slots=True)
class BoardWatch:
    """What one page knows."""

    _board: Board
    _image: MetadataImage | None
    _cluster: Mapping[str, Any] | None = None

    def news(self) -> Events:
        """The events since the last call: none when nothing has changed.

        `cluster` {all of /v1/cluster but counts, "is_whole": whether the page must forget what it has};
        `partitions` {"rows": [rows of /v1/partitions]}; `deleted` {"partitions": ["TOPIC-INDEX"]}. The last
        one carries the metadata offset that the page then knows.
        """
        view, before = self._board.look(), self._image
        cluster = {**cluster_head(view), "brokers": brokers_body(view.image)}
        if before is view.image and cluster == self._cluster:
            return
        is_whole = before is None
        yield BoardEvent("cluster", {**cluster, "is_whole": is_whole})
        base = MetadataImage() if before is None else before
        # an offline log dir or a fenced broker changes what a row says without a change of the partition
        yield from _partitions(view, base, all_rows=base.brokers != view.image.brokers)
        yield from _deleted(view.image, base)
        self._image, self._cluster = view.image, cluster
        yield BoardEvent("offset", {"metadata_offset": view.image.offset}, view.image.offset)


def _partitions(view: NodeView, before: MetadataImage, *, all_rows: bool) -> Events:
    image = view.image
    rows: list[dict[str, Any]] = []
    seen = 0
    for topic in image.sorted_topics():
        known = before.topics.get(topic.topic_id)
        if topic is known and not all_rows:
            continue
        for index, partition in topic.sorted_partitions():
            seen += 1
            if seen % PARTITIONS_A_STEP == 0:
                yield None
            if all_rows or known is None or known.partitions.get(index) is not partition:
                offline = offline_replicas(image, PartitionId(topic.topic_id, index), partition)
                rows.append(partition_row(view, topic, index, partition, offline))
                if len(rows) == ROWS_AN_EVENT:
                    yield BoardEvent("partitions", {"rows": rows})
                    rows = []
    if rows:
        yield BoardEvent("partitions", {"rows": rows})


def _deleted(image: MetadataImage, before: MetadataImage) -> Events:
    """Partitions of topics that are gone; a topic made again under its name has sent its rows already."""
    gone = [
        f"{topic.name}-{index}"
        for topic in before.sorted_topics()
        if topic.topic_id not in image.topics
        for index in topic.partitions
        if (again := image.topic(topic.name)) is None or index not in again.partitions
    ]
    if gone:
        yield BoardEvent("deleted", {"partitions": gone})
