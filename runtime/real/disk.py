"""Files of this machine. Appends and reads are page-cache calls on the event loop; all else runs in threads.

Owns the threads, the sharing of fsyncs (at most one in flight a file) and the mapping of OSError. A file has
a descriptor only while it is in use or was lately (`runtime.real.handles`), and it is the same file when it
is opened again. A file that failed to append, flush or truncate refuses everything afterwards: after a failed
fsync Linux marks the dirty pages clean, so a second try would succeed without having written them (A-20).
"""

import asyncio
import contextlib
import errno as errno_module
import fcntl
import mmap
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple, NoReturn, TypeVar, TypeVarTuple

from holdfast.runtime.api import Buffer, DiskError, FileMissing, OutOfResources, Space
from holdfast.runtime.core.shortage import is_shortage
from holdfast.runtime.real.group_commit import GroupCommit
from holdfast.runtime.real.handles import Handles

#: fsyncs in flight over all files and folders; file systems commit many of them together
FLUSH_THREADS = 8
#: opens, renames and the like never wait behind a hanging fsync
NAME_THREADS = 2
_BUFFERS_MAX = os.sysconf("SC_IOV_MAX")

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Opened(NamedTuple):
    """A file that was opened just now, and what it is: device and inode."""

    descriptor: int
    size: int
    identity: tuple[int, int]


