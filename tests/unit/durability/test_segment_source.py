"""Which bytes of a replica count as damaged, and which as the tail that a power cut leaves."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra `spark`")

from holdfast.durability import flushed, segment_source
from holdfast.durability.segment_source import BATCH_SCHEMA, folder_rows, grouped
from holdfast.durability.segments import ReplicaFolder, replica_folders
from holdfast.protocol.record_batch import Record, encode_batch

_COLUMNS = [item.split()[0] for item in BATCH_SCHEMA.split(", ")]
FIRST, SECOND, THIRD = (
    encode_batch(
        [Record(o, 1, None, b"value") for o in range(base, base + 5)], base_offset=base, leader_epoch=1
    )
    for base in (0, 5, 10)
)
ZEROS = bytes(len(SECOND))
#: its last page never reached the disk
HALF_ZEROS = SECOND[:70] + bytes(len(SECOND) - 70)
OTHER_MAGIC = SECOND[:16] + b"\xfd" + SECOND[17:]


def damage(
    folder: Path, *segments: tuple[int, bytes], flushed: int = 0, epochs: str | None = None
) -> list[tuple[int, bool | None]]:
    """(first offset, whether it is damage, None: or a power cut's) of what cannot be read."""
    place = folder / "t-0"
    place.mkdir(exist_ok=True)
    if epochs is not None:
        (place / "leader-epoch-checkpoint").write_text(epochs)
    for base_offset, content in segments:
        (place / f"{base_offset:020}.log").write_bytes(content)
    (folder / "recovery-point-offset-checkpoint").write_text(f"0\n1\nt 0 {flushed}\n")
    rows = [
        dict(zip(_COLUMNS, row, strict=True))
        for row in folder_rows(ReplicaFolder(1, "t", 0, str(place)), by_batch=True)
    ]
    assert not any(row["damaged"] for row in rows if row["problem"] is None)
    return [(row["base_offset"], row["damaged"]) for row in rows if row["problem"] is not None]


@pytest.mark.parametrize(
    "tail", [SECOND[:-1], SECOND[:9], ZEROS, HALF_ZEROS, OTHER_MAGIC, HALF_ZEROS + ZEROS]
)
def test_an_unflushed_tail_is_no_damage_however_it_looks(tmp_path: Path, tail: bytes) -> None:
    found = damage(tmp_path, (0, FIRST + tail), flushed=5)
    assert found
    assert not any(is_damaged for _, is_damaged in found)


@pytest.mark.parametrize("bad", [ZEROS, HALF_ZEROS, OTHER_MAGIC])
def test_what_a_readable_batch_follows_is_damage(tmp_path: Path, bad: bytes) -> None:
    assert damage(tmp_path, (0, FIRST + bad + THIRD)) == [(5, True)]


@pytest.mark.parametrize("bad", [ZEROS, HALF_ZEROS, OTHER_MAGIC, SECOND[:-1]])
def test_so_it_is_in_a_later_segment(tmp_path: Path, bad: bytes) -> None:
    assert damage(tmp_path, (0, FIRST + bad), (10, THIRD)) == [(5, True)]


@pytest.mark.parametrize("bad", [ZEROS, HALF_ZEROS, OTHER_MAGIC, SECOND[:-1]])
def test_what_was_flushed_is_damage_without_anything_behind_it(tmp_path: Path, bad: bytes) -> None:
    assert damage(tmp_path, (0, FIRST + bad), flushed=10) == [(5, True)]


def long_batch(base_offset: int) -> bytes:
    """Of several sectors."""
    record = Record(base_offset, 1, None, b"value" * 500)
    return encode_batch([record], base_offset=base_offset, leader_epoch=1)


@pytest.mark.parametrize(("flushed", "is_damage"), [(5, None), (6, True)])
def test_zeros_that_a_readable_batch_follows_may_be_a_power_cuts_until_they_were_flushed(
    tmp_path: Path, flushed: int, is_damage: bool | None
) -> None:
    never_written = long_batch(5)[:600] + bytes(len(long_batch(5)) - 600)
    assert damage(tmp_path, (0, FIRST + never_written + long_batch(6)), flushed=flushed) == [(5, is_damage)]


@pytest.mark.parametrize(
    ("segments", "end"),
    [([(0, FIRST)], 5), ([(0, FIRST), (5, b"")], 5), ([(0, b"")], 0), ([], 0), ([(0, FIRST), (90, b"")], 5)],
    ids=["behind a batch", "in an empty segment", "nothing is left", "no segment is", "a far empty segment"],
)
def test_a_log_that_ends_before_what_was_flushed_is_damage_or_begins_anew(
    tmp_path: Path, segments: list[tuple[int, bytes]], end: int
) -> None:
    assert damage(tmp_path, *segments, flushed=15) == [(end, None)]
    close(tmp_path)
    assert damage(tmp_path, *segments, flushed=15) == [(end, True)]


def test_of_a_log_that_was_compacted_an_empty_segment_says_where_it_ends(tmp_path: Path) -> None:
    """The last batches before it may be gone."""
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / "cleaner-offset-checkpoint").write_text("0\n1\n0 15\n")
    close(tmp_path)
    assert damage(tmp_path, (0, FIRST), (15, b""), flushed=15) == []
    assert damage(tmp_path, (0, FIRST), (15, b""), flushed=20) == [(15, True)]


