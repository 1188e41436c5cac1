"""What is made of log dirs whose brokers go on, and what of them is waited for."""

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra `spark`")

from holdfast.durability import read_here, replica_tables
from holdfast.durability.cluster_look import PartitionLook, TopicLook
from holdfast.durability.read_options import OffsetRange
from holdfast.durability.replica_tables import marks_of
from holdfast.durability.scale import Little
from holdfast.protocol.record_batch import Record, encode_batch

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


class Rows(Little):
    """Tables as they come, without Spark."""

    def table(self, spark: Any, rows: Any) -> Any:
        return rows

    def rows(self, spark: Any, rows: Iterable[Sequence[Any]], schema: str) -> Any:
        return list(rows)


class Cluster:
    """Of one partition, with these brokers in the ISR whenever it is asked."""

    def __init__(self, *isrs: tuple[int, ...], start: int = 0) -> None:
        self._isrs = list(isrs)
        self._start = start

    def look(self, topics: Any) -> dict[str, TopicLook]:
        isr = self._isrs.pop(0) if len(self._isrs) > 1 else self._isrs[0]
        return {"t": TopicLook("", {0: PartitionLook((1, 2), isr)})}

    def ranges(self, topics: Any) -> list[OffsetRange]:
        return [OffsetRange("t", 0, self._start, 100)]


def batch(base: int, size: int = 1) -> bytes:
    return encode_batch([Record(base, 1, None, b"v" * size)], base_offset=base, leader_epoch=1)


def stored(log_dir: Path, content: bytes, *, point: int, mark: int = 0, epochs: str = "0\n1\n1 0\n") -> None:
    (log_dir / "t-0").mkdir(exist_ok=True)
    (log_dir / "t-0" / f"{0:020}.log").write_bytes(content)
    (log_dir / "t-0" / "leader-epoch-checkpoint").write_text(epochs)
    (log_dir / "recovery-point-offset-checkpoint").write_text(f"0\n1\nt 0 {point}\n")
    (log_dir / "replication-offset-checkpoint").write_text(f"0\n1\nt 0 {mark}\n")
    (log_dir / "meta.properties").write_text("node.id=1\ncluster.id=c\n")


def tables_of(log_dir: Path, cluster: Any) -> dict[str, Any]:
    return replica_tables.replica_tables(
        *(None, Rows(), {1: str(log_dir)}, cluster.look(()), "c"),
        is_foreign=False,
        is_told=lambda: True,
        cluster=cluster,
    )


def test_what_is_truncated_and_filled_again_while_it_is_read_was_not_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = b"".join(map(batch, range(9)))
    stored(tmp_path, log, point=9)
    read = read_here.replicas_here

    def truncate(*asked: Any) -> Any:
        rows = read(*asked)
        stored(tmp_path, log, point=8, epochs="0\n2\n1 0\n2 3\n")
        return rows

    monkeypatch.setattr(replica_tables, "replicas_here", truncate)
    tables = tables_of(tmp_path, Cluster((1, 2)))
    assert tables["flushed"] == [(1, "t", 0, 3)]
    assert tables["epochs"] == [(1, "t", 0, 1, 0, None, 3)]


BLANK = batch(1, 2000)[:600] + bytes(len(batch(1, 2000)) - 600)
TORN = batch(0) + BLANK + batch(2)


@pytest.mark.parametrize(
    ("mark", "isrs", "then", "is_in_sync", "is_waited_for"),
    [
        (3, [(1, 2)], TORN, True, True),
        (3, [(1, 2), (1, 2), (2,)], TORN, False, True),
        (3, [(1, 2)], batch(0), False, True),
        (3, [(1, 2)], batch(0) + batch(1) + batch(2), False, True),
        (1, [(1, 2)], TORN, True, False),
        (3, [(2,)], TORN, False, False),
    ],
    ids=[
        "its broker is there", "its broker was dead", "its broker truncates it", "and fetches it",
        "above the mark", "out of sync",
    ],
)  # fmt: skip
def test_a_replica_with_what_a_power_cut_leaves_is_in_sync_when_it_stays_so(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mark: int,
    isrs: list[tuple[int, ...]],
    then: bytes,
    is_in_sync: bool,
    is_waited_for: bool,
) -> None:
    stored(tmp_path, TORN, point=0, mark=mark)
    pauses: list[float] = []

    def wait(seconds: float) -> None:
        pauses.append(seconds)
        stored(tmp_path, then, point=0, mark=mark)

    monkeypatch.setattr(time, "sleep", wait)
    tables = tables_of(tmp_path, Cluster(*isrs))
    assert tables["members"] == [(1, "t", 0, is_in_sync)]
    assert bool(pauses) == is_waited_for


@pytest.mark.parametrize(
    ("content", "then", "is_in_sync"),
    [
        (batch(0), batch(0), True),
        (batch(0), batch(0) + batch(1), False),
        (None, None, True),
        (None, batch(0), False),
    ],
    ids=["it stays so", "it goes on", "there is no file", "there is one again"],
)
def test_so_it_is_with_a_log_that_ends_before_what_was_flushed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    content: bytes | None,
    then: bytes | None,
    is_in_sync: bool,
) -> None:
    def store(log: bytes | None) -> None:
        stored(tmp_path, log or b"", point=9)
        if log is None:
            (tmp_path / "t-0" / f"{0:020}.log").unlink()

    store(content)
    monkeypatch.setattr(time, "sleep", lambda seconds: store(then))
    assert tables_of(tmp_path, Cluster((1, 2)))["members"] == [(1, "t", 0, is_in_sync)]


@pytest.mark.parametrize("is_there", [True, False])
def test_so_it_is_with_an_empty_segment_far_behind_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    stored(tmp_path, batch(0), point=1, mark=1)
    far = tmp_path / "t-0" / f"{9:020}.log"
    far.touch()
    monkeypatch.setattr(time, "sleep", lambda seconds: None if is_there else far.unlink())
    assert tables_of(tmp_path, Cluster((1, 2)))["members"] == [(1, "t", 0, is_there)]


def test_an_empty_segment_at_the_end_is_not_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(tmp_path, batch(0), point=1, mark=1)
    (tmp_path / "t-0" / f"{1:020}.log").touch()
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("it waits"))
    assert tables_of(tmp_path, Cluster((1, 2)))["members"] == [(1, "t", 0, True)]


@pytest.mark.parametrize(
    ("isr", "start", "is_doubt"), [((1, 2), 0, True), ((1, 2), 5, False), ((2,), 0, False)]
)
def test_a_replica_may_have_deleted_more_than_is_served_before_it_died(
    tmp_path: Path, isr: tuple[int, ...], start: int, is_doubt: bool
) -> None:
    stored(tmp_path, b"".join(map(batch, range(9))), point=9, mark=9)
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\nt 0 5\n")
    doubts = tables_of(tmp_path, Cluster(isr, start=start))["doubts"]
    assert any("begin behind records that are served" in doubt for doubt in doubts) == is_doubt
