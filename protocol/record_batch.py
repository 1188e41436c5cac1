"""Record batches: Kafka's v2 format byte for byte, on the wire and on disk (D4).

Owns the 61 byte header, its checks and the crc32c (Castagnoli, over everything behind the crc field):
`parse_header`, `check_batch`, `iter_batches` and `stamp` never look at a record. What a leader reads of
records before it appends them is in `batch_validation`.
`encode_batch` and `decode_records` are the plain Python codec of the metadata log, of tools and of tests;
clients use a faster one.
"""

import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

import google_crc32c

Buffer: TypeAlias = bytes | bytearray | memoryview
Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]

_HEADER = struct.Struct(">qiibIhiqqqhii")
_HEAD = struct.Struct(">qii")
_BEHIND_CRC = struct.Struct(">hiqqqhii")

HEADER_SIZE = 61
#: Bytes of an uncompressed record without key, value and headers: a length, attributes, five more varints.
RECORD_SIZE_MIN = 7
#: Bytes of base offset and batch length, which `batch_length` does not count.
LENGTH_PREFIX_SIZE = 12
#: Bytes that the leader rewrites: base offset, batch length, leader epoch. The crc covers none of them.
HEAD_SIZE = 16
MAGIC = 2
_CRC_POSITION = 17
_CRC_START = 21
_CRC_CHUNK_BYTES = 64 << 10

#: Bits of `attributes`.
COMPRESSION_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
#: `base_timestamp` is when the batch's tombstones may be removed; records' times are relative to it.
DELETE_HORIZON = 0x40

NO_COMPRESSION, GZIP, SNAPPY, LZ4, ZSTD = range(5)

#: Sequences run from 0 to 2^31 - 1 and start again (R90).
SEQUENCE_MODULUS = 1 << 31
#: Most bytes that the records of a batch may unpack to.
UNPACKED_MAX_BYTES = 64 << 20

assert _HEADER.size == HEADER_SIZE
assert _CRC_START + _BEHIND_CRC.size == HEADER_SIZE


class CorruptBatch(ValueError):
    """The bytes are no whole, undamaged v2 batch. The text says where and what was expected."""


class UnpacksTooLarge(CorruptBatch):
    """The compressed records of the batch take more room than may be spent on them."""


class BatchHeader(NamedTuple):
    """The header as it stands in the bytes. Immutable, and a tuple because one is made for every batch."""

    base_offset: int
    #: bytes behind this field
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    #: milliseconds since the epoch
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole batch."""
        return LENGTH_PREFIX_SIZE + self.batch_length

    @property
    def last_offset(self) -> int:
        """Offset of the last record, inclusive."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """First offset behind the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, -1 without a producer id; goes on at 0 after 2^31 - 1 (R90)."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) % SEQUENCE_MODULUS

    @property
    def compression(self) -> int:
        """0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & COMPRESSION_MASK

    @property
    def is_control(self) -> bool:
        """Holds control records, which no application sees."""
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        """Belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL)


class Record(NamedTuple):
    """One record with its absolute offset."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


# --- header --------------------------------------------------------------------------------------------


def parse_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header of the batch at `position`; looks at nothing behind it. Raises: CorruptBatch."""
    try:
        # The class itself would go through a function of Python.
        header: BatchHeader = tuple.__new__(BatchHeader, _HEADER.unpack_from(buffer, position))
    except struct.error:
        raise CorruptBatch(
            f"batch at byte {position}: {max(0, len(buffer) - position)} bytes of {HEADER_SIZE} are there"
        ) from None
    if (
        header.magic != MAGIC
        or header.batch_length < HEADER_SIZE - LENGTH_PREFIX_SIZE
        or header.last_offset_delta < 0
        or header.record_count < 0
    ):
        raise CorruptBatch(f"batch at byte {position}: {_wrong_with(header)}")
    return header


def _wrong_with(header: BatchHeader) -> str:
    if header.magic != MAGIC:
        return f"magic {header.magic}, expected {MAGIC}"
    if header.batch_length < HEADER_SIZE - LENGTH_PREFIX_SIZE:
        return f"length {header.batch_length} is shorter than a header"
    return (
        f"last offset delta {header.last_offset_delta} and record count {header.record_count} "
        "must not be negative"
    )


