"""Properties of what controllers should have decided and have not: what is missing leaves no record.

Owns what must stand beside a record in the same batch.
"""

from holdfast.metadata.image import MetadataImage
from holdfast.metadata.records import MetadataRecord, ReplicasOfflineRecord
from holdfast.sim.checks.observe.observer import Observer
from holdfast.sim.checks.observe.views import Property


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