def test_a_log_that_begins_behind_its_recovery_point_began_anew(tmp_path: Path) -> None:
    assert damage(tmp_path, (100, b""), flushed=15) == []


def close(log_dir: Path, *, logs: tuple[str, ...] = ("t-0",), directory: str = "d", epoch: int = 7) -> None:
    """Stop the broker cleanly."""
    (log_dir / "meta.properties").write_text("directory.id=d\n")
    (log_dir / ".holdfast_registration").write_text('{"version":0,"brokerEpoch":7}')
    mark = {"brokerEpoch": epoch, "directoryId": directory, "logs": dict.fromkeys(logs, "digest")}
    (log_dir / ".holdfast_cleanshutdown").write_text(json.dumps(mark))


@pytest.mark.parametrize("bad", [ZEROS, HALF_ZEROS, OTHER_MAGIC, SECOND[:-1], b"?"])
def test_after_a_clean_stop_nothing_is_torn(tmp_path: Path, bad: bytes) -> None:
    close(tmp_path)
    assert damage(tmp_path, (0, FIRST + bad), flushed=5) == [(5, True)]


def test_nor_after_one_of_kafkas(tmp_path: Path) -> None:
    (tmp_path / ".kafka_cleanshutdown").touch()
    assert damage(tmp_path, (0, FIRST + ZEROS), flushed=5) == [(5, True)]


@pytest.mark.parametrize(
    "mark", [{"logs": ("t-1",)}, {"directory": "other"}, {"epoch": 6}], ids=["log", "log dir", "registration"]
)
def test_the_mark_of_another_proves_nothing(tmp_path: Path, mark: dict[str, Any]) -> None:
    close(tmp_path, **mark)
    assert damage(tmp_path, (0, FIRST + ZEROS), flushed=5) == [(5, False)]


def rows_while(folder: Path, change: Callable[[], object], content: bytes, *, flushed: int) -> list[Any]:
    """Whether it is damage, of what cannot be read; `change` happens when the first row was read."""
    place = folder / "t-0"
    place.mkdir()
    (place / f"{0:020}.log").write_bytes(content)
    points = folder / "recovery-point-offset-checkpoint"
    points.write_text(f"0\n1\nt 0 {flushed}\n")
    rows = folder_rows(ReplicaFolder(1, "t", 0, str(place)), by_batch=True)
    next(rows)
    change()
    return [row[_COLUMNS.index("damaged")] for row in rows if row[-1] is not None]


def test_a_log_that_is_truncated_while_it_is_read_was_not_flushed_there(tmp_path: Path) -> None:
    points = tmp_path / "recovery-point-offset-checkpoint"
    change = lambda: points.write_text("0\n1\nt 0 5\n")  # noqa: E731
    assert rows_while(tmp_path, change, FIRST + SECOND[:-1], flushed=10) == [False]


def test_of_a_log_that_is_in_use_it_is_not_said_that_it_ends_too_early(tmp_path: Path) -> None:
    change = lambda: (tmp_path / "t-0" / f"{5:020}.log").touch()  # noqa: E731
    assert rows_while(tmp_path, change, FIRST, flushed=10) == []


