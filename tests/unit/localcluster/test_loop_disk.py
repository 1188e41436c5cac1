"""The helper of root touches only its own images; what needs root is in tests/contract/test_power_loss.py."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.localcluster.nodes import ClusterError
from holdfast.localcluster.power.loop_disk import FILE_SYSTEMS, LoopDisk, why_not

EXT4 = FILE_SYSTEMS["ext4"]


@pytest.mark.parametrize("folder", ["/proc", "/dev"])
@pytest.mark.parametrize("step", [LoopDisk.cut_power, LoopDisk.unmount, LoopDisk.mount, LoopDisk.is_mounted])
def test_what_is_mounted_from_no_loop_device_is_not_touched(
    folder: str, step: Callable[[LoopDisk], object], tmp_path: Path
) -> None:
    (tmp_path / "disk.img").touch()
    with pytest.raises(ClusterError, match="no loop device: not touched"):
        step(LoopDisk(tmp_path / "disk.img", Path(folder), EXT4))
    assert os.path.ismount(folder)


def test_a_folder_where_nothing_is_mounted_loses_no_power(tmp_path: Path) -> None:
    """It is on a disk of this machine."""
    (tmp_path / "disk.img").touch()
    (tmp_path / "disk").mkdir()
    disk = LoopDisk(tmp_path / "disk.img", tmp_path / "disk", EXT4)
    assert not disk.is_mounted()
    disk.cut_power()
    disk.unmount()
    (tmp_path / "disk" / "file").write_text("still writable")


def test_an_image_that_exists_is_not_made_anew(tmp_path: Path) -> None:
    (tmp_path / "disk.img").write_text("data")
    with pytest.raises(ClusterError, match="exists already"):
        LoopDisk(tmp_path / "disk.img", tmp_path / "disk", EXT4).make()
    assert (tmp_path / "disk.img").read_text() == "data"


def test_a_lost_image_is_told(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="the disk of this node is gone"):
        LoopDisk(tmp_path / "disk.img", tmp_path / "disk", EXT4).mount()


def test_without_root_the_reason_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert why_not(EXT4) == "mounting needs root"
