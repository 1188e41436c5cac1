"""The plain check of the pytest plugin: a ledger against records, without a cluster."""

from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.client.consumer import ConsumerRecord
from holdfast.client.core.history import RowWriter, SentFields, make_value, value_crc32c
from holdfast.client.core.outcomes import DeliveryOutcome
from holdfast.localcluster import pytest_verdict
from holdfast.localcluster.pytest_verdict import Send, judge_plain, plain_verdict, sends_of
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
    sends = {("t", "p", n): Send(value_crc32c(value(n)), -1, "ok", 0, n) for n in range(4)}
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
    assert sends_of(tmp_path) == {
        ("t", "p", 0): Send(7, -1, "ok", 0, 5),
        ("t", "p", 1): Send(7, -1),
        ("t", "p", 2): Send(7, -1, fields=SentFields(9, 8)),
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
        ("rubbish\n", "line 1: no line of a ledger"),
        (ROWS.invoke(0, "t", 0, 7, -1, 1) * 2, "line 2: written down more than once"),
        (ROWS.complete([0], "t", 0, DeliveryOutcome.OK, 5, 3, None, 2), "line 1: an answer that cannot be"),
        (ROWS.invoke(0, "t", 0, 7, -1, 1), "0 acknowledged sends"),
    ],
)
async def test_what_proves_nothing_is_inconclusive(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "run.p.jsonl").write_text(text)
    verdict = await plain_verdict(tmp_path, "127.0.0.1:1", 1)
    assert verdict.exit_code == 6
    assert reason in str(verdict)


async def test_a_verdict_asks_for_ends_before_it_reads_the_ledger_and_names_files_that_it_does_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.p.jsonl"
    path.write_text(SENT.replace('"value_crc32c":7', f'"value_crc32c":{value_crc32c(value(0))}') + ANSWER)
    (tmp_path / "run.q.jsonl.gz").write_bytes(b"packed")
    later = ROWS.invoke(1, "t", 0, value_crc32c(value(1)), -1, 3)

    async def ends(servers: str, topics: set[str]) -> dict[TopicPartition, int]:
        path.write_text(path.read_text() + later)  # a producer goes on
        return {PLACE: 6}

    async def served(
        servers: str, topics: set[str]
    ) -> tuple[dict[TopicPartition, int], list[ConsumerRecord]]:
        return {PLACE: 0}, [record(5, value(0)), record(6, value(1)), record(7, value(2))]

    monkeypatch.setattr(pytest_verdict, "_ends", ends)
    monkeypatch.setattr(pytest_verdict, "_served", served)
    verdict = await plain_verdict(tmp_path, "unused:1", 1)
    assert (verdict.exit_code, verdict.counts) == (6, {}), str(verdict)
    assert verdict.lines == (f"ledger: {tmp_path / 'run.q.jsonl.gz'} is no *.jsonl and was passed over",)
