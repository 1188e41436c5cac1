"""Files of this machine. Appends and reads are page-cache calls on the event loop; all else runs in threads.

Owns the threads, the sharing of fsyncs (at most one in flight a file) and the mapping of OSError. A file that
failed to append, flush or truncate refuses everything afterwards: after a failed fsync Linux marks the dirty
pages clean, so a second try would succeed without having written them (A-20).
"""

import asyncio
import contextlib
import errno as errno_module
import fcntl
import os
import shutil
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn, TypeVar

from holdfast.runtime.api import Buffer, DiskError, FileMissing
from holdfast.runtime.real.group_commit import GroupCommit

#: fsyncs in flight over all files and folders; file systems commit many of them together
FLUSH_THREADS = 8
#: opens, renames and the like never wait behind a hanging fsync
NAME_THREADS = 2
_BUFFERS_MAX = os.sysconf("SC_IOV_MAX")

T = TypeVar("T")


class RealFile:
    """`runtime.api.File` on a file descriptor."""

    def __init__(self, path: str, descriptor: int, size: int, flushes: ThreadPoolExecutor) -> None:
        self._path = path
        self._descriptor = descriptor
        self._size = size
        self._flushes = flushes
        self._commit = GroupCommit(self._start_flush)
        self._error: DiskError | None = None
        #: the truncation under way
        self._cutting: asyncio.Future[None] | None = None
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
        try:
            written = os.pwritev(self._descriptor, buffers, position)
            self._size = position + written
            if written != size:
                self._write_rest(b"".join(buffers), written)
        except OSError as error:
            self._fail("append", error)
        return position

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
        try:
            data = os.pread(self._descriptor, size, position)
            while len(data) < size and position + len(data) < self._size:
                more = os.pread(self._descriptor, size - len(data), position + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise _disk_error(self._path, "read", error) from error
        return data

    async def flush(self) -> None:
        self._check_usable()
        await self._commit.commit()

    async def drop_cache(self) -> None:
        await self.flush()
        if hasattr(os, "posix_fadvise"):  # not on macOS, whose cache stays as it is
            await asyncio.get_running_loop().run_in_executor(
                self._flushes, os.posix_fadvise, self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED
            )

    async def truncate(self, size: int) -> None:
        self._check_usable()
        assert 0 <= size <= self._size, f"truncate {self._path} to {size}, but it has {self._size} bytes"
        assert self._cutting is None, f"two truncations of {self._path} at once"
        loop = asyncio.get_running_loop()
        # Not cancellable half way: the size must agree with the file also when the caller is cancelled.
        cut = self._cutting = loop.run_in_executor(self._flushes, self._cut_now, size)
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

    async def _cuts_ended(self) -> None:
        """Wait until no truncation is under way; one that was cancelled may be. Raises nothing."""
        while self._cutting is not None:
            # Not `await`: awaiting what is done runs no other task, and `_cutting` would stay as it is.
            await asyncio.wait([self._cutting])

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        # The descriptor's number may be given away again at once: threads must be done with it.
        await self._commit.idle()
        await self._cuts_ended()
        descriptor, self._descriptor = self._descriptor, -1
        self._let_go(descriptor)

    def _let_go(self, descriptor: int) -> None:
        os.close(descriptor)

    def _start_flush(self) -> "asyncio.Future[None]":
        return asyncio.get_running_loop().run_in_executor(self._flushes, self._flush_now)

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

    def __init__(self) -> None:
        self._flushes = _started(FLUSH_THREADS, "flush")
        self._names = _started(NAME_THREADS, "disk")
        #: descriptors of `.lock` files: the kernel frees them when the process ends, however it ends
        self._locks: list[int] = []

    async def open(self, path: str, *, create: bool) -> RealFile:
        return await self._call("open", path, lambda: self._open(path, create))

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

    async def lock_folder(self, path: str) -> None:
        self._locks.append(await self._call("lock_folder", path, lambda: _lock_folder(path)))

    # What runs in threads. Raises: OSError.

    def _open(self, path: str, create: bool) -> RealFile:
        descriptor, size = open_file(path, os.O_CREAT if create else 0)
        return RealFile(path, descriptor, size, self._flushes)

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
        try:
            return await asyncio.get_running_loop().run_in_executor(threads or self._names, work)
        except OSError as error:
            raise _disk_error(path, operation, error) from error


def open_file(path: str, flags: int) -> tuple[int, int]:
    """Descriptor and size of a file. Raises: OSError."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | flags, 0o644)
    return descriptor, os.fstat(descriptor).st_size


def _exists(path: str) -> bool:
    """Not `lexists`, for which what the disk cannot read is not there. Raises: OSError."""
    try:
        os.lstat(path)
    except OSError as error:
        if error.errno not in (errno_module.ENOENT, errno_module.ENOTDIR, errno_module.ENAMETOOLONG):
            raise
        return False
    return True


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


def _disk_error(path: str, operation: str, error: OSError) -> DiskError:
    kind = FileMissing if error.errno == errno_module.ENOENT else DiskError
    return kind(path, operation, error.errno or errno_module.EIO, error.strerror or str(error))


def _started(count: int, name: str) -> ThreadPoolExecutor:
    """Threads that run already: one that starts later may find no memory for its stack, in the middle of a
    write that other threads of the pool then do all the same."""
    pool = ThreadPoolExecutor(count, thread_name_prefix=name)
    all_run = threading.Barrier(count + 1)
    for _ in range(count):
        pool.submit(all_run.wait)
    all_run.wait()
    return pool
