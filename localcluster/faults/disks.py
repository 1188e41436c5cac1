"""Disks that are full, slow, or that answer no more: for clusters whose nodes have a disk of their own.

That is what the power-loss drivers ext4 and xfs give them (root). A file system of the machine is never
filled or frozen: the faults are refused there.
"""

import errno
import fcntl
import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from holdfast.localcluster.faults.fault import Fault, FaultRefused
from holdfast.localcluster.faults.journal import undoes
from holdfast.localcluster.nodes import ClusterError, Node
from holdfast.localcluster.power.loop_disk import FILE_SYSTEMS
from holdfast.localcluster.processes import LocalCluster

BALLAST = "ballast"
_FREEZE, _THAW = 0xC0045877, 0xC0045878
#: A disk of the machine has another: it must never be frozen.
_LOOP_MAJOR = 7
#: A slow disk is frozen for so long, then it works for so long, and so on.
STILL_S, GOES_S = 0.2, 0.05


@undoes("remove-ballast")
def _remove_ballast(cluster: LocalCluster, details: Mapping[str, Any]) -> None:
    folder = cluster.data_folder(cluster.node(details["node"])).parent
    if not os.path.ismount(folder):
        raise ClusterError(f"the disk of {details['node']} is not mounted: start the node, then heal again")
    (folder / BALLAST).unlink(missing_ok=True)


@undoes("thaw")
def _undo_freeze(cluster: LocalCluster, details: Mapping[str, Any]) -> None:
    folder = cluster.data_folder(cluster.node(details["node"])).parent
    if os.path.ismount(folder):
        thaw(folder)


class OwnDiskFault(Fault):
    """On the disk of one node."""

    def __init__(self, cluster: LocalCluster, node: Node) -> None:
        super().__init__(cluster, node)
        self.node = node

    def _folder(self) -> Path:
        """Where the node's own file system is mounted. Raises: FaultRefused."""
        if self.cluster.power_loss_driver not in FILE_SYSTEMS:
            raise FaultRefused(
                f"{self.node.name} keeps its data on a disk of this machine, which is not touched; "
                "make the cluster with --power-loss ext4 (root)"
            )
        folder = self.cluster.data_folder(self.node).parent
        if not os.path.ismount(folder):
            raise FaultRefused(f"the disk of {self.node.name} is not mounted: start the node first")
        return folder


class FullDisk(OwnDiskFault):
    """The node's disk has no room left."""

    name = "full-disk"
    ends_nodes = True  # a failed log dir, when there is no other

    def __init__(self, cluster: LocalCluster, node: Node, spare: int = 0) -> None:
        """`spare`: bytes that stay free."""
        super().__init__(cluster, node)
        self.spare = spare

    def apply(self) -> str:
        ballast = self._folder() / BALLAST
        self._step("remove-ballast", lambda: self._fill(ballast), node=self.node.name)
        return f"filled the disk of {self.node.name}: {self.spare:,} bytes are free"

    def _fill(self, ballast: Path) -> None:
        descriptor = os.open(ballast, os.O_CREAT | os.O_WRONLY, 0o600)
        size = 0
        try:
            chunk = 1 << 30
            while chunk >= 4096:
                free = os.fstatvfs(descriptor)
                left = free.f_bavail * free.f_frsize - self.spare
                if left < chunk:
                    chunk //= 2
                    continue
                try:
                    os.posix_fallocate(descriptor, size, chunk)
                    size += chunk
                except OSError:  # ENOSPC: the last blocks are taken for the file's own map
                    chunk //= 2
        finally:
            os.close(descriptor)


class FrozenDisk(OwnDiskFault):
    """Writes and fsyncs of the node wait and do not fail, as on a disk that hangs."""

    name = "frozen-disk"

    def apply(self) -> str:
        folder = self._folder()
        self._step("thaw", lambda: freeze(folder), node=self.node.name)
        return f"froze the disk of {self.node.name}: writes wait"


class SlowDisk(OwnDiskFault):
    """The node's disk stands still for most of the time, so each write and fsync takes long.

    A thread of this process freezes and thaws it: the disk is as before when the process ends.
    """

    name = "slow-disk"

    def __init__(self, cluster: LocalCluster, node: Node) -> None:
        super().__init__(cluster, node)
        self._alternation: Alternation | None = None

    def apply(self) -> str:
        self._alternation = Alternation(self._folder(), STILL_S, GOES_S)
        self._step("thaw", self._alternation.start, node=self.node.name)
        return f"slowed down the disk of {self.node.name}: writes wait up to {STILL_S * 1000:.0f} ms"

    def heal(self) -> None:
        if self._alternation is not None:
            self._alternation.stop()
        super().heal()


def freeze(folder: Path) -> None:
    """Let writes to the file system at `folder` wait. Raises: OSError, also when it is no loop device."""
    _order(folder, _FREEZE)


def thaw(folder: Path) -> None:
    """Let them go on; may be repeated. Raises: OSError."""
    try:
        _order(folder, _THAW)
    except OSError as error:
        if error.errno != errno.EINVAL:  # it is not frozen
            raise


class Alternation:
    """A thread that freezes and thaws a file system in turn: a disk that is slow, not silent."""

    def __init__(self, folder: Path, still_s: float, goes_s: float) -> None:
        self._folder, self._still_s, self._goes_s = folder, still_s, goes_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._alternate, name="slow disk", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """It is thawed afterwards; may be repeated."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _alternate(self) -> None:
        while not self._over.is_set():
            with suppress(OSError):  # unmounted meanwhile, or frozen by another fault
                freeze(self._folder)
                try:
                    self._over.wait(self._still_s)
                finally:
                    thaw(self._folder)
            self._over.wait(self._goes_s)


def _order(folder: Path, number: int) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if os.major(os.fstat(descriptor).st_dev) != _LOOP_MAJOR:
            raise OSError(errno.EXDEV, "no loop device is mounted here: not touched", str(folder))
        fcntl.ioctl(descriptor, number, 0)
    finally:
        os.close(descriptor)
