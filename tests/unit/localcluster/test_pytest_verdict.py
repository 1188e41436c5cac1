"""The plain check of the pytest plugin: a ledger against records, without a cluster."""

import gzip
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.client.core.consumer_records import ConsumerRecord
from holdfast.client.core.history import RowWriter, SentFields, make_value, value_crc32c
from holdfast.client.core.outcomes import DeliveryOutcome
from holdfast.durability.verdict import Verdict
from holdfast.localcluster import pytest_verdict
from holdfast.localcluster.pytest_verdict import (
    Send,
    judge_plain,
    plain_verdict,
    read_ledger,
    spark_verdict,
)
from holdfast.protocol.id_text import encode_id
from holdfast.protocol.topic_names import TopicPartition

ROWS = RowWriter("run", "p")
SENT = ROWS.invoke(0, "t", 0, 7, -1, 1)
ANSWER = ROWS.complete([0], "t", 0, DeliveryOutcome.OK, 5, 3, None, 2)
PLACE = TopicPartition("t", 0)
Sends = dict[tuple[str, str, int], Send]


def value(pseq: int) -> bytes:
    return make_value("p", pseq, 40)


def record(offset: int, content: bytes) -> ConsumerRecord:
    return ConsumerRecord("t", 0, offset, 3, 1, None, content, ())


def good() -> tuple[Sends, list[ConsumerRecord]]:
    sends = {("t", "p", n): Send(value_crc32c(value(n)), -1, 0, "ok", n) for n in range(4)}
    return sends, [record(n, value(n)) for n in range(4)]


def _cut(sends: Sends, records: list[ConsumerRecord]) -> None:
    records.pop()


def _gone_and_given_again(sends: Sends, records: list[ConsumerRecord]) -> None:
    records[2] = record(2, b"another")


def _elsewhere(sends: Sends, records: list[ConsumerRecord]) -> None:
    sends["t", "p", 3].offset = 9


def _twice(sends: Sends, records: list[ConsumerRecord]) -> None:
    records.append(record(4, value(1)))


def _refused(sends: Sends, records: list[ConsumerRecord]) -> None:
    sends["t", "p", 3].outcome = "fail"


def _other_bytes(sends: Sends, records: list[ConsumerRecord]) -> None:
    sends["t", "p", 3].crc = 7


def _with_fields(fields: SentFields) -> Callable[[Sends, list[ConsumerRecord]], None]:
    """One send of which the ledger tells more; the records have no key and no headers."""

    def change(sends: Sends, records: list[ConsumerRecord]) -> None:
        sends["t", "p", 3].fields = fields

    return change


_SENT = SentFields(timestamp_ms=1)


def _unanswered(sends: Sends, records: list[ConsumerRecord]) -> None:
    sends["t", "p", 3].outcome = "info"


@pytest.mark.parametrize(
    ("change", "code", "counts"),
    [
        (lambda sends, records: None, 0, {}),
        (_unanswered, 0, {}),
        (_cut, 4, {"lost": 1}),
        (_gone_and_given_again, 4, {"lost": 1, "unexpected": 1}),
        (_elsewhere, 5, {"moved": 1}),
        (_twice, 5, {"duplicated": 1}),
        (_refused, 5, {"unexpected": 1}),
        (_other_bytes, 5, {"corrupt": 1}),
        (_with_fields(_SENT), 0, {}),
        (_with_fields(_SENT._replace(key_crc32c=7)), 5, {"key_changed": 1}),
        (_with_fields(_SENT._replace(headers_crc32c=5)), 5, {"headers_changed": 1}),
        (_with_fields(_SENT._replace(timestamp_ms=8)), 5, {"timestamp_changed": 1}),
    ],
)
def test_each_class_is_found_alone(
    change: Callable[[Sends, list[ConsumerRecord]], None], code: int, counts: dict[str, int]
) -> None:
    sends, records = good()
    change(sends, records)
    verdict = judge_plain(sends, records)
    assert (verdict.exit_code, verdict.counts, verdict.judge) == (code, counts, "plain"), str(verdict)
    assert len(verdict.lines) == sum(counts.values())


def test_behind_the_end_from_before_the_ledger_unknown_records_are_no_anomaly() -> None:
    sends, records = good()
    records += [record(4, make_value("q", 0, 40)), record(5, b"of another client")]
    live = judge_plain(sends, records, settled={PLACE: 4})
    assert (live.exit_code, live.counts) == (0, {}), str(live)
    again = judge_plain(sends, records, settled={PLACE: 6})
    assert (again.exit_code, again.counts) == (5, {"unexpected": 2}), str(again)
    sends["t", "p", 3].outcome = "fail"
    refused = judge_plain(sends, records, settled={PLACE: 3})
    assert (refused.exit_code, refused.counts) == (5, {"unexpected": 1}), "the ledger knows this one"


