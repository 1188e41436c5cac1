"""Reads logs for the answers to fetches (`broker.core.requests.fetch_fill`), and counts what is sent."""

from holdfast.broker.core.events import ReadRow
from holdfast.broker.log_manager import LogManager
from holdfast.broker.managed_log import ManagedLog
from holdfast.metadata.ids import PartitionId
from holdfast.protocol.errors import ErrorCode
from holdfast.runtime.api import Buffer, DiskError
from holdfast.storage.log import OffsetOutOfRange


class FetchReading:
    """Of one broker. A `fetch_fill.LogReader`."""

    def __init__(self, log_manager: LogManager) -> None:
        self._log_manager = log_manager
        #: {topic name: bytes of records sent to consumers}, and to followers
        self.bytes_out: dict[str, int] = {}
        self.replication_bytes_out: dict[str, int] = {}

    def log_of(self, key: PartitionId) -> ManagedLog | None:
        """See `LogReader`."""
        return self._log_manager.managed(key)

    def read(
        self, log: ManagedLog, row: ReadRow, max_bytes: int, *, at_least_one: bool
    ) -> Buffer | ErrorCode:
        """See `LogReader`."""
        try:
            return log.log.read(
                row.fetch_offset, max_bytes, row.end_offset, at_least_one=at_least_one, verify=row.verify
            )
        except OffsetOutOfRange:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        except DiskError:
            return ErrorCode.KAFKA_STORAGE_ERROR

    def sent(self, log: ManagedLog, row: ReadRow, size_bytes: int) -> None:
        """See `LogReader`."""
        counter = self.bytes_out if row.log_end_offset < 0 else self.replication_bytes_out
        name = log.partition.topic
        counter[name] = counter.get(name, 0) + size_bytes

    def forget(self, topic: str) -> None:
        """The topic is gone."""
        for totals in (self.bytes_out, self.replication_bytes_out):
            totals.pop(topic, None)
