"""What every Disk and File promises."""

import asyncio
import errno
import posixpath

import pytest

from holdfast.runtime.api import NAME_BYTES_MAX, Buffer, DiskError, File, FileMissing, OutOfResources
from tests.contract.conftest import World


@pytest.fixture
async def file(world: World) -> File:
    return await world.runtime.disk.open(posixpath.join(world.folder, "log"), create=True)


async def test_append_returns_the_position_of_its_first_byte(file: File) -> None:
    assert file.append([b"abc", bytearray(b"de")]) == 0
    assert file.append([memoryview(b"xfgx")[1:3]]) == 5
    assert file.append([]) == 7
    assert file.size == 7
    assert file.read_at(0, 7) == b"abcdefg"


async def test_more_buffers_than_one_system_call_takes_are_appended_in_order(file: File) -> None:
    buffers: list[Buffer] = [number.to_bytes(2, "big") for number in range(5000)]
    file.append([b"head"])
    assert file.append(buffers) == 4
    assert file.read_at(4, 10_000) == b"".join(buffers)


async def test_reads_are_short_only_at_the_end_of_the_file(file: File) -> None:
    file.append([b"0123456789"])
    assert file.read_at(3, 4) == b"3456"
    assert file.read_at(8, 100) == b"89"
    assert file.read_at(10, 1) == b""
    assert file.read_at(50, 1) == b""
    assert type(file.read_at(0, 1)) is bytes


async def test_file_opened_again_has_its_bytes_and_size(world: World, file: File) -> None:
    file.append([b"kept"])
    await file.flush()
    await file.close()
    again = await world.runtime.disk.open(file.path, create=False)
    assert again.size == 4
    assert again.read_at(0, 4) == b"kept"
    assert again.append([b"!"]) == 4


async def test_open_without_create_needs_the_file(world: World) -> None:
    path = posixpath.join(world.folder, "absent")
    with pytest.raises(FileMissing) as raised:
        await world.runtime.disk.open(path, create=False)
    assert raised.value.path == path
    assert raised.value.errno == errno.ENOENT
    assert not await world.runtime.disk.exists(path)


async def test_open_needs_the_folder(world: World) -> None:
    with pytest.raises(FileMissing):
        await world.runtime.disk.open(posixpath.join(world.folder, "absent", "log"), create=True)
    with pytest.raises(DiskError):
        await world.runtime.disk.open(world.folder, create=False)


async def test_append_goes_on_where_truncate_cut(file: File) -> None:
    file.append([b"0123456789"])
    await file.truncate(4)
    assert file.size == 4
    assert file.append([b"x"]) == 4
    assert file.read_at(0, 100) == b"0123x"
    await file.truncate(0)
    assert file.read_at(0, 100) == b""


async def test_cancelled_truncate_leaves_size_and_file_in_agreement(world: World, file: File) -> None:
    file.append([b"0123456789"])
    cut = world.runtime.tasks.start("cut", file.truncate(4))
    await asyncio.sleep(0)
    cut.cancel()
    await cut.wait()
    await file.flush()
    await file.close()
    again = await world.runtime.disk.open(file.path, create=False)
    assert again.size == file.size


async def test_close_waits_for_a_truncate_that_was_cancelled(world: World, file: File) -> None:
    file.append([b"0123456789"])
    cut = world.runtime.tasks.start("cut", file.truncate(4))
    await asyncio.sleep(0)
    cut.cancel()
    await file.close()
    again = await world.runtime.disk.open(file.path, create=False)
    assert again.size == file.size


async def test_dropping_the_cache_keeps_the_bytes_and_the_end(world: World, file: File) -> None:
    file.append([b"abc"])
    await file.drop_cache()
    assert (file.size, file.read_at(0, 9)) == (3, b"abc")
    assert file.append([b"d"]) == 3
    assert file.read_at(0, 9) == b"abcd"


async def test_what_is_read_aside_is_what_is_read(file: File) -> None:
    file.append([b"0123456789"])
    await file.flush()
    file.append([b"not flushed"])
    for position, size in ((0, 4), (3, 12), (8, 100), (21, 1)):
        assert await file.read_aside(position, size) == file.read_at(position, size)


