"""A disk that knows for how long each log dir has answered nothing.

Owns the count of operations under way below each watched folder, and the time of their last progress.
Decides nothing: who asks knows how long is too long. A flush that takes long while other flushes end is no
stall: a large one takes its time on a slow disk. Operations on names end also while flushes hang, so they
count by themselves. Appends and reads are page-cache calls and are not watched.
"""

from collections.abc import Awaitable, Sequence
from typing import TypeVar

from holdfast.runtime.api import Clock, Disk, File, Space

T = TypeVar("T")


class _Lane:
    """Operations of one kind below one folder."""

    __slots__ = ("_clock", "_pending", "_progress_ms")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pending = 0
        #: when one of them last ended, or when the first one began after a rest
        self._progress_ms = 0

    def silence_ms(self) -> int:
        """How long operations have been under way without an end of any; 0 when there are none."""
        return self._clock.now_ms() - self._progress_ms if self._pending else 0

    async def over(self, operation: Awaitable[T]) -> T:
        if not self._pending:
            self._progress_ms = self._clock.now_ms()
        self._pending += 1
        try:
            return await operation
        finally:
            self._pending -= 1
            self._progress_ms = self._clock.now_ms()


class _Watch:
    """The operations below one folder."""

    __slots__ = ("flushes", "names")

    def __init__(self, clock: Clock) -> None:
        self.flushes = _Lane(clock)
        self.names = _Lane(clock)

    def silence_ms(self) -> int:
        return max(self.flushes.silence_ms(), self.names.silence_ms())


class WatchedFile:
    """A `File` whose flushes and truncations are watched."""

    __slots__ = ("_file", "_watch", "append", "read_at")

    def __init__(self, file: File, watch: _Watch) -> None:
        self._file = file
        self._watch = watch
        # the file's own methods: an append costs no further call
        self.append = file.append
        self.read_at = file.read_at

    @property
    def path(self) -> str:
        return self._file.path

    @property
    def size(self) -> int:
        return self._file.size

    async def read_aside(self, position: int, size: int) -> bytes:
        return await self._watch.flushes.over(self._file.read_aside(position, size))

    async def flush(self) -> None:
        await self._watch.flushes.over(self._file.flush())

    async def drop_cache(self) -> None:
        await self._watch.flushes.over(self._file.drop_cache())

    async def truncate(self, size: int) -> None:
        await self._watch.flushes.over(self._file.truncate(size))

    async def rename(self, target: str) -> None:
        await self._watch.names.over(self._file.rename(target))

    async def close(self) -> None:
        await self._watch.names.over(self._file.close())


class WatchedDisk:
    """`runtime.api.Disk` for the given folders and all below them."""

    def __init__(self, disk: Disk, clock: Clock, folders: Sequence[str]) -> None:
        self._disk = disk
        #: longest path first: a folder below another one is its own
        self._watches = {
            folder: _Watch(clock) for folder in sorted(folders, key=lambda path: (-len(path), path))
        }
        self._rest = _Watch(clock)

    def silence_ms(self, folder: str) -> int:
        """How long this folder's operations have been under way without an end of any; 0 without any."""
        return self._watches[folder].silence_ms()

    def _watch(self, path: str) -> _Watch:
        for folder, watch in self._watches.items():
            if path == folder or path.startswith(folder.rstrip("/") + "/"):
                return watch
        return self._rest

    async def open(self, path: str, *, create: bool) -> File:
        watch = self._watch(path)
        return WatchedFile(await watch.names.over(self._disk.open(path, create=create)), watch)

    async def rename(self, source: str, target: str) -> None:
        await self._watch(source).names.over(self._disk.rename(source, target))

    async def unlink(self, path: str) -> None:
        await self._watch(path).names.over(self._disk.unlink(path))

    async def make_folder(self, path: str) -> None:
        await self._watch(path).names.over(self._disk.make_folder(path))

    async def remove_folder(self, path: str) -> None:
        await self._watch(path).names.over(self._disk.remove_folder(path))

    async def sync_folder(self, path: str) -> None:
        await self._watch(path).flushes.over(self._disk.sync_folder(path))

    async def listdir(self, path: str) -> list[str]:
        return await self._watch(path).names.over(self._disk.listdir(path))

    async def exists(self, path: str) -> bool:
        return await self._watch(path).names.over(self._disk.exists(path))

    async def space(self, path: str) -> Space:
        # Asked for every second and mostly answered from memory: it would hide that others hang.
        return await self._disk.space(path)

    async def lock_folder(self, path: str) -> None:
        await self._watch(path).names.over(self._disk.lock_folder(path))
