"""A process whose disk loses its power: `DATA [--unsynced FOLDER]`. Writes, says "ready", waits for its end.

Each folder below DATA is one situation; `tests/contract/test_power_loss.py` knows what may be left of it.
"""

import sys
import time

from holdfast.runtime.api import Disk, File, Runtime
from holdfast.runtime.real.machine import run
from holdfast.storage.folders import make_durably

OLD, NEW, TAIL = b"old" * 3_000, b"new" * 2_000, b"tail" * 20_000


async def make(disk: Disk, path: str, content: bytes) -> File:
    """A file that is durable, with its name."""
    file = await disk.open(path, create=True)
    file.append([content])
    await file.flush()
    await disk.sync_folder(path.rpartition("/")[0])
    return file


async def appended(disk: Disk, folder: str) -> None:
    file = await make(disk, f"{folder}/0.log", OLD)
    file.append([TAIL])


async def appended_in_a_second_flush(disk: Disk, folder: str) -> None:
    file = await make(disk, f"{folder}/0.log", OLD)
    file.append([NEW])
    await file.flush()
    file.append([TAIL])


async def truncated(disk: Disk, folder: str) -> None:
    file = await make(disk, f"{folder}/0.log", OLD)
    await file.truncate(1_000)
    file.append([TAIL])


async def truncated_and_flushed(disk: Disk, folder: str) -> None:
    file = await make(disk, f"{folder}/0.log", OLD)
    await file.truncate(1_000)
    file.append([NEW])
    await file.flush()
    await file.truncate(2_000)
    await file.flush()
    file.append([TAIL])


async def made(disk: Disk, folder: str) -> None:
    file = await disk.open(f"{folder}/0.log", create=True)
    file.append([NEW])
    await file.flush()


async def replaced(disk: Disk, folder: str) -> None:
    await make(disk, f"{folder}/file", OLD)
    await make(disk, f"{folder}/file.tmp", NEW)
    await disk.rename(f"{folder}/file.tmp", f"{folder}/file")


async def replaced_and_synced(disk: Disk, folder: str) -> None:
    await replaced(disk, folder)
    await disk.sync_folder(folder)


async def unlinked(disk: Disk, folder: str) -> None:
    await make(disk, f"{folder}/file", OLD)
    await disk.unlink(f"{folder}/file")


async def unlinked_and_synced(disk: Disk, folder: str) -> None:
    await unlinked(disk, folder)
    await disk.sync_folder(folder)


async def removed(disk: Disk, folder: str) -> None:
    await make_durably(disk, f"{folder}/log")
    await make(disk, f"{folder}/log/file", OLD)
    await disk.remove_folder(f"{folder}/log")


async def moved_and_synced(disk: Disk, folder: str) -> None:
    await make_durably(disk, f"{folder}/log")
    file = await make(disk, f"{folder}/log/file", OLD)
    await disk.rename(f"{folder}/log", f"{folder}/moved")
    await disk.sync_folder(folder)
    file.append([NEW])
    await file.flush()


SITUATIONS = (
    appended,
    appended_in_a_second_flush,
    truncated,
    truncated_and_flushed,
    made,
    replaced,
    replaced_and_synced,
    unlinked,
    unlinked_and_synced,
    removed,
    moved_and_synced,
)


async def main(runtime: Runtime) -> int:
    disk, data = runtime.disk, sys.argv[1]
    if await disk.exists(data):  # the next process, after a kill: it reads all and flushes nothing
        for situation in SITUATIONS:
            await disk.listdir(f"{data}/{situation.__name__}")
        file = await disk.open(f"{data}/appended/0.log", create=False)
        file.append([TAIL])
    else:
        for situation in SITUATIONS:
            await make_durably(disk, f"{data}/{situation.__name__}")
        for situation in SITUATIONS:
            await situation(disk, f"{data}/{situation.__name__}")
    print("ready", flush=True)
    time.sleep(300)
    return 0


if __name__ == "__main__":
    sys.exit(run(main, unsynced=sys.argv[3] if len(sys.argv) > 2 else None))
