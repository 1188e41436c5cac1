"""What of a log dir is waited for, as its broker has begun to write to it only now."""

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the extra `spark`")

from holdfast.durability.replica_tables import marks_of

PLACE = ("t", 0)
MARKS = "0\n1\nt 0 7\n"


def folder(place: Path) -> str:
    (place / "t-0").mkdir()
    return str(place)


def test_the_first_high_watermarks_of_a_new_log_dir_are_waited_for(tmp_path: Path) -> None:
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            (tmp_path / "replication-offset-checkpoint").write_text(MARKS)

    assert marks_of(folder(tmp_path), [PLACE], {}, pause) == {PLACE: 7}
    assert len(pauses) == 3


def test_a_log_dir_that_stays_without_them_has_none(tmp_path: Path) -> None:
    pauses: list[float] = []
    assert marks_of(folder(tmp_path), [PLACE], {}, pauses.append) is None
    assert 5 < sum(pauses) < 15


@pytest.mark.parametrize(
    "name",
    ["recovery-point-offset-checkpoint", "replication-offset-checkpoint", ".holdfast_cleanshutdown"],
    ids=["it was flushed before", "they cannot be read", "it was stopped cleanly"],
)
def test_nothing_is_waited_for_in_a_log_dir_that_is_not_new(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("")
    pauses: list[float] = []
    assert marks_of(folder(tmp_path), [PLACE], {}, pauses.append) is None
    assert pauses == []


def test_nor_in_one_without_replicas_of_the_topics(tmp_path: Path) -> None:
    pauses: list[float] = []
    assert marks_of(folder(tmp_path), [("other", 0)], {}, pauses.append) is None
    assert pauses == []


def test_those_of_a_replica_that_was_recovered_before_its_first_are_waited_for(tmp_path: Path) -> None:
    """Its broker was killed seconds after it got the replica, and was started again."""
    (tmp_path / "replication-offset-checkpoint").write_text("0\n1\nother 0 3\n")

    def pause(seconds: float) -> None:
        (tmp_path / "replication-offset-checkpoint").write_text(MARKS)

    assert marks_of(folder(tmp_path), [PLACE], {PLACE: 5}, pause) == {PLACE: 7}


def test_those_of_a_replica_that_holds_nothing_flushed_are_not(tmp_path: Path) -> None:
    (tmp_path / "replication-offset-checkpoint").write_text("0\n1\nother 0 3\n")
    pauses: list[float] = []
    assert marks_of(folder(tmp_path), [PLACE], {("other", 0): 3}, pauses.append) == {("other", 0): 3}
    assert pauses == []
