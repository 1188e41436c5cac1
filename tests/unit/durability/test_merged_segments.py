"""Segments that compaction has merged, in each state in which a crash may leave them."""

import tracemalloc
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra `spark`")

from holdfast.durability.segment_source import BATCH_SCHEMA, RECORD_SCHEMA, folder_rows
from holdfast.durability.segments import ReplicaFolder, read_log, segment_paths
from holdfast.protocol.record_batch import Record, encode_batch
from holdfast.runtime.api import DiskError
from holdfast.runtime.memory.disk import MemoryDisk
from tests.cases import slow
from tests.unit.storage.cleaning import FOLDER, append, clean, latest, open_log, records, updates
from tests.unit.storage.crashing_disk import Crash, CrashingDisk


def rows_of(folder: Path, *, by_batch: bool) -> list[dict[str, Any]]:
    names = [item.split()[0] for item in (BATCH_SCHEMA if by_batch else RECORD_SCHEMA).split(", ")]
    found = folder_rows(ReplicaFolder(1, "t", 0, str(folder)), by_batch=by_batch)
    return [dict(zip(names, row, strict=True)) for row in found]


async def copied(disk: MemoryDisk, folder: Path) -> Path:
    """What is on the disk, as files."""
    folder.mkdir()
    for name in await disk.listdir(FOLDER):
        file = await disk.open(f"{FOLDER}/{name}", create=False)
        (folder / name).write_bytes(file.read_at(0, file.size))
        await file.close()
    return folder


@pytest.mark.parametrize("how", [Crash.KILL, *slow(Crash.POWER, Crash.POWER_AFTER_NAMES)])
async def test_a_crash_at_any_step_of_a_compaction_leaves_a_log_that_is_read_whole(
    tmp_path: Path, how: Crash
) -> None:
    """Until the next start segments lie over the one that they were merged into."""
    was_done, overlaps = False, 0
    for step in range(200):
        crashing = CrashingDisk(MemoryDisk(), how=how)
        log = await open_log(crashing)
        await append(log, updates(0, 24))
        await clean(log)  # what this one makes small, the next one merges
        before, end = records(log), log.log_end_offset
        log.cleaning.clean_offset = 0
        crashing.crash_at = len(crashing.steps) + step
        try:
            await clean(log)
        except DiskError:
            assert crashing.is_dead
        was_done = not crashing.is_dead
        if was_done:
            crashing.crash()
        folder = await copied(crashing.inner, tmp_path / str(step))
        story = f"after {crashing.steps[-3:]}"
        batches = rows_of(folder, by_batch=True)
        assert not any(row["damaged"] or row["problem"] for row in batches), story
        held = [row for row in batches if row["last_offset"] is not None]
        ends = [row["last_offset"] + 1 for row in held]
        assert ([row["base_offset"] for row in held], ends[-1]) == ([0, *ends[:-1]], end), story
        found = {row["key"]: (row["offset"], row["value"]) for row in rows_of(folder, by_batch=False)}
        assert found == {key: (one.offset, one.value) for key, one in latest(before).items()}, story
        overlaps += len({row["segment"] for row in batches}) < len(segment_paths(str(folder)))
        if was_done:
            break
    assert was_done
    assert overlaps


def batch(base_offset: int, count: int, epoch: int, value: bytes = b"v") -> bytes:
    found = [Record(base_offset + n, 1, None, value) for n in range(count)]
    return encode_batch(found, base_offset=base_offset, leader_epoch=epoch)


COMPACTED = "0\n1\n2 {}\n"
CHANGED = batch(5, 2, 2, b"before")


@pytest.mark.parametrize(
    ("second", "checkpoint", "is_passed_over"),
    [
        (batch(5, 2, 2), COMPACTED.format(5), True),
        (CHANGED, COMPACTED.format(6), True),
        (batch(5, 1, 2) + batch(6, 1, 2), COMPACTED.format(6), False),
        (batch(5, 1, 2) + batch(6, 1, 2), COMPACTED.format(7), True),
        (CHANGED, COMPACTED.format(5), False),
        (batch(5, 2, 1), COMPACTED.format(9), False),
        (batch(5, 2, 3), COMPACTED.format(9), False),
        (CHANGED, "0\n2\n2 5\n", True),
        (CHANGED, COMPACTED.format("5 5"), True),
        (batch(5, 2, 1)[:-1], COMPACTED.format(9), False),
        (batch(5, 2, 1)[:-1] + b"\xff", COMPACTED.format(9), False),
        (b"\0" * 200, COMPACTED.format(9), False),
        (b"", COMPACTED.format(5), True),
        (batch(5, 3, 1), COMPACTED.format(9), False),
    ],
    ids=[
        *("a copy", "what was compacted", "a batch behind it", "several that were compacted"),
        *("changed, and not compacted", "of an earlier epoch", "of a later epoch"),
        *("a cut checkpoint", "no checkpoint of the log", "cut", "damaged", "zeros"),
        *("empty", "it goes on behind the other"),
    ],
)
def test_only_what_was_compacted_may_have_changed_in_a_merge(
    tmp_path: Path, second: bytes, checkpoint: str, is_passed_over: bool
) -> None:
    """Without a whole checkpoint it is not known how far the log was compacted."""
    (tmp_path / f"{0:020}.log").write_bytes(batch(0, 5, 1) + batch(5, 2, 2))
    (tmp_path / f"{5:020}.log").write_bytes(second)
    (tmp_path / "cleaner-offset-checkpoint").write_text(checkpoint)
    shown = {row["segment"] for row in rows_of(tmp_path, by_batch=True)}
    assert (f"{5:020}.log" not in shown) == is_passed_over


def test_segments_are_compared_with_little_memory(tmp_path: Path) -> None:
    value = bytes(1 << 20)
    batches = [
        encode_batch([Record(offset, 1, None, value)], base_offset=offset, leader_epoch=1)
        for offset in range(16)
    ]
    (tmp_path / f"{0:020}.log").write_bytes(b"".join(batches))
    (tmp_path / f"{4:020}.log").write_bytes(b"".join(batches[4:]))
    tracemalloc.start()
    shown = {path.name for path, _ in read_log(str(tmp_path))}
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert shown == {f"{0:020}.log"}
    assert peak_bytes < 8 << 20


@pytest.mark.parametrize(
    ("second", "is_passed_over"),
    [
        (batch(5, 2, 2), True),
        (b"", True),
        (batch(5, 2, 1), False),
        (batch(5, 2, 2) + batch(7, 1, 2), False),
        (batch(5, 2, 2)[:-1], False),
    ],
    ids=["a copy", "empty", "of another epoch", "it goes on behind the other", "cut"],
)
def test_only_what_a_merge_can_leave_is_passed_over(
    tmp_path: Path, second: bytes, is_passed_over: bool
) -> None:
    """The log was never compacted, so a merge changes no batch: a segment that a truncation should have
    deleted is shown."""
    (tmp_path / f"{0:020}.log").write_bytes(batch(0, 5, 1) + batch(5, 2, 2))
    (tmp_path / f"{5:020}.log").write_bytes(second)
    shown = {row["segment"] for row in rows_of(tmp_path, by_batch=True)}
    assert (f"{5:020}.log" not in shown) == is_passed_over
