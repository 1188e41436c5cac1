"""What keeps a log from wrong use: the first DiskError ends it, file changes exclude each other (A-20).

Owns whether a log may go on in this process and which change of its files is under way. Decides nothing else.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from holdfast.runtime.api import DiskError

#: errno ECANCELED, for a change of files that was stopped half-way.
_ECANCELED = 125

_log = logging.getLogger("holdfast.storage")


class LogGuard:
    """Guard of one log."""

    __slots__ = ("_no_change", "_on_failure", "changing", "failure", "folder", "is_closed")

    def __init__(self, folder: str, on_failure: Callable[[DiskError], None] | None) -> None:
        self.folder = folder
        #: the DiskError after which the log refuses to go on; None while all is well
        self.failure: DiskError | None = None
        self.is_closed = False
        #: the change of files under way, None for none
        self.changing: str | None = None
        self._no_change = asyncio.Event()
        self._no_change.set()
        self._on_failure = on_failure

    @property
    def is_heard(self) -> bool:
        """Somebody is told of the first failure."""
        return self._on_failure is not None

    def check_usable(self) -> None:
        """Raises: DiskError, the first one that happened here."""
        assert not self.is_closed, f"{self.folder} is closed"
        failure = self.failure
        if failure is not None:
            raise DiskError(failure.path, failure.operation, failure.errno, failure.reason)

    def check_append(self) -> None:
        """An append may go on now. Raises: DiskError."""
        self.check_usable()
        assert self.changing is None, f"{self.folder}: append while {self.changing} is under way"

    def fail(self, error: DiskError) -> None:
        """Remember the first error and tell of it."""
        if self.failure is None:
            self.failure = error
            _log.error("%s: no more appends in this process: %s", self.folder, error)
            if self._on_failure is not None:
                self._on_failure(error)

    @contextmanager
    def failing(self) -> Iterator[None]:
        """A DiskError inside ends the log. Raises: it, again."""
        try:
            yield
        except DiskError as error:
            self.fail(error)
            raise

    @asynccontextmanager
    async def change(self, name: str) -> AsyncIterator[None]:
        """Keep appends and flushes away while files change; whoever leaves it half done ends the log."""
        self.check_usable()
        assert self.changing is None, f"{self.folder}: {name} while {self.changing} is under way"
        self.changing = name
        self._no_change.clear()
        try:
            yield
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
        while self.changing is not None:  # again and again: the next change may begin before we wake
            await self._no_change.wait()