def test_a_record_that_files_which_were_not_read_may_know_is_no_anomaly() -> None:
    sends, records = good()
    found = judge_plain(sends, [*records, record(4, value(9))], doubts=("one file was passed over",))
    assert (found.exit_code, found.counts) == (6, {}), str(found)
    found = judge_plain(sends, records[1:], doubts=("one file was passed over",))
    assert (found.exit_code, found.counts) == (4, {"lost": 1}), str(found)


def test_what_retention_has_taken_is_not_lost_and_the_verdict_is_inconclusive() -> None:
    sends, records = good()
    cut = judge_plain(sends, records[2:], starts={PLACE: 2})
    assert (cut.exit_code, cut.counts) == (6, {}), str(cut)
    assert "2 answered sends lie before the beginning" in str(cut)
    short = judge_plain(sends, records[2:3], starts={PLACE: 2})
    assert (short.exit_code, short.counts) == (4, {"lost": 1}), str(short)


def test_a_ledger_is_read_up_to_a_cut_last_line(tmp_path: Path) -> None:
    path = tmp_path / "run.p.jsonl"
    sent = [ROWS.invoke(n, "t", 0, 7, -1, 1) for n in (0, 1)]
    answer = ROWS.complete([0], "t", 0, DeliveryOutcome.OK, 5, 3, None, 2)
    told = ROWS.invoke(2, "t", 0, 7, -1, 1, SentFields(9, 8))
    path.write_text(sent[0] + answer + sent[1] + told + '{"kind":')
    assert read_ledger(tmp_path).sends == {
        ("t", "p", 0): Send(7, -1, 0, "ok", 5),
        ("t", "p", 1): Send(7, -1, 0),
        ("t", "p", 2): Send(7, -1, 0, fields=SentFields(9, 8)),
    }


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "0 acknowledged sends"),
        (
            SENT + ANSWER + ROWS.complete([0], "t", 0, DeliveryOutcome.OK, 6, 3, None, 2),
            "line 3: contradicts",
        ),
        (
            SENT + ANSWER + ROWS.complete([0], "t", 0, DeliveryOutcome.FAIL, -1, -1, "E", 2),
            "line 3: contradicts",
        ),
        (SENT + ROWS.complete([0], "t", 0, DeliveryOutcome.OK1, 5, 3, None, 2), "line 2: contradicts"),
        ("rubbish\n", "line 1: no JSON"),
        (SENT + ANSWER + SENT.replace('"run":"run"', '"run":"r2"'), "line 3: is of run r2"),
        (SENT.replace('"acks":-1', '"acks":7') + ANSWER, "line 1: acks 7"),
        (SENT + ANSWER.replace('"offset":5', '"offset":-1'), "line 2: acknowledged without an offset"),
        (SENT + ANSWER.replace('"partition":0', '"partition":1'), "line 2: contradicts"),
        (ROWS.invoke(0, "t", 0, 7, -1, 1) * 2, "line 2: written down more than once"),
        (
            ROWS.complete([0], "t", 0, DeliveryOutcome.OK, 5, 3, None, 2),
            "line 1: an answer to a send that was never written down",
        ),
        (ROWS.invoke(0, "t", 0, 7, -1, 1), "0 acknowledged sends"),
    ],
)
async def test_what_proves_nothing_is_inconclusive(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "run.p.jsonl").write_text(text)
    verdict = await plain_verdict(tmp_path, "127.0.0.1:1", 1)
    assert verdict.exit_code == 6
    assert reason in str(verdict)
    assert "nothing wrong" not in str(verdict)


