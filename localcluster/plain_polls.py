"""What consumers were given, judged without Spark: for the plain check of tests.

The rules are those of docs/validate.md, over what a test holds in memory.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from holdfast.client.core.consumer_records import ConsumerRecord
from holdfast.client.core.history import parse_value, value_crc32c
from holdfast.durability.ledger_files import UnreadableLedger, poll_files, why_made_again
from holdfast.durability.poll_lines import PROBLEM, rows_of_polls
from holdfast.protocol.topic_names import TopicPartition

#: (topic, producer, number)
SendName = tuple[str, str, int]


class PlainPoll(NamedTuple):
    """One record that a consumer was given; without a name when its value is none of a ledger."""

    file: str
    line: int
    nth: int
    run: str
    consumer: str
    session: str
    poll: int
    topic: str
    topic_id: str | None
    partition: int
    high_watermark: int | None
    t1: int | None
    offset: int
    leader_epoch: int
    crc: int | None
    producer: str | None
    pseq: int | None

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def told(self) -> str:
        """For people: who was given it, and where it was."""
        return (
            f"{self.topic}-{self.partition} offset {self.offset}: consumer {self.consumer}, "
            f"session {self.session}, poll {self.poll}"
        )


class SentAs(NamedTuple):
    """What a ledger says of a send, as far as it matters here."""

    partition: int
    crc: int
    is_refused: bool


def read_plain_polls(ledger: Path) -> list[PlainPoll]:
    """All that the files of a folder say, in their order. Raises: UnreadableLedger, OSError."""
    found: list[PlainPoll] = []
    files: dict[tuple[str, str, str], str] = {}
    for file in poll_files(str(ledger)):
        for *row, remark, text in rows_of_polls(file, Path(file).stat().st_size):
            if remark == PROBLEM:
                raise UnreadableLedger(f"a line that is none of polls: {text}")
            if remark is not None:
                continue
            poll = PlainPoll(*row)
            first = files.setdefault((poll.run, poll.consumer, poll.session), file)
            if first != file:
                raise UnreadableLedger(
                    f"session {poll.session} of consumer {poll.consumer} is in {first} and in {file}"
                )
            found.append(poll)
    return found


def check_polls(
    polls: Collection[PlainPoll],
    runs: Collection[str],
    topic_ids: Mapping[str, str],
    starts: Mapping[TopicPartition, int],
) -> None:
    """Polls are of the ledger's runs and topics, and of partitions that there are. `topic_ids`: those that
    its topics have now; `starts`: their partitions. Raises: UnreadableLedger."""
    for poll in polls:
        where = f"{poll.file}, line {poll.line}"
        if poll.run not in runs:
            raise UnreadableLedger(f"{where}: polls of run {poll.run}, of which there is no send")
        if poll.topic not in topic_ids:
            raise UnreadableLedger(f"{where}: polls of topic {poll.topic}, of which there is no send")
        if poll.topic_id not in (None, topic_ids[poll.topic]):
            why = why_made_again(poll.topic, [str(poll.topic_id)], topic_ids[poll.topic])
            raise UnreadableLedger(f"{where}: {why}")
        if poll.place not in starts:
            raise UnreadableLedger(f"{where}: a poll of {poll.topic}-{poll.partition}, which there is not")


def judge_polls(
    polls: Collection[PlainPoll],
    sends: Mapping[SendName, SentAs],
    records: Collection[ConsumerRecord],
    starts: Mapping[TopicPartition, int],
    *,
    is_whole: bool,
) -> list[tuple[str, str]]:
    """(class, where) of what they should not have been given. `starts`: where the logs begin; `is_whole`: all
    of the ledger was read."""
    served = {(record.topic, record.partition, record.offset): record for record in records}
    wrong = list(_in_sessions(polls, served))
    told: set[tuple[str, TopicPartition, int, str | None, int | None]] = set()
    for poll in polls:
        for name in (
            _against_log(poll, served, starts),
            _against_sends(poll, sends, is_whole=is_whole),
        ):
            key = (name, poll.place, poll.offset, poll.producer, poll.pseq)
            if name and key not in told:  # several consumers may have been given the same record
                told.add(key)
                wrong.append((name, poll.told))
    return wrong


def _in_sessions(
    polls: Collection[PlainPoll], served: Collection[tuple[str, int, int]]
) -> Iterator[tuple[str, str]]:
    offsets: dict[TopicPartition, list[int]] = defaultdict(list)
    for topic, partition, offset in sorted(served):
        offsets[TopicPartition(topic, partition)].append(offset)
    before: dict[tuple[str, str, str, TopicPartition], int] = {}
    highest: dict[tuple[str, str, str, TopicPartition], int] = {}
    for poll in polls:
        key = poll.run, poll.consumer, poll.session, poll.place
        last = before.get(key, poll.offset - 1)
        before[key] = poll.offset
        mark = -1 if poll.high_watermark is None else poll.high_watermark
        if poll.nth == 0 and 0 <= mark < highest.get(key, 0):
            yield "watermark_back", f"{poll.told}: high watermark {mark}, before it {highest[key]}"
        highest[key] = max(highest.get(key, -1), mark)
        if 0 <= mark <= poll.offset:
            yield "polled_uncommitted", f"{poll.told}: high watermark {mark}"
        if poll.offset <= last:
            yield "polled_again", f"{poll.told}: after offset {last}"
        there = offsets[poll.place]
        for offset in there[bisect_right(there, last) : bisect_left(there, poll.offset)]:
            yield "poll_skipped", f"{poll.told}: left out offset {offset}"


def _against_log(
    poll: PlainPoll,
    served: Mapping[tuple[str, int, int], ConsumerRecord],
    starts: Mapping[TopicPartition, int],
) -> str:
    if poll.offset < starts.get(poll.place, 0):
        return ""  # deleted on purpose
    record = served.get((*poll.place, poll.offset))
    if record is None:
        return "polled_and_gone"
    value = parse_value(record.value or b"")
    name = (None, None) if value is None else (value.producer, value.pseq)
    if name == (poll.producer, poll.pseq):
        crc = None if record.value is None else value_crc32c(record.value)
        return "polled_and_gone" if value is None and crc != poll.crc else ""
    # a value that is none of a ledger may be a damaged one, which is told as such
    return "" if value is None else "polled_and_gone"


def _against_sends(poll: PlainPoll, sends: Mapping[SendName, SentAs], *, is_whole: bool) -> str:
    if poll.producer is None or poll.pseq is None:
        return ""
    send = sends.get((poll.topic, poll.producer, poll.pseq))
    if send is None:
        return "polled_unsent" if is_whole else ""
    is_as_sent = not send.is_refused and (send.partition, send.crc) == (poll.partition, poll.crc)
    return "" if is_as_sent else "polled_unsent"
