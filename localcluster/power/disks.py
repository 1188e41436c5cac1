"""The disks of a cluster's nodes, whose power can be cut: one interface, several drivers (D10).

Owns what a driver does and how a loss is reported. A power loss of stopped or dead processes is `cut`
(nothing reaches the disk any more) and, when they have ended, `restore` (what survived is there again); both
may be repeated after an interruption. `localcluster.power.drivers` finds the drivers by name.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.localcluster.nodes import ClusterError


@dataclass(frozen=True, slots=True)
class FileLoss:
    """What a power loss did to one file."""

    #: below the node's folder
    path: str
    size_before: int
    #: -1: the name is lost
    size_after: int
    #: the bytes below are unchanged; may be too low by less than a page
    good_until: int

    @property
    def bytes_lost(self) -> int:
        return self.size_before - self.good_until


@dataclass(frozen=True, slots=True)
class PowerLoss:
    """What one node lost."""

    node: str
    seed: int
    #: sorted by path; files that lost bytes or their name
    files: tuple[FileLoss, ...]
    #: names that are back although they were unlinked or renamed, sorted
    names_back: tuple[str, ...] = ()

    @property
    def log_bytes_lost(self) -> int:
        """Bytes lost from segment files of partitions and of the metadata log."""
        return sum(file.bytes_lost for file in self.files if file.path.endswith(".log"))


class Disks:
    """The disks of the nodes of one cluster: here plain folders, whose power cannot be cut."""

    name = "none"

    def data_home(self, home: Path) -> Path:
        """The folder below which a node keeps everything that a power loss may take."""
        return home

    def make(self, home: Path) -> None:
        """Make the disk of a new node."""

    def attach(self, home: Path) -> None:
        """Make the disk usable, before each start; may be repeated. Raises: ClusterError."""

    def detach(self, home: Path) -> None:
        """Release mounts and devices; the data stays. Raises: ClusterError while it is in use."""

    def options(self, home: Path) -> Sequence[str]:
        """Further arguments of the node's command line."""
        return ()

    def settle(self, home: Path) -> None:
        """Take what lies there as durable: not the node, which has ended, but a fault changes its files."""

    def look(self, home: Path) -> None:
        """Note the present files, for the report of `restore`; the process is stopped or dead."""

    def cut(self, home: Path) -> None:
        """Let nothing reach the disk any more; the process is stopped or dead. Raises: ClusterError."""
        raise ClusterError(f"{home.name} has a plain folder, whose power cannot be cut")

    def restore(self, home: Path, seed: int) -> PowerLoss:
        """Bring back what survived; the process has ended. Raises: ClusterError."""
        raise ClusterError(f"{home.name}: its power was not cut")
