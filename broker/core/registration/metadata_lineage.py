"""Checks that the controllers' metadata is the one that this broker has always followed.

Owns the registration under which this broker last followed metadata, and which partitions metadata has ever
assigned to it. A broker deletes every log that metadata does not name. If the controllers' metadata was lost
or is an older copy, all brokers would delete what they hold. The right one contains each registration at the
offset that is its epoch (K28), and for each local log a record that assigned it here: in the log, or in the
history of the snapshot that it begins at (K15). That history is bounded: what it has dropped is no evidence.
Rising epochs prove nothing: each attempt to register makes a wrong log longer.
"""

from collections.abc import Collection

from holdfast.metadata.ids import PartitionId
from holdfast.metadata.records import (
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)
from holdfast.metadata.snapshot import MetadataState, known_partitions

_ADVICE = (
    "Their metadata was lost, or is an older copy: stop the controllers, restore their metadata.log.dir, "
    "and remove the wrong copy of it here, __cluster_metadata-0 in this broker's metadata.log.dir, which is "
    "fetched anew. No partition was deleted; to give up what this broker holds, start it with empty log.dirs"
)


class MetadataLineage:
    """What this broker, in this process and in those before it, has seen of the metadata."""

    def __init__(self, broker_id: int, broker_epoch: int = -1, incarnation_id: bytes = b"") -> None:
        self._broker_id = broker_id
        #: offset of the last registration's record, -1 when there is none
        self.broker_epoch = broker_epoch
        #: empty when a version stored it that did not store incarnations
        self._incarnation_id = incarnation_id
        self._is_found = broker_epoch < 0
        #: partitions that were ever assigned to this broker; None once the logs were compared with it
        self._given: set[PartitionId] | None = set()
        #: a snapshot has dropped some of them
        self._has_dropped_given = False

    def loaded(self, state: MetadataState) -> None:
        """A snapshot takes the place of the log below it."""
        if self.broker_epoch >= 0 and self.broker_epoch < state.image.offset:
            known = state.history.registrations_of(self._broker_id)
            incarnation_id = self._incarnation_id
            self._is_found = any(
                one.broker_epoch == self.broker_epoch
                and one.incarnation_id == (incarnation_id or one.incarnation_id)
                for one in known
            ) or (bool(known) and not known[0].is_first and self.broker_epoch < known[0].broker_epoch)
        if self._given is not None:
            self._given |= known_partitions(state, self._broker_id)
            self._has_dropped_given |= state.history.has_dropped_assignments

    def replayed(self, offset: int, record: MetadataRecord) -> None:
        """Record a committed record. The caller passes all of them, in order of offsets."""
        if isinstance(record, RegisterBrokerRecord):
            if offset == self.broker_epoch:
                self._is_found = record.broker_id == self._broker_id and (
                    record.incarnation_id == (self._incarnation_id or record.incarnation_id)
                )
        elif self._given is not None and isinstance(record, PartitionRecord | PartitionChangeRecord):
            if record.replicas is not None and self._broker_id in record.replicas:
                self._given.add(PartitionId(record.topic_id, record.partition_index))

    def problem_with(self, broker_epoch: int, incarnation_id: bytes) -> str | None:
        """Why the metadata that holds this registration, just replayed, must not be followed; None if it
        may."""
        if broker_epoch == self.broker_epoch and incarnation_id == self._incarnation_id:
            return None  # the same registration again, though an answer said that it was over
        if self._is_found and broker_epoch > self.broker_epoch:
            return None
        return (
            "the controllers' metadata is not what this broker has seen: it was registered with broker epoch "
            f"{self.broker_epoch}, which is not there, and now with {broker_epoch}. {_ADVICE}"
        )

    def problem_with_logs(self, logs: Collection[PartitionId]) -> str | None:
        """The same for the local logs: the log of a deleted or moved partition was assigned here once."""
        if self._given is None or self._has_dropped_given:
            return None
        return _problem_with_logs(logs, self._given)

    def problem_with_snapshot(self, state: MetadataState, logs: Collection[PartitionId]) -> str | None:
        """The same for a snapshot that comes while metadata is followed: what was assigned here before is in
        it, or in its history."""
        if state.history.has_dropped_assignments:
            return None
        return _problem_with_logs(logs, known_partitions(state, self._broker_id))

    def followed(self, broker_epoch: int, incarnation_id: bytes) -> bool:
        """Follow the metadata from now on. True when the registration is new and must be stored."""
        is_new = broker_epoch != self.broker_epoch
        self.broker_epoch, self._incarnation_id, self._is_found = broker_epoch, incarnation_id, True
        self._given = None
        return is_new


def _problem_with_logs(logs: Collection[PartitionId], given: set[PartitionId]) -> str | None:
    strange = sum(key not in given for key in logs)
    if not strange:
        return None
    return (
        f"the controllers' metadata is not what this broker has seen: {strange} of its {len(logs)} "
        f"partitions were never assigned to it there. {_ADVICE}"
    )
