"""Power loss without privileges: nodes note unsynced data, and a part of it, drawn from a seed, is dropped.

Reads the journal of a node's `runtime.power.power_loss.TrackedDisk` and changes its files as a file system
might: drops, zeroes and tears what was not flushed, and undoes unsynced changes of names, in each folder
those after some moment. Every unflushed tail loses something; synced bytes and names are never touched. If it
is repeated after an interruption, the result may differ but is as valid.
"""

import os
import random
import shutil
import stat
from collections.abc import Container, Sequence
from enum import Enum
from pathlib import Path
from typing import BinaryIO

from holdfast.localcluster.power.disks import Disks, FileLoss, PowerLoss
from holdfast.runtime.power.unsynced import MAKE, RENAME, Cut, NameChange, Unsynced

_SECTOR_BYTES = 512
_PAGE_BYTES = 4096


class Fate(Enum):
    """What is left of unsynced data, as seen on file systems; drawn for each loss."""

    #: nothing at all (xfs)
    NOTHING = "nothing"
    #: files keep a part, and zeros behind it (ext4)
    ZEROS = "zeros"
    #: full length, with zeros somewhere in it (ext4 nodelalloc)
    GAP = "gap"
    #: names and truncations are kept, bytes are not: empty files under their final names (xfs)
    NAMES = "names"
    #: sectors are good, zero or garbage; changes of names are kept up to some moment
    TORN = "torn"


_FATES = (Fate.NOTHING, Fate.NOTHING, Fate.ZEROS, Fate.GAP, Fate.NAMES, Fate.TORN)


def fate_of(seed: int, node: str) -> Fate:
    """The fate of a node in a power loss with this seed."""
    return random.Random(f"{seed}:{node}").choice(_FATES)


class TrackedDisks(Disks):
    """`Disks` in plain folders, each with its journal `unsynced` beside the data."""

    name = "tracked"

    def options(self, home: Path) -> Sequence[str]:
        return "--unsynced", str(home / "unsynced")

    def attach(self, home: Path) -> None:
        shutil.rmtree(home / "unsynced.done", ignore_errors=True)

    def settle(self, home: Path) -> None:
        shutil.rmtree(home / "unsynced", ignore_errors=True)

    def cut(self, home: Path) -> None:
        """Do nothing: a stopped process writes nothing."""

    def restore(self, home: Path, seed: int) -> PowerLoss:
        journal_folder = home / "unsynced"
        self.attach(home)
        if not journal_folder.is_dir():
            return PowerLoss(home.name, seed, ())
        journal = Unsynced(str(journal_folder))
        drop = _Drop(home, journal, seed)
        drop.names()
        drop.contents()
        journal.close()
        # One step: until then everything can be repeated.
        journal_folder.rename(home / "unsynced.done")
        self.attach(home)
        return PowerLoss(home.name, seed, *drop.told())


