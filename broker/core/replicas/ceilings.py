"""The ceilings of all replicas of a broker: which are to be stored, and when (R68).

Owns what earlier processes have stored until a partition takes it, and the replicas that need a higher
ceiling. All that are needed are stored in one write. `broker.core.replicas.ceiling` has the rule of one
replica. Appends effects to the list that it shares with its owner.
"""

from collections.abc import Mapping

from holdfast.broker.core.events import CeilingRow, Effect, StoreCeilings
from holdfast.broker.core.replicas.ceiling import Ceiling, Urgency
from holdfast.broker.core.replicas.fetcher import Fetchers
from holdfast.broker.core.replicas.partition import Partition
from holdfast.broker.core.replicas.partition_passes import PartitionPasses
from holdfast.metadata.ids import PartitionId

#: A ceiling that will be needed soon waits so long, in ms, for others: they are stored in one file.
CEILINGS_WAIT_MS = 500


class Ceilings:
    """Of one broker."""

    def __init__(
        self,
        ahead_min: int,
        partitions: Mapping[PartitionId, Partition],
        passes: PartitionPasses,
        fetchers: Fetchers,
        outbox: list[Effect],
    ) -> None:
        """`ahead_min`: fewest records between log end and ceiling."""
        self._ahead_min = ahead_min
        self._partitions = partitions
        self._passes = passes
        self._fetchers = fetchers
        self._effects = outbox
        #: what earlier processes stored, of replicas that have not begun here
        self._stored: dict[PartitionId, int] = {}
        #: replicas that need a higher ceiling, and when it is stored at the latest
        self._low: dict[PartitionId, None] = {}
        self._due_ms: int | None = None

    def loaded(self, stored: Mapping[PartitionId, int]) -> None:
        """What the start found."""
        self._stored = dict(stored)

    def take_stored(self, key: PartitionId) -> Ceiling:
        """For a replica that begins here."""
        return Ceiling(self._ahead_min, self._stored.pop(key, -1))

    def forget_stored(self, key: PartitionId) -> None:
        """Its log is deleted."""
        self._stored.pop(key, None)

    def next_deadline_ms(self) -> int | None:
        """When ceilings are to be stored, None when none is needed."""
        return self._due_ms

    def need(self, key: PartitionId, urgency: Urgency, now_ms: int) -> None:
        """A replica needs a higher ceiling, so soon."""
        if urgency is not Urgency.NOT_NOW:
            self._low[key] = None
            due_ms = now_ms if urgency is Urgency.NOW else now_ms + CEILINGS_WAIT_MS
            if self._due_ms is None or self._due_ms > due_ms:
                self._due_ms = due_ms

    def lower(self, now_ms: int) -> None:
        """Find ceilings that are too high for the present traffic."""
        self._passes.begin(self._lower, self._partitions, now_ms)

    def _lower(self, partition: Partition, now_ms: int) -> None:
        if partition.is_ceiling_too_high(now_ms):
            self.need(partition.key, Urgency.NOW, now_ms)

    def store(self, now_ms: int) -> None:
        """Store all ceilings that are needed in one write, when that is due."""
        low, self._fetchers.low_ceilings = self._fetchers.low_ceilings, {}
        for key, urgency in low.items():
            self.need(key, urgency, now_ms)
        if self._due_ms is None or now_ms < self._due_ms:
            return
        rows: list[CeilingRow] = []
        for key in self._low:
            partition = self._partitions.get(key)
            if partition is not None and not partition.ceiling.is_storing:
                rows.append(CeilingRow(key, partition.promise_ceiling(now_ms)))
        self._low = {}
        self._due_ms = None
        if rows:
            self._effects.append(StoreCeilings(tuple(rows)))
