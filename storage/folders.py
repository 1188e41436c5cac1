"""Folders whose names survive a power loss.

Owns the order: make what is missing, then sync every folder above. Never decides where anything lies.
"""

import errno
import posixpath

from holdfast.runtime.api import Disk, DiskError

#: What a folder answers that this process may not sync: it made no name in there.
_NOT_OURS = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.EINVAL})


async def make_durably(disk: Disk, path: str) -> None:
    """Make the folder and those above it that are missing; all their names are durable on return.

    Call it as long as nothing in the folder proves that it was done: a start that was stopped half-way leaves
    names that are seen and not yet durable. Raises: DiskError.
    """
    if not await disk.exists(path):
        await disk.make_folder(path)
    below = posixpath.normpath(path)
    while (above := posixpath.dirname(below) or ".") != below:
        try:
            await disk.sync_folder(above)
        except DiskError as error:
            if error.errno not in _NOT_OURS:
                raise
        below = above
