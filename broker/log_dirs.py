"""The log dirs of a broker: which there are, which could be opened, and which are still online.

Knows nothing of the logs in them. Who takes a dir offline is `broker.log_manager`.
"""

import errno
import logging
from collections.abc import Iterator, Sequence

from holdfast.runtime.api import DiskError, Runtime
from holdfast.storage.log_dir import LogDir
from holdfast.storage.meta_properties import LogDirRefused

#: Errors of a lock that another process holds: an operator's mistake, not a failed disk.
_LOCKED = frozenset({errno.EWOULDBLOCK, errno.EAGAIN})

_log = logging.getLogger("holdfast.log_manager")


class LogDirs:
    """Of one broker, in the order of `log.dirs`."""

    def __init__(self, paths: Sequence[str], min_free_bytes: int) -> None:
        """`min_free_bytes`: records are refused while a dir's device has less."""
        self._paths = paths
        self._min_free_bytes = min_free_bytes
        #: those that could be opened, also when they have failed since
        self.opened: list[LogDir] = []
        #: {path: why it could not be opened at the start}
        self.absent: dict[str, DiskError] = {}

    async def open(self, runtime: Runtime, cluster_id: str, node_id: int) -> None:
        """Lock every dir and check that it belongs to this node; a dir that fails is offline from the start.

        Raises: DiskError when another process has one, LogDirRefused.
        """
        for path in self._paths:
            try:
                log_dir = await LogDir.open(runtime, path, cluster_id, node_id)
            except DiskError as error:
                if error.errno in _LOCKED:
                    raise
                _log.error("log dir %s is offline: %s", path, error)
                self.absent[path] = error
                continue
            if log_dir.directory_id in self.ids:
                raise LogDirRefused(
                    f"{path}: another log dir has the same directory.id; remove the copy from log.dirs"
                )
            log_dir.space.min_free_bytes = self._min_free_bytes
            self.opened.append(log_dir)

    def __iter__(self) -> Iterator[LogDir]:
        return iter(self.opened)

    def online(self) -> list[LogDir]:
        """Those that have not failed."""
        return [log_dir for log_dir in self.opened if log_dir.is_online]

    def check_some_online(self) -> None:
        """Raises: DiskError, the first one, when no dir is left."""
        if not self.online():
            failures = [*self.absent.values(), *(d.failure for d in self.opened if d.failure is not None)]
            raise failures[0]

    @property
    def is_whole(self) -> bool:
        """Every dir could be opened and has not failed."""
        return not self.absent and len(self.online()) == len(self.opened)

    @property
    def ids(self) -> list[bytes]:
        """Directory ids of all that could be opened."""
        return [log_dir.directory_id for log_dir in self.opened]

    @property
    def online_ids(self) -> list[bytes]:
        """Directory ids of those that have not failed."""
        return [log_dir.directory_id for log_dir in self.online()]
