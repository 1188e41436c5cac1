"""What brokers say that the disk has of their replicas: recovery points, and marks of clean stops."""

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from holdfast.durability.log_dir_files import closed_logs, leader_epochs, recovery_points
from holdfast.durability.segments import ReplicaFolder

#: No offset is so large.
_BEHIND_ALL = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class FlushedLogs:
    """What a log dir says of all its replicas. Looked at once for some thousand of them."""

    recovery_points: Mapping[tuple[str, int], int]
    #: names of folders
    closed: Container[str]

    @classmethod
    def of(cls, log_dir: str) -> "FlushedLogs":
        return cls(recovery_points(log_dir) or {}, closed_logs(log_dir))


#: The log dir at this path.
LogDirOf = Callable[[str], FlushedLogs]


@dataclass(frozen=True, slots=True)
class Flushed:
    """What was flushed of one replica."""

    folder: ReplicaFolder
    #: what lies below was
    until: int
    #: all was, and the broker has not begun with the log again
    is_closed: bool
    #: (leader epoch, first offset); None without a whole checkpoint of them
    epochs: list[tuple[int, int]] | None

    @classmethod
    def of(cls, folder: ReplicaFolder, dir_of: LogDirOf = FlushedLogs.of) -> "Flushed":
        path = Path(folder.path)
        # first: what it says is flushed has its epochs stored
        log_dir = dir_of(str(path.parent))
        until = log_dir.recovery_points.get((folder.topic, folder.partition), 0)
        return cls(folder, until, path.name in log_dir.closed, leader_epochs(folder.path))

    def still(self, dir_of: LogDirOf = FlushedLogs.of) -> "Flushed":
        """What of it is true all the time: a broker lowers the recovery point before it truncates, and what
        it fetches in place of that has an epoch which the log did not have."""
        later = Flushed.of(self.folder, dir_of)
        until = min(self.until, later.until)
        if self.epochs is not None:
            had = {epoch for epoch, _ in self.epochs}
            until = min([until, *(start for epoch, start in later.epochs or () if epoch not in had)])
        return replace(later, until=until, is_closed=self.is_closed and later.is_closed)

    @property
    def row(self) -> tuple[int, str, int, int]:
        """Of view `flushed`."""
        offset = _BEHIND_ALL if self.is_closed else self.until
        return self.folder.broker, self.folder.topic, self.folder.partition, offset
