"""The disks of a cluster's nodes, whose power can be cut: one interface, several drivers (D10).

Owns what a driver does and how a loss is told. A power loss of stopped or dead processes is `cut` (nothing
reaches the disk any more) and, once they are gone, `restore` (what survived is there again); both may be
repeated after an interruption. `localcluster.power.drivers` knows the drivers by name.
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
    #: -1: the name is gone
    size_after: int
    #: the bytes below are what they were; it may be told too low, by less than a page
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
    #: names that are there again though they were unlinked or renamed, sorted
    names_back: tuple[str, ...] = ()

    @property
    def log_bytes_lost(self) -> int:
        """Of segment files of partitions and of the metadata log."""
        return sum(file.bytes_lost for file in self.files if file.path.endswith(".log"))


class Disks:
    """The disks of the nodes of one cluster: plain folders, whose power nobody can cut."""

    name = "none"

    def data_home(self, home: Path) -> Path:
        """The folder below which a node keeps everything that a power loss may take."""
        return home

    def make(self, home: Path) -> None:
        """Make the disk of a new node."""

    def attach(self, home: Path) -> None:
        """Make the disk usable, before each start; fine when it is. Raises: ClusterError."""

    def detach(self, home: Path) -> None:
        """Leave nothing behind in the machine; the data stays. Raises: ClusterError while it is in use."""

    def options(self, home: Path) -> Sequence[str]:
        """What the node's command line needs in addition."""
        return ()

    def look(self, home: Path) -> None:
        """Remember what is there, for what `restore` tells; the process is stopped or dead."""

    def cut(self, home: Path) -> None:
        """Nothing reaches the disk any more; the process is stopped or dead. Raises: ClusterError."""
        raise ClusterError(f"{home.name} has a plain folder, whose power nobody can cut")

    def restore(self, home: Path, seed: int) -> PowerLoss:
        """Bring back what survived; the process is gone. Raises: ClusterError."""
        raise ClusterError(f"{home.name}: its power was not cut")
