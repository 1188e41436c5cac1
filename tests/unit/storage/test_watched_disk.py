"""For how long each log dir has answered nothing."""

import asyncio

from holdfast.runtime.memory.machine import memory_runtime, settle
from holdfast.storage.watched_disk import WatchedDisk


async def test_only_a_folder_whose_operations_do_not_end_is_silent() -> None:
    runtime, world = memory_runtime()
    disk = WatchedDisk(runtime.disk, runtime.clock, ("/a", "/ab"))
    for folder in ("/a", "/ab"):
        await disk.make_folder(folder)
    file = await disk.open("/a/file", create=True)
    file.append([b"records"])
    await world.clock.advance(1000)
    assert (disk.silence_ms("/a"), disk.silence_ms("/ab")) == (0, 0), "nothing is under way"
    world.disk.hold_flushes()
    flush = asyncio.ensure_future(file.flush())
    await settle()
    await world.clock.advance(1000)
    assert (disk.silence_ms("/a"), disk.silence_ms("/ab")) == (1000, 0)
    assert file.read_at(0, file.size) == b"records"
    await disk.exists("/a/file")
    assert disk.silence_ms("/a") == 1000, "names may be looked up while flushes hang"
    await disk.sync_folder("/a")
    assert disk.silence_ms("/a") == 0, "a large flush takes its time while others end"
    await world.clock.advance(500)
    assert disk.silence_ms("/a") == 500
    world.disk.release_flushes()
    await flush
    assert disk.silence_ms("/a") == 0
