"""Creates folders whose names survive a power loss.

Owns the order: create the missing ones, then sync every folder above. Never decides where a folder lies.
"""

import errno
import posixpath

from holdfast.runtime.api import Disk, DiskError

#: Errors of syncing a folder that this process may not write to: it has created no name in it.
_NOT_OURS = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.EINVAL})


async def make_durably(disk: Disk, path: str) -> None:
    """Create the folder and the missing ones above it; all their names are durable on return.

    Call it again until something in the folder proves that it was done: a start that was interrupted leaves
    names that are visible and not durable. Raises: DiskError.
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
