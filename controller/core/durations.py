"""How long things took in this controller: partitions without a leader, recoveries, elections.

Owns the stopwatches and their histograms; decides nothing and is asked by `controller.core.metrics` only.
Cost a changed partition, never a record. Soft state of the active controller: what began before it became
active counts from then on; what was measured stays until the process ends.
"""

from holdfast.controller.core.events import (
    AskForLogs,
    RecoveryCancelled,
    RecoveryElected,
    RecoveryStated,
    WaitForReplicas,
)
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.image import MetadataImage
from holdfast.runtime.stats import Histogram

_ELECTION_BOUNDS_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_ABSENCE_BOUNDS_SECONDS = (0.01, 0.05, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0)

#: Phases of a recovery: until the last known ELR is back, until enough logs are known, and both.
WAITING = "waiting"
ASKING = "asking"
TOTAL = "total"


class Durations:
    """Stopwatches of one controller process."""

    def __init__(self) -> None:
        self.election_seconds = Histogram(_ELECTION_BOUNDS_SECONDS)
        self.leaderless_seconds = Histogram(_ABSENCE_BOUNDS_SECONDS)
        self.recovery_seconds = {
            phase: Histogram(_ABSENCE_BOUNDS_SECONDS) for phase in (WAITING, ASKING, TOTAL)
        }
        #: {partition: when it was seen to be without a leader}
        self._leaderless_since: dict[PartitionId, int] = {}
        #: {partition: (when its recovery began, phase, when that began)}
        self._recoveries: dict[PartitionId, tuple[int, str, int]] = {}

    def start(self, image: MetadataImage, now_ms: int) -> None:
        """Become active: what has no leader now is measured from now on."""
        self.stop()
        self._leaderless_since = dict.fromkeys(image.leaderless, now_ms)

    def stop(self) -> None:
        """No longer active: what is under way is somebody else's to measure."""
        self._leaderless_since = {}
        self._recoveries = {}

    def changed(self, after: MetadataImage, keys: tuple[PartitionId, ...], now_ms: int) -> None:
        """Records touched these partitions."""
        leaderless = after.leaderless
        for key in keys:
            if key in leaderless:
                self._leaderless_since.setdefault(key, now_ms)
            else:
                since_ms = self._leaderless_since.pop(key, None)
                topic = after.topics.get(key[0])
                if since_ms is not None and topic is not None and key[1] in topic.partitions:
                    self.leaderless_seconds.observe((now_ms - since_ms) / 1000)

    def elected(self, count: int, drafted_ms: int, now_ms: int) -> None:
        """So many elections, decided at `drafted_ms`, have been committed."""
        if count:
            self.election_seconds.observe((now_ms - drafted_ms) / 1000, count)

    def stated(self, one: RecoveryStated, now_ms: int) -> None:
        """There is news of a recovery."""
        key = PartitionId(one.topic_id, one.partition_index)
        match one.statement:
            case WaitForReplicas():
                self._enter(key, WAITING, now_ms)
            case AskForLogs():
                self._enter(key, ASKING, now_ms)
            case RecoveryCancelled():
                self._recoveries.pop(key, None)
            case RecoveryElected():
                began_ms, phase, entered_ms = self._recoveries.pop(key, (now_ms, ASKING, now_ms))
                self.recovery_seconds[phase].observe((now_ms - entered_ms) / 1000)
                self.recovery_seconds[TOTAL].observe((now_ms - began_ms) / 1000)

    def _enter(self, key: PartitionId, phase: str, now_ms: int) -> None:
        began_ms, before, entered_ms = self._recoveries.get(key, (now_ms, phase, now_ms))
        if before != phase:
            self.recovery_seconds[before].observe((now_ms - entered_ms) / 1000)
            entered_ms = now_ms
        self._recoveries[key] = (began_ms, phase, entered_ms)