class _Drop:
    """One power loss of one node."""

    def __init__(self, home: Path, journal: Unsynced, seed: int) -> None:
        self._home = home
        self._journal = journal
        self._seed = f"{seed}:{home.name}"
        self._fate = fate_of(seed, home.name)
        self._sizes_before = {path: size for path, (_, size) in self._files().items()}
        self._good: dict[str, int] = {}

    def _files(self) -> dict[str, tuple[int, int]]:
        """Inode and size of every file, by its path below the node's folder."""
        found = {}
        for parent, folders, names in os.walk(self._home):
            if Path(parent) == self._home:
                folders[:] = [name for name in folders if not name.startswith("unsynced")]
            for name in names:
                status = os.lstat(os.path.join(parent, name))
                if stat.S_ISREG(status.st_mode):
                    path = os.path.relpath(os.path.join(parent, name), self._home)
                    found[path] = status.st_ino, status.st_size
        return found

    def told(self) -> tuple[tuple[FileLoss, ...], tuple[str, ...]]:
        """What was lost, and which names are back."""
        before, after = self._sizes_before, {path: size for path, (_, size) in self._files().items()}
        losses = [
            FileLoss(path, before[path], after.get(path, -1), self._good.get(path, 0))
            for path in sorted(before)
            if path not in after or path in self._good
        ]
        return tuple(losses), tuple(sorted(after.keys() - before.keys()))

    # --- names -----------------------------------------------------------------------------------------

    def names(self) -> None:
        """Undo, in every folder, the changes of names after some moment, the latest first."""
        changes = self._journal.changes()
        chance = random.Random(f"{self._seed}:names")
        by_folder: dict[int, list[NameChange]] = {}
        for change in changes:
            by_folder.setdefault(change.folder, []).append(change)
        lost = {
            change.number
            for folder in by_folder.values()
            for change in folder[self._changes_kept(len(folder), chance) :]
        }
        folders = self._open_folders(by_folder)
        try:
            for change in reversed(changes):
                if change.number in lost and change.folder in folders:
                    self._take_back(change, folders[change.folder])
        finally:
            for descriptor in folders.values():
                os.close(descriptor)

    def _changes_kept(self, count: int, chance: random.Random) -> int:
        if self._fate is Fate.NAMES:
            return count
        if self._fate in (Fate.ZEROS, Fate.TORN):
            return chance.randint(0, count)
        return 0

    def _open_folders(self, inodes: Container[int]) -> dict[int, int]:
        """Descriptors of folders, valid while names change; some folders are in the journal's grave now."""
        found = {}
        for parent, _, _ in os.walk(self._home):
            inode = os.stat(parent).st_ino
            if inode in inodes:
                found[inode] = os.open(parent, os.O_RDONLY | os.O_DIRECTORY)
        return found

    def _take_back(self, change: NameChange, folder: int) -> None:
        """Undo one change; a killed node may not have made its last one, or it may be undone already."""
        grave = self._journal.grave(change.grave) if change.grave else None
        if change.kind == MAKE:
            if _inode(folder, change.name) == change.inode:
                if stat.S_ISDIR(os.lstat(change.name, dir_fd=folder).st_mode):
                    shutil.rmtree(change.name, dir_fd=folder)
                else:
                    os.unlink(change.name, dir_fd=folder)
            return
        name = change.name
        if change.kind == RENAME:
            name = change.target
            if _inode(folder, name) == change.inode:
                os.rename(name, change.name, src_dir_fd=folder, dst_dir_fd=folder)
        if grave is not None and os.path.lexists(grave) and _inode(folder, name) is None:
            os.rename(grave, name, dst_dir_fd=folder)

    # --- bytes -----------------------------------------------------------------------------------------

    def contents(self) -> None:
        """Drop a part of what was not flushed of each file."""
        known = set(self._journal.files())
        for path, (inode, size) in sorted(self._files().items()):
            if inode not in known:
                continue
            durable = self._journal.durable_size(inode)
            assert durable is not None
            cuts = self._journal.cuts(inode)
            chance = random.Random(f"{self._seed}:{path}")
            if cuts and self._loses_truncations(chance):
                self._put_back(path, cuts)
                self._good[path] = durable
            elif size > durable:
                self._good[path] = self._lose_tail(path, durable, size, chance)

    def _loses_truncations(self, chance: random.Random) -> bool:
        if self._fate is Fate.NAMES:
            return False
        return self._fate is Fate.NOTHING or chance.random() < 0.5

    def _put_back(self, path: str, cuts: Sequence[Cut]) -> None:
        """Restore the file as it was before the truncations."""
        with (self._home / path).open("r+b") as file:
            file.truncate(cuts[-1].start)
            for cut in cuts:
                file.seek(cut.start)
                with open(self._journal.cut_bytes(cut), "rb") as taken:
                    shutil.copyfileobj(taken, file)

    def _lose_tail(self, path: str, durable: int, size: int, chance: random.Random) -> int:
        """Lose a part of bytes [durable, size); returns the end of the good bytes."""
        with (self._home / path).open("r+b") as file:
            if self._fate is Fate.ZEROS:
                good = chance.randrange(durable, size)
                file.truncate(good)
                file.truncate(chance.randint(good, size))
            elif self._fate is Fate.GAP:
                good = durable + _PAGE_BYTES * chance.randrange(-(-(size - durable) // _PAGE_BYTES))
                end = min(size, good + _PAGE_BYTES * chance.randint(1, 16))
                file.seek(good)
                file.write(bytes(end - good))
            elif self._fate is Fate.TORN:
                good = _tear(file, durable, chance.randrange(durable, size), chance)
            else:
                good = durable
                file.truncate(durable)
        return good


def _inode(folder: int, name: str) -> int | None:
    try:
        return os.lstat(name, dir_fd=folder).st_ino
    except FileNotFoundError:
        return None


def _tear(file: BinaryIO, durable: int, end: int, chance: random.Random) -> int:
    """Cut at `end` and corrupt some of the last sectors after `durable`; returns where good bytes end."""
    file.truncate(end)
    good = end
    position = end
    for _ in range(8):
        start = max(durable, (position - 1) // _SECTOR_BYTES * _SECTOR_BYTES)
        if start >= position:
            break
        kind = chance.choice(("good", "zero", "garbage"))
        if kind != "good":
            size = position - start
            file.seek(start)
            file.write(bytes(size) if kind == "zero" else chance.randbytes(size))
            good = start
        position = start
    return good
