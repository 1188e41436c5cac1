"""Disks of their own for the containers of one run: loop devices that Docker mounts as their volumes (root).

So a container can lose power, or have a disk that hangs, without touching a disk of the machine. Owns the
image files and the loop devices; the cut itself is `localcluster.power.loop_disk`'s.
"""

import errno
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from holdfast.localcluster.power.loop_disk import FILE_SYSTEMS, LoopDisk, run_tool, why_not

#: Of the Dockerfile: it must own the root of its volume.
_USER = "10001:10001"
_IMAGE_BYTES = 2 << 30
_SYS_BLOCK = Path("/sys/block")


class ContainerDisks:
    """One image and one loop device for each service."""

    def __init__(self, folder: Path, project: str, services: Sequence[str]) -> None:
        """`folder` takes the images; nothing is made yet."""
        self._images = {service: folder / _image_name(project, service) for service in services}
        self._devices: dict[str, str] = {}

    @staticmethod
    def why_not() -> str:
        """Why containers cannot have such disks on this machine; empty when they can."""
        return why_not(FILE_SYSTEMS["ext4"])

    def attach(self) -> None:
        """Make the file systems and the devices. Raises: ClusterError; `detach` removes what there is."""
        for service, image in self._images.items():
            with image.open("xb") as file:
                file.truncate(_IMAGE_BYTES)
            run_tool("mkfs.ext4", "-q", "-F", "-E", f"root_owner={_USER},lazy_itable_init=1", str(image))
            self._devices[service] = run_tool("losetup", "--find", "--show", str(image)).strip()

    def detach(self) -> None:
        """Remove the devices; the images stay. Raises: ClusterError."""
        for service in list(self._devices):
            run_tool("losetup", "--detach", self._devices[service])
            del self._devices[service]

    def volumes(self) -> Mapping[str, Any]:
        """The `volumes` of a Compose file, for volumes that are called as their services."""
        options = {"type": "ext4", "o": "noatime"}
        return {
            service: {"driver": "local", "driver_opts": {**options, "device": device}}
            for service, device in self._devices.items()
        }

    def cut_power(self, service: str, volume: Path) -> None:
        """Nothing that is written to the volume reaches its image any more. Raises: ClusterError."""
        LoopDisk(self._images[service], volume, FILE_SYSTEMS["ext4"]).cut_power()


def detach_left(project: str, services: Sequence[str]) -> list[str]:
    """Detach the devices of a run of this project that was killed, so that nothing else did; their images.

    They are known by the names of the images, which stay. Raises: ClusterError.
    """
    wanted = {_image_name(project, service) for service in services}
    found = {}
    for file in _SYS_BLOCK.glob("loop*/loop/backing_file"):
        with suppress(OSError):  # detached meanwhile
            image = file.read_text().rstrip("\n").removesuffix(" (deleted)")
            if Path(image).name in wanted:
                found[image] = file.parts[-3]
    for device in found.values():
        run_tool("losetup", "--detach", f"/dev/{device}")
    return sorted(found)


def _image_name(project: str, service: str) -> str:
    return f"{project}-{service}.img"


def has_no_power(volume: Path) -> bool:
    """True when the power of what is mounted there was cut."""
    try:
        os.close(os.open(volume, os.O_RDONLY | os.O_DIRECTORY))
        os.listdir(volume)
    except OSError as error:
        return error.errno == errno.EIO
    return False
