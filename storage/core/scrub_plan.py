"""When the closed segments of a log dir are read again, which is next, and how fast (the scrub).

Owns the order, the rate and what is remembered across restarts; reads nothing. A pass goes through the logs
by name and through the segments of each from the first, and begins one interval after the last one began. A
log that comes into the dir during a pass waits for the next one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from holdfast.protocol.topic_names import TopicPartition
from holdfast.storage.core.pacer import Pacer

#: Least time between two records of the progress, in ms: a restart reads again what was read since.
STORE_MS = 30_000
#: Words in a row of the stored progress.
PROGRESS_COLUMNS = 5


class ScrubPace(NamedTuple):
    """How often, and how fast in each log dir."""

    #: time between the beginnings of two passes; 0: never
    interval_ms: int
    bytes_per_second: int


NO_SCRUB = ScrubPace(0, 1)


class ScrubProgress(NamedTuple):
    """What is remembered of a log dir. Times are of the wall clock, in ms since the epoch, -1 for never."""

    #: the last pass, which may be under way, began then
    begun_ms: int = -1
    #: the last complete pass ended then
    completed_ms: int = -1
    #: the log that the pass under way has come to; None when no pass is
    at: TopicPartition | None = None
    #: offset in that log below which everything was read
    offset: int = 0

    def row(self) -> tuple[object, ...]:
        """The words to be stored."""
        topic, partition = self.at or ("-", -1)
        return self.begun_ms, self.completed_ms, topic, partition, self.offset

    @classmethod
    def of_rows(cls, rows: Sequence[Sequence[str]] | None) -> "ScrubProgress":
        """What was stored; nothing when that is not readable."""
        try:
            ((begun_ms, completed_ms, topic, partition, offset),) = rows or ()
            at = TopicPartition(topic, int(partition)) if int(partition) >= 0 else None
            return cls(int(begun_ms), int(completed_ms), at, int(offset))
        except ValueError:
            return cls()


@dataclass(slots=True)
class ScrubCounts:
    """Of one log dir, since the start; `completed_ms` as in `ScrubProgress`."""

    read_bytes: int = 0
    damaged_count: int = 0
    completed_ms: int = -1


class ScrubPlan:
    """The passes over one log dir."""

    __slots__ = ("_logs", "_pace", "_pacer", "_store_ms", "progress")

    def __init__(self, pace: ScrubPace, progress: ScrubProgress) -> None:
        assert pace.interval_ms > 0
        self._pace = pace
        self.progress = progress
        #: logs that the pass has not come to, the next one last
        self._logs: list[TopicPartition] = []
        self._pacer = Pacer(pace.bytes_per_second)
        self._store_ms = 0

    def wait_ms(self, wall_ms: int) -> int:
        """Time until a pass is to be begun or continued; 0 for now."""
        if self.progress.begun_ms < 0 or self.progress.at is not None:
            return 0
        # A clock that was set back must not put the next pass off for longer than an interval.
        begun_ms = min(self.progress.begun_ms, wall_ms)
        self.progress = self.progress._replace(begun_ms=begun_ms)
        return max(0, begun_ms + self._pace.interval_ms - wall_ms)

    def begin(self, logs: Iterable[TopicPartition], wall_ms: int) -> None:
        """Begin a pass over these logs, or continue the one that an earlier process has begun."""
        at = self.progress.at
        if at is None:
            self.progress = self.progress._replace(begun_ms=wall_ms, offset=0)
        self._logs = sorted((one for one in logs if at is None or one >= at), reverse=True)

    def next_log(self, wall_ms: int) -> tuple[TopicPartition, int] | None:
        """The log to be read now, and from which offset on; None when the pass is complete."""
        if not self._logs:
            self.progress = ScrubProgress(self.progress.begun_ms, wall_ms)
            return None
        log = self._logs.pop()
        offset = self.progress.offset if log == self.progress.at else 0
        self.progress = self.progress._replace(at=log, offset=offset)
        return log, offset

    def passed(self, offset: int) -> None:
        """Everything below `offset` of the log was read."""
        self.progress = self.progress._replace(offset=offset)

    def pause_ms(self, size_bytes: int, now_ms: int) -> float:
        """How long to wait after so many bytes were read."""
        return self._pacer.pause_ms(size_bytes, now_ms)

    def must_store(self, now_ms: int) -> bool:
        """True when the progress is to be stored now."""
        if now_ms < self._store_ms:
            return False
        self._store_ms = now_ms + STORE_MS
        return True
