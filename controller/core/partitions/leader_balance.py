"""Periodic preferred-leader election: moves leaderships back to the preferred replicas that could lead (R16).

Owns when that happens, which brokers lack enough of their leaderships, and how many move at once. A restarted
broker leads nothing; without this the others would carry its load for ever. Nothing is lost: only an active
ISR member is elected, by the same table as everywhere (R12, mode preferred).
"""

from collections.abc import Callable

from holdfast.controller.core.config import ControllerConfig
from holdfast.controller.core.decisions import Cause, CauseKind
from holdfast.controller.core.draft import Draft
from holdfast.controller.core.partitions.election import ElectionMode
from holdfast.controller.core.partitions.partition_change import RequestedChange
from holdfast.controller.core.partitions.replication_control import ReplicationControl
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.image import MetadataImage, TopicImage
from holdfast.metadata.partition import PartitionRegistration

#: Elections of one pass; if more are needed the next pass comes soon.
PASS_MAX = 200
#: Pause in ms before a pass that continues: clients see a thousand moved leaders a second, as in Kafka.
NEXT_PART_AFTER_MS = 200

_Row = tuple[TopicImage, int, PartitionRegistration]


class LeaderBalance:
    """The timer of one active controller, and the elections when it fires."""

    def __init__(self, config: ControllerConfig, replication: ReplicationControl) -> None:
        self._config = config
        self._replication = replication
        self._next_pass_ms: int | None = None

    def start(self, now_ms: int) -> None:
        """Begin as the active controller: the first pass comes one interval later."""
        self._next_pass_ms = (
            now_ms + self._config.rebalance_interval_ms if self._config.rebalances_leaders else None
        )

    def stop(self) -> None:
        """Stop the passes (K23)."""
        self._next_pass_ms = None

    def next_deadline_ms(self) -> int | None:
        """When `is_due` becomes true."""
        return self._next_pass_ms

    def is_due(self, now_ms: int) -> bool:
        """True when `run` is due."""
        return self._next_pass_ms is not None and now_ms >= self._next_pass_ms

    def run(self, draft: Draft, now_ms: int, is_short: Callable[[int, PartitionId], bool]) -> None:
        """Elect preferred replicas for the brokers that lack too many of their leaderships.
        `is_short(broker_id, partition)`: that broker would hand the leadership on for want of room."""
        image = draft.image
        wanted = self._wanted(image, is_short)
        pause_ms = self._config.rebalance_interval_ms
        if len(wanted) > PASS_MAX:
            pause_ms = min(pause_ms, NEXT_PART_AFTER_MS)
        self._next_pass_ms = now_ms + pause_ms
        for topic, index, partition in wanted[:PASS_MAX]:
            context = self._replication.context(
                image, topic.name, image.is_active, mode=ElectionMode.PREFERRED
            )
            cause = Cause(CauseKind.LEADER_BALANCE)
            self._replication.change(draft, topic, index, partition, RequestedChange(), context, cause)

    def _wanted(self, image: MetadataImage, is_short: Callable[[int, PartitionId], bool]) -> list[_Row]:
        """Partitions whose preferred replica should lead now, by that replica, topic name and index."""
        #: by broker: partitions that prefer it, those of them that it does not lead, those that it could lead
        preferring: dict[int, int] = {}
        missed: dict[int, int] = {}
        possible: dict[int, list[_Row]] = {}
        for topic in image.sorted_topics():
            for index, partition in topic.sorted_partitions():
                preferred = partition.replicas[0]
                preferring[preferred] = preferring.get(preferred, 0) + 1
                if partition.leader == preferred:
                    continue
                missed[preferred] = missed.get(preferred, 0) + 1
                # a reassignment under way ends with its own election (R102)
                if (
                    preferred in partition.isr
                    and image.is_active(preferred)
                    and not partition.is_reassigning
                    and not is_short(preferred, PartitionId(topic.topic_id, index))
                ):
                    possible.setdefault(preferred, []).append((topic, index, partition))
        percentage = self._config.imbalance_percentage
        return [
            row
            for broker_id in sorted(possible)
            if missed[broker_id] * 100 > percentage * preferring[broker_id]
            for row in possible[broker_id]
        ]
