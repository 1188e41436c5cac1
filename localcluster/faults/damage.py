"""Damage to the files of a stopped node: a flipped bit, a cut, a missing file, an empty disk.

Healed by putting back what was there, as long as the node has not been started since: then the files are the
node's again, and what it made of the damage stays.
"""

import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.localcluster.faults.fault import Fault, FaultRefused
from holdfast.localcluster.faults.journal import undoes
from holdfast.localcluster.faults.places import Field, Place, bit_in_file, find
from holdfast.localcluster.nodes import Node
from holdfast.localcluster.processes import LocalCluster

#: Folder of a node with what damaged files were, and the ending of a disk that was wiped.
ASIDE = "before-fault"


@undoes("write-byte")
def _write_byte(cluster: LocalCluster, details: Mapping[str, Any]) -> None:
    path = Path(details["path"])
    if _is_as_left(cluster, details) and path.exists():
        _write_at(path, details["position"], bytes([details["byte"]]))


@undoes("put-back")
def _put_back(cluster: LocalCluster, details: Mapping[str, Any]) -> None:
    aside = Path(details["aside"])
    if not aside.exists():
        return
    if _is_as_left(cluster, details):
        _remove(Path(details["path"]))
        shutil.move(aside, details["path"])
    else:
        _remove(aside)


class _Damage(Fault):
    """Damage to one place of a node that stands still."""

    def __init__(self, cluster: LocalCluster, node: Node, place: Place, seed: int = 0) -> None:
        super().__init__(cluster, node)
        self.node = node
        self.place = place
        self.seed = seed

    @property
    def target(self) -> str:
        return f"{self.place} on {self.node.name}"

    def _file(self) -> Path:
        _check_stopped(self.cluster, self.node)
        self.cluster.settle(self.node)
        return find(self.cluster, self.node, self.place, self.seed)

    def _aside(self, path: Path) -> None:
        """Keep what the file is, for healing; the file itself stays."""
        folder = self.cluster.home(self.node) / ASIDE
        aside = folder / f"{secrets.token_hex(4)}-{path.name}"

        def copy() -> None:
            folder.mkdir(exist_ok=True)
            half = folder / "half"
            shutil.copy2(path, half)
            half.rename(aside)  # so that it is whole where it exists

        self._step("put-back", copy, **_what(self.cluster, self.node, path), aside=str(aside))


class FlipBit(_Damage):
    """One bit of a file, in a field of a batch or anywhere."""

    name = "flip-bit"

    def __init__(
        self, cluster: LocalCluster, node: Node, place: Place, seed: int = 0, field: Field | None = None
    ) -> None:
        super().__init__(cluster, node, place, seed)
        self.field = field

    def apply(self) -> str:
        path = self._file()
        position, bit = bit_in_file(path, self.field, self.seed)
        with path.open("rb") as file:
            file.seek(position)
            byte = file.read(1)[0]
        self._step(
            "write-byte",
            lambda: _write_at(path, position, bytes([byte ^ 1 << bit])),
            **_what(self.cluster, self.node, path),
            position=position,
            byte=byte,
        )
        where = f" ({self.field.value})" if self.field is not None else ""
        return f"flipped bit {bit} of byte {position}{where} in {path.name}, {self.target}"


class CutFile(_Damage):
    """The end of a file is missing."""

    name = "cut-file"

    def __init__(
        self, cluster: LocalCluster, node: Node, place: Place, seed: int = 0, keep: float = 0.5
    ) -> None:
        """`keep`: which share of the bytes stays; 0 leaves an empty file."""
        super().__init__(cluster, node, place, seed)
        self.keep = keep

    def apply(self) -> str:
        path = self._file()
        size = path.stat().st_size
        left = int(size * self.keep)
        self._aside(path)
        os.truncate(path, left)
        return f"cut {path.name} from {size} to {left} bytes, {self.target}"


class RemoveFile(_Damage):
    """A file is missing."""

    name = "remove-file"

    def apply(self) -> str:
        path = self._file()
        self._aside(path)
        path.unlink()
        return f"removed {path.name}, {self.target}"


class WipeDisk(Fault):
    """A stopped node comes back with an empty disk: no logs, no metadata, no vote."""

    name = "wipe-disk"

    def apply(self) -> str:
        for node in self.nodes:
            _check_stopped(self.cluster, node)
        for node in self.nodes:
            self.cluster.settle(node)
            for folder in (*self.cluster.log_dirs(node), self.cluster.metadata_folder(node).parent):
                if folder.exists():
                    aside = folder.with_name(f"{folder.name}.{ASIDE}")
                    self._step(
                        "put-back",
                        lambda folder=folder, aside=aside: folder.rename(aside),  # type: ignore[misc]
                        **_what(self.cluster, node, folder),
                        aside=str(aside),
                    )
        return f"wiped the disk of {self.target}"


def _check_stopped(cluster: LocalCluster, node: Node) -> None:
    if cluster.pid(node) is not None:
        raise FaultRefused(f"{node.name} runs: its files are damaged only while it is down")


def _what(cluster: LocalCluster, node: Node, path: Path) -> dict[str, str]:
    return {"node": node.name, "path": str(path), "start": cluster.last_start(node)}


def _is_as_left(cluster: LocalCluster, details: Mapping[str, Any]) -> bool:
    """True when the node has not been started since the damage."""
    return cluster.last_start(cluster.node(details["node"])) == str(details["start"])


def _write_at(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