class RealFile:
    """`runtime.api.File` on a file descriptor."""

    __slots__ = (
        "_aside",
        "_commit",
        "_cutting",
        "_descriptor",
        "_error",
        "_flushes",
        "_handles",
        "_identity",
        "_is_closed",
        "_is_unflushed",
        "_path",
        "_size",
    )

    def __init__(self, path: str, opened: Opened, handles: Handles, flushes: ThreadPoolExecutor) -> None:
        self._path = path
        #: -1 while it has none; `hold` pins it for a thread
        self._descriptor = opened.descriptor
        self._size = opened.size
        self._identity = opened.identity
        self._handles = handles
        self._flushes = flushes
        self._commit = GroupCommit(self._start_flush)
        #: something was appended and no flush has started since
        self._is_unflushed = False
        self._error: DiskError | None = None
        #: the truncation under way
        self._cutting: asyncio.Future[None] | None = None
        #: nothing is read or dropped aside
        self._aside: asyncio.Event | None = None
        self._is_closed = False

    @property
    def path(self) -> str:
        return self._path

    @property
    def size(self) -> int:
        return self._size

    def append(self, buffers: Sequence[Buffer]) -> int:
        self._check_usable()
        assert self._cutting is None, f"append to {self._path} while it is being truncated"
        position = self._size
        if len(buffers) > _BUFFERS_MAX:
            buffers = [b"".join(buffers)]
        size = sum(map(len, buffers))
        descriptor = self._ready()
        if not self._is_unflushed:
            self._is_unflushed = True
            self._handles.lru.wrote(self)
        try:
            written = os.pwritev(descriptor, buffers, position)
            self._size = position + written
            if written != size:
                self._write_rest(b"".join(buffers), written)
        except OSError as error:
            if is_shortage("append", error.errno or 0) and self._took_back(position):
                raise _disk_error(self._path, "append", error) from error
            self._fail("append", error)
        return position

    def _took_back(self, position: int) -> bool:
        """Whether the file ends at `position` again: a part of the append may be written."""
        if self._size > position:
            try:
                os.ftruncate(self._descriptor, position)
            except OSError:
                return False
            self._size = position
        return True

    def _write_rest(self, data: bytes, written: int) -> None:
        """Go on after a short write: the next try says why, when there is a reason."""
        with memoryview(data) as view:
            while written < len(view):
                step = os.pwrite(self._descriptor, view[written:], self._size)
                if step == 0:
                    raise OSError(errno_module.EIO, "the file takes no more bytes")
                written += step
                self._size += step

    def read_at(self, position: int, size: int) -> bytes:
        assert position >= 0
        assert size >= 0
        self._check_usable()
        descriptor = self._ready()
        try:
            data = os.pread(descriptor, size, position)
            while len(data) < size and position + len(data) < self._size:
                more = os.pread(descriptor, size - len(data), position + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise _disk_error(self._path, "read", error) from error
        return data

    async def read_aside(self, position: int, size: int) -> bytes:
        self._check_usable()
        return await self._beside(self._read_aside_now, position, size)

    def _read_aside_now(self, position: int, size: int) -> bytes:
        """Runs in a thread."""
        data = b""
        while len(data) < size:
            more = os.pread(self._descriptor, size - len(data), position + len(data))
            if not more:
                break
            data += more
        _forget(self._descriptor, position, size)
        return data

    async def _beside(self, work: Callable[[*Ts], T], *args: *Ts) -> T:
        """The result of `work` in a thread that has the descriptor; `close` waits for it. Raises:
        DiskError."""
        with self._kept_open():
            try:
                await self._handles.waited_out(self._hold)
                return await self._in_thread(work, *args)
            except OSError as error:
                raise _disk_error(self._path, "read", error) from error

    @contextmanager
    def _kept_open(self) -> Iterator[None]:
        """`close` waits until this is over."""
        assert self._aside is None, f"{self._path} is read aside already"
        over = self._aside = asyncio.Event()
        try:
            yield
        finally:
            self._aside = None
            over.set()

    async def flush(self) -> None:
        await self._handles.waited_out(self._flush_once)

    async def _flush_once(self) -> None:
        self._check_usable()
        await self._commit.commit()

    async def drop_cache(self) -> None:
        with self._kept_open():
            await self.flush()
            await self._handles.waited_out(self._hold)
            await self._in_thread(self._forget_now)

    def _forget_now(self) -> None:
        """Runs in a thread."""
        _forget(self._descriptor, 0, 0)

    async def truncate(self, size: int) -> None:
        self._check_usable()
        await self._handles.waited_out(self._hold)
        assert 0 <= size <= self._size, f"truncate {self._path} to {size}, but it has {self._size} bytes"
        assert self._cutting is None, f"two truncations of {self._path} at once"
        # Not cancellable half way: the size must agree with the file also when the caller is cancelled.
        cut = self._cutting = self._in_thread(self._cut_now, size)
        cut.add_done_callback(lambda cut: self._truncated(size, cut))
        try:
            await asyncio.shield(cut)
        except OSError as error:
            self._fail("truncate", error)
        finally:
            # What is done already is not waited for, and its callback has not run yet (from Python 3.14 on).
            if cut.done():
                self._truncated(size, cut)

    def _cut_now(self, size: int) -> None:
        """Runs in a thread."""
        os.ftruncate(self._descriptor, size)

    def _truncated(self, size: int, cut: "asyncio.Future[None]") -> None:
        """Told by the future and by who waited for it; the first counts."""
        if self._cutting is not cut:
            return
        self._cutting = None
        error = cut.exception()
        if error is None:
            self._size = size
        elif isinstance(error, OSError):
            self._error = self._error or _disk_error(self._path, "truncate", error)

    async def rename(self, target: str) -> None:
        self._check_usable()
        await self._handles.waited_out(self._hold)
        try:
            await self._in_thread(self._rename_now, target)
        except OSError as error:
            raise _disk_error(self._path, "rename", error) from error

    def _rename_now(self, target: str) -> None:
        """Runs in a thread. The descriptor is pinned until the file is found by its new name."""
        os.rename(self._path, target)
        self._path = target

    async def _cuts_ended(self) -> None:
        """Wait until no truncation is under way; one that was cancelled may be. Raises nothing."""
        while self._cutting is not None:
            # Not `await`: awaiting what is done runs no other task, and `_cutting` would stay as it is.
            await asyncio.wait([self._cutting])

    async def close(self) -> None:
        # What is read or flushed aside needs the file, perhaps as soon as there is a handle again.
        while self._aside is not None:
            await self._aside.wait()
        if self._is_closed:
            return
        self._is_closed = True
        # The descriptor's number may be given away again at once: threads must be done with it.
        await self._commit.idle()
        await self._cuts_ended()
        self._handles.lru.closed(self)
        descriptor, self._descriptor = self._descriptor, -1
        self._let_go(descriptor)

    def _let_go(self, descriptor: int) -> None:
        """The file is closed; -1: it had no descriptor."""
        if descriptor >= 0:
            os.close(descriptor)

    # --- the descriptor ---------------------------------------------------------------------------------

    def _ready(self) -> int:
        """The descriptor, for use before the event loop goes on. Raises: OutOfResources, DiskError."""
        if self._descriptor >= 0:
            self._handles.lru.used(self)
        else:
            self._open_again()
        return self._descriptor

    def _open_again(self) -> None:
        self._handles.make_room()
        try:
            opened = self._opened_again()
        except OSError as error:
            raise _disk_error(self._path, "open", error, DiskError) from error
        if opened.identity != self._identity:
            os.close(opened.descriptor)
            raise DiskError(self._path, "open", errno_module.ESTALE, "another file has taken its name")
        self._descriptor = opened.descriptor
        self._handles.opened(self, is_clean=not self._is_unflushed)

    def _opened_again(self) -> Opened:
        while True:
            try:
                return open_file(self._path, 0)
            except OSError as error:
                if not (is_shortage("open", error.errno or 0) and self._handles.close_some()):
                    raise

    def give_up_handle(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        try:
            os.close(descriptor)
        except OSError as error:  # of a file system that writes when a file is closed
            self._error = self._error or _disk_error(self._path, "flush", error)

    async def _hold(self) -> None:
        self._pin()

    def _pin(self) -> None:
        """Have a descriptor, and pin it for the thread that `_in_thread` starts next. Raises:
        OutOfResources, DiskError."""
        if not self._handles.lru.may_pin:
            raise OutOfResources(self._path, "open", errno_module.EMFILE, "all file handles are in use")
        self._ready()
        self._handles.lru.pin(self)

    def _in_thread(self, work: Callable[[*Ts], T], *args: *Ts) -> "asyncio.Future[T]":
        """Run `work` in a thread with the descriptor that is pinned; it is free afterwards."""
        run = asyncio.get_running_loop().run_in_executor(self._flushes, work, *args)
        run.add_done_callback(self._release)
        return run

    def _release(self, run: "asyncio.Future[T]") -> None:
        self._handles.lru.unpin(self, is_clean=not self._is_unflushed)
        self._handles.make_room(0)

    def _start_flush(self) -> "asyncio.Future[None]":
        return self._flush_in_thread(self._flush_now)

    def _flush_in_thread(self, work: Callable[[*Ts], None], *args: *Ts) -> "asyncio.Future[None]":
        try:
            self._pin()
        except DiskError as error:
            refused: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            refused.set_exception(error)
            return refused
        self._is_unflushed = False
        return self._in_thread(work, *args)

    def _flush_now(self) -> None:
        """Runs in a thread."""
        if self._error is not None:
            raise self._error
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            self._fail("flush", error)

    def _fail(self, operation: str, error: OSError) -> NoReturn:
        self._error = self._error or _disk_error(self._path, operation, error)
        raise self._error from error

    def _check_usable(self) -> None:
        assert not self._is_closed, f"{self._path} is closed"
        if self._error is not None:
            raise self._error


class RealDisk:
    """`runtime.api.Disk`."""

    def __init__(self, handle_limit: int | None = None) -> None:
        """`handle_limit`: how many files may have a descriptor at a time; None: as many as the system
        gives."""
        self._handles = Handles(handle_limit)
        self._flushes = started_threads(FLUSH_THREADS, "flush")
        self._names = started_threads(NAME_THREADS, "disk")
        #: descriptors of `.lock` files: the kernel frees them when the process ends, however it ends
        self._locks: list[int] = []

    @property
    def open_handles(self) -> int:
        """Descriptors that files have now."""
        return len(self._handles.lru)

    async def open(self, path: str, *, create: bool) -> RealFile:
        async with self._handles.opening:
            self._handles.make_room()
            file = await self._call("open", path, lambda: self._open(path, create))
            self._handles.opened(file, is_clean=True)
        return file

    async def rename(self, source: str, target: str) -> None:
        await self._call("rename", source, lambda: self._rename(source, target))

    async def unlink(self, path: str) -> None:
        await self._call("unlink", path, lambda: self._unlink(path))

    async def make_folder(self, path: str) -> None:
        await self._call("make_folder", path, lambda: self._make_folder(path))

    async def remove_folder(self, path: str) -> None:
        await self._call("remove_folder", path, lambda: self._remove_folder(path))

    async def sync_folder(self, path: str) -> None:
        await self._call("sync_folder", path, lambda: self._sync_folder(path), self._flushes)

    async def listdir(self, path: str) -> list[str]:
        return sorted(await self._call("listdir", path, lambda: os.listdir(path)))

    async def exists(self, path: str) -> bool:
        return await self._call("exists", path, lambda: _exists(path))

    async def space(self, path: str) -> Space:
        return await self._call("space", path, lambda: _space(path))

    async def lock_folder(self, path: str) -> None:
        self._locks.append(await self._call("lock_folder", path, lambda: _lock_folder(path)))

    # What runs in threads. Raises: OSError.

    def _open(self, path: str, create: bool) -> RealFile:
        return RealFile(path, open_file(path, os.O_CREAT if create else 0), self._handles, self._flushes)

    def _rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def _unlink(self, path: str) -> None:
        os.unlink(path)

    def _make_folder(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def _remove_folder(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)

    def _sync_folder(self, path: str) -> None:
        sync_folder(path)

    async def _call(
        self, operation: str, path: str, work: Callable[[], T], threads: ThreadPoolExecutor | None = None
    ) -> T:
        async def attempt() -> T:
            try:
                return await asyncio.get_running_loop().run_in_executor(threads or self._names, work)
            except OSError as error:
                raise _disk_error(path, operation, error) from error

        return await self._handles.waited_out(attempt)


def open_file(path: str, flags: int) -> Opened:
    """Raises: OSError."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | flags, 0o644)
    try:
        status = os.fstat(descriptor)
    except OSError:
        os.close(descriptor)
        raise
    return Opened(descriptor, status.st_size, (status.st_dev, status.st_ino))


def _exists(path: str) -> bool:
    """Not `lexists`, for which what the disk cannot read is not there. Raises: OSError."""
    try:
        os.lstat(path)
    except OSError as error:
        if error.errno not in (errno_module.ENOENT, errno_module.ENOTDIR, errno_module.ENAMETOOLONG):
            raise
        return False
    return True


def _forget(descriptor: int, position: int, size: int) -> None:
    """Let the page cache forget whole pages of a range that are written; size 0: all from there on. Raises:
    OSError."""
    if hasattr(os, "posix_fadvise"):  # not on macOS, whose cache stays as it is
        start = position - position % mmap.PAGESIZE
        os.posix_fadvise(descriptor, start, size and position + size - start, os.POSIX_FADV_DONTNEED)


def _space(path: str) -> Space:
    status = os.statvfs(path)
    return Space(status.f_bavail * status.f_frsize, status.f_blocks * status.f_frsize)


def sync_folder(path: str) -> None:
    """Make the names in a folder durable. Raises: OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _lock_folder(path: str) -> int:
    descriptor = os.open(os.path.join(path, ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if error.errno == errno_module.EWOULDBLOCK:
            raise OSError(error.errno, "another process is using this folder") from error
        raise
    return descriptor


def _disk_error(
    path: str, operation: str, error: OSError, missing: type[DiskError] = FileMissing
) -> DiskError:
    number = error.errno or errno_module.EIO
    kind = missing if number == errno_module.ENOENT else DiskError
    if is_shortage(operation, number):
        kind = OutOfResources
    return kind(path, operation, number, error.strerror or str(error))


def started_threads(count: int, name: str) -> ThreadPoolExecutor:
    """Threads that run already: one that starts later may find no memory for its stack, in the middle of a
    write that other threads of the pool then do all the same."""
    pool = ThreadPoolExecutor(count, thread_name_prefix=name)
    all_run = threading.Barrier(count + 1)
    for _ in range(count):
        pool.submit(all_run.wait)
    all_run.wait()
    return pool
