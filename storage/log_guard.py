"""Guards one log: after the first DiskError it stays offline, and changes of its files exclude each other
(A-20).

Owns whether the log may be used in this process, and which change of its files is under way.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from holdfast.runtime.api import DiskError, OutOfResources

#: errno ECANCELED, for a change of files that was cancelled half-way.
_ECANCELED = 125

_log = logging.getLogger("holdfast.storage")


class LogGuard:
    """Guard of one log."""

    __slots__ = ("_no_change", "_on_failure", "changing", "failure", "folder", "is_closed")

    def __init__(self, folder: str, on_failure: Callable[[DiskError], None] | None) -> None:
        self.folder = folder
        #: the first DiskError; None while the log is usable
        self.failure: DiskError | None = None
        self.is_closed = False
        #: the change of files under way, None for none
        self.changing: str | None = None
        self._no_change = asyncio.Event()
        self._no_change.set()
        self._on_failure = on_failure

    @property
    def is_heard(self) -> bool:
        """True when there is a callback for the first failure."""
        return self._on_failure is not None

    @property
    def is_usable(self) -> bool:
        """It is open, and nothing has failed."""
        return not self.is_closed and self.failure is None

    def check_usable(self) -> None:
        """Raises: DiskError, the first one of this log."""
        assert not self.is_closed, f"{self.folder} is closed"
        failure = self.failure
        if failure is not None:
            raise failure.with_traceback(None)  # which would grow with each time

    def check_append(self) -> None:
        """Check that an append is allowed now. Raises: DiskError."""
        self.check_usable()
        assert self.changing is None, f"{self.folder}: append while {self.changing} is under way"

    def fail(self, error: DiskError) -> None:
        """Record the first error and report it; but not that something ran out, which has broken nothing."""
        if self.failure is None and not isinstance(error, OutOfResources):
            self.failure = error
            _log.error("%s: no more appends in this process: %s", self.folder, error)
            if self._on_failure is not None:
                self._on_failure(error)

    @contextmanager
    def failing(self) -> Iterator[None]:
        """A DiskError inside marks the log offline and is raised again."""
        try:
            yield
        except DiskError as error:
            self.fail(error)
            raise

    @asynccontextmanager
    async def change(self, name: str) -> AsyncIterator[None]:
        """Exclude appends and flushes while files change; a failure inside marks the log offline."""
        self.check_usable()
        assert self.changing is None, f"{self.folder}: {name} while {self.changing} is under way"
        self.changing = name
        self._no_change.clear()
        try:
            yield
        except OutOfResources as error:  # every step waits; one that forgets to has left the change half-way
            self.fail(DiskError(error.path, error.operation, error.errno, f"{name} half-way: {error.reason}"))
            raise
        except DiskError as error:
            self.fail(error)
            raise
        except asyncio.CancelledError:
            self.failure = self.failure or DiskError(self.folder, name, _ECANCELED, "cancelled half-way")
            raise
        finally:
            self.changing = None
            self._no_change.set()

    async def no_change(self) -> None:
        """Wait until no change is under way."""
        while self.changing is not None:  # a loop: the next change may begin before this task wakes
            await self._no_change.wait()
