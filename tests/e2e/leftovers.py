"""What a command that breaks things could leave on a machine: listed before and after it."""

import json
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

from holdfast.localcluster.compose_links import ContainerLinks

Leftovers = dict[str, list[str]]


def leftovers(folder: Path, project: str = "") -> Leftovers:
    """Stopped processes, mounts and loop devices of a folder; the packet filter table of a Compose project
    (others may be broken beside it), and namespaces of ours."""
    return {
        "stopped processes": _stopped(folder),
        "mounts": sorted(point for point in _mount_points() if str(folder) in point),
        "loop devices": sorted(image for image in _images() if str(folder) in image),
        "rules": _tables(project),
        "namespaces": sorted(path.name for path in Path("/run/netns").glob("holdfast*")),
    }


def processes(folder: Path) -> list[str]:
    """The command lines of all processes that name the folder, without those of pytest."""
    return [words for words, _ in _processes(folder)]


def _stopped(folder: Path) -> list[str]:
    return sorted(words for words, state in _processes(folder) if state == "T")


def _processes(folder: Path) -> list[tuple[str, str]]:
    found = []
    for home in Path("/proc").glob("[0-9]*"):
        try:
            words = (home / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            state = (home / "stat").read_text().rpartition(") ")[2][0]
        except OSError:
            continue  # it has ended
        if str(folder) in words and "pytest" not in words.partition(str(folder))[0]:
            found.append((words, state))
    return found


def _mount_points() -> list[str]:
    return [line.split()[4] for line in Path("/proc/self/mountinfo").read_text(errors="replace").splitlines()]


def _images() -> list[str]:
    found = []
    for file in Path("/sys/block").glob("loop*/loop/backing_file"):
        with suppress(OSError):  # detached meanwhile
            found.append(file.read_text().strip())
    return found


def _tables(project: str) -> list[str]:
    if not project or shutil.which("nft") is None:
        return []
    done = subprocess.run(["nft", "-j", "list", "tables"], capture_output=True, text=True, check=False)
    rows = json.loads(done.stdout)["nftables"] if done.returncode == 0 else []
    names = [row["table"]["name"] for row in rows if "table" in row]
    return sorted(name for name in names if name == ContainerLinks(project).table)
