"""Files of this machine, and what of them would not survive a power loss.

Owns the order of steps and notes in the journal (`runtime.power.unsynced`): what a step destroys is kept
before the step, and what it makes durable is noted before the caller hears of it. What happens to the data is
`runtime.real.disk`; only `localcluster.power.tracked` ever takes anything back. Names are durable by
`sync_folder` alone, those of flushed files too: stricter than the file systems of Linux, as the contract of
`Disk` is. Files on another device than the journal are plain files; a move between folders is durable at
once.
"""

import asyncio
import contextlib
import errno
import os
import stat
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from holdfast.runtime.power.unsynced import MAKE, REMOVE, RENAME, Cut, Unsynced
from holdfast.runtime.real.disk import Opened, RealDisk, RealFile, open_file
from holdfast.runtime.real.handles import Handles


class TrackedFile(RealFile):
    """A `RealFile` that tells the journal what is durable."""

    __slots__ = ("_inode", "_journal")

    def __init__(
        self, path: str, opened: Opened, handles: Handles, flushes: ThreadPoolExecutor, journal: Unsynced
    ) -> None:
        super().__init__(path, opened, handles, flushes)
        self._journal = journal
        _, self._inode = opened.identity

    async def flush(self) -> None:
        # What a flush covers must be certain, so it never overlaps a truncation.
        await self._cuts_ended()
        await super().flush()

    async def truncate(self, size: int) -> None:
        while not self._commit.is_idle:
            await self._commit.idle()
        await super().truncate(size)

    def _start_flush(self) -> "asyncio.Future[None]":
        size, cuts = self._size, self._journal.cuts(self._inode)
        return self._flush_in_thread(self._flush_tracked, size, cuts)

    def _flush_tracked(self, size: int, cuts: Sequence[Cut]) -> None:
        self._flush_now()
        self._journal.flushed(self._inode, size, cuts)

    def _cut_now(self, size: int) -> None:
        self._journal.save_cut(self._inode, self._descriptor, size)
        super()._cut_now(size)

    def _rename_now(self, target: str) -> None:
        if _folder_of(self._path) != _folder_of(target):
            raise OSError(errno.EXDEV, "an open file keeps its folder")
        _rename_noted(self._journal, self._path, target)
        self._path = target

    def _let_go(self, descriptor: int) -> None:
        is_gone = descriptor >= 0 and os.fstat(descriptor).st_nlink == 0
        super()._let_go(descriptor)
        self._journal.rest(self._inode, self._size, is_gone=is_gone)


class TrackedDisk(RealDisk):
    """A `RealDisk` whose journal is in `folder`; no other process may use that folder while this process
    lives."""

    def __init__(self, folder: str, handle_limit: int | None = None) -> None:
        super().__init__(handle_limit)
        self._journal = Unsynced(folder)

    def _open(self, path: str, create: bool) -> RealFile:
        with self._journal.lock:
            opened, is_new = _open_or_make(path, create)
            status = os.fstat(opened.descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_dev != self._journal.device:
                return RealFile(path, opened, self._handles, self._flushes)
            if is_new:
                self._journal.forget(status.st_ino)
                self._journal.note(MAKE, _folder_of(path), os.path.basename(path), status.st_ino)
            self._journal.watch(status.st_ino, opened.size)
            return TrackedFile(path, opened, self._handles, self._flushes, self._journal)

    def _rename(self, source: str, target: str) -> None:
        if not self._is_tracked(source):
            super()._rename(source, target)
            return
        if _folder_of(source) != _folder_of(target):
            super()._rename(source, target)
            for path in (source, target):
                super()._sync_folder(os.path.dirname(path) or ".")
            return
        _rename_noted(self._journal, source, target)

    def _unlink(self, path: str) -> None:
        if not self._is_tracked(path):
            super()._unlink(path)
            return
        with self._journal.lock:
            inode = os.lstat(path).st_ino
            os.link(path, self._journal.grave(self._journal.next_grave()))
            self._journal.note(REMOVE, _folder_of(path), os.path.basename(path), inode, has_grave=True)
            super()._unlink(path)

    def _make_folder(self, path: str) -> None:
        path = os.path.normpath(path)
        with self._journal.lock:
            missing = []
            while not os.path.isdir(path):
                missing.append(path)
                path = os.path.dirname(path) or "."
            for level in reversed(missing):
                os.mkdir(level)
                status = os.lstat(level)
                if status.st_dev == self._journal.device:
                    self._journal.note(MAKE, _folder_of(level), os.path.basename(level), status.st_ino)

    def _remove_folder(self, path: str) -> None:
        if not os.path.lexists(path) or not self._is_tracked(path):
            super()._remove_folder(path)
            return
        with self._journal.lock:
            inode = os.stat(os.path.join(path, "")).st_ino
            grave = self._journal.grave(self._journal.next_grave())
            self._journal.note(REMOVE, _folder_of(path), os.path.basename(path), inode, has_grave=True)
            os.rename(path, grave)

    def _sync_folder(self, path: str) -> None:
        number = self._journal.last_number()
        super()._sync_folder(path)
        self._journal.folder_synced(os.stat(path).st_ino, number)

    def _is_tracked(self, path: str) -> bool:
        return os.lstat(path).st_dev == self._journal.device


def _open_or_make(path: str, create: bool) -> tuple[Opened, bool]:
    """The file, and whether it was made just now."""
    if create:
        with contextlib.suppress(FileExistsError):
            return open_file(path, os.O_CREAT | os.O_EXCL), True
    return open_file(path, 0), False


def _rename_noted(journal: Unsynced, source: str, target: str) -> None:
    """Rename within a folder. Raises: OSError."""
    with journal.lock:
        inode = os.lstat(source).st_ino
        has_grave = os.path.isfile(target)
        if has_grave:
            os.link(target, journal.grave(journal.next_grave()))
        journal.note(
            RENAME,
            _folder_of(source),
            os.path.basename(source),
            inode,
            target=os.path.basename(target),
            has_grave=has_grave,
        )
        os.rename(source, target)


def _folder_of(path: str) -> int:
    return os.stat(os.path.dirname(path) or ".").st_ino
