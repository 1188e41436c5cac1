"""Which files and lines are a ledger's; what Spark and the plain check both refuse."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.client.core.history import RowWriter
from holdfast.client.core.outcomes import DeliveryOutcome
from holdfast.durability.ledger_files import (
    UnreadableLedger,
    check_topic_ids,
    check_writers,
    doubts_of_files,
    ledger_files,
    passed_over,
    sound_rows,
)

ROWS = RowWriter("run", "p")
LINE = ROWS.invoke(7, "t", 0, 1, -1, 1)
ANSWER = ROWS.complete([7], "t", 0, DeliveryOutcome.OK, 5, 3, None, 2)


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


def test_a_folder_that_cannot_be_looked_into_is_a_doubt_and_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its names may be listed although nothing more may be asked of them."""
    (tmp_path / "p1.jsonl").write_text(LINE)
    refusal = PermissionError(13, "Permission denied", str(tmp_path / "p1.jsonl"))

    def refused(path: Path) -> bool:
        raise refusal

    monkeypatch.setattr(Path, "is_dir", lambda path: path == tmp_path or refused(path))
    assert doubts_of_files(str(tmp_path)) == (f"ledger: cannot be looked into: {refusal}",)
    monkeypatch.setattr(Path, "is_dir", refused)
    assert doubts_of_files(str(tmp_path)) == (f"ledger: cannot be looked into: {refusal}",)


def test_files_that_cannot_be_looked_for_are_an_unreadable_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: Path, pattern: str) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "rglob", refused)
    with pytest.raises(UnreadableLedger, match="cannot be looked into: .*Permission denied"):
        ledger_files(str(tmp_path))


def test_a_folder_without_ledgers_proves_nothing(tmp_path: Path) -> None:
    with pytest.raises(UnreadableLedger, match="no ledger file"):
        ledger_files(str(tmp_path))
    with pytest.raises(UnreadableLedger, match="no ledger file"):
        ledger_files(str(tmp_path / "missing"))


def test_a_verdict_names_some_of_what_was_passed_over(tmp_path: Path) -> None:
    assert doubts_of_files(str(tmp_path)) == ()
    for number in range(7):
        (tmp_path / f"{number}.txt").write_text("x")
    (doubt,) = doubts_of_files(str(tmp_path))
    assert doubt.endswith(
        f"passed over: {', '.join(str(tmp_path / f'{n}.txt') for n in range(5))} and 2 more"
    )


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("tail", ["", '{"kind":"comp', "\0\0", '{"kind":"\0\0', ANSWER.rstrip("\n")])
def test_lines_are_read_up_to_one_that_a_crash_has_cut(tmp_path: Path, tail: str, packed: bool) -> None:
    path = tmp_path / ("p.jsonl.gz" if packed else "p.jsonl")
    data = ("\n" + LINE + tail).encode()
    path.write_bytes(gzip.compress(data) if packed else data)
    kinds = [(place, row["kind"]) for place, row in sound_rows(str(path))]
    whole = [(f"{path}, line 2", "invoke"), (f"{path}, line 3", "complete")]
    assert kinds == whole[: 1 + (tail == ANSWER.rstrip("\n"))]


@pytest.mark.parametrize("tail", ["17", "[]", "null", '[{"kind":"invoke"', "rubbish", "{}"])
def test_a_last_line_that_no_crash_leaves_is_none_of_a_ledger(tmp_path: Path, tail: str) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(LINE + tail)
    with pytest.raises(UnreadableLedger, match="line 2: "):
        list(sound_rows(str(path)))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda line: line.replace('"acks":-1', '"acks":7'), "acks 7: expected -1, 0 or 1"),
        (lambda line: line.replace('"run":"run"', '"run":"other"'), "is of run other, the file begins"),
        (lambda line: line.replace('"pseq":7', '"pseq":"7"'), "pseq is no whole number"),
        (lambda line: ANSWER.replace('"offset":5', '"offset":-1'), "acknowledged without an offset"),
        (lambda line: line.replace('"producer":"p"', '"producer":""'), "no producer"),
        (lambda line: ANSWER.replace('"leader_epoch":3', '"leader_epoch":-9'), "leader_epoch -9 cannot be"),
        (lambda line: '{"kind":"comp\n', "no JSON"),
        (lambda line: line.replace('"acks":-1', '"acks":7').rstrip("\n"), "acks 7: expected -1, 0 or 1"),
    ],
)
def test_a_line_that_is_none_makes_the_ledger_unreadable(
    tmp_path: Path, change: Callable[[str], str], reason: str
) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(LINE + change(LINE))
    with pytest.raises(UnreadableLedger) as refused:
        list(sound_rows(str(path)))
    assert str(refused.value).startswith(f"{path}, line 2: {reason}")


def test_packed_bytes_that_end_too_early_are_no_cut_line(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl.gz"
    path.write_bytes(gzip.compress((LINE + ANSWER).encode())[:-12])
    with pytest.raises(UnreadableLedger, match="cannot be unpacked"):
        list(sound_rows(str(path)))


def test_two_runs_must_not_share_names_in_a_topic() -> None:
    check_writers([("t", "p", 0, 9, "a"), ("t", "p", 10, 12, "b"), ("u", "p", 0, 3, "b")])
    with pytest.raises(UnreadableLedger, match="the same numbers in runs a and b"):
        check_writers([("t", "p", 0, 9, "a"), ("t", "p", 9, 12, "b")])


def test_a_ledger_of_a_topic_that_was_made_again_is_none_of_this_topic() -> None:
    check_topic_ids({"t": ["A"]}, {"t": "A", "u": "B"})
    with pytest.raises(UnreadableLedger, match="topic t was deleted and created again"):
        check_topic_ids({"t": ["A", "C"]}, {"t": "A"})
