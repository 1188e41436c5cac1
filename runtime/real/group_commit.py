"""Sharing fsyncs: callers that arrive while one runs wait together for the next (A-21, D6).

Owns who waits for which run; never touches a file itself. A run that is under way does not cover bytes
written after it started, so a caller never joins it, only the one that starts afterwards.
"""

import asyncio
from collections.abc import Callable


class GroupCommit:
    """Serialises `start_sync` and shares its runs. A caller that is cancelled leaves the others alone."""

    __slots__ = ("_idle", "_joining", "_running", "_start_sync")

    def __init__(self, start_sync: Callable[[], "asyncio.Future[None]"]) -> None:
        self._start_sync = start_sync
        #: callers covered by the run under way; None: there is none
        self._running: list[asyncio.Future[None]] | None = None
        #: callers that came after it started; the next run is theirs
        self._joining: list[asyncio.Future[None]] = []
        #: those who wait for the end of all runs
        self._idle: list[asyncio.Future[None]] = []

    @property
    def is_idle(self) -> bool:
        """No run is under way."""
        return self._running is None

    async def idle(self) -> None:
        """Wait until no run is under way. Raises nothing."""
        if self._running is not None:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle.append(waiter)
            await waiter

    async def commit(self) -> None:
        """Wait for a run that started after this call. Raises what the run raised."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._running is None:
            self._run([waiter])
        else:
            self._joining.append(waiter)
        await waiter

    def _run(self, waiters: list["asyncio.Future[None]"]) -> None:
        self._running = waiters
        self._start_sync().add_done_callback(self._finished)

    def _finished(self, run: "asyncio.Future[None]") -> None:
        waiters, self._running = self._running, None
        assert waiters is not None, "only a run that was started can finish"
        error = run.exception()
        if error is not None:
            # The file is unknown from here on: those who wait for the next run must hear it too.
            waiters += self._joining
            self._joining = []
        elif self._joining:
            joining, self._joining = self._joining, []
            self._run(joining)
        for waiter in waiters:
            if waiter.done():
                continue
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(error)
        if self._running is None:
            idle, self._idle = self._idle, []
            for waiter in idle:
                if not waiter.done():
                    waiter.set_result(None)
