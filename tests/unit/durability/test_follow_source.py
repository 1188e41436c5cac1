"""`format("holdfast.followed")`: lines of ledgers and polls as one stream, and which are looked at first."""

import pickle
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

import pyarrow as pa

from holdfast.client.core.history import RowWriter
from holdfast.durability import growing_files
from holdfast.durability.follow_source import FOLLOWED_SCHEMA, LINE, POLL, FollowedReader, FollowedSource
from holdfast.durability.segment_source import arrow_schema
from tests.unit.durability.test_poll_files import line

SENT = RowWriter("run", "p").invoke(0, "t", 0, 7, -1, 1)


def read_on(reader: Any, start: dict[str, int]) -> tuple[dict[str, int], list[dict[str, Any]]]:
    """(where it is then, rows that are new)."""
    end = reader.latestOffset(start, None)
    batches = [
        batch
        for partition in reader.partitions(start, end)
        for batch in reader.read(pickle.loads(pickle.dumps(partition)))
    ]
    return end, pa.Table.from_batches(batches, schema=arrow_schema(FOLLOWED_SCHEMA)).to_pylist()


def test_lines_and_polls_are_rows_of_one_kind_each(tmp_path: Path) -> None:
    ledger, polls = tmp_path / "run.p.jsonl", tmp_path / "c.polls.jsonl"
    ledger.write_text(SENT)
    polls.write_text(line() + line(poll=1)[:20])
    source = FollowedSource({"path": str(tmp_path)})
    reader = source.streamReader(None)
    at, rows = read_on(reader, reader.initialOffset())
    assert at == {str(ledger): len(SENT), str(polls): len(line())}
    shown = [(row["origin"], row["producer"], row["pseq"], row["consumer"], row["kind"]) for row in rows]
    assert shown == [(LINE, "p", 0, None, 1), (POLL, "p", 4, "c", None), (POLL, None, None, "c", None)]
    polls.write_text(line() + line(poll=1))
    _, rows = read_on(reader, at)
    assert [(row["origin"], row["poll"]) for row in rows] == [(POLL, 1)] * 2
    assert rows[0]["line"] > len(line()), "lines rise through the file"


def test_a_ledger_that_is_begun_while_polls_are_looked_at_is_read_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was polled was sent before."""
    (tmp_path / "c.polls.jsonl").write_text(line())
    end_of = growing_files.whole_lines_end

    def begin_a_ledger(path: str, start: int) -> int:
        (tmp_path / "run.p.jsonl").write_text(SENT)
        return end_of(path, start)

    monkeypatch.setattr(growing_files, "whole_lines_end", begin_a_ledger)
    at = FollowedReader(str(tmp_path)).latestOffset({}, None)
    assert str(tmp_path / "run.p.jsonl") in at


def test_many_files_of_polls_are_few_tasks(tmp_path: Path) -> None:
    ends = {str(tmp_path / f"{number}.polls.jsonl"): 1_000 for number in range(2_000)}
    assert len(FollowedReader(str(tmp_path)).partitions({}, ends)) == 1
