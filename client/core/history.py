"""The ledger's format: what a producer sent and what it was told, one JSON line each (D11).

Owns the rows and the self-describing values, so that their readers (validate, the simulator, drills)
needs no other source. `producer` and `pseq` are the application's own and outlive a producer id.

  {"kind":"invoke","run":..,"producer":..,"pseq":..,"topic":..,"partition":..,"value_crc32c":..,"acks":..,"t0":..,
   "timestamp_ms":..,"key_crc32c":..,"headers_crc32c":..}
  {"kind":"complete","run":..,"producer":..,"pseq":..,"outcome":"ok|ok1|fail|info","topic":..,"partition":..,
   "offset":..,"leader_epoch":..,"error":..,"t1":..}

Times are monotonic nanoseconds. `offset` and `leader_epoch` are -1 without an acknowledgement. The first line
of each acknowledged batch also has `"topic_id":".."`, Kafka's text of it: a topic that was deleted and
created again has the same name and nothing of what was acknowledged before. A line with `timestamp_ms` tells
the whole record: without `key_crc32c` it has no key, without `headers_crc32c` no headers. Older ledgers have
none of the three.

`client.core.arrow_rows` has the same rows in another form.
"""

import hashlib
import json
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import google_crc32c

from holdfast.client.core.outcomes import DeliveryOutcome
from holdfast.protocol.id_text import encode_id

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_CRC_TEXT_SIZE = 9
#: What a ledger's readers have room for.
_PSEQ_MAX = (1 << 63) - 1


# --- rows ----------------------------------------------------------------------------------------------


def check_names(*names: str) -> None:
    """Of runs and producers. Raises: ValueError."""
    for name in names:
        if not _NAME.fullmatch(name):
            raise ValueError(f"ledger name {name!r}: expected 1 to 64 of A-Z a-z 0-9 . _ -, first no . _ -")


class RowWriter:
    """Makes the lines of one producer in one run; cheap, because it is called twice a record."""

    __slots__ = ("_complete", "_invoke")

    def __init__(self, run: str, producer: str) -> None:
        check_names(run, producer)
        self._invoke = f'{{"kind":"invoke","run":"{run}","producer":"{producer}","pseq":'
        self._complete = f'{{"kind":"complete","run":"{run}","producer":"{producer}","pseq":'

    def invoke(
        self,
        pseq: int,
        topic: str,
        partition: int,
        value_crc32c: int,
        acks: int,
        t0: int,
        fields: "SentFields | None" = None,
    ) -> str:
        """The line to write before the send; `fields` None says nothing of them. Topic names need no
        escapes."""
        more = ""
        if fields is not None:
            timestamp_ms, key, headers = fields
            more = f',"timestamp_ms":{timestamp_ms}'
            if key is not None:
                more += f',"key_crc32c":{key}'
            if headers is not None:
                more += f',"headers_crc32c":{headers}'
        return (
            f'{self._invoke}{pseq},"topic":"{topic}","partition":{partition},'
            f'"value_crc32c":{value_crc32c},"acks":{acks},"t0":{t0}{more}}}\n'
        )

    def complete(
        self,
        pseqs: list[int],
        topic: str,
        partition: int,
        outcome: DeliveryOutcome,
        base_offset: int,
        leader_epoch: int,
        error: str | None,
        t1: int,
        topic_id: bytes = b"",
    ) -> str:
        """The lines of a batch whose first record has `base_offset`, -1 for none."""
        head = self._complete
        middle = f',"outcome":"{outcome.value}","topic":"{topic}","partition":{partition},"offset":'
        error_text = "null" if error is None else f'"{error}"'
        tail = f',"leader_epoch":{leader_epoch},"error":{error_text},"t1":{t1}}}\n'
        if base_offset < 0:
            return "".join([f"{head}{pseq}{middle}-1{tail}" for pseq in pseqs])
        lines = [f"{head}{pseq}{middle}{offset}{tail}" for offset, pseq in enumerate(pseqs, base_offset)]
        if topic_id and lines:
            lines[0] = f'{lines[0][:-2]},"topic_id":"{encode_id(topic_id)}"}}\n'
        return "".join(lines)


def parse_row(line: str | bytes) -> dict[str, Any]:
    """One row. Raises: ValueError when the line is cut or no row."""
    row = json.loads(line)
    if not isinstance(row, dict) or row.get("kind") not in ("invoke", "complete"):
        raise ValueError(f"not a ledger row: {line[:80]!r}")
    return row


class SentFields(NamedTuple):
    """What a record is beside its value."""

    timestamp_ms: int
    #: None: no key
    key_crc32c: int | None = None
    #: None: no headers
    headers_crc32c: int | None = None


def key_crc32c(key: bytes | None) -> int | None:
    """The checksum of a key, None without one."""
    return None if key is None else int(google_crc32c.value(bytes(key)))


def headers_crc32c(headers: Iterable[tuple[str, bytes | None]]) -> int | None:
    """The checksum of headers in their order, None without any: of `LENGTH:NAME` and `LENGTH:VALUE` of each,
    lengths in bytes, -1 and nothing for a value that is null."""
    parts = []
    for name, value in headers:
        text = name.encode()
        parts.append(b"%d:%s" % (len(text), text))
        parts.append(b"-1:" if value is None else b"%d:%s" % (len(value), value))
    return int(google_crc32c.value(b"".join(parts))) if parts else None


# --- values --------------------------------------------------------------------------------------------


class ParsedValue(NamedTuple):
    """Who wrote a value, as the value itself says."""

    producer: str
    pseq: int


def _make_padding() -> bytes:
    text = b"".join(hashlib.sha256(b"holdfast%d" % i).hexdigest().encode() for i in range(256))
    return text + text


#: Text that repeats only after 16 KiB, so that codecs find about as much as in real payloads.
_PADDING = _make_padding()
_PADDING_PERIOD = len(_PADDING) // 2


def make_value(producer: str, pseq: int, size_bytes: int) -> bytes:
    """`crc:producer:pseq:padding`, `size_bytes` long or as short as its fields allow; the crc32c, in eight
    hexadecimal digits, covers all behind its colon."""
    body = b"%s:%d:" % (producer.encode(), pseq)
    missing = size_bytes - _CRC_TEXT_SIZE - len(body)
    if missing > 0:
        start = (pseq * 61) % _PADDING_PERIOD
        padding = _PADDING[start : start + missing]
        if len(padding) < missing:
            padding = (padding + _PADDING * (missing // len(_PADDING) + 1))[:missing]
        body += padding
    return b"%08x:%s" % (google_crc32c.value(body), body)


def parse_value(value: bytes) -> ParsedValue | None:
    """What a value says of itself; None when it was not made here or is damaged."""
    try:
        crc = int(value[:8], 16)
        producer, pseq, _ = value[_CRC_TEXT_SIZE:].split(b":", 2)
        if value[8:9] != b":" or google_crc32c.value(value[_CRC_TEXT_SIZE:]) != crc:
            return None
        name = ParsedValue(producer.decode(), int(pseq))
    except ValueError:
        return None
    return name if name.producer and 0 <= name.pseq <= _PSEQ_MAX else None


def value_crc32c(value: bytes) -> int:
    """The checksum of a ledger's `invoke` row."""
    return int(google_crc32c.value(value))
