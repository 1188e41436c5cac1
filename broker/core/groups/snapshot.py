"""When a log is written anew, and how far that has come.

A record of the snapshot repeats what counts at the moment when it is written, also of what is under way
before it in the log; so a replay from the snapshot's first record on misses nothing.
"""

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Protocol

from holdfast.broker.core.groups.config import SNAPSHOT_BATCH_BYTES
from holdfast.broker.core.groups.records import (
    GroupKey,
    GroupRecord,
    GroupRecordKey,
    OffsetValue,
)

#: The log has at least so many records for each one that the snapshot would have.
_FACTOR = 4
#: Of an offset, and of a member, without names and what they say; and of a character in UTF-8.
_RECORD_BYTES = 200
_CHARACTER_BYTES = 4


class Written(Protocol):
    """A write: where it ends in the log once it is there, and how much it is."""

    @property
    def end_offset(self) -> int: ...

    @property
    def records(self) -> tuple[GroupRecord, ...]: ...


class Snapshot:
    """The snapshots of one log, one at a time."""

    def __init__(self, records_min: int) -> None:
        self._records_min = records_min
        #: records in the log since the last snapshot began, and how many make it worth a look
        self._records = 0
        self._look_at = records_min
        #: what is still to be written; None without a snapshot under way
        self._keys: Iterator[GroupRecordKey] | None = None
        self._first: Written | None = None

    def count(self, records: int) -> None:
        """The log has become longer."""
        self._records += records

    def is_due(self, live_count: Callable[[], int]) -> bool:
        """The log is much longer than what is worth keeping of it."""
        if self._keys is not None or self._records < self._look_at:
            return False
        self._look_at = max(self._records_min, _FACTOR * live_count())
        return self._records >= self._look_at

    def begin(self, keys: Iterator[GroupRecordKey]) -> None:
        """Write what these keys stand for."""
        self._records = 0
        self._keys = keys
        self._first = None

    def next_batch(self, record_of: Callable[[GroupRecordKey], GroupRecord | None]) -> list[GroupRecord]:
        """The records of the next batch, none at the end. The first one is never empty: it marks a place.
        `record_of`: None when there is nothing to write of a key any more."""
        assert self._keys is not None
        records: list[GroupRecord] = []
        size_bytes = 0
        for key in self._keys:
            record = record_of(key)
            if record is None:
                continue  # deleted meanwhile
            size_bytes += _size(record)
            if records and size_bytes > SNAPSHOT_BATCH_BYTES:
                self._keys = chain((key,), self._keys)
                break
            records.append(record)
        if not records and self._first is None:
            records.append(GroupRecord(GroupKey(""), None))
        return records

    def written(self, write: Written) -> None:
        """A batch is on its way."""
        self._first = self._first or write

    def end(self) -> int:
        """All of it is committed; the offset of its first record."""
        first, self._first, self._keys = self._first, None, None
        assert first is not None
        return first.end_offset - len(first.records)

    def give_up(self) -> None:
        """A batch could not be written: another snapshot is made later."""
        self._first = self._keys = None


def _size(record: GroupRecord) -> int:
    """Bytes of a record, rather too many."""
    key, value = record
    size_bytes = _RECORD_BYTES + _CHARACTER_BYTES * len(key.group_id)
    if value is None:
        return size_bytes
    if isinstance(value, OffsetValue):
        return size_bytes + _CHARACTER_BYTES * len(value.metadata or "")
    for member in value.members:
        names = len(member.member_id) + len(member.client_id) + len(member.group_instance_id or "")
        size_bytes += _RECORD_BYTES + _CHARACTER_BYTES * names
        size_bytes += len(member.subscription) + len(member.assignment)
    return size_bytes
