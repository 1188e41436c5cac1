"""What of a ledger can be seen without Spark: its files, and last lines that a crash cut."""

from pathlib import Path

import pytest

from holdfast.durability.ledger import UnreadableLedger, count_torn_lines, ledger_files


def test_files_are_found_all_the_way_down_and_sorted(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    for name in ("b/p1.jsonl", "a.jsonl", "notes.txt", "b/x.log"):
        (tmp_path / name).write_text("")
    assert ledger_files(str(tmp_path)) == [str(tmp_path / "a.jsonl"), str(tmp_path / "b" / "p1.jsonl")]
    assert ledger_files(str(tmp_path / "notes.txt")) == [str(tmp_path / "notes.txt")]


def test_a_folder_without_ledgers_proves_nothing(tmp_path: Path) -> None:
    with pytest.raises(UnreadableLedger, match="no ledger file"):
        ledger_files(str(tmp_path))
    with pytest.raises(UnreadableLedger, match="no ledger file"):
        ledger_files(str(tmp_path / "missing"))


@pytest.mark.parametrize("name", ["_run.p.jsonl", ".run.p.jsonl"])
def test_a_file_that_spark_would_pass_over_makes_the_ledger_unreadable(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("")
    (tmp_path / "run.p.jsonl").write_text("")
    for path in (tmp_path, tmp_path / name):
        with pytest.raises(UnreadableLedger, match=f"{name}: Spark reads no file"):
            ledger_files(str(path))


@pytest.mark.parametrize(
    ("tail", "torn"),
    [
        ('{"kind":"invoke"}\n', 0),
        ('{"kind":"invoke"}', 0),
        ('{"kind":"comp', 1),
        ("\0" * 20, 1),
        ("17", 1),
        ("  ", 0),
        ("", 0),
        ('{"long":"' + "x" * 10_000, 1),
        ('{"long":"' + "x" * 10_000 + '"}', 0),
    ],
)
def test_only_a_last_line_that_was_cut_is_torn(tmp_path: Path, tail: str, torn: int) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text('{"kind":"invoke"}\n' + tail)
    assert count_torn_lines([str(path)]) == torn
