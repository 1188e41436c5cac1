"""A log of this broker and where it lies."""

from dataclasses import dataclass
from typing import NamedTuple

from holdfast.metadata.ids import PartitionId
from holdfast.protocol.topic_names import TopicPartition
from holdfast.runtime.api import DiskError
from holdfast.storage.log import Log
from holdfast.storage.log_dir import LogDir
from holdfast.storage.serial import Serial


@dataclass(slots=True)
class ManagedLog:
    """A log with its name and its log dir."""

    partition: TopicPartition
    log_dir: LogDir
    log: Log
    serial: Serial

    @property
    def key(self) -> PartitionId:
        """Topic id and partition index."""
        assert self.log.topic_id is not None
        return PartitionId(self.log.topic_id, self.partition.partition)

    @property
    def ceiling(self) -> int:
        """Stored upper bound (exclusive) of the log end that others were shown, -1 when none is stored
        (R68)."""
        return self.log_dir.ceilings.get(self.partition, -1)


class LogDirContent(NamedTuple):
    """One of `log.dirs`, and the logs that are online in it."""

    path: str
    #: None when it could not be opened
    log_dir: LogDir | None
    #: why it is offline
    failure: DiskError | None
    logs: list[ManagedLog]
