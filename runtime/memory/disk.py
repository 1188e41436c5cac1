"""A disk in memory that knows what is durable: page cache and durable image are kept apart.

`power_loss` leaves what was flushed and whose names were synced, nothing else; real file systems often keep
more. `process_kill` leaves the page cache too. Names in the root `/` are durable at once: it stands for the
mount point that was there before us. A failed flush drops the dirty bytes, and a flush of it opened anew
succeeds without them, as on Linux; only fail-stop survives that (A-20).
"""

import asyncio
import errno as errno_module
import os
import posixpath
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from holdfast.runtime.api import NAME_BYTES_MAX, Buffer, DiskError, FileMissing, OutOfResources, Space
from holdfast.runtime.core.shortage import is_shortage
from holdfast.runtime.real.group_commit import GroupCommit


class Inode:
    """One file's bytes, in the page cache and on the platter."""

    __slots__ = ("cached", "durable", "_clean_size")

    def __init__(self) -> None:
        self.cached = bytearray()
        self.durable = bytearray()
        #: cached bytes below this need no write-back
        self._clean_size = 0

    def truncate(self, size: int) -> None:
        del self.cached[size:]
        self._clean_size = min(self._clean_size, size)

    def start_write_back(self) -> tuple[int, bytes]:
        """The dirty bytes and where they belong, as they are now (A-21)."""
        start = self._clean_size
        dirty = bytes(memoryview(self.cached)[start:])
        self._clean_size = len(self.cached)
        return start, dirty

    def finish_write_back(self, start: int, dirty: bytes) -> None:
        if len(self.durable) < start:
            self.durable.extend(bytes(start - len(self.durable)))
        self.durable[start:] = dirty

    def give_up_write_back(self, start: int) -> None:
        """It was cut short: what is cached from there on is dirty again."""
        self._clean_size = min(self._clean_size, start)

    def drop_clean(self) -> None:
        """The page cache reads the file anew, once nothing is dirty; holes read as zeros."""
        self.cached = self.durable + bytes(len(self.cached) - len(self.durable))
        self._clean_size = len(self.cached)

    def lose_cache(self) -> None:
        self.cached = bytearray(self.durable)
        self._clean_size = len(self.cached)


@dataclass(slots=True)
class Folder:
    """Names as seen by processes, and as they would be found after a power loss."""

    cached: dict[str, "Node"] = field(default_factory=dict)
    durable: dict[str, "Node"] = field(default_factory=dict)


Node: TypeAlias = Inode | Folder


@dataclass(slots=True)
class _Fault:
    operation: str
    path_end: str
    errno: int
    times: int


class MemoryFile:
    """`runtime.api.File`."""

    def __init__(self, disk: "MemoryDisk", path: str, inode: Inode) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode
        self._commit = GroupCommit(self._start_flush)
        self._error: DiskError | None = None
        self._is_stopped = False
        self._is_closed = False

    @property
    def path(self) -> str:
        return self._path

    @property
    def size(self) -> int:
        return len(self._inode.cached)

    def append(self, buffers: Sequence[Buffer]) -> int:
        self._check("append")
        position = len(self._inode.cached)
        for buffer in buffers:
            self._inode.cached += buffer
        return position

    def read_at(self, position: int, size: int) -> bytes:
        assert position >= 0
        assert size >= 0
        self._check("read")
        return bytes(memoryview(self._inode.cached)[position : position + size])

    async def read_aside(self, position: int, size: int) -> bytes:
        await self._admitted("read")
        data = bytes(memoryview(self._inode.cached)[position : position + size])
        await _turn()
        return data

    async def flush(self) -> None:
        while True:
            self._check_usable()
            try:
                return await self._commit.commit()
            except OutOfResources:
                continue

    async def drop_cache(self) -> None:
        await self.flush()
        self._inode.drop_clean()

    async def truncate(self, size: int) -> None:
        assert 0 <= size <= self.size, f"truncate {self._path} to {size}, but it has {self.size} bytes"
        await self._admitted("truncate")
        await _turn()
        self._inode.truncate(size)

    async def rename(self, target: str) -> None:
        self._check_usable()
        await self._disk.rename(self._path, target)
        self._path = target

    async def close(self) -> None:
        self._is_closed = True

    def stop(self, error: DiskError) -> None:
        """Refuse everything from now on: the process that had opened the file is gone, or the disk is."""
        self._error = self._error or error
        self._is_stopped = True

    def _start_flush(self) -> "asyncio.Future[None]":
        run: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        start, dirty = self._inode.start_write_back()

        def finish() -> None:
            try:
                self._check("flush")
            except DiskError as error:
                if self._is_stopped or isinstance(error, OutOfResources):
                    self._inode.give_up_write_back(start)
                run.set_exception(error)
            else:
                self._inode.finish_write_back(start, dirty)
                self._disk.flush_count += 1
                run.set_result(None)

        self._disk.when_flushes_run(finish)
        return run

    def _check_usable(self) -> None:
        assert not self._is_closed, f"{self._path} is closed"
        if self._error is not None:
            raise self._error

    async def _admitted(self, operation: str) -> None:
        """Wait until there is a handle. Raises: DiskError."""
        while True:
            try:
                return self._check(operation)
            except OutOfResources:
                await _turn()

    def _check(self, operation: str) -> None:
        if self._error is not None:
            raise self._error
        assert not self._is_closed or operation == "flush", f"{self._path} is closed"
        try:
            self._disk.check_fault(operation, self._path)
        except OutOfResources:
            raise
        except DiskError as error:
            if operation != "read":
                self._error = error
            raise


