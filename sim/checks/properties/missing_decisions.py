"""Properties of what controllers should have decided and have not: what is missing leaves no record.

Owns what must stand beside a record in the same batch, or must not be there without its reason.
"""

from collections.abc import Mapping, Sequence

from holdfast.metadata.image import MetadataImage
from holdfast.metadata.records import (
    ELR_FEATURE,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionRecord,
    ReplicasOfflineRecord,
    TopicRecord,
)
from holdfast.sim.checks.observe.observer import Observer
from holdfast.sim.checks.observe.views import Property
from holdfast.sim.load.operators import elr_level_name

#: an act that was given up may be carried out so much later
_LATE_NS = 10_000_000_000


class OfflineReplicasAreOut(Property):
    """R27, B24: a broker that has lost a replica with its log dir is neither in sync nor eligible there: no
    leader waits for it, and no controller elects it. Without ELR the last in sync stays (F7)."""

    name = "R27 OfflineReplicasAreOut"

    def __init__(self) -> None:
        self._fresh: list[ReplicasOfflineRecord] = []

    def record_committed(
        self, seen: Observer, offset: int, record: MetadataRecord, before: MetadataImage
    ) -> None:
        if type(record) is ReplicasOfflineRecord and not record.are_online:
            self._fresh.append(record)

    def metadata_committed(self, seen: Observer) -> None:
        fresh, self._fresh = self._fresh, []
        image = seen.image
        for record in fresh:
            for index in record.partitions:
                row = image.partition(record.topic_id, index)
                if row is None:
                    continue
                is_last = row.isr == (record.broker_id,) and row.leader is None and not image.elr_enabled
                if record.broker_id in row.elr or (record.broker_id in row.isr and not is_last):
                    place = seen.place(record.topic_id, index)
                    seen.broken(self, place, f"broker {record.broker_id} has lost its log: {row}")


class LevelsAreAskedFor(Property):
    """R108, B8: ELR goes on and off when operators ask for it, and with the first controller. It does not go
    off while the ISR of a partition is empty; what is off leaves no replica eligible, or known."""

    name = "R108 LevelsAreAskedFor"

    def __init__(self) -> None:
        self._goes_off = False

    def record_committed(
        self, seen: Observer, offset: int, record: MetadataRecord, before: MetadataImage
    ) -> None:
        if type(record) is not FeatureLevelRecord or record.name != ELR_FEATURE:
            return
        if ELR_FEATURE in before.features:
            name, operator_queue = elr_level_name(record.level), seen.world.operator_queue
            is_asked = operator_queue.under_way is not None and operator_queue.under_way[0] == name
            answered_ns = operator_queue.answered_ns.get(name, -_LATE_NS)
            if not is_asked and seen.world.loop.now_ns - answered_ns > _LATE_NS:
                seen.broken(self, None, f"no operator has asked for {record}")
        if not record.level:
            self._goes_off = True
            for topic in before.sorted_topics():
                for index, row in topic.sorted_partitions():
                    if not row.isr:
                        seen.broken(self, None, f"{topic.name}-{index} has no replica in sync: {row}")

    def metadata_committed(self, seen: Observer) -> None:
        goes_off, self._goes_off = self._goes_off, False
        for topic in seen.image.sorted_topics() if goes_off else ():
            for index, row in topic.sorted_partitions():
                if row.elr or row.last_known_elr or row.last_known_leader is not None:
                    seen.broken(self, None, f"{topic.name}-{index} without ELR: {row}")


class AddedPartitionsAreAlike(Property):
    """R106, B7: a partition that is added to a topic has as many replicas as its first one will have, however
    that is being moved."""

    name = "R106 AddedPartitionsAreAlike"

    def record_committed(
        self, seen: Observer, offset: int, record: MetadataRecord, before: MetadataImage
    ) -> None:
        if type(record) is not PartitionRecord:
            return
        first = before.partition(record.topic_id, 0)
        if first is None:
            return
        wanted = len({*first.replicas} - {*first.removing_replicas})
        if len(record.replicas) != wanted:
            place = seen.place(record.topic_id, record.partition_index)
            seen.broken(self, place, f"it has {record.replicas}, the first one is {first}")


class NewTopicsAreSpread(Property):
    """R106: replicas of a new topic are on brokers that are ready, while there are enough; no rack has two of
    a partition while another one has none; and no broker leads two partitions more than another."""

    name = "R106 NewTopicsAreSpread"

    def __init__(self) -> None:
        #: {topic: the cluster that it was made in, replicas of its partitions}
        self._made: dict[bytes, tuple[MetadataImage, list[tuple[int, ...]]]] = {}

    def record_committed(
        self, seen: Observer, offset: int, record: MetadataRecord, before: MetadataImage
    ) -> None:
        if type(record) is TopicRecord:
            self._made[record.topic_id] = before, []
        elif type(record) is PartitionRecord and record.topic_id in self._made:
            self._made[record.topic_id][1].append(record.replicas)

    def metadata_committed(self, seen: Observer) -> None:
        if not self._made:
            return
        made, self._made = self._made, {}
        for topic_id, (image, placed) in made.items():
            racks = {
                broker_id: row.rack
                for broker_id, row in image.brokers.items()
                if not row.is_fenced and not row.in_controlled_shutdown
            }
            why = _why_uneven(placed, racks)
            if why is not None:
                seen.broken(self, seen.place(topic_id, 0), f"{why}: {placed}, ready are {racks}")


def _why_uneven(placed: Sequence[tuple[int, ...]], racks: Mapping[int, str | None]) -> str | None:
    """`racks`: of the brokers that are ready."""
    for replicas in placed:
        used = [racks[one] for one in replicas if one in racks]
        if len(used) < min(len(replicas), len(racks)):
            return f"of {replicas} only {len(used)} are ready"
        if len({*used}) < min(len(used), len({*racks.values()})):
            return f"{replicas} are in the racks {used}"
    leads = [sum(replicas[0] == one for replicas in placed) for one in racks]
    return f"they lead {leads}" if leads and max(leads) - min(leads) > 1 else None
