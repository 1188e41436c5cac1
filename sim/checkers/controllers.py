"""Properties of what a single controller says: the active one, a deposed one, one that has just begun."""

from bisect import bisect_right
from operator import itemgetter

from metadata.image import MetadataImage
from protocol.errors import ErrorCode
from sim.asker import TOPIC, Answer
from sim.checkers.observer import Observer
from sim.checkers.views import Property

#: who leads the quorum without knowing better may tell of what was committed so long ago (a pause included)
_SLACK_NS = 10_000_000_000


class ControllersKnow(Property):
    """R113: a controller that answers knows all that had been committed well before its process began, and
    what it has said before; topics that were there all the time are there. K20: what one says is done was
    committed while it was asked for."""

    name = "R113 ControllersKnow"

    def __init__(self) -> None:
        #: (when, what was committed), the oldest first
        self._images: list[tuple[int, MetadataImage]] = []
        #: {process: {(topic, partition): the newest partition epoch that it told of}}
        self._told: dict[str, dict[tuple[str, int], int]] = {}
        #: the asker's topic was there, was not there, since the last answer to it
        self._was: set[bool] = {False}

    def metadata_committed(self, seen: Observer) -> None:
        self._images.append((seen.world.loop.now_ns, seen.image))
        self._was.add(TOPIC in seen.image.topic_ids)

    def controller_answered(self, seen: Observer, answer: Answer) -> None:
        if answer.described is None:
            if answer.is_there not in self._was:
                done = "made" if answer.is_there else "deleted"
                seen.broken(self, None, f"{answer.controller.name} says that {TOPIC} is {done} (K20)")
            self._was = {TOPIC in seen.image.topic_ids}
            return
        controller = answer.controller
        process = f"{controller.name}.{answer.boots}"
        if controller.boots != answer.boots:
            return  # nobody knows which process said it
        known = self._known_before(controller.booted_ns - _SLACK_NS)
        told = self._told.setdefault(process, {})
        for topic in answer.described.topics:
            rows = {row.partition_index: row.partition_epoch for row in topic.partitions}
            committed = known.topic(topic.name)
            if topic.error_code != ErrorCode.NONE and committed is not None:
                seen.broken(self, None, f"{process} does not know {topic.name}: {topic.error_code}")
            for index, row in () if committed is None else committed.sorted_partitions():
                if rows.get(index, -1) < row.partition_epoch:
                    story = (
                        f"{process} tells of {topic.name}-{index} in {rows.get(index)}, it began behind {row}"
                    )
                    seen.broken(self, None, story)
            for index, epoch in rows.items():
                before = told.get((topic.name, index), -1)
                if epoch < before:
                    seen.broken(
                        self, None, f"{process} goes back from {before} to {epoch} of {topic.name}-{index}"
                    )
                told[topic.name, index] = epoch

    def _known_before(self, at_ns: int) -> MetadataImage:
        """What was committed then."""
        count = bisect_right(self._images, at_ns, key=itemgetter(0))
        return self._images[count - 1][1] if count else MetadataImage()