async def test_close_waits_for_what_is_read_aside(world: World, file: File) -> None:
    file.append([b"0123456789"])
    found: list[bytes] = []

    async def read() -> None:
        found.append(await file.read_aside(2, 3))

    reading = world.runtime.tasks.start("read", read())
    await asyncio.sleep(0)
    await file.close()
    await reading.wait()
    assert found == [b"234"]


async def test_flushes_at_the_same_time_all_end(world: World, file: File) -> None:
    done: list[int] = []

    async def flush(number: int) -> None:
        await file.flush()
        done.append(number)

    tasks = []
    for number in range(20):
        file.append([b"record"])
        tasks.append(world.runtime.tasks.start(f"flush {number}", flush(number)))
        await asyncio.sleep(0)
    for task in tasks:
        await task.wait()
    assert sorted(done) == list(range(20))


async def test_cancelled_flush_leaves_the_others_alone(world: World, file: File) -> None:
    file.append([b"record"])
    flushes = [world.runtime.tasks.start(f"flush {number}", file.flush()) for number in range(4)]
    await asyncio.sleep(0)
    flushes[0].cancel()
    flushes[2].cancel()
    for flush in flushes:
        await flush.wait()
    await file.flush()


async def test_appends_and_reads_go_on_during_a_flush(world: World, file: File) -> None:
    file.append([b"first"])
    flush = world.runtime.tasks.start("flush", file.flush())
    await asyncio.sleep(0)
    file.append([b"second"])
    assert file.read_at(0, 100) == b"firstsecond"
    await flush.wait()


async def test_close_waits_for_flushes_and_may_be_repeated(world: World, file: File) -> None:
    file.append([b"record"])
    flush = world.runtime.tasks.start("flush", file.flush())
    await asyncio.sleep(0)
    await file.close()
    await file.close()
    await flush.wait()
    with pytest.raises(AssertionError):
        file.append([b"late"])


async def test_file_that_failed_to_append_refuses_everything_a20(world: World) -> None:
    file = await world.runtime.disk.open(await world.full_file(), create=True)
    with pytest.raises(DiskError) as raised:
        file.append([b"record"])
    assert raised.value.errno == errno.ENOSPC
    assert raised.value.path == file.path
    assert file.size == 0
    with pytest.raises(DiskError):
        file.append([b"record"])
    with pytest.raises(DiskError):
        file.read_at(0, 1)
    with pytest.raises(DiskError):
        await file.flush()
    with pytest.raises(DiskError):
        await file.truncate(0)
    await file.close()


async def test_appends_and_reads_without_a_handle_are_refused_and_harm_nothing(
    world: World, file: File
) -> None:
    file.append([b"kept"])
    world.lack_handles("append", file.path, 1)
    with pytest.raises(OutOfResources) as raised:
        file.append([b"refused"])
    assert raised.value.errno == errno.EMFILE
    world.lack_handles("read", file.path, 1)
    with pytest.raises(OutOfResources):
        file.read_at(0, 4)
    file.append([b"!"])
    await file.flush()
    assert file.read_at(0, 99) == b"kept!"


async def test_an_open_waits_for_a_handle(world: World) -> None:
    path = posixpath.join(world.folder, "late")
    world.lack_handles("open", path, 2)
    file = await world.runtime.disk.open(path, create=True)
    file.append([b"x"])
    assert file.size == 1


async def test_rename_replaces_its_target(world: World, file: File) -> None:
    disk = world.runtime.disk
    target = posixpath.join(world.folder, "target")
    old = await disk.open(target, create=True)
    old.append([b"old"])
    file.append([b"new"])
    await disk.rename(file.path, target)
    assert await disk.listdir(world.folder) == ["target"]
    assert (await disk.open(target, create=False)).read_at(0, 9) == b"new"
    assert old.read_at(0, 9) == b"old"
    with pytest.raises(FileMissing):
        await disk.rename(file.path, target)


