"""The verdict that a test asks for: Spark's where the extra `spark` is installed, else a plain check.

The plain check reads the ledger and the topic in this process and knows fourteen classes; `holdfast
validate`, in a process of its own, knows all of them and compares the replicas' files as well.
"""

import importlib.util
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.client.admin import Admin
from holdfast.client.consumer import Consumer
from holdfast.client.core.consumer_records import ConsumerRecord
from holdfast.client.core.history import (
    SentFields,
    headers_crc32c,
    key_crc32c,
    parse_value,
    value_crc32c,
)
from holdfast.durability.ledger_files import (
    UnreadableLedger,
    check_topic_ids,
    check_writers,
    doubts_of_files,
    ledger_files,
    sound_rows,
)
from holdfast.localcluster.nodes import ClusterError
from holdfast.localcluster.plain_polls import (
    PlainPoll,
    SentAs,
    check_polls,
    judge_polls,
    read_plain_polls,
)
from holdfast.protocol.id_text import encode_id
from holdfast.protocol.topic_names import TopicPartition

_GOOD, _LOST, _ANOMALY, _INCONCLUSIVE = 0, 4, 5, 6
_SAMPLES_MAX = 32
#: Milliseconds without a record, below the end of a log, that end a read.
_POLL_MS = 60_000


@dataclass(frozen=True, slots=True)
class ClusterVerdict:
    """What was found; the classes and exit codes of docs/validate.md."""

    #: "spark" or "plain"
    judge: str
    #: 0 good, 4 lost, 5 another anomaly, 6 inconclusive
    exit_code: int
    #: class -> rows
    counts: Mapping[str, int]
    #: acknowledged with acks=all
    acked: int
    #: samples, notes and reasons
    lines: tuple[str, ...]

    @property
    def is_good(self) -> bool:
        """Everything acknowledged is there, once, and that was checked."""
        return self.exit_code == _GOOD

    def __str__(self) -> str:
        head = (
            f"judged by {'Spark' if self.judge == 'spark' else 'the plain check'}: exit code {self.exit_code}"
        )
        counts = ", ".join(f"{name} {count}" for name, count in self.counts.items() if count)
        good = f"nothing wrong with {self.acked} acknowledged records"
        nothing = "inconclusive" if self.exit_code == _INCONCLUSIVE else good
        return "\n".join([head, counts or nothing, *self.lines])


def has_spark() -> bool:
    """The extra `spark` is installed."""
    return all(importlib.util.find_spec(name) is not None for name in ("pyspark", "pyarrow", "numpy"))


