"""Damaged replicas of this broker: out of use until they may begin anew.

Owns when that is. A damaged log is in no ISR or ELR any more once the registration in the image names the
replica as offline: the controller has written both in one batch (R27). Then an empty log in its place claims
nothing. It waits for a leader elsewhere, too: without one, this may have been the last complete replica, and
the operator decides.

    damaged -> put aside -> (offline in metadata, and led by another broker) -> begun anew, forgotten here
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.metadata.ids import PartitionId
from holdfast.metadata.image import MetadataImage

#: A replica that was damaged so often in one process stays out of use until the next: its disk is bad.
DAMAGES_MAX = 5


@dataclass(slots=True)
class _Damage:
    reason: str
    is_aside: bool


class DamagedReplicas:
    """Of one broker."""

    def __init__(self, broker_id: int) -> None:
        self._broker_id = broker_id
        self._damages: dict[PartitionId, _Damage] = {}
        #: how often each was damaged in this process
        self._counts: Counter[PartitionId] = Counter()

    def __contains__(self, key: object) -> bool:
        return key in self._damages

    @property
    def reasons(self) -> Mapping[PartitionId, str]:
        """Why each of them is out of use."""
        return {key: damage.reason for key, damage in self._damages.items()}

    def found(self, key: PartitionId, reason: str, *, is_aside: bool) -> None:
        """A log is damaged; with `is_aside` its folder is out of the way already."""
        self._damages[key] = _Damage(reason, is_aside)
        self._counts[key] += 1

    def put_aside(self, key: PartitionId) -> None:
        """The folder is out of the way."""
        if key in self._damages:
            self._damages[key].is_aside = True

    def forget(self, key: PartitionId) -> None:
        """It begins anew, or is no longer this broker's."""
        self._damages.pop(key, None)

    def take_mendable(self, image: MetadataImage, broker_epoch: int) -> list[PartitionId]:
        """Those that may begin anew now; they are forgotten here."""
        own = image.brokers.get(self._broker_id)
        if not self._damages or own is None or own.broker_epoch != broker_epoch:
            return []
        mendable = [
            key
            for key, damage in self._damages.items()
            if damage.is_aside and key in own.offline_replicas and self._may_begin_anew(image, key)
        ]
        for key in mendable:
            del self._damages[key]
        return mendable

    def _may_begin_anew(self, image: MetadataImage, key: PartitionId) -> bool:
        registration = image.partition(*key)
        return (
            registration is not None
            and self._counts[key] < DAMAGES_MAX
            and self._broker_id in registration.replicas
            and self._broker_id not in registration.isr + registration.elr
            and registration.leader not in (None, self._broker_id)
        )
