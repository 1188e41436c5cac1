"""One record batch of the producer: filling, sealing with a sequence, giving it a new one, splitting it.

Owns the bytes; encoding and compression are done by aiokafka's C codec (D1, D4). The header of a batch
without compression is completed here: the codec's crc takes fourteen times as long as google_crc32c's. A
batch knows how often it was sent and how many of those attempts may have been appended, and never decides
about sending.
"""

import struct
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from holdfast.client.core.outcomes import DeliveryOutcome
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.record_batch import HEADER_SIZE, MAGIC, crc32c

#: length of what is behind it; crc, then from attributes on what it covers. Behind the attributes: last
#: offset delta, base and largest timestamp, producer id, epoch and base sequence, number of records.
_LENGTH = struct.Struct(">i")
_LENGTH_POSITION = 8
_CRC = struct.Struct(">I")
_CRC_POSITION = 17
_CRC_START = 21
_BEHIND_ATTRIBUTES = struct.Struct(">iqqqhii")
_BEHIND_ATTRIBUTES_POSITION = 23
_PRODUCER = struct.Struct(">qhi")
_PRODUCER_POSITION = 43
assert _PRODUCER_POSITION + _PRODUCER.size + 4 == HEADER_SIZE
assert _BEHIND_ATTRIBUTES_POSITION + _BEHIND_ATTRIBUTES.size == HEADER_SIZE


class Compression(IntEnum):
    """Codecs by their number in a batch's attributes."""

    NONE = 0
    GZIP = 1
    LZ4 = 3
    ZSTD = 4


class ProducerIdAndEpoch(NamedTuple):
    """Who writes: a producer id and its epoch (R90)."""

    producer_id: int
    producer_epoch: int


NO_IDENTITY = ProducerIdAndEpoch(-1, -1)
_TIMESTAMP_MAX = (1 << 63) - 1
#: The encoder takes lists only, and does not change them.
_NO_HEADERS: list[tuple[str, bytes | None]] = []


def check_record(
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]],
    timestamp_ms: int | None,
) -> int:
    """Bytes of key, value and headers; refuses what cannot be encoded. Raises: TypeError, ValueError.

    Before the record is written down or gets a batch: neither can be taken back once others count on it.
    """
    if value is not None and type(value) is not bytes:
        _check_bytes("value", value)
    if key is not None and type(key) is not bytes:
        _check_bytes("key", key)
    if timestamp_ms is not None:
        if not isinstance(timestamp_ms, int):
            kind = type(timestamp_ms).__name__
            raise TypeError(f"timestamp_ms is of type {kind}: give whole milliseconds since 1970, or None")
        if not 0 <= timestamp_ms <= _TIMESTAMP_MAX:
            raise ValueError(f"timestamp_ms {timestamp_ms}: give milliseconds since 1970, or None for now")
    size = (0 if value is None else len(value)) + (0 if key is None else len(key))
    return size + _check_headers(headers) if headers else size


def _check_bytes(name: str, given: object) -> None:
    if not isinstance(given, bytes | bytearray | memoryview):
        hint = "encode it first" if isinstance(given, str) else "give bytes or None"
        raise TypeError(f"the {name} is of type {type(given).__name__}, not bytes: {hint}")
    if isinstance(given, memoryview) and not (given.c_contiguous and given.itemsize == 1):
        raise ValueError(f"the {name} is a memoryview with gaps or wide items: give bytes(...) of it")


def _check_headers(headers: Sequence[tuple[str, bytes | None]]) -> int:
    size = 0
    if not isinstance(headers, list | tuple):
        raise TypeError(f"headers are of type {type(headers).__name__}: give a list of (str, bytes) tuples")
    for header in headers:
        if not isinstance(header, tuple) or len(header) != 2:
            raise TypeError(f"header {header!r:.80}: give a tuple of a str and bytes or None")
        name, value = header
        if not isinstance(name, str) or not (value is None or isinstance(value, bytes)):
            raise TypeError(f"header {header!r:.80}: the name must be a str, the value bytes or None")
        try:
            size += len(name.encode()) + (0 if value is None else len(value))
        except UnicodeEncodeError:
            raise ValueError(f"header name {name!r:.80} has no UTF-8 form: give another name") from None
    return size


