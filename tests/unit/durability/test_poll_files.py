"""Files of polls: what is read of them, and which lines are none."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from holdfast.durability.ledger_files import ledger_files, passed_over, poll_files
from holdfast.durability.poll_files import POLL_SCHEMA, read_polls
from holdfast.durability.poll_lines import CUT, PROBLEM
from holdfast.durability.segment_source import arrow_schema


def line(**fields: Any) -> str:
    row = {
        "kind": "poll",
        "run": "run",
        "consumer": "c",
        "session": "s",
        "poll": 0,
        "topic": "t",
        "partition": 1,
        "high_watermark": 9,
        "t1": 5,
        "topic_id": "AAAAAAAAAAAAAAAAAAAABw",
        "records": [[0, 3, 17, "p", 4], [1, 3, None]],
    }
    return json.dumps(row | fields) + "\n"


def rows_of(path: Path, size: int | None = None) -> list[dict[str, Any]]:
    size = path.stat().st_size if size is None else size
    return [
        row for batch in read_polls(str(path), size, arrow_schema(POLL_SCHEMA)) for row in batch.to_pylist()
    ]


@pytest.mark.parametrize("packed", [False, True])
def test_each_record_is_a_row(tmp_path: Path, packed: bool) -> None:
    path = tmp_path / ("c.polls.jsonl.gz" if packed else "c.polls.jsonl")
    text = (line() + "\n" + line(poll=1, topic_id=None, records=[[2, -1, 8]])).encode()
    path.write_bytes(gzip.compress(text) if packed else text)
    first, second, third = rows_of(path)
    assert first == {
        "file": str(path), "line": 1, "nth": 0, "run": "run", "consumer": "c", "session": "s", "poll": 0,
        "topic": "t", "topic_id": "AAAAAAAAAAAAAAAAAAAABw", "partition": 1, "high_watermark": 9, "t1": 5,
        "offset": 0, "leader_epoch": 3, "value_crc32c": 17, "producer": "p", "pseq": 4,
        "remark": None, "text": None,
    }  # fmt: skip
    assert (second["nth"], second["offset"], second["value_crc32c"], second["producer"]) == (1, 1, None, None)
    assert (third["line"], third["poll"], third["topic_id"], third["pseq"]) == (3, 1, None, None)


@pytest.mark.parametrize("tail", ['{"kind":"po', "\0\0"])
def test_only_a_last_line_may_be_cut(tmp_path: Path, tail: str) -> None:
    path = tmp_path / "c.polls.jsonl"
    path.write_text(line() + tail)
    assert [(row["line"], row["remark"]) for row in rows_of(path)] == [(1, None), (1, None), (2, CUT)]
    path.write_text(tail + "\n" + line())
    assert [(row["line"], row["remark"]) for row in rows_of(path)] == [(1, PROBLEM), (2, None), (2, None)]


def test_a_last_line_without_its_end_that_is_whole_was_not_cut(tmp_path: Path) -> None:
    path = tmp_path / "c.polls.jsonl"
    path.write_text(line() + line(poll=1).rstrip("\n"))
    assert [row["poll"] for row in rows_of(path)] == [0, 0, 1, 1]


def test_nothing_is_read_behind_the_size_that_was_seen(tmp_path: Path) -> None:
    path = tmp_path / "c.polls.jsonl"
    path.write_text(line() + line(poll=1))
    assert [row["poll"] for row in rows_of(path, len(line()))] == [0, 0]
    assert [row["remark"] for row in rows_of(path, len(line()) + 9)] == [None, None, CUT]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda: line(kind="invoke"), "kind 'invoke': expected poll"),
        (lambda: line(run="other"), "is of run other, the file begins with run run"),
        (lambda: line(consumer=""), "no consumer"),
        (lambda: line(session=None), "no session"),
        (lambda: line(session=7), "session is no text"),
        (lambda: line(poll="1"), "poll is no whole number"),
        (lambda: line(partition=-1), "partition -1 cannot be"),
        (lambda: line(high_watermark=-2), "high_watermark -2 cannot be"),
        (lambda: line(records={}), "no records"),
        (lambda: line(records=[[1, 3]]), "record [1, 3] cannot be"),
        (lambda: line(records=[[-1, 3, 7]]), "record [-1, 3, 7] cannot be"),
        (lambda: line(records=[[1, 3, 1 << 32]]), "record [1, 3, 4294967296] cannot be"),
        (lambda: line(records=[[1, 3, None, "p", 7]]), "record [1, 3, None, 'p', 7] cannot be"),
        (lambda: line(records=[[1, 3, 7, "", 7]]), "record [1, 3, 7, '', 7] cannot be"),
        (lambda: line(records=[[1, 3, 7, "p", True]]), "record [1, 3, 7, 'p', True] cannot be"),
        (lambda: line(poll=5) + line(poll=4), "poll 4 after poll 5 of its session"),
        (lambda: line(session="b") + line(), "session s goes on behind another one"),
        (lambda: line().replace('"poll": 0', '"poll": 0, "poll": 0'), "says poll twice"),
        (lambda: "[]\n", "no JSON object"),
    ],
)
def test_a_line_that_is_none_is_named(tmp_path: Path, change: Callable[[], str], reason: str) -> None:
    path = tmp_path / "c.polls.jsonl"
    text = line() + change()
    path.write_text(text)
    (told,) = [row for row in rows_of(path) if row["remark"] is not None]
    assert told["remark"] == PROBLEM
    assert told["text"].startswith(f"{path}, line {text.count(chr(10))}: {reason}")


def test_packed_bytes_that_end_too_early_are_told(tmp_path: Path) -> None:
    path = tmp_path / "c.polls.jsonl.gz"
    path.write_bytes(gzip.compress(line().encode())[:-12])
    assert "cannot be unpacked" in rows_of(path)[-1]["text"]


def test_files_of_polls_are_neither_ledgers_nor_passed_over(tmp_path: Path) -> None:
    for name in ("p.jsonl", "c.polls.jsonl", "d.polls.jsonl.gz", "e.polls.json"):
        (tmp_path / name).write_text(line())
    assert ledger_files(str(tmp_path)) == [str(tmp_path / name) for name in ("e.polls.json", "p.jsonl")]
    assert poll_files(str(tmp_path)) == [
        str(tmp_path / name) for name in ("c.polls.jsonl", "d.polls.jsonl.gz")
    ]
    assert passed_over(str(tmp_path)) == []
    assert poll_files(str(tmp_path / "p.jsonl")) == []
