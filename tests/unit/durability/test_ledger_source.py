"""Ledgers as a stream: whole lines of files that grow, each once."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from pyspark.sql.streaming.datasource import ReadAllAvailable

from holdfast.client.core.history import RowWriter
from holdfast.durability.growing_files import whole_lines_end
from holdfast.durability.ledger_files import UnreadableLedger
from holdfast.durability.ledger_source import LedgerStreamReader

ROWS = RowWriter("run", "p")


def line(pseq: int) -> str:
    return ROWS.invoke(pseq, "t", 0, 7, -1, 1)


def read_on(folder: Path, start: dict[str, int]) -> tuple[dict[str, int], list[int]]:
    """(the next offset as a checkpoint keeps it, the numbers of the sends up to there)."""
    reader = LedgerStreamReader(str(folder))
    end: dict[str, Any] = json.loads(json.dumps(reader.latestOffset(start, ReadAllAvailable())))
    batches = [batch for part in reader.partitions(start, end) for batch in reader.read(part)]
    return end, [pseq for batch in batches for pseq in batch.column("pseq").to_pylist()]


def test_a_line_is_read_once_and_when_it_is_whole(tmp_path: Path) -> None:
    offset, found = read_on(tmp_path, LedgerStreamReader(str(tmp_path)).initialOffset())
    assert (offset, found) == ({}, []), "no file is there yet"
    path = tmp_path / "run.p.jsonl"
    path.write_text(line(0) + line(1) + line(2)[:-9])
    offset, found = read_on(tmp_path, offset)
    assert found == [0, 1]
    assert read_on(tmp_path, offset) == (offset, [])
    path.write_text(line(0) + line(1) + line(2) + line(3))
    (tmp_path / "run.q.jsonl").write_text(line(9))
    offset, found = read_on(tmp_path, offset)
    assert sorted(found) == [2, 3, 9]
    assert read_on(tmp_path, offset) == (offset, [])


def test_a_folder_that_cannot_be_looked_into_is_not_taken_for_one_without_ledgers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run.p.jsonl").write_text(line(0))

    def refused(path: Path, pattern: str) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "rglob", refused)
    with pytest.raises(UnreadableLedger, match="Permission denied"):
        read_on(tmp_path, {})


def test_a_packed_ledger_that_appears_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "run.p.jsonl.gz").write_bytes(gzip.compress((line(0) + line(1)).encode()))
    offset, found = read_on(tmp_path, {})
    assert found == [0, 1]
    assert read_on(tmp_path, offset) == (offset, [])


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("r.jsonl", line(0) + line(1), line(0)),
        ("r.jsonl.gz", line(0), line(0) + line(1)),
        ("r.jsonl.gz", line(0) + line(1), line(0)),
    ],
    ids=["read lines are gone", "packed, and it grew", "packed, and it shrank"],
)
def test_a_file_that_is_not_what_was_read_is_followed_no_further(
    tmp_path: Path, name: str, before: str, after: str
) -> None:
    def write(text: str) -> int:
        data = text.encode()
        return (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)

    size = write(before)
    offset, _ = read_on(tmp_path, {})
    now = write(after)
    with pytest.raises(UnreadableLedger, match=f"{name}: {size} bytes of it were read, and it has {now} now"):
        read_on(tmp_path, offset)


@pytest.mark.parametrize("name", ["r.jsonl", "r.jsonl.gz"])
@pytest.mark.parametrize("others", [(), ("r.q.jsonl",)])
def test_a_file_that_was_read_must_stay(tmp_path: Path, name: str, others: tuple[str, ...]) -> None:
    """Also one that has got another name, as that of the packed file: its lines would come again."""
    path = tmp_path / name
    path.write_bytes(gzip.compress(line(0).encode()) if name.endswith(".gz") else line(0).encode())
    offset, _ = read_on(tmp_path, {})
    path.unlink()
    for other in others:
        (tmp_path / other).write_text(line(1))
    with pytest.raises(UnreadableLedger, match=f"{name}: it was read, and is not there any more"):
        read_on(tmp_path, offset)


@pytest.mark.parametrize("ledger", ["", "r.jsonl"], ids=["a folder", "a file"])
def test_a_longer_file_in_place_of_one_that_was_read_is_another(tmp_path: Path, ledger: str) -> None:
    """Unless a line of it ends at the very byte up to which the other was read."""
    path = tmp_path / "r.jsonl"
    path.write_text(line(0) + line(1))
    offset, _ = read_on(tmp_path / ledger, {})
    path.write_text(line(10) + line(11) + line(12))
    with pytest.raises(UnreadableLedger, match=r"r\.jsonl: it is not the file of which 228 bytes were read"):
        read_on(tmp_path / ledger, offset)


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [(b"", 0, 0), (b"ab", 0, 0), (b"a\nb", 0, 2), (b"a\nb\n", 2, 4), (b"a\n" + b"b" * 200_000, 2, 2)],
)
def test_the_end_of_the_last_whole_line(tmp_path: Path, text: bytes, start: int, end: int) -> None:
    (tmp_path / "f").write_bytes(text)
    assert whole_lines_end(str(tmp_path / "f"), start) == end
