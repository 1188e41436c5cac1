"""Ledgers of any Kafka client (`holdfast validate --foreign`): what a line says, as the columns of our own.

A record is known by the SHA-256 of its value, in place of the producer and number that our own values carry.
The format is docs/validate-your-own-client.md's. Knows nothing of files nor of Spark.
"""

import hashlib
import re
import zlib
from typing import Any, NamedTuple
from uuid import UUID

from holdfast.durability.ledger_files import object_of
from holdfast.protocol.id_text import encode_id

#: The names that the rules see. Lines have no order among each other, so no rule of order is asked.
RUN, PRODUCER = "foreign", "client"
OUTCOMES = {"ok": 1, "ok1": 2, "info": 3, "fail": 4}
#: As clients' settings have them, some of which are texts.
_ACKS = {"all": -1, **{form: acks for acks in (-1, 0, 1) for form in (acks, str(acks))}}
#: What clients report of a partition that they do not know.
_NO_PARTITION = -1
_SHA256 = re.compile(r"[0-9a-f]{64}")
#: As Kafka writes them; other clients have + and / where Kafka has - and _, fill up, or write them as UUIDs.
_TOPIC_ID = re.compile(r"([A-Za-z0-9+/_-]{22})(==)?")
_TOPIC_UUID = re.compile(r"[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}")
_AS_KAFKA_HAS_IT = str.maketrans("+/", "-_")
#: Hexadecimal digits of the hash that become the number; the checksum is over those behind them.
_NUMBER_DIGITS = 15
_OFFSET_MAX, _PARTITION_MAX = (1 << 63) - 1, (1 << 31) - 1


class ForeignRow(NamedTuple):
    """One line. Columns that a kind of line does not have are None."""

    #: 1 invoke, 2 complete
    kind: int
    topic: str
    number: int
    checksum: int
    acks: int | None
    outcome: int | None
    partition: int | None
    offset: int | None
    #: as Kafka writes it
    topic_id: str | None = None


def foreign_row(line: bytes) -> ForeignRow | str:
    """What a line says, or why it is none."""
    row = object_of(line)
    if isinstance(row, str):
        return row
    topic, value = row.get("topic"), row.get("value_sha256")
    if not isinstance(topic, str) or not topic:
        return f"topic {topic!r}: expected a name"
    if not isinstance(value, str) or not _SHA256.fullmatch(value):
        return f"value_sha256 {value!r}: expected 64 hexadecimal digits, small letters"
    partition = None if row.get("partition") == _NO_PARTITION else row.get("partition")
    if partition is not None and not _is_number(partition, _PARTITION_MAX):
        return f"partition {partition!r} cannot be"
    topic_id = row.get("topic_id")
    if topic_id is not None:
        as_kafka_has_it = _id_of(topic_id) if isinstance(topic_id, str) else None
        if as_kafka_has_it is None:
            return f"topic_id {topic_id!r}: expected 22 characters of base64"
        topic_id = as_kafka_has_it
    number, checksum = number_and_checksum(value)
    if row.get("kind") == "invoke":
        acks = row.get("acks")
        if isinstance(acks, bool) or not isinstance(acks, int | str) or acks not in _ACKS:
            return f'acks {acks!r}: expected "all", -1, 1 or 0'
        return ForeignRow(1, topic, number, checksum, _ACKS[acks], None, partition, None, topic_id)
    if row.get("kind") == "complete":
        return _answer(row, topic, (number, checksum), partition, topic_id)
    return f"kind {row.get('kind')!r}: expected invoke or complete"


def _id_of(text: str) -> str | None:
    """A topic id as Kafka writes it; None for what is none."""
    if found := _TOPIC_ID.fullmatch(text):
        return found[1].translate(_AS_KAFKA_HAS_IT)
    return encode_id(UUID(text).bytes) if _TOPIC_UUID.fullmatch(text) else None


def _answer(
    row: dict[str, Any], topic: str, value: tuple[int, int], partition: int | None, topic_id: str | None
) -> ForeignRow | str:
    outcome, offset = row.get("outcome"), row.get("offset")
    if not isinstance(outcome, str) or outcome not in OUTCOMES:
        return f"outcome {outcome!r}: expected one of {', '.join(OUTCOMES)}"
    if offset is not None and offset != -1 and not _is_number(offset, _OFFSET_MAX):
        return f"offset {offset!r} cannot be"
    has_offset = offset is not None and offset >= 0
    if outcome == "ok" and (not has_offset or partition is None):
        return "acknowledged without partition and offset"
    if outcome in ("info", "fail") and has_offset:
        return f"outcome {outcome} with offset {offset}"
    return ForeignRow(2, topic, *value, None, OUTCOMES[outcome], partition, offset, topic_id)


def number_and_checksum(sha256: str) -> tuple[int, int]:
    """The two numbers that stand for a value in the tables; `VALUE_SQL` is the same of a record."""
    return int(sha256[:_NUMBER_DIGITS], 16), zlib.crc32(sha256[_NUMBER_DIGITS:].encode())


def numbers_of_value(content: bytes) -> tuple[int, int]:
    """The same of a record with this value."""
    return number_and_checksum(hashlib.sha256(content).hexdigest())


def name_of(number: int) -> str:
    """The digits that the value's SHA-256 begins with, by which lines about it are found."""
    return f"{number:0{_NUMBER_DIGITS}x}"


def number_of_value(content: bytes) -> int:
    """The number of a record with this value."""
    return numbers_of_value(content)[0]


#: Columns of view `log` out of `topic, partition, offset, state, value, leaderEpoch, batch_crc32c`. A batch
#: that cannot be read has no value; a record without one is told apart by its state.
VALUE_SQL = f"""
SELECT topic, partition, offset,
       CASE WHEN value IS NULL AND state = 'damaged' THEN 'damaged'
            WHEN value IS NULL THEN 'foreign' ELSE 'good' END AS state,
       CASE WHEN value IS NOT NULL THEN '{PRODUCER}' END AS producer,
       CAST(conv(substring(hash, 1, {_NUMBER_DIGITS}), 16, 10) AS long) AS pseq,
       crc32(substring(hash, {_NUMBER_DIGITS + 1})) AS value_crc32c,
       leaderEpoch AS batch_epoch, batch_crc32c
FROM (SELECT topic, partition, offset, state, value, leaderEpoch, batch_crc32c, sha2(value, 256) AS hash
      FROM records)
"""


def _is_number(value: Any, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most
