"""File systems in image files, on loop devices, whose power can be cut: the only code here that needs root.

Every step first checks that its target is a loop device on the given image file, mounted at the given folder,
and refuses anything else, so it cannot touch a disk of the machine. Never looks into files.
"""

import errno
import fcntl
import os
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from holdfast.localcluster.nodes import ClusterError

#: Space that a node may fill; the image is sparse and has only what was written.
IMAGE_BYTES = 4 << 30
_LOOP_MAJOR = 7
#: The same number for ext4 and xfs (EXT4_IOC_SHUTDOWN, XFS_IOC_GOINGDOWN).
_SHUTDOWN = 0x8004587D
#: Neither data nor the journal reaches the device any more: a power cut. Flag 0 would write everything first.
_WITHOUT_FLUSHING = 2
_UNMOUNT_S = 10.0
_COMMAND_S = 60.0


@dataclass(frozen=True, slots=True)
class FileSystem:
    """How an image is made and mounted."""

    kind: str
    options: tuple[str, ...]
    make: tuple[str, ...]


_EXT4 = ("mkfs.ext4", "-q", "-F", "-E", "nodiscard,lazy_itable_init=1,lazy_journal_init=1")

FILE_SYSTEMS = {
    "ext4": FileSystem("ext4", (), _EXT4),
    # the size may reach the disk long before the data: zeros in the middle and at the end
    "ext4-nasty": FileSystem("ext4", ("nodelalloc", "data=writeback"), _EXT4),
    "xfs": FileSystem("xfs", (), ("mkfs.xfs", "-q", "-f", "-K")),
}


@dataclass(frozen=True, slots=True)
class LoopDisk:
    """One image file and the folder where it is mounted."""

    image: Path
    folder: Path
    file_system: FileSystem

    def make(self) -> None:
        """Make an empty file system in the image file. Raises: ClusterError when the image exists."""
        try:
            descriptor = os.open(self.image, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        except FileExistsError:
            raise ClusterError(f"{self.image} exists already: remove it if nothing in it is needed") from None
        with os.fdopen(descriptor, "wb") as image:
            image.truncate(IMAGE_BYTES)
        run_tool(*self.file_system.make, str(self.image))
        self.folder.mkdir(parents=True, exist_ok=True)

    def is_mounted(self) -> bool:
        """True when our image is mounted at the folder. Raises: ClusterError when anything else is."""
        device = _device_mounted_at(self.folder)
        if device is None:
            return False
        self._check_ours(device)
        return True

    def mount(self) -> None:
        """Mount the image, unless it is mounted; this replays its journal. Raises: ClusterError."""
        with self._alone() as lock:
            if self.is_mounted():
                return
            options = ",".join(("loop", "noatime", "nodev", "nosuid", *self.file_system.options))
            command = ("mount", "-t", self.file_system.kind, "-o", options, str(self.image), str(self.folder))
            run_tool(*command, inherited=lock)
            assert self.is_mounted(), f"{self.folder} was mounted just now"

    def unmount(self) -> None:
        """Unmount, if it is mounted. Raises: ClusterError while a process has files open in it."""
        deadline = time.monotonic() + _UNMOUNT_S
        with self._alone() as lock:
            while self.is_mounted():
                try:
                    run_tool("umount", str(self.folder), inherited=lock)
                except ClusterError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.05)

    def cut_power(self) -> None:
        """Let nothing reach the image from now on: calls on its files fail (EIO). Raises: ClusterError."""
        if not self.is_mounted():
            return
        try:
            folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            if error.errno == errno.EIO:
                return  # it has been cut already
            raise
        try:
            device = os.fstat(folder).st_dev
            self._check_ours((os.major(device), os.minor(device)))
            fcntl.ioctl(folder, _SHUTDOWN, struct.pack("=I", _WITHOUT_FLUSHING))
        except OSError as error:
            if error.errno != errno.EIO:
                raise ClusterError(f"{self.folder}: cannot cut the power: {error.strerror}") from error
        finally:
            os.close(folder)

    @contextmanager
    def _alone(self) -> Iterator[int]:
        """Wait for `mount` and `umount` of a killed command; child processes inherit this lock."""
        try:
            image = os.open(self.image, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise ClusterError(f"{self.image} is missing: the disk of this node is gone") from None
        try:
            fcntl.flock(image, fcntl.LOCK_EX)
            yield image
        finally:
            os.close(image)

    def _check_ours(self, device: tuple[int, int]) -> None:
        """Raises: ClusterError unless the device is a loop device on our image."""
        major, minor = device
        if major != _LOOP_MAJOR:
            raise ClusterError(f"{self.folder} is on device {major}:{minor}, no loop device: not touched")
        backing = Path(f"/sys/dev/block/{major}:{minor}/loop/backing_file")
        try:
            found = backing.read_text().rstrip("\n")
        except OSError as error:
            raise ClusterError(f"{backing}: {error.strerror}: not touched") from error
        if found != str(self.image.resolve()):
            raise ClusterError(f"{self.folder} is mounted from {found}, not {self.image}: not touched")


def why_not(file_system: FileSystem) -> str:
    """Why such disks do not work here, found by cutting the power of one; empty when they do."""
    if os.geteuid() != 0:
        return "mounting needs root"
    if shutil.which(file_system.make[0]) is None:
        return f"{file_system.make[0]} is not installed"
    with tempfile.TemporaryDirectory(prefix="holdfast-loop-") as name:
        disk = LoopDisk(Path(name) / "disk.img", Path(name) / "disk", file_system)
        try:
            disk.make()
            disk.mount()
            try:
                disk.cut_power()
            finally:
                disk.unmount()
        except (ClusterError, OSError) as error:
            return str(error)
    return ""


def _device_mounted_at(folder: Path) -> tuple[int, int] | None:
    """(major, minor) of the top mount at the folder, None when nothing is mounted there."""
    wanted = str(folder.absolute().parent.resolve() / folder.name)
    found = None
    try:
        lines = (
            Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        )
    except FileNotFoundError:
        return None  # not Linux: nothing can be mounted
    for line in lines:
        words = line.split(" ")
        if _unescaped(words[4]) == wanted:
            major, _, minor = words[2].partition(":")
            found = (int(major), int(minor))
    return found


def _unescaped(path: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        path = path.replace(code, character)
    return path


def run_tool(*command: str, inherited: int | None = None) -> str:
    """What a tool of the machine prints. Ctrl-C in the terminal is not for it: a mount is not left half done.

    `inherited`: a descriptor that it keeps open. Raises: ClusterError.
    """
    pass_fds = () if inherited is None else (inherited,)
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_COMMAND_S,
            check=False,
            pass_fds=pass_fds,
            start_new_session=True,
        )
    except FileNotFoundError:
        raise ClusterError(f"{command[0]} is not installed here") from None
    except subprocess.TimeoutExpired:
        raise ClusterError(f"`{' '.join(command)}` took longer than {_COMMAND_S:.0f} s") from None
    if done.returncode != 0:
        raise ClusterError(f"`{' '.join(command)}` failed: {done.stderr.strip()}")
    return done.stdout