async def test_open_file_goes_on_under_another_name(world: World, file: File) -> None:
    disk = world.runtime.disk
    target = posixpath.join(world.folder, "target")
    old = await disk.open(target, create=True)
    await old.close()
    file.append([b"new"])
    renaming = asyncio.ensure_future(file.rename(target))
    while not renaming.done():
        assert file.read_at(0, 9) == b"new"
        await asyncio.sleep(0)
    await renaming
    assert file.path == target
    assert await disk.listdir(world.folder) == ["target"]
    file.append([b"er"])
    await file.flush()
    assert (await disk.open(target, create=False)).read_at(0, 9) == b"newer"


async def test_folder_can_be_renamed_with_its_files(world: World) -> None:
    disk = world.runtime.disk
    source, target = posixpath.join(world.folder, "t-0"), posixpath.join(world.folder, "t-0.deleted")
    await disk.make_folder(source)
    file = await disk.open(posixpath.join(source, "log"), create=True)
    await disk.rename(source, target)
    file.append([b"x"])
    assert (await disk.open(posixpath.join(target, "log"), create=False)).size == 1


async def test_unlinked_file_stays_readable_for_those_who_have_it_open(world: World, file: File) -> None:
    file.append([b"record"])
    await world.runtime.disk.unlink(file.path)
    assert not await world.runtime.disk.exists(file.path)
    assert file.read_at(0, 6) == b"record"
    with pytest.raises(FileMissing):
        await world.runtime.disk.unlink(file.path)


async def test_listdir_is_sorted(world: World) -> None:
    disk = world.runtime.disk
    for name in ("b", "a", "c"):
        await (await disk.open(posixpath.join(world.folder, name), create=True)).close()
    await disk.make_folder(posixpath.join(world.folder, "aa"))
    assert await disk.listdir(world.folder) == ["a", "aa", "b", "c"]
    with pytest.raises(FileMissing):
        await disk.listdir(posixpath.join(world.folder, "absent"))


async def test_make_folder_makes_parents_and_may_be_repeated(world: World) -> None:
    disk = world.runtime.disk
    deep = posixpath.join(world.folder, "a", "b", "c")
    await disk.make_folder(deep)
    await disk.make_folder(deep)
    assert await disk.exists(deep)
    await (await disk.open(posixpath.join(deep, "log"), create=True)).close()
    with pytest.raises(DiskError):
        await disk.make_folder(posixpath.join(deep, "log"))


async def test_a_name_has_255_bytes_at_most(world: World) -> None:
    disk = world.runtime.disk
    longest = posixpath.join(world.folder, "n" * NAME_BYTES_MAX)
    await disk.make_folder(longest)
    too_long = longest + "n"
    for refused in (
        disk.make_folder(too_long),
        disk.open(too_long, create=True),
        disk.rename(longest, too_long),
    ):
        with pytest.raises(DiskError) as raised:
            await refused
        assert raised.value.errno == errno.ENAMETOOLONG
    assert not await disk.exists(too_long)
    assert await disk.listdir(world.folder) == ["n" * NAME_BYTES_MAX]


async def test_remove_folder_takes_everything_and_may_be_repeated(world: World) -> None:
    disk = world.runtime.disk
    top = posixpath.join(world.folder, "a")
    await disk.make_folder(posixpath.join(top, "b"))
    await (await disk.open(posixpath.join(top, "b", "log"), create=True)).close()
    await disk.remove_folder(top)
    await disk.remove_folder(top)
    assert await disk.listdir(world.folder) == []


async def test_sync_folder_needs_the_folder(world: World) -> None:
    await world.runtime.disk.sync_folder(world.folder)
    with pytest.raises(FileMissing):
        await world.runtime.disk.sync_folder(posixpath.join(world.folder, "absent"))


async def test_free_space_is_part_of_the_device(world: World) -> None:
    space = await world.runtime.disk.space(world.folder)
    assert 0 <= space.free_bytes <= space.total_bytes
    assert space.total_bytes > 0
    with pytest.raises(FileMissing):
        await world.runtime.disk.space(posixpath.join(world.folder, "absent"))


async def test_a_folder_is_locked_once(world: World) -> None:
    disk = world.runtime.disk
    await disk.lock_folder(world.folder)
    with pytest.raises(DiskError, match="another process"):
        await disk.lock_folder(world.folder)
    assert await disk.listdir(world.folder) == [".lock"]
    other = posixpath.join(world.folder, "other")
    await disk.make_folder(other)
    await disk.lock_folder(other)