class FakeTopic:
    """What a cluster says of topic `t`, in the order in which the plain check asks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, records: list[ConsumerRecord]) -> None:
        self.records = records
        self.topic_id = bytes(16)
        self.while_ends_are_asked_for: Callable[[], object] = lambda: None
        monkeypatch.setattr(pytest_verdict, "_ends", self.ends)
        monkeypatch.setattr(pytest_verdict, "_served", self.served)
        monkeypatch.setattr(pytest_verdict, "_topic_ids", self.topic_ids)

    async def ends(self, servers: str, topics: set[str]) -> dict[TopicPartition, int]:
        self.while_ends_are_asked_for()
        return {PLACE: 6}

    async def served(
        self, servers: str, topics: set[str]
    ) -> tuple[dict[TopicPartition, int], list[ConsumerRecord]]:
        return {PLACE: 0}, self.records

    async def topic_ids(self, servers: str, topics: set[str]) -> dict[str, str]:
        return {"t": encode_id(self.topic_id)}


GOOD = SENT.replace('"value_crc32c":7', f'"value_crc32c":{value_crc32c(value(0))}') + ANSWER


async def test_a_verdict_asks_for_ends_before_it_reads_the_ledger_and_names_files_that_it_does_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.p.jsonl"
    path.write_text(GOOD)
    (tmp_path / "notes.txt").write_text("something")
    topic = FakeTopic(monkeypatch, [record(5, value(0)), record(6, value(1)), record(7, value(2))])
    later = ROWS.invoke(1, "t", 0, value_crc32c(value(1)), -1, 3)
    topic.while_ends_are_asked_for = lambda: path.write_text(path.read_text() + later)  # a producer goes on
    verdict = await plain_verdict(tmp_path, "unused:1", 1)
    assert (verdict.exit_code, verdict.counts) == (6, {}), str(verdict)
    (line,) = verdict.lines
    assert line.endswith(f"passed over: {tmp_path / 'notes.txt'}")


async def test_a_folder_behind_a_link_is_not_read_and_makes_it_inconclusive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = tmp_path / "ledger"
    ledger.mkdir()
    (ledger / "run.p.jsonl").write_text(GOOD)
    (ledger / "more").symlink_to(tmp_path)
    FakeTopic(monkeypatch, [record(5, value(0))])
    verdict = await plain_verdict(ledger, "unused:1", 1)
    assert (verdict.exit_code, verdict.counts) == (6, {}), str(verdict)
    assert str(ledger / "more") in str(verdict)


@pytest.mark.parametrize("name", ["run.p.ndjson", "run.p.jsonl.gz"])
async def test_it_reads_the_files_that_spark_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / name).write_bytes(gzip.compress(GOOD.encode()) if name.endswith(".gz") else GOOD.encode())
    FakeTopic(monkeypatch, [record(5, value(0))])
    assert (await plain_verdict(tmp_path, "unused:1", 1)).is_good


async def test_a_topic_that_was_made_again_has_lost_nothing_and_proves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = ROWS.complete([0], "t", 0, DeliveryOutcome.OK, 5, 3, None, 2, topic_id=b"1" * 16)
    (tmp_path / "run.p.jsonl").write_text(GOOD.replace(ANSWER, answer))
    topic = FakeTopic(monkeypatch, [])
    verdict = await plain_verdict(tmp_path, "unused:1", 1)
    assert (verdict.exit_code, verdict.counts) == (6, {}), str(verdict)
    assert "topic t was deleted and created again" in str(verdict)
    topic.topic_id = b"1" * 16
    assert (await plain_verdict(tmp_path, "unused:1", 1)).counts == {"lost": 1}


async def test_a_send_to_a_partition_that_there_is_not_makes_the_ledger_unreadable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run.p.jsonl").write_text(GOOD.replace('"partition":0', '"partition":3'))
    FakeTopic(monkeypatch, [])
    verdict = await plain_verdict(tmp_path, "unused:1", 1)
    assert (verdict.exit_code, verdict.counts) == (6, {}), str(verdict)
    assert "a send to t-3, which has 1 partitions" in str(verdict)


async def test_what_consumers_were_given_is_judged_when_it_was_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run.p.jsonl").write_text(GOOD)
    FakeTopic(monkeypatch, [record(5, value(0))])
    read = {"kind": "poll", "run": "run", "consumer": "c", "session": "s", "poll": 0, "topic": "t"}
    read |= {"partition": 0, "high_watermark": 6, "records": [[5, 3, value_crc32c(value(0)), "p", 0]]}
    path = tmp_path / "c.polls.jsonl"
    path.write_text(json.dumps(read))
    assert (await plain_verdict(tmp_path, "unused:1", 1)).is_good
    path.write_text(json.dumps(read) + "\n" + json.dumps(read | {"poll": 1}))
    assert (await plain_verdict(tmp_path, "unused:1", 1)).counts == {"polled_again": 1}
    path.write_text(json.dumps(read | {"topic": "u"}))
    verdict = await plain_verdict(tmp_path, "unused:1", 1)
    assert (verdict.exit_code, "polls of topic u" in str(verdict)) == (6, True), str(verdict)


def test_sparks_verdict_tells_each_loss_and_every_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample = {"topic": "t", "partition": 0, "offset": 5, "detail": "gone"}
    loss = {
        "topic": "t",
        "partition": 0,
        "first_offset": 5,
        "last_offset": 9,
        "records": 4,
        "story": "a tale",
    }
    judged = Verdict(
        {"lost": 4},
        {"lost": [sample]},
        {"acked": 20},
        doubts=("a mark",),
        notes=("a note",),
        losses=({**loss, "story": "a tale"},),
    )
    ran = subprocess.CompletedProcess([], judged.exit_code, json.dumps(judged.as_json()), "")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: ran)
    found = spark_verdict(tmp_path, "h:1", {}, 1)
    assert (found.exit_code, found.acked) == (4, 20)
    assert found.lines == (
        "loss: t-0 offsets 5 to 9, 4 records: a tale", "lost: t-0 offset 5: gone", "a note", "a mark",
    )  # fmt: skip