def check_batch(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header of the batch at `position`, after all its bytes were found there and match its crc.

    Raises: CorruptBatch.
    """
    header = parse_header(buffer, position)
    end = position + header.size_bytes
    if end > len(buffer):
        raise _cut(position, header.size_bytes, len(buffer))
    crc = crc32c(memoryview(buffer)[position + _CRC_START : end])
    if crc != header.crc:
        raise CorruptBatch(
            f"batch at byte {position}: crc {header.crc:#010x}, its bytes give {crc:#010x}; send it again"
        )
    return header


def check_batches(buffer: Buffer) -> Iterator[BatchHeader]:
    """The header of every batch, each after its crc was checked. Raises: CorruptBatch, also when the last
    batch is cut short."""
    view = memoryview(buffer)
    position = 0
    while position < len(view):
        header = check_batch(view, position)
        yield header
        position += LENGTH_PREFIX_SIZE + header.batch_length


def iter_batches(buffer: Buffer) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Every batch with its own bytes (a view). Checks headers only, not the crc. Raises: CorruptBatch, also
    when the last batch is cut short."""
    view = memoryview(buffer)
    position, size = 0, len(view)
    while position < size:
        header = parse_header(view, position)
        end = position + header.size_bytes
        if end > size:
            raise _cut(position, header.size_bytes, size)
        yield header, view[position:end]
        position = end


def stamp(batch: Buffer, base_offset: int, leader_epoch: int) -> tuple[bytes, memoryview]:
    """The leader's mark: 16 new bytes of head and the rest of the batch, uncopied. The crc covers neither
    field, so it stays true (D4)."""
    (batch_length,) = struct.unpack_from(">i", batch, 8)
    assert LENGTH_PREFIX_SIZE + batch_length == len(batch), "stamp exactly one batch"
    return _HEAD.pack(base_offset, batch_length, leader_epoch), memoryview(batch)[HEAD_SIZE:]


def with_header(header: BatchHeader, body: Buffer) -> bytes:
    """The batch with this header's fields and these bytes of records; its length and crc are made anew."""
    behind_crc = _BEHIND_CRC.pack(*header[5:]) + body
    batch_length = _CRC_START - LENGTH_PREFIX_SIZE + len(behind_crc)
    crc = crc32c(memoryview(behind_crc))
    return (
        struct.pack(">qiibI", header.base_offset, batch_length, header.leader_epoch, MAGIC, crc) + behind_crc
    )


def from_offset(batches: bytes, offset: int) -> bytes:
    """Whole batches that begin at `offset` where the first of them is empty and begins earlier: what holds no
    record may be cut anywhere. Others are returned as they are."""
    if not batches or int.from_bytes(batches[:8]) >= offset:
        return batches
    header = parse_header(batches)
    if header.record_count or header.producer_id >= 0 or header.next_offset <= offset:
        return batches
    rest = header._replace(base_offset=offset, last_offset_delta=header.last_offset - offset)
    return with_header(rest, b"") + batches[header.size_bytes :]


def crc32c(view: memoryview) -> int:
    """The sum that a batch's header has, of these bytes."""
    # google_crc32c takes `bytes` only. Copies that stay in the processor's cache cost a tenth of the sum.
    if len(view) <= _CRC_CHUNK_BYTES:
        return int(google_crc32c.value(bytes(view)))
    crc = 0
    for start in range(0, len(view), _CRC_CHUNK_BYTES):
        crc = int(google_crc32c.extend(crc, bytes(view[start : start + _CRC_CHUNK_BYTES])))
    return crc


def _cut(position: int, size_bytes: int, held: int) -> CorruptBatch:
    return CorruptBatch(f"batch at byte {position}: has {size_bytes} bytes, {held - position} are left")


# --- records -------------------------------------------------------------------------------------------


def encode_batch(
    records: Sequence[Record],
    *,
    base_offset: int,
    leader_epoch: int,
    is_control: bool = False,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """One uncompressed batch. Offsets of the records ascend from `base_offset` or later, gaps allowed."""
    assert records, "a batch holds at least one record"
    base_timestamp = records[0].timestamp_ms
    body = bytearray()
    previous = base_offset - 1
    for record in records:
        assert record.offset > previous, "offsets of a batch ascend and are not below its base offset"
        previous = record.offset
        encoded = _encode_record(record, record.timestamp_ms - base_timestamp, record.offset - base_offset)
        put_varint(body, len(encoded))
        body += encoded
    behind_crc = (
        _BEHIND_CRC.pack(
            CONTROL if is_control else 0,
            previous - base_offset,
            base_timestamp,
            max(record.timestamp_ms for record in records),
            producer_id,
            producer_epoch,
            base_sequence,
            len(records),
        )
        + body
    )
    batch_length = _CRC_START - LENGTH_PREFIX_SIZE + len(behind_crc)
    head = struct.pack(
        ">qiibI", base_offset, batch_length, leader_epoch, MAGIC, google_crc32c.value(behind_crc)
    )
    return head + behind_crc


def decode_records(buffer: Buffer) -> list[Record]:
    """The records of the one batch that `buffer` holds, control records too. Reads batches without
    compression and with gzip. Does not check the crc (`check_batch` does). Raises: CorruptBatch."""
    header = parse_header(buffer)
    if header.size_bytes != len(buffer):
        raise CorruptBatch(
            f"a batch of {header.size_bytes} bytes in {len(buffer)} bytes, expected exactly one batch"
        )
    body = bytes(memoryview(buffer)[HEADER_SIZE:])
    if header.compression == GZIP:
        body = _unpack_gzip(body)
    elif header.compression != NO_COMPRESSION:
        raise CorruptBatch(
            f"compression {header.compression} is not read here, only 0 (none) and 1 (gzip) are"
        )
    records: list[Record] = []
    position = 0
    try:
        for _ in range(header.record_count):
            length, position = get_varint(body, position)
            record = _decode_record(body, position, position + length, header)
            position += length
            records.append(record)
    except (IndexError, UnicodeDecodeError) as error:
        raise CorruptBatch(
            f"record {len(records)} of batch {header.base_offset} is cut or no text: {error}"
        ) from None
    if position != len(body):
        raise CorruptBatch(f"batch {header.base_offset}: {len(body) - position} bytes behind the last record")
    return records


def record_times(buffer: Buffer) -> Iterator[tuple[int, int]]:
    """(offset, timestamp) of each record of the one batch without compression in `buffer`, one at a time; the
    rest of a record is passed over. Raises: CorruptBatch."""
    header = parse_header(buffer)
    body = bytes(memoryview(buffer)[HEADER_SIZE:])
    is_append_time = bool(header.attributes & LOG_APPEND_TIME)
    position = 0
    for number in range(header.record_count):
        try:
            length, start = get_varint(body, position)
            timestamp_delta, at = get_varint(body, start + 1)  # behind the attributes
            offset_delta, _ = get_varint(body, at)
        except IndexError:
            raise CorruptBatch(f"record {number} of batch {header.base_offset} is cut") from None
        if length <= 0:
            raise CorruptBatch(f"record {number} of batch {header.base_offset} has length {length}")
        time_ms = header.max_timestamp if is_append_time else header.base_timestamp + timestamp_delta
        yield header.base_offset + offset_delta, time_ms
        position = start + length


def _encode_record(record: Record, timestamp_delta: int, offset_delta: int) -> bytearray:
    out = bytearray(1)  # attributes, unused
    put_varint(out, timestamp_delta)
    put_varint(out, offset_delta)
    _put_bytes(out, record.key)
    _put_bytes(out, record.value)
    put_varint(out, len(record.headers))
    for name, value in record.headers:
        _put_bytes(out, name.encode())
        _put_bytes(out, value)
    return out


def _decode_record(body: bytes, position: int, end: int, header: BatchHeader) -> Record:
    if end > len(body):
        raise IndexError("its length exceeds the batch")
    timestamp_delta, position = get_varint(body, position + 1)
    offset_delta, position = get_varint(body, position)
    key, position = _get_bytes(body, position, end)
    value, position = _get_bytes(body, position, end)
    count, position = get_varint(body, position)
    if count < 0:
        raise CorruptBatch(f"batch {header.base_offset}: a record with {count} headers")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, position = _get_bytes(body, position, end)
        if name is None:
            raise CorruptBatch(f"batch {header.base_offset}: a record header without a name")
        header_value, position = _get_bytes(body, position, end)
        headers.append((name.decode(), header_value))
    if position != end:
        raise CorruptBatch(
            f"batch {header.base_offset}: a record's fields end at byte {position}, not at {end}"
        )
    if header.attributes & LOG_APPEND_TIME:
        timestamp_ms = header.max_timestamp
    else:
        timestamp_ms = header.base_timestamp + timestamp_delta
    return Record(header.base_offset + offset_delta, timestamp_ms, key, value, tuple(headers))


def _unpack_gzip(packed: bytes) -> bytes:
    # A few bytes can unpack to gigabytes, hence the bound. A gzip stream may have several members.
    parts: list[bytes] = []
    left = UNPACKED_MAX_BYTES
    while packed:
        unpacker = zlib.decompressobj(wbits=31)
        try:
            part = unpacker.decompress(packed, left + 1)
        except zlib.error as error:
            raise CorruptBatch(f"records are not gzip: {error}") from None
        left -= len(part)
        if left < 0:
            raise UnpacksTooLarge(f"gzip records unpack to more than {UNPACKED_MAX_BYTES} bytes")
        if not unpacker.eof:
            raise CorruptBatch("gzip records are cut short")
        parts.append(part)
        packed = unpacker.unused_data
    return b"".join(parts)


def put_varint(out: bytearray, value: int) -> None:
    """Append a number: zigzag, seven bits a byte, lowest first."""
    value = value << 1 if value >= 0 else (-value << 1) - 1
    while value > 0x7F:
        out.append(0x80 | value & 0x7F)
        value >>= 7
    out.append(value)


def get_varint(body: bytes, position: int) -> tuple[int, int]:
    """The number at `position`, and where it ends. Raises: IndexError, CorruptBatch."""
    byte = body[position]
    position += 1
    value = byte & 0x7F
    shift = 7
    while byte & 0x80:
        if shift > 63:
            raise CorruptBatch(f"varint at byte {position} of the records is longer than 10 bytes")
        byte = body[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
    return (value >> 1) ^ -(value & 1), position


def _put_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out.append(1)  # zigzag of -1
        return
    put_varint(out, len(value))
    out += value


def _get_bytes(body: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    size, position = get_varint(body, position)
    if size < 0:
        return None, position
    if position + size > end:
        raise IndexError("a field exceeds its record")
    return body[position : position + size], position + size
