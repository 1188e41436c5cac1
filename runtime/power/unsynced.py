"""What a machine would lose with its power now: a journal beside the data, which outlives the process.

Owns one folder: `sizes`, a mapped table of (inode, durable bytes); `names`, a mapped log of the changes of
names that no sync of their folder has covered; `cuts`, the durable bytes that truncations took; `grave`, what
unlinks, removals and renames would have destroyed. An inode that is not in the table is durable as it is. A
SIGKILL between any two steps leaves it true: an entry is published by one aligned store of 8 bytes or a
rename. Never touches the data itself. Its calls may come from any thread.
"""

import json
import mmap
import os
import shutil
import struct
import threading
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass

_SLOT = struct.Struct("=QQ")
_SIZES_BYTES = _SLOT.size << 12
_NAMES_BYTES = 1 << 18
_WORD = 8
_COPY_BYTES = 1 << 20

MAKE, RENAME, REMOVE = "make", "rename", "remove"
_SYNC = "sync"


@dataclass(frozen=True, slots=True)
class NameChange:
    """One change of a name in a folder; numbers rise in the order in which processes saw them."""

    number: int
    #: MAKE, RENAME or REMOVE
    kind: str
    #: inode of the folder
    folder: int
    name: str
    #: what the name meant, or means since
    inode: int
    #: the new name of a rename
    target: str = ""
    #: where in the grave that is which the change would have destroyed; 0: nothing
    grave: int = 0


@dataclass(frozen=True, slots=True)
class Cut:
    """Durable bytes [start, end) of a file that a truncation took and no flush has confirmed."""

    inode: int
    start: int
    end: int