class MemoryDisk:
    """`runtime.api.Disk`, and the handles by which a test plays the world."""

    def __init__(self) -> None:
        self._root = Folder()
        self._files: list[MemoryFile] = []
        self._locked: set[str] = set()
        self._faults: list[_Fault] = []
        self._held_flushes: list[Callable[[], None]] | None = None
        #: fsyncs that succeeded; several flushes may share one
        self.flush_count = 0
        #: what `space` says; the files do not count
        self.free_space = Space(1 << 40, 1 << 40)

    # --- what a test does to it -------------------------------------------------------------------------

    def power_loss(self, *, keeps_names: bool = False) -> None:
        """Forget all that was not made durable; with `keeps_names` the file system has written every change
        of a name by itself. Open files answer EIO from now on, locks are free."""
        self._end_process("power was lost")
        if keeps_names:
            _write_names(self._root)
        _lose_cache(self._root)

    def process_kill(self) -> None:
        """The process is gone, the page cache lives. Open files answer EIO from now on, locks are free."""
        self._end_process("the process was killed")

    def fail(self, operation: str, path_end: str, errno: int = errno_module.EIO, times: int = 1) -> None:
        """Let the next `times` calls of `operation` (append, read, flush, truncate, open, rename, unlink,
        make_folder, remove_folder, sync_folder, listdir, exists, space) on paths that end in `path_end` fail.
        Lack of handles or memory is met by as many tries."""
        self._faults.append(_Fault(operation, path_end, errno, times))

    def hold_flushes(self) -> None:
        """Let flushes that start from now on hang until `release_flushes`."""
        if self._held_flushes is None:
            self._held_flushes = []

    def release_flushes(self) -> None:
        held, self._held_flushes = self._held_flushes or [], None
        for finish in held:
            finish()

    def rot(self, path: str, change: Callable[[bytes], bytes]) -> None:
        """Exchange a file's bytes without any write: on the platter, and in the page cache of those that have
        the file open."""
        node = self._find(path)
        assert isinstance(node, Inode)
        node.durable[:] = change(bytes(node.cached))
        node.lose_cache()

    def durable_bytes(self, path: str) -> bytes | None:
        """What a power loss would leave of the file; None when its name would be gone."""
        node: Node | None = self._root
        for name in _names(path):
            node = node.durable.get(name) if isinstance(node, Folder) else None
        return bytes(node.durable) if isinstance(node, Inode) else None

    # --- Disk -------------------------------------------------------------------------------------------

    async def open(self, path: str, *, create: bool) -> MemoryFile:
        await self._begin("open", path)
        folder, name = self._parent("open", path)
        node = folder.cached.get(name)
        if node is None:
            if not create:
                raise _error(FileMissing, path, "open", errno_module.ENOENT)
            node = Inode()
            self._add_name(folder, name, node)
        if isinstance(node, Folder):
            raise _error(DiskError, path, "open", errno_module.EISDIR)
        file = MemoryFile(self, path, node)
        self._files.append(file)
        return file

    async def rename(self, source: str, target: str) -> None:
        await self._begin("rename", source)
        source_folder, source_name = self._parent("rename", source)
        target_folder, target_name = self._parent("rename", target)
        node = source_folder.cached.get(source_name)
        if node is None:
            raise _error(FileMissing, source, "rename", errno_module.ENOENT)
        replaced = target_folder.cached.get(target_name)
        if replaced is not None and isinstance(replaced, Folder) != isinstance(node, Folder):
            reason = errno_module.EISDIR if isinstance(replaced, Folder) else errno_module.ENOTDIR
            raise _error(DiskError, target, "rename", reason)
        if isinstance(replaced, Folder) and replaced is not node and replaced.cached:
            raise _error(DiskError, target, "rename", errno_module.ENOTEMPTY)
        del source_folder.cached[source_name]
        target_folder.cached[target_name] = node

    async def unlink(self, path: str) -> None:
        await self._begin("unlink", path)
        folder, name = self._parent("unlink", path)
        node = folder.cached.get(name)
        if node is None:
            raise _error(FileMissing, path, "unlink", errno_module.ENOENT)
        if isinstance(node, Folder):
            raise _error(DiskError, path, "unlink", errno_module.EISDIR)
        del folder.cached[name]

    async def make_folder(self, path: str) -> None:
        await self._begin("make_folder", path)
        folder = self._root
        for name in _names(path):
            _check_name("make_folder", path, name)
            node = folder.cached.get(name)
            if node is None:
                node = Folder()
                self._add_name(folder, name, node)
            if isinstance(node, Inode):
                raise _error(DiskError, path, "make_folder", errno_module.EEXIST)
            folder = node

    async def remove_folder(self, path: str) -> None:
        await self._begin("remove_folder", path)
        node = self._find(path)
        if node is None:
            return
        if isinstance(node, Inode):
            raise _error(DiskError, path, "remove_folder", errno_module.ENOTDIR)
        folder, name = self._parent("remove_folder", path)
        del folder.cached[name]

    async def sync_folder(self, path: str) -> None:
        await self._begin("sync_folder", path)
        folder = self._folder("sync_folder", path)
        folder.durable = dict(folder.cached)

    async def listdir(self, path: str) -> list[str]:
        await self._begin("listdir", path)
        return sorted(self._folder("listdir", path).cached)

    async def exists(self, path: str) -> bool:
        await self._begin("exists", path)
        return self._find(path) is not None

    async def space(self, path: str) -> Space:
        await self._begin("space", path)
        self._folder("space", path)
        return self.free_space

    async def lock_folder(self, path: str) -> None:
        await self._begin("lock_folder", path)
        folder = self._folder("lock_folder", path)
        where = posixpath.join("/", *_names(path))
        if where in self._locked:
            raise DiskError(
                path, "lock_folder", errno_module.EWOULDBLOCK, "another process is using this folder"
            )
        self._locked.add(where)
        folder.cached.setdefault(".lock", Inode())

    # --- inside -----------------------------------------------------------------------------------------

    def when_flushes_run(self, finish: Callable[[], None]) -> None:
        """Run `finish` on a later turn of the event loop, or once flushes are released."""
        if self._held_flushes is None:
            asyncio.get_running_loop().call_soon(finish)
        else:
            self._held_flushes.append(finish)

    def check_fault(self, operation: str, path: str) -> None:
        for fault in self._faults:
            if fault.operation == operation and path.endswith(fault.path_end):
                fault.times -= 1
                if fault.times == 0:
                    self._faults.remove(fault)
                raise _error(DiskError, path, operation, fault.errno)

    async def _begin(self, operation: str, path: str) -> None:
        while True:
            await _turn()
            try:
                self.check_fault(operation, path)
            except OutOfResources:
                continue
            return

    def _find(self, path: str) -> Node | None:
        node: Node = self._root
        for name in _names(path):
            if isinstance(node, Inode) or name not in node.cached:
                return None
            node = node.cached[name]
        return node

    def _folder(self, operation: str, path: str) -> Folder:
        node = self._find(path)
        if node is None:
            raise _error(FileMissing, path, operation, errno_module.ENOENT)
        if isinstance(node, Inode):
            raise _error(DiskError, path, operation, errno_module.ENOTDIR)
        return node

    def _parent(self, operation: str, path: str) -> tuple[Folder, str]:
        names = _names(path)
        assert names, f"{operation} of the root"
        node = self._find("/" + "/".join(names[:-1]))
        if node is None:
            raise _error(FileMissing, path, operation, errno_module.ENOENT)
        if isinstance(node, Inode):
            raise _error(DiskError, path, operation, errno_module.ENOTDIR)
        _check_name(operation, path, names[-1])
        return node, names[-1]

    def _add_name(self, folder: Folder, name: str, node: Node) -> None:
        folder.cached[name] = node
        if folder is self._root:
            folder.durable[name] = node

    def _end_process(self, reason: str) -> None:
        for file in self._files:
            file.stop(DiskError(file.path, "use", errno_module.EIO, reason))
        self._files.clear()
        self._locked.clear()
        self.release_flushes()


def _names(path: str) -> list[str]:
    return [name for name in posixpath.normpath(path).split("/") if name not in ("", ".")]


def _check_name(operation: str, path: str, name: str) -> None:
    if len(name.encode()) > NAME_BYTES_MAX:
        raise _error(DiskError, path, operation, errno_module.ENAMETOOLONG)


def _write_names(folder: Folder) -> None:
    folder.durable = dict(folder.cached)
    for child in folder.cached.values():
        if isinstance(child, Folder):
            _write_names(child)


def _lose_cache(node: Node) -> None:
    if isinstance(node, Inode):
        node.lose_cache()
        return
    node.cached = dict(node.durable)
    for child in node.cached.values():
        _lose_cache(child)


def _error(kind: type[DiskError], path: str, operation: str, errno: int) -> DiskError:
    if is_shortage(operation, errno):
        kind = OutOfResources
    return kind(path, operation, errno, os.strerror(errno))


async def _turn() -> None:
    """Let others run, as every real file operation but append and read does."""
    await asyncio.sleep(0)
