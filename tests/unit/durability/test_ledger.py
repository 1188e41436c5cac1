"""What of a ledger can be seen without Spark: which files it has, and which are passed over."""

import gzip
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the extra `spark`")

from holdfast.client.core.history import RowWriter
from holdfast.durability.ledger import line_of, topics_named
from holdfast.durability.ledger_files import UnreadableLedger, ledger_files, passed_over

LINE = RowWriter("run", "p").invoke(7, "t", 0, 1, -1, 1)


def test_files_are_found_all_the_way_down_and_the_others_are_named(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    for name in ("b/p1.jsonl", "a.jsonl", "_b.jsonl.gz", ".c.jsonl", "notes.txt", "b/x.jsonl.bak"):
        (tmp_path / name).write_text("x")
    (tmp_path / "empty.txt").write_text("")
    found = [str(tmp_path / name) for name in (".c.jsonl", "_b.jsonl.gz", "a.jsonl", "b/p1.jsonl")]
    assert ledger_files(str(tmp_path)) == found
    assert passed_over(str(tmp_path)) == [str(tmp_path / name) for name in ("b/x.jsonl.bak", "notes.txt")]
    assert ledger_files(str(tmp_path / "notes.txt")) == [str(tmp_path / "notes.txt")]
    assert passed_over(str(tmp_path / "notes.txt")) == []


def test_links_and_closed_folders_in_a_ledger_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "p2.jsonl").write_text(LINE)
    ledger = tmp_path / "ledger"
    (ledger / "closed").mkdir(parents=True)
    (ledger / "p1.jsonl").write_text(LINE)
    (ledger / "p3.jsonl").symlink_to(ledger / "p1.jsonl")
    (ledger / "folder").symlink_to(tmp_path / "elsewhere")
    (ledger / "nothing.jsonl").symlink_to(tmp_path / "missing")
    # what is closed to others is open to root
    monkeypatch.setattr("os.access", lambda path, mode: Path(path).name != "closed")
    assert ledger_files(str(ledger)) == [str(ledger / name) for name in ("p1.jsonl", "p3.jsonl")]
    assert passed_over(str(ledger)) == [str(ledger / name) for name in ("closed", "folder", "nothing.jsonl")]


def test_a_folder_without_ledgers_proves_nothing(tmp_path: Path) -> None:
    with pytest.raises(UnreadableLedger, match="no ledger file"):
        ledger_files(str(tmp_path))
    with pytest.raises(UnreadableLedger, match="no ledger file"):
        ledger_files(str(tmp_path / "missing"))


def test_topics_and_places_of_sends_are_found_in_plain_and_packed_files(tmp_path: Path) -> None:
    plain, packed, broken = (str(tmp_path / name) for name in ("a.jsonl", "b.jsonl.gz", "c.jsonl.gz"))
    Path(plain).write_text("no line\n" + LINE)
    Path(packed).write_bytes(gzip.compress(LINE.replace('"t"', '"u"').replace(":", ": ").encode()))
    Path(broken).write_bytes(b"no gzip")
    assert topics_named([plain, packed, broken]) == {"t", "u"}
    assert line_of([plain, packed], "run", "p", 7, "t") == f"{plain}, line 2"
    assert line_of([plain, packed], "run", "p", 7, "u") == f"{packed}, line 1"
    assert line_of([plain], "run", "p", 8, "t") == plain
