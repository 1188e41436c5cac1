"""Properties of what a single node says: a deposed controller, say, or a broker that has just begun."""

from bisect import bisect_right
from operator import itemgetter

from holdfast.metadata.image import MetadataImage
from holdfast.metadata.partition import PartitionRegistration
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.topics import DescribedPartition
from holdfast.sim.checks.observe.observer import Observer
from holdfast.sim.checks.observe.views import Change, Property
from holdfast.sim.cluster.nodes import SimBroker
from holdfast.sim.load.single_node_client import TOPIC, Answer

#: who leads the quorum without knowing better may tell of what was committed so long ago (a pause included)
_SLACK_NS = 10_000_000_000


class WhoAnswersKnows(Property):
    """R113: a node that answers knows all that had been committed well before its process began, and what it
    has said before; topics that were there all the time are there. K20: what one says is done was
    committed while it was asked for. R114: of each state of a partition it tells what was committed."""

    name = "R113 WhoAnswersKnows"

    def __init__(self) -> None:
        #: (when, what was committed), the oldest first
        self._images: list[tuple[int, MetadataImage]] = []
        #: {process: {(topic, partition): the newest partition epoch that it told of}}
        self._told: dict[str, dict[tuple[str, int], int]] = {}
        #: the asker's topic was there, was not there, since the last answer to it
        self._was: set[bool] = {False}
        #: {(topic, partition, partition epoch): as it was committed}
        self._rows: dict[tuple[bytes, int, int], PartitionRegistration] = {}

    def metadata_committed(self, seen: Observer) -> None:
        self._images.append((seen.world.loop.now_ns, seen.image))
        self._was.add(TOPIC in seen.image.topic_ids)

    def partition_changed(self, seen: Observer, index: int, change: Change) -> None:
        if seen.world.shape.asks_alone:
            self._rows[(*change.key, change.after.partition_epoch)] = change.after

    def node_answered(self, seen: Observer, answer: Answer) -> None:
        if answer.described is None:
            if answer.is_there not in self._was:
                done = "made" if answer.is_there else "deleted"
                seen.broken(self, None, f"{answer.node.name} says that {TOPIC} is {done} (K20)")
            self._was = {TOPIC in seen.image.topic_ids}
            return
        node = answer.node
        process = f"{node.name}.{answer.boots}"
        if node.boots != answer.boots:
            return  # it is not known which process said it
        # a broker answers once it has read of its own registration, which comes behind all that was committed
        slack_ns = 0 if isinstance(node, SimBroker) else _SLACK_NS
        known = self._known_before(node.booted_ns - slack_ns)
        told = self._told.setdefault(process, {})
        for topic in answer.described.topics:
            for row_told in topic.partitions:
                truth = self._rows.get((topic.topic_id, row_told.partition_index, row_told.partition_epoch))
                if truth is not None and _as_told(truth) != _told_of(row_told):
                    seen.broken(self, None, f"{process} tells of {topic.name}: {row_told}, it is {truth}")
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


def _as_told(row: PartitionRegistration) -> tuple[object, ...]:
    return (
        -1 if row.leader is None else row.leader,
        row.leader_epoch,
        row.replicas,
        row.isr,
        row.elr,
        row.last_known_elr,
        -1 if row.last_known_leader is None else row.last_known_leader,
        row.min_isr,
        row.leader_recovery_state,
    )


def _told_of(row: DescribedPartition) -> tuple[object, ...]:
    return (
        row.leader_id,
        row.leader_epoch,
        row.replicas,
        row.isr,
        row.eligible_leader_replicas or (),
        row.last_known_elr or (),
        row.last_known_leader,
        row.min_isr,
        row.leader_recovery_state,
    )
