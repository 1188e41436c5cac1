"""Reads a plain batch of records that are all alike without making an object of each.

Owns a proof: True says that the compiled reader (`batch_validation`) would find each record whole, numbered
from 0 and within the timestamps that are taken; False says nothing. Records with as many bytes of key, value
and timestamp, and without headers, lie at equal distances, so each byte of their framing is a column that is
compared at once. The number of a record takes a second byte from 64 on: there another run begins.
"""

from holdfast.protocol.record_batch import HEADER_SIZE, BatchHeader, Buffer

#: First numbers whose varint has another byte.
_TWO_BYTES, _THREE_BYTES = 64, 8192
#: Fewer are read one by one as quickly; more are not read here.
EVEN_RECORDS_MIN, EVEN_RECORDS_MAX = 32, _THREE_BYTES
#: Most bytes of a varint that is read here.
_VARINT_MAX_BYTES = 4
_MORE = 0x80
#: Of a key or value that is not there, and of what is no size.
_NULL_SIZE, _NO_SIZE = -1, -2
#: Bytes that end a varint, and those that do not.
_LAST_BYTES, _MORE_BYTES = bytes(range(_MORE)), bytes(range(_MORE, 256))


def _zigzag(number: int) -> bytes:
    """The varint of 0 to 8191, with a second byte that is 0 where it has one."""
    value = 2 * number
    return bytes((value,)) + b"\0" if number < _TWO_BYTES else bytes((value & 0x7F | _MORE, value >> 7))


#: The first bytes of the varints of 0, 1, ..., and the second ones.
_NUMBERS = tuple(bytes(_zigzag(number)[place] for number in range(EVEN_RECORDS_MAX)) for place in (0, 1))


def are_sound(plain: Buffer, header: BatchHeader, low_ms: int, high_ms: int) -> bool:
    """True when the records of an uncompressed batch are all alike and nothing is wrong with them."""
    count = header.record_count
    if not EVEN_RECORDS_MIN <= count <= EVEN_RECORDS_MAX:
        return False
    length, body = _varint(plain, HEADER_SIZE)
    second = body + length
    if plain[HEADER_SIZE:body] != plain[second : second + body - HEADER_SIZE]:
        return False  # as usual where records differ; the columns below are of `bytes`, thrice as quick
    data = bytes(plain)
    position, index = HEADER_SIZE, 0
    while index < count:
        end = count if index else min(count, _TWO_BYTES)
        position = _end_of_run(data, position, index, end, header.base_timestamp, low_ms, high_ms)
        if not position:
            return False
        index = end
    return position == len(data)


def _end_of_run(
    data: bytes, start: int, index: int, end: int, base_ms: int, low_ms: int, high_ms: int
) -> int:
    """Where the records from `index` to `end` (exclusive) end, 0 when they are not alike."""
    count = end - index
    length, body = _varint(data, start)
    stride = body - start + length
    stop = start + count * stride
    if length <= 0 or stop > len(data):
        return 0
    # attributes, timestamp, number, key, value, number of headers
    constant = [*range(body - start + 1)]
    at = body + 1
    _, after = _varint(data, at)
    time_columns = range(at - start, after - start)
    reach_ms = 1 << 7 * len(time_columns)  # twice as far as a varint of so many bytes reaches
    if not (time_columns and low_ms <= base_ms - reach_ms and base_ms + reach_ms <= high_ms):
        return 0
    number_column = after - start
    number_bytes = 2 if index else 1
    at = after + number_bytes
    for _ in ("key", "value"):
        size, after = _varint(data, at)
        constant += range(at - start, after - start)
        at = after + max(size, 0)
        if size < _NULL_SIZE or at >= start + stride:
            return 0
    constant.append(stride - 1)
    if at != start + stride - 1 or data[at] or data[body]:
        return 0
    for column in constant:
        if data[start + column : stop : stride] != data[start + column : start + column + 1] * count:
            return 0
    for column in time_columns:
        wrong = _LAST_BYTES if column != time_columns[-1] else _MORE_BYTES
        values = data[start + column : stop : stride]
        if len(values.translate(None, wrong)) != count:
            return 0
    for place in range(number_bytes):
        if data[start + number_column + place : stop : stride] != _NUMBERS[place][index:end]:
            return 0
    return stop


def _varint(data: Buffer, position: int) -> tuple[int, int]:
    """(value, position behind it) of a zigzag varint; (_NO_SIZE, position) when it is none or too long."""
    value = 0
    for place, byte in enumerate(data[position : position + _VARINT_MAX_BYTES]):
        value |= (byte & 0x7F) << 7 * place
        if byte < _MORE:
            return (value >> 1) ^ -(value & 1), position + place + 1
    return _NO_SIZE, position
