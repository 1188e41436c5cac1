"""The file of a snapshot of the metadata: `<offset>-<epoch>.checkpoint`, batches as in the log (K15).

Owns names and bytes. The first batch is a SnapshotHeader, the last one a SnapshotFooter with the crc of all
bytes before it; offsets count from 0. A file that was half written or has changed is no snapshot.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import google_crc32c

from holdfast.protocol.record_batch import (
    HEADER_SIZE,
    CorruptBatch,
    Record,
    check_batch,
    decode_records,
    encode_batch,
    parse_header,
)
from holdfast.raft.core.config import BATCH_MAX_BYTES
from holdfast.raft.core.control_records import (
    SNAPSHOT_FOOTER_KEY,
    SNAPSHOT_HEADER_KEY,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    decode_snapshot_control,
    encode_snapshot_control,
)
from holdfast.raft.core.quorum import LogPosition

SUFFIX = ".checkpoint"
#: A longer batch is none: its length has changed.
_BATCH_BYTES_MAX = 2 * BATCH_MAX_BYTES
_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


class SnapshotId(NamedTuple):
    """A snapshot holds everything below `offset`; `epoch` is that of the batch before it."""

    offset: int
    epoch: int

    @property
    def position(self) -> LogPosition:
        """The end of a log that holds just this."""
        return LogPosition(self.epoch, self.offset)

    @property
    def file_name(self) -> str:
        """As Kafka's."""
        return f"{self.offset:020d}-{self.epoch:010d}{SUFFIX}"


def parse_name(name: str) -> SnapshotId | None:
    """The snapshot of a file name; None for another kind of file."""
    found = _NAME.fullmatch(name)
    return None if found is None else SnapshotId(int(found[1]), int(found[2]))


class CorruptSnapshot(Exception):
    """A file is no whole snapshot. The text says why."""


class SnapshotEncoder:
    """Makes the bytes of one snapshot: `header`, any number of `values`, `footer`."""

    def __init__(self, id: SnapshotId, timestamp_ms: int) -> None:
        self._epoch = id.epoch
        self._timestamp_ms = timestamp_ms
        self._next_offset = 0
        self._value_count = 0
        self._crc = 0

    def header(self, record: SnapshotHeaderRecord) -> bytes:
        """The first batch: what the log below the snapshot says of the voters."""
        return self._batch([(SNAPSHOT_HEADER_KEY, encode_snapshot_control(record))], is_control=True)

    def values(self, values: Sequence[bytes]) -> bytes:
        """A batch with the next values."""
        self._value_count += len(values)
        return self._batch([(None, value) for value in values], is_control=False)

    def footer(self) -> bytes:
        """The last batch."""
        record = SnapshotFooterRecord(self._value_count, self._crc)
        return self._batch([(SNAPSHOT_FOOTER_KEY, encode_snapshot_control(record))], is_control=True)

    def _batch(self, rows: Sequence[tuple[bytes | None, bytes]], *, is_control: bool) -> bytes:
        base_offset = self._next_offset
        records = [
            Record(base_offset + index, self._timestamp_ms, key, value)
            for index, (key, value) in enumerate(rows)
        ]
        self._next_offset += len(records)
        batch = encode_batch(
            records, base_offset=base_offset, leader_epoch=self._epoch, is_control=is_control
        )
        self._crc = google_crc32c.extend(self._crc, batch)
        return batch


class SnapshotDecoder:
    """Reads the bytes of one snapshot in pieces of any size."""

    def __init__(self, id: SnapshotId) -> None:
        self._epoch = id.epoch
        self._rest = b""
        self._next_offset = 0
        self._value_count = 0
        self._crc = 0
        self._footer: SnapshotFooterRecord | None = None
        self._header: SnapshotHeaderRecord | None = None

    def feed(self, piece: bytes) -> list[bytes]:
        """The values that the piece completes. Raises: CorruptSnapshot."""
        data = self._rest + piece
        position = 0
        values: list[bytes] = []
        try:
            while len(data) - position >= HEADER_SIZE:
                size_bytes = parse_header(data, position).size_bytes
                if size_bytes > _BATCH_BYTES_MAX:
                    raise CorruptBatch(f"a batch of {size_bytes} bytes")
                end = position + size_bytes
                if end > len(data):
                    break
                values += self._take(data[position:end])
                position = end
        except ValueError as error:  # CorruptBatch and SchemaError too
            raise CorruptSnapshot(f"after {self._value_count} records: {error}") from error
        self._rest = data[position:]
        return values

    def finish(self) -> SnapshotHeaderRecord:
        """The header, after the last piece. Raises: CorruptSnapshot when the file is not whole."""
        if self._header is None or self._footer is None or self._rest:
            raise CorruptSnapshot(f"it is cut off after {self._value_count} records, or begins with none")
        return self._header

    def _take(self, batch: bytes) -> list[bytes]:
        header = check_batch(batch)
        if header.base_offset != self._next_offset or header.leader_epoch != self._epoch:
            raise CorruptBatch(
                f"batch {header.base_offset} of epoch {header.leader_epoch}, expected {self._next_offset} of "
                f"{self._epoch}"
            )
        if self._footer is not None:
            raise CorruptBatch("there are bytes behind the footer")
        self._next_offset = header.next_offset
        records = decode_records(batch)
        values: list[bytes] = []
        if header.is_control:
            self._take_control(records)
        else:
            if self._header is None:
                raise CorruptBatch("it does not begin with its header")
            values = [record.value for record in records if record.value is not None]
            self._value_count += len(records)
        self._crc = google_crc32c.extend(self._crc, batch)
        return values

    def _take_control(self, records: Sequence[Record]) -> None:
        for record in records:
            control = decode_snapshot_control(record)
            if isinstance(control, SnapshotHeaderRecord):
                self._header = control
            elif isinstance(control, SnapshotFooterRecord):
                if (control.value_count, control.crc32c) != (self._value_count, self._crc):
                    raise CorruptBatch(f"the footer tells of {control.value_count} records, or other bytes")
                self._footer = control
