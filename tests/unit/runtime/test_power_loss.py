"""What the tracked disk does about flushes, truncations and syncs that overlap; the rest is in
tests/unit/localcluster/test_power_tracked.py, where power is lost."""

import asyncio
import os
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.runtime.power.power_loss import TrackedDisk
from holdfast.runtime.power.unsynced import Unsynced


class Hanging:
    """A system call that hangs in its thread until it is let go."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.released = threading.Event()

    async def wait_entered(self) -> None:
        while not self.entered.is_set():
            await asyncio.sleep(0)


@contextmanager
def hanging(call: str) -> Iterator[Hanging]:
    real = getattr(os, call)
    state = Hanging()

    def hang(*arguments: Any) -> Any:
        done = real(*arguments)
        state.entered.set()
        assert state.released.wait(30)
        return done

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, call, hang)
        try:
            yield state
        finally:
            state.released.set()


@pytest.fixture
def disk(tmp_path: Path) -> TrackedDisk:
    (tmp_path / "data").mkdir()
    return TrackedDisk(str(tmp_path / "unsynced"))


@pytest.fixture
def data(tmp_path: Path) -> str:
    return str(tmp_path / "data")


def journal(data: str) -> Unsynced:
    """As the next process finds it."""
    return Unsynced(str(Path(data).parent / "unsynced"))


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_flush_covers_only_what_was_there_when_it_started_a21(disk: TrackedDisk, data: str) -> None:
    file = await disk.open(f"{data}/log", create=True)
    file.append([b"x" * 100])
    with hanging("fdatasync") as fsync:
        flush = asyncio.ensure_future(file.flush())
        await fsync.wait_entered()
        file.append([b"y" * 50])
        fsync.released.set()
        await flush
    assert [journal(data).durable_size(inode) for inode in journal(data).files()] == [100]


async def test_a_truncation_waits_for_the_flush_under_way_and_a_flush_for_the_truncation(
    disk: TrackedDisk, data: str
) -> None:
    """Else it is unknown which bytes the flush has made durable."""
    file = await disk.open(f"{data}/log", create=True)
    file.append([b"x" * 100])
    with hanging("fdatasync") as fsync:
        flush = asyncio.ensure_future(file.flush())
        await fsync.wait_entered()
        cut = asyncio.ensure_future(file.truncate(40))
        await turns()
        assert os.stat(f"{data}/log").st_size == 100
        fsync.released.set()
        await flush
        await cut
    with hanging("ftruncate") as truncation, hanging("fdatasync") as fsync:
        cut = asyncio.ensure_future(file.truncate(20))
        await truncation.wait_entered()
        flush = asyncio.ensure_future(file.flush())
        await turns()
        assert not fsync.entered.is_set()
        truncation.released.set()
        fsync.released.set()
        await cut
        await flush
    (inode,) = journal(data).files()
    assert journal(data).durable_size(inode) == 20
    assert journal(data).cuts(inode) == ()


class AtOnce(ThreadPoolExecutor):
    """Work is done before anybody can wait for it; only its end is told later, as the loop comes to it."""

    def submit(self, work: Any, /, *arguments: Any, **options: Any) -> "Future[Any]":
        done: Future[Any] = Future()
        done.set_result(work(*arguments, **options))
        return done


@pytest.mark.parametrize("later", range(5))
async def test_a_flush_right_behind_the_end_of_a_cancelled_truncation_ends(
    disk: TrackedDisk, data: str, later: int
) -> None:
    """While the cut is done and not yet noted, the flush must let the loop come to noting it."""
    disk._flushes = AtOnce()
    file = await disk.open(f"{data}/log", create=True)
    file.append([b"x" * 100])
    cut = asyncio.ensure_future(file.truncate(40))
    await asyncio.sleep(0)
    cut.cancel()
    await turns(later)
    await file.flush()
    assert file.size == os.stat(f"{data}/log").st_size
    await file.close()


async def test_a_sync_covers_only_the_names_that_were_there_when_it_started(
    disk: TrackedDisk, data: str
) -> None:
    await (await disk.open(f"{data}/before", create=True)).close()
    with hanging("fsync") as fsync:
        sync = asyncio.ensure_future(disk.sync_folder(data))
        await fsync.wait_entered()
        await (await disk.open(f"{data}/after", create=True)).close()
        fsync.released.set()
        await sync
    assert [change.name for change in journal(data).changes()] == ["after"]


async def test_the_journal_of_many_files_and_names_grows(disk: TrackedDisk, data: str) -> None:
    await disk.make_folder(f"{data}/folder/never-synced")
    for number in range(5_000):
        file = await disk.open(f"{data}/{number:0200}", create=True)
        file.append([b"x"])
        await file.close()
        if number % 1_000 == 999:
            found = journal(data)
            assert len(found.files()) == number + 1
            assert len(found.changes()) == number + 3
    await disk.sync_folder(data)
    (change,) = journal(data).changes()
    assert change.name == "never-synced"


async def test_the_log_of_names_is_rewritten_when_most_of_it_is_over(disk: TrackedDisk, data: str) -> None:
    await disk.make_folder(f"{data}/folder")
    size = (Path(data).parent / "unsynced" / "names").stat().st_size
    names = [f"{data}/folder/{letter * 200}" for letter in "ab"]
    await disk.make_folder(names[0])
    for number in range(3 * size // 400):
        await disk.rename(names[number % 2], names[1 - number % 2])
        if number % 50 == 0:
            await disk.sync_folder(f"{data}/folder")
    await disk.sync_folder(f"{data}/folder")
    assert (Path(data).parent / "unsynced" / "names").stat().st_size == size
    assert [change.name for change in journal(data).changes()] == ["folder"]


async def test_the_rename_of_an_open_file_is_one_of_names_until_the_folder_is_synced(
    disk: TrackedDisk, data: str
) -> None:
    await disk.make_folder(f"{data}/folder")
    old = await disk.open(f"{data}/folder/log", create=True)
    await old.close()
    await disk.sync_folder(f"{data}/folder")
    await disk.sync_folder(data)
    file = await disk.open(f"{data}/folder/log.new", create=True)
    file.append([b"new"])
    await file.flush()
    await file.rename(f"{data}/folder/log")
    made, renamed = [change for change in journal(data).changes() if change.name == "log.new"]
    assert (made.kind, renamed.kind, renamed.target) == ("make", "rename", "log")
    assert renamed.grave > 0, "what it has replaced comes back with a power loss"
    await disk.sync_folder(f"{data}/folder")
    assert not [change for change in journal(data).changes() if change.name == "log.new"]
    file.append([b"er"])
    await file.flush()
    assert journal(data).durable_size(renamed.inode) == 5
