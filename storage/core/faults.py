"""What an error of a log or a disk costs (A-20): the one place that decides it.

Owns the error for bad content and the table from an error to what is given up for it. Damage of one log's
bytes costs that replica, a device that fails costs its log dir. Damage of a derived file (index, snapshot,
checkpoint) is no error at all: its reader verifies it against the log and builds it again.
"""

from enum import Enum

from holdfast.runtime.api import DiskError

#: errno EIO: what the bytes say differs from what was written.
_EIO = 5


class CorruptLog(DiskError):
    """The content of one log cannot be right, and the device has reported no error.

    A DiskError, because the log is as unusable as after one; `scope_of` tells how much else is.
    """

    def __init__(self, path: str, position: int, reason: str) -> None:
        """`path`: the damaged file, or the folder when a file is missing; `position`: byte in the file."""
        super().__init__(path, "read", _EIO, f"damaged at byte {position}: {reason}")
        self.position = position
        self.damage = reason


class FaultScope(Enum):
    """What goes out of service."""

    #: one replica; the others in its log dir go on, and it is fetched again from its leader
    REPLICA = "replica"
    #: everything in the log dir, until the process ends
    LOG_DIR = "log dir"


def scope_of(error: DiskError) -> FaultScope:
    """What an error of an operation on a log takes out of service."""
    if isinstance(error, CorruptLog):
        return FaultScope.REPLICA
    return FaultScope.LOG_DIR
