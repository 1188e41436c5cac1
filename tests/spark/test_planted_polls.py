"""What consumers were given, with one fault in each topic: found there, named rightly, and nothing else.

Written by `plain_writer` and here, with no code of the product; judged as `holdfast validate` does it.
"""

import base64
import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from holdfast.durability.cluster_look import PartitionLook, TopicLook
from holdfast.durability.ledger import Totals
from holdfast.durability.ledger_files import UnreadableLedger
from holdfast.durability.polls import read_all_polls
from holdfast.durability.rules import RULES
from holdfast.durability.rules.rule import Looks
from holdfast.durability.scale import LITTLE
from holdfast.durability.validate import ValidateOptions, validate
from holdfast.durability.verdict import Verdict
from tests.spark.plain_writer import EPOCH, RUN, TOPIC, TOPIC_ID, Plain, crc32c, value
from tests.spark.planted_log import PlantedLogs

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark session"),
    pytest.mark.timeout(600),
]

#: records of a poll
POLL = 4


@dataclass
class Watched:
    """A run that is all right, and a consumer that read both partitions of it in polls of four records."""

    run: Plain
    #: of c.polls.jsonl
    lines: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def sound(cls) -> "Watched":
        watched = cls(Plain.sound())
        for start in range(0, 20, POLL):
            for partition, log in watched.run.served.items():
                producer = "ab"[partition]
                records = [
                    [offset, EPOCH, crc32c(log[offset]), producer, offset]
                    for offset in range(start, start + POLL)
                ]
                watched.lines.append(watched.line(partition, start // POLL, records))
        return watched

    def line(self, partition: int, poll: int, records: list[Any], **more: Any) -> dict[str, Any]:
        made = {"kind": "poll", "run": RUN, "consumer": "c", "session": "s1", "poll": poll, "topic": TOPIC}
        made |= {"partition": partition, "high_watermark": 20, "t1": poll, "topic_id": TOPIC_ID}
        return {**made, "records": records, **more}

    def records(self, partition: int, poll: int) -> list[Any]:
        """Those of a poll, to be changed."""
        found: list[Any] = self.lines[2 * poll + partition]["records"]
        return found

    def text(self) -> str:
        return "".join(json.dumps(line) + "\n" for line in self.lines)

    def write(self, ledger: Path, topic: str, topic_id: str) -> dict[tuple[str, int], list[bytes]]:
        """Files of the ledger, as of this topic; {(topic, partition): batches} to be served."""
        ledger.mkdir(exist_ok=True)
        for line in (*self.run.lines, *self.lines):
            line["topic"] = topic
        for line in self.lines:
            line |= {"topic_id": topic_id, "session": f"{topic} {line['session']}"}
        (ledger / f"{topic}.jsonl").write_bytes(self.run.text())
        (ledger / f"{topic}.polls.jsonl").write_text(self.text())
        return {(topic, index): batches for index, batches in self.run.batches().items()}


def _nothing(watched: Watched) -> None:
    pass


def _again(watched: Watched) -> None:
    records = watched.records(0, 2)
    records.insert(2, records[1])


def _back(watched: Watched) -> None:
    watched.lines.append(watched.line(0, 9, list(watched.records(0, 1))))


def _back_in_another_session(watched: Watched) -> None:
    watched.lines.append(watched.line(0, 9, list(watched.records(0, 1)), session="s2"))


def _over(watched: Watched) -> None:
    del watched.records(1, 2)[1:3]


def _unanswered(watched: Watched) -> None:
    """The last record of partition 0 was not acknowledged."""
    answer = watched.run.line("complete", "a", 19)
    answer |= {"outcome": "info", "offset": -1, "leader_epoch": -1}


def _gone(watched: Watched) -> None:
    _unanswered(watched)
    watched.run.served[0].pop()


def _gone_for_two(watched: Watched) -> None:
    _gone(watched)
    watched.lines.append(watched.line(0, 0, list(watched.records(0, 4)), consumer="d", session="s2"))


def _replaced(watched: Watched) -> None:
    _gone(watched)
    watched.run.send("a", 20, 0)


def _acknowledged_and_gone(watched: Watched) -> None:
    watched.run.served[0].pop()


def _retained(watched: Watched) -> None:
    watched.run.removed |= {(0, 0)}


def _uncommitted(watched: Watched) -> None:
    watched.lines[-1]["high_watermark"] = 18


def _mark_back(watched: Watched) -> None:
    """Of the third poll of partition 0; the fourth does not know it, the last one tells the same again."""
    for poll, mark in ((0, 18), (1, 19), (2, 17), (3, -1), (4, 20)):
        watched.lines[2 * poll]["high_watermark"] = mark


def _mark_back_in_another_session(watched: Watched) -> None:
    watched.lines.append(watched.line(0, 9, list(watched.records(0, 1)), session="s2", high_watermark=10))


def _unknown_mark(watched: Watched) -> None:
    watched.lines[-1]["high_watermark"] = -1
    del watched.lines[-2]["high_watermark"]


def _stranger(watched: Watched) -> None:
    watched.run.served[1].append(value("x", 7))
    watched.lines.append(watched.line(1, 9, [[20, EPOCH, crc32c(value("x", 7)), "x", 7]], high_watermark=21))


def _refused(watched: Watched) -> None:
    answer = watched.run.line("complete", "a", 19)
    answer |= {"outcome": "fail", "offset": -1, "leader_epoch": -1}


def _other_bytes(watched: Watched) -> None:
    watched.records(1, 3)[2][2] = 7


def _nameless(watched: Watched) -> None:
    del watched.records(1, 3)[2][3:]


def _elsewhere(watched: Watched) -> None:
    watched.records(1, 3)[2][3:] = ["a", 14]
    watched.records(1, 3)[2][2] = crc32c(value("a", 14))


def _never_sent(watched: Watched) -> None:
    watched.records(1, 3)[2][3:] = ["a", 999]
    watched.records(1, 3)[2][2] = crc32c(value("a", 999))


@dataclass
class Fault:
    """What is planted and what must be found."""

    plant: Callable[[Watched], object]
    #: class -> count
    found: dict[str, int] = field(default_factory=dict)
    #: what a row says
    says: str = ""


FAULTS = {
    "nothing": Fault(_nothing),
    "a record twice": Fault(_again, {"polled_again": 1}, "poll 2: after offset 9"),
    "back to an earlier poll": Fault(_back, {"polled_again": 1}, "poll 9: after offset 19"),
    "back in another session": Fault(_back_in_another_session),
    "two records left out": Fault(_over, {"poll_skipped": 2}, "poll 2: offset 8, then 11"),
    "gone": Fault(_gone, {"polled_and_gone": 1}, "consumer c, .* nothing is served in its place"),
    "gone, and two had it": Fault(_gone_for_two, {"polled_and_gone": 1}),
    "replaced": Fault(_replaced, {"polled_and_gone": 1}, "a record 20 is served in its place"),
    "acknowledged and gone": Fault(_acknowledged_and_gone, {"lost": 1, "polled_and_gone": 1}),
    "deleted by retention": Fault(_retained),
    "at the high watermark": Fault(
        _uncommitted, {"polled_uncommitted": 2, "watermark_back": 1}, "high watermark 18"
    ),
    "a high watermark that goes back": Fault(
        _mark_back, {"watermark_back": 1}, "poll 2: high watermark 17, before it 19"
    ),
    "a high watermark that goes back elsewhere": Fault(_mark_back_in_another_session),
    "without a high watermark": Fault(_unknown_mark),
    "never sent": Fault(_stranger, {"unexpected": 1, "polled_unsent": 1}, "poll 9: never sent"),
    "refused": Fault(_refused, {"unexpected": 1, "polled_unsent": 1}, "poll 4: was refused"),
    "another checksum": Fault(_other_bytes, {"polled_unsent": 1}, "poll 3: checksum is not the ledger's"),
    "no value of a ledger": Fault(_nameless, {"polled_and_gone": 1}, "b record 14 is served in its place"),
    "of another partition": Fault(_elsewhere, {"polled_and_gone": 1, "polled_unsent": 1}, "was sent to t"),
}


def judged(spark: Any, ledger: Path, logs: dict[tuple[str, int], list[bytes]], **more: Any) -> Verdict:
    with PlantedLogs(logs) as node:
        return validate(spark, ValidateOptions(str(ledger), node.address, timeout_ms=60_000, **more))


def judged_in_part(spark: Any, ledger: Path, plant: Callable[[Watched], None]) -> Verdict:
    """With a file beside the ledger that may be one, and is not read."""
    watched = Watched.sound()
    plant(watched)
    logs = watched.write(ledger, TOPIC, TOPIC_ID)
    (ledger / "ledger.txt").write_text("something")
    return judged(spark, ledger, logs)


@pytest.mark.usefixtures("little_and_much")
def test_each_fault_is_found_in_its_own_topic_and_nothing_else(spark: Any, tmp_path: Path) -> None:
    logs: dict[tuple[str, int], list[bytes]] = {}
    for number, fault in enumerate(FAULTS.values()):
        watched = Watched.sound()
        fault.plant(watched)
        # as `planted_log` gives them to topics in the order of their names
        topic_id = base64.urlsafe_b64encode((7 + number).to_bytes(16, "big")).rstrip(b"=").decode()
        logs |= watched.write(tmp_path, f"t{number:02}", topic_id)
    verdict = judged(spark, tmp_path, logs)
    rows = [row for row in spark.table("violations").collect() if row["class"] != "recovered"]
    for number, (name, fault) in enumerate(FAULTS.items()):
        found = [row for row in rows if row.topic == f"t{number:02}"]
        assert Counter(row["class"] for row in found) == fault.found, f"{name}: {found}"
        assert not fault.says or [row for row in found if re.search(fault.says, row.detail)], name
    assert verdict.exit_code == 4
    assert verdict.facts["polled"] == sum(len(line["records"]) for line in _lines_in(tmp_path))
    assert verdict.facts["consumers"] == 2


def _lines_in(ledger: Path) -> list[dict[str, Any]]:
    files = sorted(ledger.glob("*.polls.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


@pytest.mark.usefixtures("little_and_much")
def test_a_sound_run_is_good_and_its_polls_are_a_table(spark: Any, tmp_path: Path) -> None:
    ledger, tables = tmp_path / "ledger", tmp_path / "tables"
    logs = Watched.sound().write(ledger, TOPIC, TOPIC_ID)
    with (ledger / f"{TOPIC}.polls.jsonl").open("a") as file:
        file.write('{"kind":"poll","run')
    verdict = judged(spark, ledger, logs, tables=str(tables))
    said = verdict.as_text()
    assert verdict.exit_code == 0, said
    assert "40 records polled by 1 consumers" in said
    assert "1 files of polls end in a cut line" in said
    assert {name for name, rule in RULES.items() if rule.looks is Looks.POLLS} <= set(verdict.counts)
    polls = spark.read.parquet(str(tables / "polls"))
    assert polls.where("run = 'planted' AND tp = 't-1' AND offset = 7").count() == 1
    assert polls.count() == 40


def test_polls_keep_sums_from_judging_alone(spark: Any, tmp_path: Path) -> None:
    watched = Watched.sound()
    _back(watched)
    verdict = judged(spark, tmp_path, watched.write(tmp_path, TOPIC, TOPIC_ID))
    assert {name: count for name, count in verdict.counts.items() if count} == {"polled_again": 1}
    assert verdict.exit_code == 5


@pytest.mark.long
def test_nothing_is_called_never_sent_of_a_ledger_that_was_not_read_whole(spark: Any, tmp_path: Path) -> None:
    verdict = judged_in_part(spark, tmp_path, _never_sent)
    assert "1 polled records are not of what was read of the ledger" in verdict.as_text()
    assert {name: count for name, count in verdict.counts.items() if count} == {"polled_and_gone": 1}


@pytest.mark.long
def test_what_was_read_of_a_ledger_proves_other_bytes(spark: Any, tmp_path: Path) -> None:
    verdict = judged_in_part(spark, tmp_path, _other_bytes)
    assert (verdict.exit_code, verdict.counts["polled_unsent"]) == (5, 1)


@pytest.mark.long
def test_polls_beside_the_ledger_of_another_client_are_not_judged(spark: Any, tmp_path: Path) -> None:
    watched = Watched.sound()
    _back(watched)
    logs = watched.write(tmp_path, TOPIC, TOPIC_ID)
    (tmp_path / f"{TOPIC}.jsonl").write_bytes(watched.run.foreign_text())
    verdict = judged(spark, tmp_path, logs, is_foreign=True)
    assert verdict.exit_code == 0, verdict.as_text()
    assert "polled_again" not in verdict.counts


# --- what makes polls no proof -------------------------------------------------------------------------

TOTALS = Totals(
    *(40, 40, 0, 0, 0, 0, 40), (TOPIC,), (RUN,), 2, 0, {TOPIC: (TOPIC_ID,)}, {TOPIC: 1}, in_order=True
)
PARTITION = PartitionLook((1,), (1,))
TOPICS = {TOPIC: TopicLook(TOPIC_ID, {0: PARTITION, 1: PARTITION})}


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"run": "other"}, "line 1: polls of run other, of which there is no send"),
        ({"topic": "u"}, "line 1: polls of topic u, of which there is no send"),
        ({"topic_id": "A" * 22}, "line 1: topic t was deleted and created again"),
        ({"partition": 9}, "line 10: a poll of t-9, which has 2 partitions"),
        ({"kind": "polls"}, "10 lines that are none of polls: .*line 1: kind 'polls': expected poll"),
    ],
)
def test_polls_that_do_not_go_with_the_ledger_are_named(
    spark: Any, tmp_path: Path, changed: dict[str, Any], says: str
) -> None:
    watched = Watched.sound()
    for line in watched.lines:
        line |= changed
    path = tmp_path / "c.polls.jsonl"
    path.write_text(watched.text())
    with pytest.raises(UnreadableLedger, match=says):
        read_all_polls(spark, LITTLE, {str(path): path.stat().st_size}, TOTALS, TOPICS)


def test_a_session_in_two_files_is_none(spark: Any, tmp_path: Path) -> None:
    paths = [tmp_path / "a.polls.jsonl", tmp_path / "b.polls.jsonl"]
    for path in paths:
        path.write_text(Watched.sound().text())
    sizes = {str(path): path.stat().st_size for path in paths}
    with pytest.raises(UnreadableLedger, match=r"session s1 of consumer c is in .*/a\..* and in .*/b\."):
        read_all_polls(spark, LITTLE, sizes, TOTALS, TOPICS)
