"""Disks that are full, or that answer no more: for clusters whose nodes have a disk of their own.

That is what the power-loss drivers ext4 and xfs give them (root). A file system of the machine is never
filled or frozen: the faults are refused there.
"""

import errno
import fcntl
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.localcluster.faults.fault import Fault, FaultRefused
from holdfast.localcluster.faults.journal import undoes
from holdfast.localcluster.nodes import ClusterError, Node
from holdfast.localcluster.power.loop_disk import FILE_SYSTEMS
from holdfast.localcluster.processes import LocalCluster

BALLAST = "ballast"
_FREEZE, _THAW = 0xC0045877, 0xC0045878


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
        try:
            _order(folder, _THAW)
        except OSError as error:
            if error.errno != errno.EINVAL:  # it is not frozen
                raise


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
        self._step("thaw", lambda: _order(folder, _FREEZE), node=self.node.name)
        return f"froze the disk of {self.node.name}: writes wait"


def _order(folder: Path, number: int) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.ioctl(descriptor, number, 0)
    finally:
        os.close(descriptor)