def test_a_broker_that_was_started_meanwhile_has_torn_its_log_since(tmp_path: Path) -> None:
    close(tmp_path)
    change = lambda: (tmp_path / ".holdfast_cleanshutdown").unlink()  # noqa: E731
    assert rows_while(tmp_path, change, FIRST + SECOND[:-1], flushed=5) == [False]


def test_replicas_are_spread_over_few_tasks_of_about_the_same_size() -> None:
    sizes = {ReplicaFolder(broker, "t", index, "/x"): 10 for broker in (1, 2, 3) for index in range(58)}
    sizes[ReplicaFolder(1, "large", 0, "/x")] = 400
    groups = grouped(sizes, 4)
    assert sorted(folder for group in groups for folder in group) == sorted(sizes)
    assert len(groups) == 4
    assert max(sum(sizes[folder] for folder in group) for group in groups) <= 600
    assert len(grouped(dict.fromkeys(sizes, 100 << 20), 1)) == -(-175 * 100 // 256)
    assert grouped({}, 4) == []


def test_an_empty_segment_says_where_the_log_ends(tmp_path: Path) -> None:
    place = tmp_path / "t-0"
    place.mkdir()
    (place / f"{15:020}.log").write_bytes(b"")
    (row,) = folder_rows(ReplicaFolder(1, "t", 0, str(place)), by_batch=True)
    shown = dict(zip(_COLUMNS, row, strict=True))
    assert (shown["base_offset"], shown["last_offset"], shown["damaged"], shown["problem"]) == (
        *(15, None, False, None),
    )


def test_a_head_that_was_not_deleted_on_purpose_is_damage(tmp_path: Path) -> None:
    """The leader epochs know where the log begins: they are stored before anything is deleted on purpose."""
    assert damage(tmp_path, (5, SECOND), (10, THIRD), epochs="0\n1\n1 0\n") == [(0, True)]


@pytest.mark.parametrize(
    "epochs",
    [None, "", "0\n0\n", "0\n2\n1 0\n", "0\n1\n1 5\n", "0\n3\n0 5\n0 5\n1 5\n", "0\n1\n1 7\n", "\xff"],
    ids=["no file", "empty", "no epochs", "cut", "here", "the one below, too", "later", "garbage"],
)
def test_a_head_that_was_deleted_or_of_which_nothing_is_known_is_none(
    tmp_path: Path, epochs: str | None
) -> None:
    assert damage(tmp_path, (5, SECOND), (10, THIRD), epochs=epochs) == []


def test_a_head_that_is_missing_within_the_first_segment_is_damage(tmp_path: Path) -> None:
    assert damage(tmp_path, (0, SECOND + THIRD), epochs="0\n1\n1 0\n") == [(0, True)]


def test_so_it_is_when_the_first_segment_is_empty(tmp_path: Path) -> None:
    assert damage(tmp_path, (0, b""), (10, THIRD), epochs="0\n1\n1 0\n") == [(0, True)]


@pytest.mark.parametrize(
    ("content", "epochs"),
    [
        (FIRST + SECOND, "0\n1\n1 0\n"),
        (FIRST + SECOND, "0\n3\n1 3\n1 3\n1 3\n"),
        (SECOND + THIRD, "0\n3\n1 7\n1 7\n1 7\n"),
        (b"", "0\n1\n1 0\n"),
        (SECOND, None),
    ],
    ids=["whole", "records deleted within it", "within the next one", "no record yet", "no epochs"],
)
def test_a_first_batch_that_begins_where_the_log_does_or_before_is_no_damage(
    tmp_path: Path, content: bytes, epochs: str | None
) -> None:
    assert damage(tmp_path, (0, content), epochs=epochs) == []


def test_of_a_log_that_was_compacted_the_first_batch_may_be_gone(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 5\n")
    assert damage(tmp_path, (0, SECOND + THIRD), epochs="0\n1\n1 0\n") == []


def test_a_first_batch_that_cannot_be_read_is_damage_once(tmp_path: Path) -> None:
    bad = FIRST[:70] + b"?" + FIRST[71:]
    assert damage(tmp_path, (0, bad + SECOND), epochs="0\n1\n1 0\n") == [(0, True)]


@pytest.mark.parametrize("name", [3, 7], ids=["before it", "behind it"])
def test_a_segment_whose_name_is_not_where_its_first_batch_begins_is_damage(
    tmp_path: Path, name: int
) -> None:
    assert damage(tmp_path, (0, FIRST), (name, SECOND), (10, THIRD)) == [(5, True)]


def test_a_segment_whose_first_batch_is_missing_has_its_right_name(tmp_path: Path) -> None:
    """The hole says it all."""
    assert damage(tmp_path, (0, FIRST), (5, THIRD)) == []


def read_while(
    folder: Path, change: Callable[[Path], object], *, epochs: str
) -> list[tuple[int, int, str | None]]:
    """(first offset, last offset, problem) of a log of three segments; `change` happens behind the first
    batch that is read."""
    place = folder / "t-0"
    place.mkdir()
    (place / "leader-epoch-checkpoint").write_text(epochs)
    for base_offset, content in ((0, FIRST), (5, SECOND), (10, THIRD)):
        (place / f"{base_offset:020}.log").write_bytes(content)
    rows: list[tuple[int, int, str | None]] = []
    for row in folder_rows(ReplicaFolder(1, "t", 0, str(place)), by_batch=True):
        if not rows:
            change(place)
        shown = dict(zip(_COLUMNS, row, strict=True))
        assert not shown["damaged"]
        rows.append((shown["base_offset"], shown["last_offset"], shown["problem"]))
    return rows


def test_segments_that_are_deleted_while_a_log_is_read_leave_no_hole(tmp_path: Path) -> None:
    deleted = "the segment was deleted while the log was read"
    rows = read_while(tmp_path, lambda place: (place / f"{5:020}.log").unlink(), epochs="0\n1\n1 0\n")
    assert rows == [(0, 4, None), (5, 9, deleted), (10, 14, None)]


def test_a_last_segment_that_is_truncated_away_meanwhile_never_was(tmp_path: Path) -> None:
    rows = read_while(tmp_path, lambda place: (place / f"{10:020}.log").unlink(), epochs="0\n1\n1 0\n")
    assert rows == [(0, 4, None), (5, 9, None)]


def test_a_replica_that_is_removed_while_it_is_read_ends_there(tmp_path: Path) -> None:
    rows = read_while(tmp_path, shutil.rmtree, epochs="0\n1\n1 0\n")
    assert rows == [(0, 4, None), (5, 9, "the segment was deleted while the log was read")]


def test_a_replica_that_is_gone_has_no_batches(tmp_path: Path) -> None:
    assert list(folder_rows(ReplicaFolder(1, "t", 0, str(tmp_path / "t-0")), by_batch=True)) == []


def test_a_link_to_nothing_was_not_deleted_by_a_broker(tmp_path: Path) -> None:
    place = tmp_path / "t-0"
    place.mkdir()
    (place / f"{0:020}.log").write_bytes(FIRST)
    (place / f"{5:020}.log").symlink_to(tmp_path / "nothing")
    (place / f"{10:020}.log").write_bytes(THIRD)
    with pytest.raises(FileNotFoundError):
        list(folder_rows(ReplicaFolder(1, "t", 0, str(place)), by_batch=True))


def test_folders_that_no_broker_makes_are_no_replicas(tmp_path: Path) -> None:
    for name in ("t-0", "t-00", "t-\u0661", "t", "t-x"):
        (tmp_path / name).mkdir()
    assert [folder.path for folder in replica_folders({str(tmp_path): 1})] == [str(tmp_path / "t-0")]


@pytest.mark.parametrize("name", ["recovery_points", "closed_logs"])
def test_what_a_log_dir_says_of_all_is_read_once_a_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    looks: list[str] = []

    def look(log_dir: str) -> dict[tuple[str, int], int]:
        looks.append(log_dir)
        return {}

    monkeypatch.setattr(flushed, name, look)
    for number in range(9):
        (tmp_path / f"t-{number}").mkdir()
        (tmp_path / f"t-{number}" / "00000000000000000000.log").write_bytes(b"")
    reader = segment_source.SegmentsReader(f"1={tmp_path}", True, None, None, 1)
    (task,) = reader.partitions()
    assert sum(batch.num_rows for batch in reader.read(task)) == 9
    assert looks == [str(tmp_path)]
