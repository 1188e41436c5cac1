"""The same storage on the files of this machine: what the in-memory disk promised holds there too."""

from pathlib import Path

from holdfast.runtime.real.machine import real_runtime
from holdfast.storage.core.config import LogConfig
from holdfast.storage.log import Log
from tests.unit.storage.batches import batch, offsets, read_all
from tests.unit.storage.marks import prove, take_all

CONFIG = LogConfig(segment_bytes=2000, index_interval_bytes=200, flush_messages=1)


async def fill(folder: Path, count: int = 60) -> Log:
    log = await Log.open(real_runtime(), str(folder), CONFIG, clean=False)
    for number in range(count):
        data = batch(1 + number % 3, size=number, timestamp_ms=1000 + number)
        if log.needs_roll(len(data)):
            await log.roll()
        log.append_as_leader(data, number // 20)
        if number % 7 == 0:
            await log.flush()
    return log


async def test_a_cleanly_closed_log_opens_without_a_scan(tmp_path: Path) -> None:
    log = await fill(tmp_path / "t-0")
    content, epochs = read_all(log), log.leader_epoch_cache.entries
    await log.close(True)
    again = await Log.open(real_runtime(), str(tmp_path / "t-0"), CONFIG, clean=True)
    assert again.recovery.scanned_bytes == 0
    assert (read_all(again, 700), again.leader_epoch_cache.entries) == (content, epochs)
    await again.close(False)


async def test_a_torn_tail_is_cut_and_the_log_goes_on(tmp_path: Path) -> None:
    log = await fill(tmp_path / "t-0")
    content, end = read_all(log), log.log_end_offset
    await log.close(False)  # indexes were not stored: the process was killed
    last = sorted((tmp_path / "t-0").glob("*.log"))[-1]
    with last.open("ab") as file:
        file.write(bytes(548))
    log = await Log.open(real_runtime(), str(tmp_path / "t-0"), CONFIG, clean=False)
    assert log.recovery.dropped_bytes == 548
    assert read_all(log) == content
    log.append_as_leader(batch(2), 9)
    assert await log.flush() == end + 2
    await log.close(True)
    again = await Log.open(real_runtime(), str(tmp_path / "t-0"), CONFIG, clean=True)
    assert offsets(again)[-1] == (end, 9)
    await again.close(False)


async def test_truncation_and_reset_leave_nothing_behind(tmp_path: Path) -> None:
    log = await fill(tmp_path / "t-0")
    cut = await log.truncate_to(50)
    assert cut <= 50
    expected = offsets(log)
    await log.close(False)
    log = await Log.open(real_runtime(), str(tmp_path / "t-0"), CONFIG, clean=False)
    assert (offsets(log), log.recovery.reason) == (expected, None)
    await log.reset_to(700)
    await log.close(True)
    names = sorted(path.name for path in (tmp_path / "t-0").iterdir())
    assert [name for name in names if name.endswith(".log")] == [f"{700:020}.log"]


async def test_the_proof_of_a_clean_stop(tmp_path: Path) -> None:
    dirs = [str(tmp_path / name) for name in ("a", "b")]
    disk = real_runtime().disk
    for path in dirs:
        await disk.make_folder(path)
    await prove(disk, dirs, 3)
    assert await take_all(disk, dirs) == 3
    assert await take_all(disk, dirs) == -1
    assert list(tmp_path.rglob(".holdfast_cleanshutdown*")) == []
