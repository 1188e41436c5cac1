"""What a power cut may have left in replicas in sync: it is looked at again when sessions have ended.

A broker truncates such things when it starts. One that has only just died is still in the ISR, and so is each
of a cluster that was just started: until the session ends that the controller keeps for it.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from holdfast.durability.segments import SegmentBatch, Window, read_segment, segment_paths

#: Longer than a session: `broker.session.timeout.ms` is 9 s.
SESSION_S = 12.0
#: Columns of a row of batches that `OpenRow` is made of.
OPEN_COLUMNS = ("broker", "topic", "partition", "base_offset", "segment", "position", "problem")
#: Broker, topic, partition.
Replica = tuple[int, str, int]


@dataclass(frozen=True, slots=True)
class OpenRow:
    """A row of batches, `OPEN_COLUMNS` of it, that is damage or what a power cut has left."""

    broker: int
    topic: str
    partition: int
    base_offset: int
    segment: str | None
    position: int
    #: None of an empty segment far behind the log's end
    problem: str | None

    @property
    def replica(self) -> Replica:
        return self.broker, self.topic, self.partition

    def is_still_in(self, folder: str) -> bool:
        """The same is there in the replica's folder."""
        if self.segment is None:
            return not segment_paths(folder)
        path = Path(folder) / self.segment
        try:
            if self.problem is None:
                return path.stat().st_size == 0
            if self.problem.startswith("the log ends"):
                behind = [one for one in segment_paths(folder) if one.name > self.segment]
                return path.stat().st_size == self.position and not any(one.stat().st_size for one in behind)
            with path.open("rb") as file:
                return any(
                    found.position == self.position and not (isinstance(found, SegmentBatch) and found.crc_ok)
                    for found in read_segment(Window.of(file), int(path.stem))
                )
        except OSError:
            return False


def must_be_whole(*tables: Iterable[tuple[int, str, int, int]]) -> dict[Replica, int]:
    """Up to which offset replicas must be whole, by rows of `marks` and of `flushed`."""
    found: dict[Replica, int] = {}
    for broker, topic, partition, offset in (row for table in tables for row in table):
        replica = (broker, topic, partition)
        found[replica] = max(offset, found.get(replica, 0))
    return found


def surely_in_sync(
    in_sync: Collection[Replica],
    rows: Iterable[OpenRow],
    must_be_whole: Mapping[Replica, int],
    folders: Mapping[Replica, str],
    now_in_sync: Callable[[], Collection[Replica]],
) -> set[Replica]:
    """Those of `in_sync` without the ones that a power cut may have left so. Waits only for replicas that
    have such rows below the offset up to which they must be whole."""
    surely = set(in_sync)
    odd = [
        row
        for row in rows
        if row.replica in surely
        and (row.problem is None or row.base_offset < must_be_whole.get(row.replica, 0))
    ]
    if not odd:
        return surely
    time.sleep(SESSION_S)
    # the files last: a broker that is in sync by now has truncated what it would
    now = set(now_in_sync())
    return surely - {
        row.replica for row in odd if row.replica not in now or not row.is_still_in(folders[row.replica])
    }
