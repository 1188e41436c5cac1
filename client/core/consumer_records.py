"""The records of a fetched batch, as applications get them. aiokafka's C codec decodes."""

from collections.abc import Sequence
from typing import NamedTuple

from aiokafka.record.default_records import DefaultRecordBatch

from holdfast.client.core.decoding import UNDECODABLE, is_whole, unpacked
from holdfast.client.core.errors import CorruptRecords
from holdfast.client.core.fetcher_effects import FetchedBatch
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.topic_names import TopicPartition

_new = tuple.__new__


class ConsumerRecord(NamedTuple):
    """One record and where it was."""

    topic: str
    partition: int
    offset: int
    #: of the leader that appended it
    leader_epoch: int
    #: in ms since 1970, as its producer gave it
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


def decoded_records(batch: FetchedBatch, unpacked_bytes_max: int, *, check_crc: bool) -> list[ConsumerRecord]:
    """Those from `start_offset` on. Raises: CorruptRecords."""
    if check_crc and not is_whole(batch.data):
        raise corrupt(batch, "its crc does not match")
    topic, partition, epoch = batch.topic, batch.partition, batch.header.leader_epoch
    try:
        plain = unpacked(batch.header, batch.data, unpacked_bytes_max)
        # The class itself would go through a function of Python, for each record.
        records = [
            _new(
                ConsumerRecord,
                (topic, partition, r.offset, epoch, r.timestamp, r.key, r.value, r.headers),
            )
            for r in DefaultRecordBatch(plain)
        ]
    except UNDECODABLE as error:
        raise corrupt(batch, str(error) or type(error).__name__) from error
    if batch.start_offset > batch.header.base_offset:
        return [record for record in records if record.offset >= batch.start_offset]
    return records


def corrupt(batch: FetchedBatch, why: str) -> CorruptRecords:
    """What a poll raises."""
    header = batch.header
    text = (
        f"{batch.topic}-{batch.partition} at offset {header.base_offset}: {why}; "
        f"seek to {header.next_offset} to go on behind this batch"
    )
    place = TopicPartition(batch.topic, batch.partition)
    return CorruptRecords(text, ErrorCode.CORRUPT_MESSAGE, place, header.base_offset, header.next_offset)
