"""A disk that is left at a chosen operation: every step of an order of writes gets its own crash."""

import errno
from collections.abc import Sequence
from enum import Enum

from holdfast.runtime.api import Buffer, DiskError, Space
from holdfast.runtime.memory.disk import MemoryDisk, MemoryFile


class Crash(Enum):
    """What is left of a disk."""

    #: what was flushed, under the names that were synced
    POWER = "power"
    #: what was flushed, under the names of the last moment
    POWER_AFTER_NAMES = "power after names"
    #: all of it, not durable yet
    KILL = "kill"


class CrashingDisk:
    """A MemoryDisk that crashes before its operation number `crash_at`; later ones fail too."""

    def __init__(self, inner: MemoryDisk, crash_at: int | None = None, *, how: Crash = Crash.POWER) -> None:
        self.inner = inner
        self.crash_at = crash_at
        self.how = how
        #: operations that changed something, names in order; how many there are to crash at
        self.steps: list[str] = []
        self.is_dead = False

    def step(self, operation: str, path: str) -> None:
        if not self.is_dead and len(self.steps) == self.crash_at:
            self.crash()
        if self.is_dead:
            raise DiskError(path, operation, errno.EIO, "it crashed")
        self.steps.append(f"{operation} {path}")

    def crash(self) -> None:
        """Now."""
        self.is_dead = True
        if self.how is Crash.KILL:
            self.inner.process_kill()
        else:
            self.inner.power_loss(keeps_names=self.how is Crash.POWER_AFTER_NAMES)

    async def open(self, path: str, *, create: bool) -> "CrashingFile":
        if create:
            self.step("open", path)
        return CrashingFile(self, await self.inner.open(path, create=create))

    async def rename(self, source: str, target: str) -> None:
        self.step("rename", source)
        await self.inner.rename(source, target)

    async def unlink(self, path: str) -> None:
        self.step("unlink", path)
        await self.inner.unlink(path)

    async def make_folder(self, path: str) -> None:
        self.step("make_folder", path)
        await self.inner.make_folder(path)

    async def remove_folder(self, path: str) -> None:
        self.step("remove_folder", path)
        await self.inner.remove_folder(path)

    async def sync_folder(self, path: str) -> None:
        self.step("sync_folder", path)
        await self.inner.sync_folder(path)

    async def listdir(self, path: str) -> list[str]:
        return await self.inner.listdir(path)

    async def exists(self, path: str) -> bool:
        return await self.inner.exists(path)

    async def space(self, path: str) -> Space:
        return await self.inner.space(path)

    async def lock_folder(self, path: str) -> None:
        await self.inner.lock_folder(path)


class CrashingFile:
    """A file of a CrashingDisk."""

    def __init__(self, disk: CrashingDisk, inner: MemoryFile) -> None:
        self.disk = disk
        self.inner = inner

    @property
    def path(self) -> str:
        return self.inner.path

    @property
    def size(self) -> int:
        return self.inner.size

    def append(self, buffers: Sequence[Buffer]) -> int:
        self.disk.step("append", self.path)
        return self.inner.append(buffers)

    def read_at(self, position: int, size: int) -> bytes:
        return self.inner.read_at(position, size)

    async def read_aside(self, position: int, size: int) -> bytes:
        return await self.inner.read_aside(position, size)

    async def flush(self) -> None:
        self.disk.step("flush", self.path)
        await self.inner.flush()

    async def drop_cache(self) -> None:
        self.disk.step("drop cache", self.path)
        await self.inner.drop_cache()

    async def truncate(self, size: int) -> None:
        self.disk.step("truncate", self.path)
        await self.inner.truncate(size)

    async def rename(self, target: str) -> None:
        self.disk.step("rename", self.path)
        await self.inner.rename(target)

    async def close(self) -> None:
        await self.inner.close()