def spark_verdict(
    ledger: Path, bootstrap_servers: str, log_dirs: Mapping[int, Iterable[Path]], acked_min: int
) -> ClusterVerdict:
    """Of `holdfast validate`. Raises: ClusterError when it does not give one."""
    command = [sys.executable, "-m", "holdfast.cli", "validate", "--output", "json", "--ledger", str(ledger)]
    command += ["--bootstrap-server", bootstrap_servers, "--min-acked", str(acked_min)]
    for broker, dirs in sorted(log_dirs.items()):
        command += ["--log-dirs", f"{broker}={','.join(map(str, dirs))}"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        shown: dict[str, Any] = json.loads(ran.stdout)
        data = shown["data"]
    except (ValueError, KeyError):
        raise ClusterError(
            f"holdfast validate ended with {ran.returncode}: {ran.stderr or ran.stdout}"
        ) from None
    samples = [
        f"{name}: {row['topic']}-{row['partition']} offset {row['offset']}: {row['detail']}"
        for name, rows in data["samples"].items()
        for row in rows
    ]
    losses = [
        f"loss: {loss['topic']}-{loss['partition']} offsets {loss['first_offset']} to {loss['last_offset']}, "
        f"{loss['records']} records: {loss['story']}"
        for loss in data["losses"]
        if loss["story"]
    ]
    reasons = [error["message"] for error in shown["errors"] if error["code"] == "INCONCLUSIVE"]
    return ClusterVerdict(
        "spark",
        data["exit_code"],
        data["counts"],
        data["facts"].get("acked", 0),
        (*losses, *samples, *data["notes"], *reasons),
    )


# --- the plain check -----------------------------------------------------------------------------------


@dataclass(slots=True)
class Send:
    """One send of a ledger."""

    crc: int
    acks: int
    partition: int
    outcome: str = ""
    offset: int = -1
    #: None: an older ledger, which says nothing of them
    fields: SentFields | None = None

    @property
    def is_acked(self) -> bool:
        """By all of the ISR."""
        return self.outcome == "ok" and self.acks == -1


@dataclass(slots=True)
class PlainLedger:
    """All that the files of a ledger say."""

    #: by (topic, producer, number)
    sends: dict[tuple[str, str, int], Send]
    #: {topic: ids that acknowledged}; producers of older builds did not write them down
    topic_ids: dict[str, set[str]]
    runs: set[str] = field(default_factory=set)

    @property
    def topics(self) -> set[str]:
        return {topic for topic, _, _ in self.sends}

    @property
    def acked(self) -> int:
        """Sends that were acknowledged with acks=all."""
        return sum(send.is_acked for send in self.sends.values())


async def plain_verdict(ledger: Path, bootstrap_servers: str, acked_min: int) -> ClusterVerdict:
    """Of one comparison in memory, for the thousands of records that a test sends. Raises: ClientError.

    The order makes it right while producers go on: the logs' ends, the ledger, then the logs.
    """
    acked = 0
    try:
        # first of all: what was polled was sent before, and lies below the ends that are asked for later
        polls = read_plain_polls(ledger)
        first = read_ledger(ledger)
        acked = first.acked
        if acked < max(1, acked_min):
            return _inconclusive(
                acked, f"{acked} acknowledged sends (acks=all) are too few to prove anything"
            )
        settled = await _ends(bootstrap_servers, first.topics)
        found = read_ledger(ledger)
        doubts = doubts_of_files(str(ledger))
        starts, records = await _served(bootstrap_servers, found.topics)
        # last: what was read is of the topic that has this id now
        topic_ids = await _topic_ids(bootstrap_servers, found.topics)
        check_topic_ids(found.topic_ids, topic_ids)
        _check_partitions(found.sends, starts)
        check_polls(polls, found.runs, topic_ids, starts)
    except (OSError, UnreadableLedger) as error:
        return _inconclusive(acked, f"ledger: {error}")
    return judge_plain(found.sends, records, settled=settled, starts=starts, doubts=doubts, polls=polls)


def _inconclusive(acked: int, reason: str) -> ClusterVerdict:
    return ClusterVerdict("plain", _INCONCLUSIVE, {}, acked, (reason,))


def judge_plain(
    sends: Mapping[tuple[str, str, int], Send],
    records: Collection[ConsumerRecord],
    *,
    settled: Mapping[TopicPartition, int] | None = None,
    starts: Mapping[TopicPartition, int] | None = None,
    doubts: tuple[str, ...] = (),
    polls: Collection[PlainPoll] = (),
) -> ClusterVerdict:
    """Sends by (topic, producer, number) against all records of their topics.

    `settled`: the logs' ends before the ledger was read; the ledger need not know what lies behind, None for
    logs that nothing came to. `starts`: where the logs begin. `doubts`: what of the ledger was not read.
    `polls`: what consumers were given.
    """
    wrong: list[tuple[str, str]] = []
    is_of_a_part = bool(doubts)
    places: dict[tuple[str, str, int], list[tuple[int, int]]] = {}
    for record in records:
        at = f"{record.topic}-{record.partition} offset {record.offset}"
        parsed = parse_value(record.value or b"")
        name = None if parsed is None else (record.topic, parsed.producer, parsed.pseq)
        if name is None or name not in sends:
            place = TopicPartition(record.topic, record.partition)
            is_known_end = settled is None or record.offset < settled.get(place, 0)
            if is_known_end and not is_of_a_part:  # files that were passed over may have it
                wrong.append(("unexpected", at))
            continue
        if sends[name].outcome == "fail":
            wrong.append(("unexpected", at))
            continue
        if value_crc32c(record.value or b"") != sends[name].crc:
            wrong.append(("corrupt", at))
        wrong += [(kind, at) for kind in _changed(sends[name].fields, record)]
        known = places.setdefault(name, [])
        if any(partition == record.partition for partition, _ in known):
            wrong.append(("duplicated", at))
        known.append((record.partition, record.offset))
    acked = {name: send for name, send in sends.items() if send.is_acked}
    expired = {
        name
        for name, send in sends.items()
        if 0 <= send.offset < (starts or {}).get(TopicPartition(name[0], send.partition), 0)
    }
    if expired:
        what = f"{len(expired)} answered sends lie before the beginning of their logs (retention)"
        doubts = (*doubts, f"{what}: not judged")
    for (topic, producer, number), send in acked.items():
        if (topic, producer, number) in expired:
            continue
        here = [
            offset for index, offset in places.get((topic, producer, number), ()) if index == send.partition
        ]
        text = f"{topic}-{send.partition} offset {send.offset} {producer} record {number}"
        if not here:
            wrong.append(("lost", text))
        elif send.offset not in here:
            wrong.append(("moved", f"{text}: found at offset {here[0]}"))
    sent = {name: SentAs(send.partition, send.crc, send.outcome == "fail") for name, send in sends.items()}
    wrong += judge_polls(polls, sent, records, starts or {}, is_whole=not is_of_a_part)
    counts = Counter(name for name, _ in wrong)
    code = _LOST if counts["lost"] else _ANOMALY if wrong else _INCONCLUSIVE if doubts else _GOOD
    lines = tuple(f"{name}: {text}" for name, text in wrong[:_SAMPLES_MAX])
    return ClusterVerdict("plain", code, dict(counts), len(acked), lines + doubts)


def _changed(sent: SentFields | None, record: ConsumerRecord) -> list[str]:
    """Which classes tell that the record is another one than was sent, beside its value."""
    if sent is None:
        return []
    served = SentFields(record.timestamp_ms, key_crc32c(record.key), headers_crc32c(record.headers))
    classes = ("timestamp_changed", "key_changed", "headers_changed")
    return [kind for kind, was, now in zip(classes, sent, served, strict=True) if was != now]


def read_ledger(path: Path) -> PlainLedger:
    """Everything in a file or folder. Raises: UnreadableLedger by file and line, OSError."""
    found = PlainLedger({}, {})
    #: {(topic, producer, run): (first, last) number}
    writers: dict[tuple[str, str, str], tuple[int, int]] = {}
    for file in ledger_files(str(path)):
        for place, row in sound_rows(file):
            if problem := _take(found, row):
                raise UnreadableLedger(f"{place}: {problem}")
            writer = row["topic"], row["producer"], row["run"]
            least, most = writers.get(writer, (row["pseq"], row["pseq"]))
            found.runs.add(row["run"])
            writers[writer] = min(least, row["pseq"]), max(most, row["pseq"])
    check_writers([(topic, producer, *numbers, run) for (topic, producer, run), numbers in writers.items()])
    return found


def _take(found: PlainLedger, row: Mapping[str, Any]) -> str:
    """Why a sound line does not go with those before it; empty when it does."""
    name = row["topic"], row["producer"], row["pseq"]
    if row["kind"] == "invoke":
        if name in found.sends:
            return "written down more than once"
        found.sends[name] = Send(row["value_crc32c"], row["acks"], row["partition"], fields=_fields_of(row))
        return ""
    if row.get("topic_id") is not None:
        found.topic_ids.setdefault(row["topic"], set()).add(row["topic_id"])
    send = found.sends.get(name)
    if send is None:
        return "an answer to a send that was never written down"
    outcome, offset = row["outcome"], row.get("offset")
    offset = -1 if offset is None else offset
    is_of_acks = outcome not in ("ok", "ok1") or (outcome == "ok") == (send.acks == -1)
    is_same = not send.outcome or (send.outcome, send.offset) == (outcome, offset)
    if not is_of_acks or not is_same or row["partition"] != send.partition:
        return "contradicts another answer or its send"
    send.outcome, send.offset = outcome, offset
    return ""


def _fields_of(row: Mapping[str, Any]) -> SentFields | None:
    if row.get("timestamp_ms") is None:
        return None
    return SentFields(row["timestamp_ms"], row.get("key_crc32c"), row.get("headers_crc32c"))


def _check_partitions(
    sends: Mapping[tuple[str, str, int], Send], starts: Mapping[TopicPartition, int]
) -> None:
    """Raises: UnreadableLedger for a send to a partition that there is not."""
    counts = Counter(place.topic for place in starts)
    for (topic, producer, number), send in sends.items():
        if send.partition >= counts[topic]:
            what = f"a send to {topic}-{send.partition}, which has {counts[topic]} partitions"
            raise UnreadableLedger(f"{what} (producer {producer}, record {number})")


async def _topic_ids(servers: str, topics: Iterable[str]) -> Mapping[str, str]:
    """{topic: the id that it has now, in Kafka's text}."""
    async with Admin(servers) as admin:
        return {row.name: encode_id(row.topic_id) for row in await admin.describe_topics(list(topics))}


async def _ends(servers: str, topics: Iterable[str]) -> Mapping[TopicPartition, int]:
    """The ends that the topics have now."""
    async with Consumer(servers) as consumer:
        return await consumer.end_offsets(await _partitions(consumer, topics))


async def _partitions(consumer: Consumer, topics: Iterable[str]) -> list[TopicPartition]:
    return [one for topic in sorted(topics) for one in await consumer.partitions(topic)]


async def _served(
    servers: str, topics: Iterable[str]
) -> tuple[Mapping[TopicPartition, int], list[ConsumerRecord]]:
    """(where the logs begin, all records up to the ends that the topics have now)."""
    found: list[ConsumerRecord] = []
    async with Consumer(servers) as consumer:
        wanted = await _partitions(consumer, topics)
        ends = await consumer.end_offsets(wanted)
        consumer.assign(dict.fromkeys(wanted, "earliest"))
        while any((consumer.position(one) or 0) < ends[one] for one in wanted):
            records = await consumer.poll(timeout_ms=_POLL_MS)
            if not records:
                raise ClusterError(f"nothing came within {_POLL_MS} ms, and the logs go on")
            found += records
        # last: retention may have gone on while they were read
        starts = await consumer.beginning_offsets(wanted)
    return starts, [
        record for record in found if record.offset < ends[TopicPartition(record.topic, record.partition)]
    ]
