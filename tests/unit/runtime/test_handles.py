"""More files than handles: each is opened again when it is used, and no bytes are mixed up."""

import asyncio
import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.runtime.api import DiskError, File, OutOfResources
from holdfast.runtime.power.power_loss import TrackedDisk
from holdfast.runtime.real import handles
from holdfast.runtime.real.disk import RealDisk, RealFile

LIMIT = 3


@pytest.fixture(params=["plain", "tracked"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> RealDisk:
    (tmp_path / "data").mkdir()
    return RealDisk(LIMIT) if request.param == "plain" else TrackedDisk(str(tmp_path / "journal"), LIMIT)


@pytest.fixture
def lack_handles(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Lets the next so many calls of `open` find no handle left."""
    real_open = os.open
    left = 0

    def scarce(path: str, flags: int, mode: int = 0o777) -> int:
        nonlocal left
        if left:
            left -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return real_open(path, flags, mode)

    def lack(times: int) -> None:
        nonlocal left
        left = times

    monkeypatch.setattr(os, "open", scarce)
    return lack


async def open_files(disk: RealDisk, tmp_path: Path, count: int) -> list[RealFile]:
    return [await disk.open(str(tmp_path / "data" / str(number)), create=True) for number in range(count)]


def use(file: File, text: bytes) -> bytes:
    file.append([text])
    return file.read_at(0, 99)


async def test_many_files_share_few_handles_and_keep_their_bytes(disk: RealDisk, tmp_path: Path) -> None:
    files = await open_files(disk, tmp_path, 20)
    for turn in (b"a", b"b"):
        for number, file in enumerate(files):
            use(file, turn + b"%d " % number)
    await asyncio.gather(*(file.flush() for file in files))
    await files[7].truncate(1)
    assert disk.open_handles <= LIMIT
    for number, file in enumerate(files):
        assert file.read_at(0, 99) == (b"a" if number == 7 else b"a%d b%d " % (number, number))
        assert disk.open_handles <= LIMIT
    for file in files:
        await file.close()
    assert disk.open_handles == 0


async def test_a_name_that_another_file_has_taken_is_not_read(disk: RealDisk, tmp_path: Path) -> None:
    first, *_ = await open_files(disk, tmp_path, LIMIT + 1)
    os.rename(tmp_path / "data" / "1", first.path)
    with pytest.raises(DiskError, match="another file"):
        first.read_at(0, 1)


async def test_a_name_that_is_gone_is_an_error_of_the_disk(disk: RealDisk, tmp_path: Path) -> None:
    (file,) = await open_files(disk, tmp_path, 1)
    disk._handles.close_some()
    os.unlink(file.path)
    with pytest.raises(DiskError) as raised:
        file.append([b"x"])
    assert type(raised.value) is DiskError


async def test_when_the_system_gives_no_handle_ours_are_closed(
    disk: RealDisk, tmp_path: Path, lack_handles: Callable[[int], None]
) -> None:
    files = await open_files(disk, tmp_path, LIMIT + 1)
    lack_handles(1)
    assert use(files[0], b"x") == b"x"
    assert disk.open_handles == 1


async def test_a_read_that_finds_no_handle_is_refused_and_works_later(
    disk: RealDisk, tmp_path: Path, lack_handles: Callable[[int], None]
) -> None:
    (file,) = await open_files(disk, tmp_path, 1)
    file.append([b"kept"])
    disk._handles.close_some()
    lack_handles(2)
    with pytest.raises(OutOfResources, match="Too many open files"):
        file.read_at(0, 4)
    with pytest.raises(OutOfResources):
        file.append([b"refused"])
    assert use(file, b"!") == b"kept!"
    await file.flush()
    await file.close()


async def test_an_append_that_runs_out_of_memory_half_way_leaves_nothing(
    disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file,) = await open_files(disk, tmp_path, 1)
    file.append([b"kept"])
    with monkeypatch.context() as short:

        def no_memory(number: int, data: memoryview, at: int) -> int:
            raise OSError(errno.ENOMEM, "Cannot allocate memory")

        real_write = os.pwrite
        short.setattr(os, "pwritev", lambda number, parts, at: real_write(number, parts[0][:9], at))
        short.setattr(os, "pwrite", no_memory)
        with pytest.raises(OutOfResources):
            file.append([b"is refused whole"])
    assert file.size == 4
    file.append([b"!"])
    assert file.read_at(0, 99) == b"kept!"
    assert (tmp_path / "data" / "0").stat().st_size == 5
    await file.flush()
    await file.close()


async def test_what_may_wait_waits_for_a_handle(
    disk: RealDisk, tmp_path: Path, lack_handles: Callable[[int], None]
) -> None:
    (file,) = await open_files(disk, tmp_path, 1)
    file.append([b"some", b"thing"])
    for call in (
        file.flush,
        lambda: file.truncate(4),
        file.drop_cache,
        lambda: file.read_aside(0, 4),
        lambda: disk.sync_folder(str(tmp_path / "data")),
        lambda: disk.open(str(tmp_path / "data" / "other"), create=True),
    ):
        disk._handles.close_some()
        lack_handles(2)
        await call()
    assert file.read_at(0, 99) == b"some"
    await file.close()


async def test_a_file_is_closed_after_the_cache_that_it_forgets(
    disk: RealDisk, tmp_path: Path, lack_handles: Callable[[int], None]
) -> None:
    """A segment may be deleted while its scrub waits for a handle."""
    (file,) = await open_files(disk, tmp_path, 1)
    file.append([b"written"])
    disk._handles.close_some()
    lack_handles(2)
    forgetting = asyncio.ensure_future(file.drop_cache())
    await asyncio.sleep(0)
    await file.close()
    await forgetting


async def test_quiet_files_give_their_handles_up_and_are_the_same_when_they_are_used_again(
    disk: RealDisk, tmp_path: Path
) -> None:
    quiet, busy = await open_files(disk, tmp_path, 2)
    quiet.append([b"unflushed "])
    for _ in range(2):
        assert disk.open_handles == 2
        assert disk._handles.close_idle()
        use(busy, b".")
    assert disk._handles.close_idle()
    assert disk.open_handles == 1
    assert use(quiet, b"again") == b"unflushed again"
    assert disk.open_handles == 2
    for file in (quiet, busy):
        await file.flush()
        await file.close()


async def test_idle_handles_are_closed_a_few_at_a_time(
    disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handles, "IDLE_CLOSED_MAX", 2)
    await open_files(disk, tmp_path, LIMIT)
    done = [disk._handles.close_idle() for _ in range(4)]
    assert (done, disk.open_handles) == ([True, True, False, True], 0)