class Unsynced:
    """The journal in one folder. Only one process at a time may have it open."""

    def __init__(self, folder: str) -> None:
        """Make it, or find what an earlier process has left."""
        self.folder = folder
        #: of names; to be held over a change and its note, so that their orders agree
        self.lock = threading.RLock()
        #: of sizes and cuts: never held for long, since the event loop takes it too
        self._lock = threading.RLock()
        for name in ("cuts", "grave"):
            os.makedirs(os.path.join(folder, name), exist_ok=True)
        self.device = os.stat(folder).st_dev
        self._sizes = _Mapped(os.path.join(folder, "sizes"), _SIZES_BYTES)
        self._free: list[int] = []
        self._slots: dict[int, int] = {}
        #: how often files are open
        self._handles: dict[int, int] = {}
        self._load_sizes()
        self._cuts: dict[int, list[Cut]] = {}
        self._load_cuts()
        self._names = _Mapped(os.path.join(folder, "names"), _NAMES_BYTES)
        self._names_end = 0
        self._number = 0
        #: by folder, oldest first
        self._changes: dict[int, list[NameChange]] = {}
        self._load_names()
        self._remove_strangers()

    # --- bytes of files --------------------------------------------------------------------------------

    def files(self) -> list[int]:
        """Inodes of the files that are in the table, sorted."""
        with self._lock:
            return sorted(self._slots)

    def durable_size(self, inode: int) -> int | None:
        """How much of the file as it is now is durable; None: all of it."""
        with self._lock:
            slot = self._slots.get(inode)
            return None if slot is None else self._sizes.words[2 * slot + 1]

    def cuts(self, inode: int) -> tuple[Cut, ...]:
        """What truncations took off the end, from the end on: together they are one run of bytes."""
        with self._lock:
            return tuple(self._cuts.get(inode, ()))

    def cut_bytes(self, cut: Cut) -> str:
        """Path of the file that holds the bytes of a cut."""
        return os.path.join(self.folder, "cuts", f"{cut.inode}-{cut.start}-{cut.end}")

    def watch(self, inode: int, size: int) -> None:
        """The file is opened; if it is not known, all its `size` bytes are durable."""
        with self._lock:
            self._handles[inode] = self._handles.get(inode, 0) + 1
            if inode in self._slots:
                return
            if not self._free:
                first = len(self._sizes.words) // 2
                self._sizes.grow()
                self._free = list(range(len(self._sizes.words) // 2 - 1, first - 1, -1))
            slot = self._slots[inode] = self._free.pop()
            self._sizes.words[2 * slot + 1] = size
            self._sizes.words[2 * slot] = inode

    def flushed(self, inode: int, size: int, cuts: Sequence[Cut]) -> None:
        """A flush that began with `size` bytes and after these `cuts` is done."""
        with self._lock:
            self._drop_cuts(inode, cuts)
            word = 2 * self._slots[inode] + 1
            self._sizes.words[word] = max(self._sizes.words[word], size)

    def save_cut(self, inode: int, descriptor: int, size: int) -> None:
        """The file is about to be truncated to `size`: keep what is durable behind it."""
        durable = self.durable_size(inode)
        assert durable is not None, f"inode {inode} is written to and is not watched"
        if size >= durable:
            return
        cut = Cut(inode, size, durable)
        path = self.cut_bytes(cut)
        _copy(descriptor, cut.start, cut.end, path + ".new")
        with self._lock:
            os.rename(path + ".new", path)
            self._cuts.setdefault(inode, []).append(cut)
            self._sizes.words[2 * self._slots[inode] + 1] = size

    def rest(self, inode: int, size: int, *, is_gone: bool) -> None:
        """The file is closed. Once it is open no more, what is durable as it is need not be known."""
        with self._lock:
            self._handles[inode] -= 1
            if self._handles[inode]:
                return
            del self._handles[inode]
            if is_gone or (self.durable_size(inode) == size and not self._cuts.get(inode)):
                self.forget(inode)

    def forget(self, inode: int) -> None:
        """The file is gone for good, or it has just been made: its number may have been another's."""
        with self._lock:
            if inode in self._handles:
                return
            slot = self._slots.pop(inode, None)
            if slot is not None:
                self._sizes.words[2 * slot] = 0
                self._free.append(slot)
            self._drop_cuts(inode, self._cuts.get(inode, ()))

    def _drop_cuts(self, inode: int, cuts: Iterable[Cut]) -> None:
        left = [cut for cut in self._cuts.pop(inode, ()) if cut not in cuts]
        if left:
            self._cuts[inode] = left
        for cut in cuts:
            os.unlink(self.cut_bytes(cut))

    # --- names -----------------------------------------------------------------------------------------

    def changes(self) -> list[NameChange]:
        """The changes of names that a power loss may take back, oldest first."""
        with self.lock:
            every = [change for changes in self._changes.values() for change in changes]
            return sorted(every, key=lambda change: change.number)

    def next_grave(self) -> int:
        """A number that no change has yet; the change that is noted next takes it."""
        return self._number + 1

    def grave(self, number: int) -> str:
        """Path of what change `number` would have destroyed."""
        return os.path.join(self.folder, "grave", str(number))

    def note(
        self, kind: str, folder: int, name: str, inode: int, *, target: str = "", has_grave: bool = False
    ) -> None:
        """A name was made, or is about to be renamed or removed."""
        with self.lock:
            self._number += 1
            grave = self._number if has_grave else 0
            change = NameChange(self._number, kind, folder, name, inode, target, grave)
            self._changes.setdefault(folder, []).append(change)
            self._append(_encoded(change))

    def last_number(self) -> int:
        """The changes up to this one have been made: what a sync that starts now covers."""
        with self.lock:
            return self._number

    def folder_synced(self, folder: int, number: int) -> None:
        """The changes in a folder up to `number` are durable: what they destroyed may go."""
        with self.lock:
            known = self._changes.pop(folder, [])
            left = [change for change in known if change.number > number]
            if left:
                self._changes[folder] = left
            if len(left) == len(known):
                return
            if self._changes:
                self._append(json.dumps([number, _SYNC, folder]).encode())
            else:
                self._names.words[0] = 0
                self._names_end = 0
        for change in known:
            if change.number <= number and change.grave:
                self._bury(self.grave(change.grave))

    def _bury(self, path: str) -> None:
        """Destroy something in the grave, and what is known of it."""
        try:
            status = os.lstat(path)
        except FileNotFoundError:
            return
        if not os.path.isdir(path):
            if status.st_nlink == 1:
                self.forget(status.st_ino)
            os.unlink(path)
            return
        for parent, folders, names in os.walk(path):
            for name in names:
                self.forget(os.lstat(os.path.join(parent, name)).st_ino)
            for inode in [
                os.lstat(parent).st_ino,
                *(os.lstat(os.path.join(parent, f)).st_ino for f in folders),
            ]:
                if self._changes.get(inode):
                    self.folder_synced(inode, self._number)
        shutil.rmtree(path)

    def _append(self, payload: bytes) -> None:
        words = 1 + -(-len(payload) // _WORD)
        while _WORD * (self._names_end + words + 1) > len(self._names.bytes):
            if self._rewrite_names():
                return
            self._names.grow()
        start = _WORD * (self._names_end + 1)
        self._names.bytes[start : start + len(payload)] = payload
        self._names.words[self._names_end + words] = 0
        self._names.words[self._names_end] = len(payload)
        self._names_end += words

    def _rewrite_names(self) -> bool:
        """Leave out what is over, if that is most of it; what is to be appended is among the rest."""
        live = self.changes()
        if 2 * sum(2 * _WORD + len(_encoded(change)) for change in live) > len(self._names.bytes):
            return False
        path = os.path.join(self.folder, "names")
        fresh = _Mapped(path + ".new", len(self._names.bytes))
        old, self._names, self._names_end = self._names, fresh, 0
        for change in live:
            self._append(_encoded(change))
        os.rename(path + ".new", path)
        fresh.path = path
        old.close()
        return True

    # --- finding it again ------------------------------------------------------------------------------

    def _load_sizes(self) -> None:
        for slot, (inode, _) in enumerate(_SLOT.iter_unpack(self._sizes.bytes)):
            if inode and inode not in self._slots:
                self._slots[inode] = slot
            else:
                self._free.append(slot)
        self._free.reverse()

    def _load_cuts(self) -> None:
        """Those that were not followed by their truncation, or were confirmed, are left out."""
        folder = os.path.join(self.folder, "cuts")
        found: dict[int, list[Cut]] = {}
        for name in os.listdir(folder):
            if name.endswith(".new"):
                os.unlink(os.path.join(folder, name))
            else:
                cut = Cut(*map(int, name.split("-")))
                found.setdefault(cut.inode, []).append(cut)
        for inode, cuts in found.items():
            durable = self.durable_size(inode) or 0
            valid = sorted((cut for cut in cuts if cut.start >= durable), key=lambda cut: -cut.end)
            if valid and valid[-1].start == durable:
                self._cuts[inode] = valid
            for cut in cuts:
                if cut not in self._cuts.get(inode, ()):
                    os.unlink(self.cut_bytes(cut))

    def _load_names(self) -> None:
        while length := self._names.words[self._names_end]:
            start = _WORD * (self._names_end + 1)
            row = json.loads(self._names.bytes[start : start + length])
            self._names_end += 1 + -(-length // _WORD)
            self._number = max(self._number, row[0])
            if row[1] == _SYNC:
                left = [change for change in self._changes.pop(row[2], []) if change.number > row[0]]
                if left:
                    self._changes[row[2]] = left
            else:
                change = NameChange(*row)
                self._changes.setdefault(change.folder, []).append(change)

    def _remove_strangers(self) -> None:
        """What is in the grave for a change that was never noted, or that is durable."""
        kept = {str(change.grave) for change in self.changes() if change.grave}
        for name in os.listdir(os.path.join(self.folder, "grave")):
            if name not in kept:
                self._number = max(self._number, int(name))
                self._bury(os.path.join(self.folder, "grave", name))

    def close(self) -> None:
        """Let go of the files; the journal stays."""
        self._sizes.close()
        self._names.close()


class _Mapped:
    """A file as 8-byte words in memory that outlives the process. A store of one word is all or nothing."""

    def __init__(self, path: str, size: int) -> None:
        self.path = path
        self._map(size)

    def _map(self, size: int) -> None:
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            size = max(size, os.fstat(descriptor).st_size)
            os.ftruncate(descriptor, size)
            if hasattr(os, "posix_fallocate"):  # a store for which a full disk has no room would kill us
                os.posix_fallocate(descriptor, 0, size)
            self.bytes = mmap.mmap(descriptor, size)
        finally:
            os.close(descriptor)
        self.words = memoryview(self.bytes).cast("Q")

    def grow(self) -> None:
        """Twice the size, the new half zero."""
        size = 2 * len(self.bytes)
        self.close()
        self._map(size)

    def close(self) -> None:
        self.words.release()
        self.bytes.close()


def _encoded(change: NameChange) -> bytes:
    return json.dumps(astuple(change)).encode()


def _copy(descriptor: int, start: int, end: int, path: str) -> None:
    """Bytes [start, end) of an open file into a new one."""
    with open(path, "wb") as copy:
        while start < end:
            block = os.pread(descriptor, min(_COPY_BYTES, end - start), start)
            if not block:
                raise OSError("the file is shorter than what is durable of it")
            copy.write(block)
            start += len(block)