class Batch:
    """Records of one partition that travel together. Mutable; owned by its partition's queue."""

    __slots__ = (
        "_base_timestamp_ms",
        "_builder",
        "_buffer",
        "_max_timestamp_ms",
        "attempt",
        "base_offset",
        "base_sequence",
        "count",
        "created_ms",
        "deadline_ms",
        "error",
        "error_text",
        "halves",
        "in_flight",
        "is_told",
        "leader_epoch",
        "number",
        "outcome",
        "partition",
        "payload",
        "sent_as_head",
        "sent_epoch",
        "sent_topic_id",
        "serial",
        "size_bytes",
        "tags",
        "topic",
        "unanswered",
        "waiters",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        serial: int,
        limit_bytes: int,
        compression: Compression,
        created_ms: int,
        deadline_ms: int,
    ) -> None:
        self.topic = topic
        self.partition = partition
        #: order of creation in this producer; halves have that of the whole
        self.serial = serial
        self.created_ms = created_ms
        #: when to give up
        self.deadline_ms = deadline_ms
        self.count = 0
        #: encoded bytes before compression, header included
        self.size_bytes = HEADER_SIZE
        #: one a record if the sender gave tags, else empty
        self.tags: list[Any] = []
        #: who waits for the outcome of which record; called by the shell
        self.waiters: list[tuple[int, Callable[[], None]]] = []
        #: what stands for it since it was split: it will never have an outcome itself
        self.halves: tuple[Batch, Batch] | None = None
        self._builder: Any = DefaultRecordBatchBuilder(MAGIC, compression, 0, -1, -1, -1, limit_bytes)
        #: what the codec appends to, as it gives it away before the first record; None: it has to compress
        self._buffer: bytearray | None = None
        if compression is Compression.NONE:
            self._buffer = self._builder.build()
        #: of the first record, and the largest
        self._base_timestamp_ms = self._max_timestamp_ms = -1
        #: the encoded batch once it was sealed
        self.payload: bytearray | None = None
        self.base_sequence = -1
        #: place among the batches that its partition was sent, one for each sequence given
        self.number = -1
        #: number of times sent
        self.attempt = 0
        #: attempts that may have appended: sent, and not answered by a refusal before the append
        self.unanswered = 0
        self.in_flight = False
        #: all batches before it had their outcome when it was last sent
        self.sent_as_head = False
        #: leader epoch it was last sent to
        self.sent_epoch = -1
        self.sent_topic_id = b""
        self.outcome: DeliveryOutcome | None = None
        self.base_offset = -1
        self.leader_epoch = -1
        self.error: ErrorCode | None = None
        self.error_text = ""
        #: a sender has asked for its failure
        self.is_told = False

    def append(
        self,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
    ) -> int:
        """Add a record; its encoded size, 0 when it does not fit. The first record always fits."""
        if type(headers) is not list:
            headers = list(headers) if headers else _NO_HEADERS
        added = self._builder.append(self.count, timestamp_ms, key, value, headers)
        if added is None:
            return 0
        if timestamp_ms > self._max_timestamp_ms:
            self._max_timestamp_ms = timestamp_ms
            if self.count == 0:
                self._base_timestamp_ms = timestamp_ms
        self.count += 1
        size: int = added.size
        self.size_bytes += size
        return size

    def seal(self, identity: ProducerIdAndEpoch, base_sequence: int) -> None:
        """Encode under this identity and sequence, or change both. Only for a batch that no log holds."""
        assert self.count > 0 and self.unanswered == 0, "a batch that may be in a log keeps its sequence"
        self.base_sequence = base_sequence
        if self.payload is None:
            buffer, self._buffer = self._buffer, None
            if buffer is not None and len(buffer) == self.size_bytes:
                self.payload = buffer
                self._write_header(buffer, identity, base_sequence)
            else:  # compressed, or a codec that gives copies away
                self._builder.set_producer_state(*identity, base_sequence)
                self.payload = self._builder.build()
            self._builder = None
            return
        _PRODUCER.pack_into(self.payload, _PRODUCER_POSITION, *identity, base_sequence)
        _write_crc(self.payload)

    def _write_header(self, buffer: bytearray, identity: ProducerIdAndEpoch, base_sequence: int) -> None:
        """What the header of a batch without records lacks."""
        _LENGTH.pack_into(buffer, _LENGTH_POSITION, len(buffer) - _LENGTH_POSITION - _LENGTH.size)
        _BEHIND_ATTRIBUTES.pack_into(
            buffer,
            _BEHIND_ATTRIBUTES_POSITION,
            self.count - 1,
            self._base_timestamp_ms,
            self._max_timestamp_ms,
            *identity,
            base_sequence,
            self.count,
        )
        _write_crc(buffer)

    def split(self) -> "tuple[Batch, Batch]":
        """Two batches that stand for this one from now on, unsealed. Only for one that no log holds."""
        assert self.count > 1 and self.unanswered == 0 and not self.is_done
        assert self.payload is not None, "only what was refused is split"
        records = DefaultRecordBatch(bytes(self.payload))
        first, second = self.halves = (self._empty_half(records), self._empty_half(records))
        middle = self.count // 2
        for index, record in enumerate(records):
            half = first if index < middle else second
            size = half.append(record.timestamp, record.key, record.value, record.headers)
            assert size > 0, "half of the records fit where all would"
        first.tags, second.tags = self.tags[:middle], self.tags[middle:]
        for index, waiter in self.waiters:
            half, at = (first, index) if index < middle else (second, index - middle)
            half.waiters.append((at, waiter))
        self.payload = None
        return first, second

    def _empty_half(self, records: Any) -> "Batch":
        # Timestamps are encoded relative to the first one, so half of the records may take more than half.
        limit_bytes = 2 * self.size_bytes
        compression = Compression(records.compression_type)
        times = self.created_ms, self.deadline_ms
        return Batch(self.topic, self.partition, self.serial, limit_bytes, compression, *times)

    @property
    def is_done(self) -> bool:
        """True once it has an outcome, which then never changes."""
        return self.outcome is not None

    def finish(
        self,
        outcome: DeliveryOutcome,
        *,
        base_offset: int = -1,
        leader_epoch: int = -1,
        error: ErrorCode | None = None,
        error_text: str = "",
    ) -> None:
        """Give it its outcome."""
        assert self.outcome is None, "an outcome never changes"
        self.outcome = outcome
        self.base_offset = base_offset
        self.leader_epoch = leader_epoch
        if error is not None:
            self.error, self.error_text = error, error_text
        self.in_flight = False
        self.payload = self._buffer = None
        self._builder = None


def _write_crc(batch: bytearray) -> None:
    _CRC.pack_into(batch, _CRC_POSITION, crc32c(memoryview(batch)[_CRC_START:]))
