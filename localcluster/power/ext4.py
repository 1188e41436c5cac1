"""Power loss by the kernel: each node has a file system of its own, which is shut down without a flush.

What the kernel had not written back is really lost; a seed changes nothing. `localcluster.power.loop_disk`
does all that needs root.
"""

import errno
import os
import zlib
from pathlib import Path

from holdfast.localcluster.power.disks import Disks, FileLoss, PowerLoss
from holdfast.localcluster.power.loop_disk import FILE_SYSTEMS, LoopDisk

_PAGE_BYTES = 4096
_READ_BYTES = 256 * _PAGE_BYTES


class LoopDisks(Disks):
    """`Disks` on loop devices. In a node's folder: `disk.img`, mounted at `disk` while the cluster is up."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._file_system = FILE_SYSTEMS[name]
        #: files before a cut, by node folder: {path below it: (size, checksums of its pages)}
        self._seen: dict[Path, dict[str, tuple[int, list[int]]]] = {}

    def data_home(self, home: Path) -> Path:
        return home / "disk"

    def make(self, home: Path) -> None:
        self._disk(home).make()

    def attach(self, home: Path) -> None:
        self._disk(home).mount()

    def detach(self, home: Path) -> None:
        self._disk(home).unmount()

    def look(self, home: Path) -> None:
        if self._disk(home).is_mounted():
            try:
                self._seen[home] = _pages_of_files(home, self.data_home(home))
            except OSError as error:
                if error.errno != errno.EIO:  # otherwise an interrupted command has cut it already
                    raise

    def cut(self, home: Path) -> None:
        self._disk(home).cut_power()

    def restore(self, home: Path, seed: int) -> PowerLoss:
        disk = self._disk(home)
        disk.unmount()
        disk.mount()
        before = self._seen.pop(home, {})
        after = _pages_of_files(home, self.data_home(home))
        losses = tuple(
            loss
            for path in sorted(before)
            if (loss := _loss(path, before[path], after.get(path))) is not None
        )
        return PowerLoss(home.name, seed, losses, tuple(sorted(after.keys() - before.keys())))

    def _disk(self, home: Path) -> LoopDisk:
        return LoopDisk(home / "disk.img", self.data_home(home), self._file_system)


def _pages_of_files(home: Path, folder: Path) -> dict[str, tuple[int, list[int]]]:
    """Size and checksums of the pages of every file, by its path below `home`."""
    found = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            path = Path(parent) / name
            pages, size = [], 0
            with path.open("rb") as file:
                while block := file.read(_READ_BYTES):
                    size += len(block)
                    view = memoryview(block)
                    pages += [
                        zlib.crc32(view[start : start + _PAGE_BYTES])
                        for start in range(0, len(block), _PAGE_BYTES)
                    ]
            found[str(path.relative_to(home))] = size, pages
    return found


def _loss(path: str, before: tuple[int, list[int]], after: tuple[int, list[int]] | None) -> FileLoss | None:
    """The loss of a file; None when it is unchanged."""
    if after == before:
        return None
    size_before, old = before
    size_after, new = after if after is not None else (-1, [])
    pairs = enumerate(zip(old, new, strict=False))
    good = next((index for index, (one, other) in pairs if one != other), len(new))
    return FileLoss(path, size_before, size_after, min(good * _PAGE_BYTES, size_before, max(size_after, 0)))
