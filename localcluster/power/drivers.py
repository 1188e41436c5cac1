"""The drivers of `--power-loss`, and which of them work on this machine."""

from holdfast.localcluster.nodes import ClusterError
from holdfast.localcluster.power import loop_disk
from holdfast.localcluster.power.disks import Disks
from holdfast.localcluster.power.ext4 import LoopDisks
from holdfast.localcluster.power.tracked import TrackedDisks

#: in the order in which `auto` tries them
NAMES = (*loop_disk.FILE_SYSTEMS, TrackedDisks.name)


def why_not(name: str) -> str:
    """Why a driver does not work on this machine, found by trying; empty when it does."""
    assert name in NAMES, name
    return "" if name == TrackedDisks.name else loop_disk.why_not(loop_disk.FILE_SYSTEMS[name])


def available() -> tuple[str, ...]:
    """The drivers that work on this machine."""
    return tuple(name for name in NAMES if not why_not(name))


def choose(wish: str) -> str:
    """The driver for `--power-loss`: `auto` is the first that works here. Raises: ClusterError."""
    if wish == "auto":
        return next(name for name in NAMES if not why_not(name))
    if wish not in NAMES:
        raise ClusterError(f"no driver {wish}: there are auto, {', '.join(NAMES)}")
    if reason := why_not(wish):
        raise ClusterError(f"the driver {wish} does not work here: {reason}; tracked works everywhere")
    return wish


def disks(name: str | None) -> Disks:
    """The disks of a cluster that was made with this driver; None: made without."""
    if name is None:
        return Disks()
    if name not in NAMES:
        raise ClusterError(f"no driver {name}: this cluster was made by another version")
    return TrackedDisks() if name == TrackedDisks.name else LoopDisks(name)
