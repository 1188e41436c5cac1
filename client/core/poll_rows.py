"""What a consumer was given, one JSON line for each poll and partition; `holdfast validate` judges it.

  {"kind":"poll","run":..,"consumer":..,"session":..,"poll":..,"topic":..,"partition":..,"high_watermark":..,
   "t1":..,"topic_id":"..","records":[[offset, leader_epoch, value_crc32c, producer, pseq], ..]}

`session` is text that no other session has, and another one after each assignment, seek, reset and restart:
in one session offsets of a partition rise without gaps. `poll` counts the polls of a consumer, `t1` is when
this one was answered (monotonic nanoseconds). The high watermark is that of the very answer that had the
records, -1 when the leader did not know it yet; a poll with records of answers that tell different ones has a
line for each. A record whose value is none of a ledger is [offset, leader_epoch, value_crc32c], with null for
no value. `topic_id` is Kafka's text of it, and missing when it is not known.

The file is `*.polls.jsonl`, in the folder of the producers' ledgers (`client.core.history`).
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from holdfast.client.core.consumer_records import ConsumerRecord
from holdfast.client.core.history import check_names, parse_value, value_crc32c
from holdfast.protocol.id_text import encode_id

#: What such a file's name ends with; `.gz` may follow.
SUFFIX = ".polls.jsonl"


class Polled(NamedTuple):
    """Records of one partition that one poll gave, out of answers with one high watermark."""

    topic: str
    partition: int
    #: -1: not known
    high_watermark: int
    topic_id: bytes | None
    records: Sequence[ConsumerRecord]


class PollRows:
    """Makes the lines of one consumer process."""

    def __init__(self, run: str, consumer: str, token: str) -> None:
        """`token`: text that no other process has. Raises: ValueError for a name that cannot be."""
        check_names(run, consumer)
        self._head = f'{{"kind":"poll","run":"{run}","consumer":"{consumer}","session":"{token}-'
        self._session = 0
        self._poll = 0

    def begin_session(self) -> None:
        """What comes next need not follow what came before."""
        self._session += 1

    def poll(self, polled: Iterable[Polled], t1: int) -> str:
        """The lines of the next poll, which was answered at `t1`. Topic names need no escapes."""
        lines = []
        for topic, partition, high_watermark, topic_id, records in polled:
            rows = json.dumps([_row(record) for record in records], separators=(",", ":"))
            named = "" if topic_id is None else f'"topic_id":"{encode_id(topic_id)}",'
            lines.append(
                f'{self._head}{self._session}","poll":{self._poll},"topic":"{topic}","partition":{partition},'
                f'"high_watermark":{high_watermark},"t1":{t1},{named}"records":{rows}}}\n'
            )
        self._poll += 1
        return "".join(lines)


def _row(record: ConsumerRecord) -> list[Any]:
    value = record.value
    if value is None:
        return [record.offset, record.leader_epoch, None]
    found = [record.offset, record.leader_epoch, value_crc32c(value)]
    name = parse_value(value)
    return found if name is None else [*found, name.producer, name.pseq]
