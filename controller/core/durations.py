"""How long partitions were leaderless, and how long recoveries and elections took, on this controller.

Owns the start times and the histograms; decides nothing. The cost is per changed partition, never per record.
The start times are soft state of the active controller: what began earlier counts from its activation. The
histograms live until the process ends.
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

#: Phases of a recovery: waiting for the last known ELR, asking for logs, and both together.
WAITING = "waiting"
ASKING = "asking"
TOTAL = "total"


class Durations:
    """Histograms of one controller process."""

    def __init__(self) -> None:
        self.election_seconds = Histogram(_ELECTION_BOUNDS_SECONDS)
        self.leaderless_seconds = Histogram(_ABSENCE_BOUNDS_SECONDS)
        self.recovery_seconds = {
            phase: Histogram(_ABSENCE_BOUNDS_SECONDS) for phase in (WAITING, ASKING, TOTAL)
        }
        #: {partition: since when it is leaderless}
        self._leaderless_since: dict[PartitionId, int] = {}
        #: {partition: (start of its recovery, phase, start of the phase)}
        self._recoveries: dict[PartitionId, tuple[int, str, int]] = {}

    def start(self, image: MetadataImage, now_ms: int) -> None:
        """Become active: partitions that are leaderless now count from now on."""
        self.stop()
        self._leaderless_since = dict.fromkeys(image.leaderless, now_ms)

    def stop(self) -> None:
        """No longer active: drop what is being measured."""
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
        """This many elections, decided at `drafted_ms`, are committed."""
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
