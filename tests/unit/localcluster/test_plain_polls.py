"""What consumers were given, judged without Spark."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.client.core.consumer_records import ConsumerRecord
from holdfast.client.core.history import make_value, value_crc32c
from holdfast.client.core.poll_rows import Polled, PollRows
from holdfast.durability.ledger_files import UnreadableLedger
from holdfast.localcluster.plain_polls import (
    PlainPoll,
    SentAs,
    check_polls,
    judge_polls,
    read_plain_polls,
)
from holdfast.protocol.topic_names import TopicPartition

PLACE = TopicPartition("t", 0)
RECORDS = 6


def value(number: int) -> bytes:
    return make_value("p", number, 40)


def record(offset: int, data: bytes) -> ConsumerRecord:
    return ConsumerRecord("t", 0, offset, 3, 1, None, data, ())


class Read:
    """Six records of one producer, which one session was given."""

    def __init__(self) -> None:
        self.sends = {
            ("t", "p", number): SentAs(0, value_crc32c(value(number)), False) for number in range(RECORDS)
        }
        self.records = {offset: record(offset, value(offset)) for offset in range(RECORDS)}
        self.polls = [self.poll(offset) for offset in range(RECORDS)]
        self.start = 0
        self.is_whole = True

    def poll(self, offset: int) -> PlainPoll:
        crc = value_crc32c(value(offset))
        where = ("f", 1, offset, "r", "c", "s", offset, "t", None, 0, RECORDS, 5)
        return PlainPoll(*where, offset, 3, crc, "p", offset)

    def change(self, offset: int, **fields: object) -> None:
        self.polls[offset] = self.polls[offset]._replace(**fields)  # type: ignore[arg-type]

    def judged(self) -> dict[str, int]:
        found = judge_polls(
            self.polls, self.sends, list(self.records.values()), {PLACE: self.start}, is_whole=self.is_whole
        )
        return dict(Counter(name for name, _ in found))


def _nothing(read: Read) -> None:
    pass


def _again(read: Read) -> None:
    read.polls.append(read.poll(2))


def _again_in_another_session(read: Read) -> None:
    read.polls.append(read.poll(2)._replace(session="s2"))


def _over(read: Read) -> None:
    del read.polls[2:4]


def _over_a_hole(read: Read) -> None:
    del read.polls[2:4], read.records[2], read.records[3]


def _uncommitted(read: Read) -> None:
    read.change(4, high_watermark=4)


def _mark_not_known(read: Read) -> None:
    read.change(4, high_watermark=-1)
    read.change(5, high_watermark=None)


def _mark_back(read: Read) -> None:
    read.change(1, high_watermark=9, nth=0)
    read.change(2, high_watermark=-1, nth=0)
    read.change(3, high_watermark=8, nth=0)
    read.change(4, high_watermark=8)
    read.change(5, high_watermark=9)


def _gone(read: Read) -> None:
    del read.records[5]


def _gone_for_two(read: Read) -> None:
    _gone(read)
    read.polls.append(read.poll(5)._replace(session="s2"))


def _replaced(read: Read) -> None:
    read.records[5] = record(5, value(2))


def _removed_on_purpose(read: Read) -> None:
    read.start = 2
    del read.records[0], read.records[1]


def _served_damaged(read: Read) -> None:
    read.records[5] = record(5, b"rubbish")


def _other_value_of_none(read: Read) -> None:
    read.change(5, producer=None, pseq=None, crc=7)
    read.records[5] = record(5, b"of another client")


def _never_sent(read: Read) -> None:
    del read.sends["t", "p", 4]


def _of_a_part(read: Read) -> None:
    _never_sent(read)
    read.is_whole = False


def _refused(read: Read) -> None:
    read.sends["t", "p", 4] = read.sends["t", "p", 4]._replace(is_refused=True)
    read.is_whole = False


def _other_bytes(read: Read) -> None:
    read.change(4, crc=7)


def _of_another_partition(read: Read) -> None:
    read.sends["t", "p", 4] = read.sends["t", "p", 4]._replace(partition=1)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (_nothing, {}),
        (_again, {"polled_again": 1}),
        (_again_in_another_session, {}),
        (_over, {"poll_skipped": 2}),
        (_over_a_hole, {}),
        (_uncommitted, {"polled_uncommitted": 1}),
        (_mark_not_known, {}),
        (_mark_back, {"watermark_back": 1}),
        (_gone, {"polled_and_gone": 1}),
        (_gone_for_two, {"polled_and_gone": 1}),
        (_replaced, {"polled_and_gone": 1}),
        (_removed_on_purpose, {}),
        (_served_damaged, {}),
        (_other_value_of_none, {"polled_and_gone": 1}),
        (_never_sent, {"polled_unsent": 1}),
        (_of_a_part, {}),
        (_refused, {"polled_unsent": 1}),
        (_other_bytes, {"polled_unsent": 1}),
        (_of_another_partition, {"polled_unsent": 1}),
    ],
)
def test_each_class_is_found_alone(change: Callable[[Read], None], found: dict[str, int]) -> None:
    read = Read()
    change(read)
    assert read.judged() == found


def test_what_no_ledger_can_name_has_no_name_for_a_consumer_and_in_the_log() -> None:
    """A checksum that holds before a number that is too large."""
    body = b"p:99999999999999999999:x"
    served = record(0, b"%08x:%b" % (value_crc32c(body), body))
    rows = PollRows("r", "c", "s").poll([Polled("t", 0, 9, None, [served])], 1)
    (found,) = json.loads(rows)["records"]
    poll = PlainPoll("f", 1, 0, "r", "c", "s", 0, "t", None, 0, 9, 1, *found, *(None,) * (5 - len(found)))
    assert judge_polls([poll], {}, [served], {}, is_whole=True) == []


def line(**fields: object) -> str:
    row = {"kind": "poll", "run": "r", "consumer": "c", "session": "s", "poll": 0, "topic": "t"}
    row |= {"partition": 0, "high_watermark": 9, "t1": 5, "records": [[0, 3, 17, "p", 4], [1, 3, None]]}
    return json.dumps(row | fields) + "\n"


def test_files_are_read_up_to_a_cut_line(tmp_path: Path) -> None:
    (tmp_path / "c.polls.jsonl").write_text(line() + '{"kind":"po')
    assert [(poll.offset, poll.producer, poll.pseq) for poll in read_plain_polls(tmp_path)] == [
        (0, "p", 4),
        (1, None, None),
    ]


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"a": line(poll=-1)}, "none of polls: .*line 1: poll -1 cannot be"),
        ({"a": line(), "b": line()}, r"session s of consumer c is in .*a\..* and in .*b\."),
    ],
)
def test_files_that_are_none_are_named(tmp_path: Path, files: dict[str, str], says: str) -> None:
    for name, text in files.items():
        (tmp_path / f"{name}.polls.jsonl").write_text(text)
    with pytest.raises(UnreadableLedger, match=says):
        read_plain_polls(tmp_path)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"run": "other"}, "f, line 1: polls of run other, of which there is no send"),
        ({"topic": "u"}, "f, line 1: polls of topic u, of which there is no send"),
        ({"topic_id": "A" * 22}, "f, line 1: topic t was deleted and created again"),
        ({"partition": 9}, "f, line 1: a poll of t-9, which there is not"),
    ],
)
def test_polls_that_do_not_go_with_the_ledger_are_named(changed: dict[str, object], says: str) -> None:
    read = Read()
    check_polls(read.polls, {"r"}, {"t": "B" * 22}, {PLACE: 0})
    read.change(0, **changed)
    with pytest.raises(UnreadableLedger, match=says):
        check_polls(read.polls, {"r"}, {"t": "B" * 22}, {PLACE: 0})
