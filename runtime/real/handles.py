"""The open file handles of one disk, and what happens when there are too many or no more.

Owns when handles are closed and how long a coroutine waits for one; which ones go first is decided in
`runtime.core.handle_lru`. Everything here runs on the event loop.

A handle may be closed while its file has unflushed bytes. Linux writes them back all the same, an fsync by
another descriptor covers them, and a failed write-back that no descriptor has heard of is reported to the
next one that is opened (since 4.17), while the kernel remembers the file. PostgreSQL relies on the same.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from holdfast.runtime.api import OutOfResources
from holdfast.runtime.core.handle_lru import HandleLru

#: Handles closed at once when the system gives no more.
_CLOSED_AT_ONCE = 16
#: Files opened at the same time: more than the threads that do it, since the event loop may be late.
_OPENING_MAX = 128
#: Wait before a coroutine tries again, and least time between two lines in the log about that, in seconds.
_PAUSE_S = 0.05
_LINE_S = 10.0
#: A file that is not used for so long, and at most for twice that, gives its handle up; and how many do in
#: one turn of the event loop.
IDLE_S = 60.0
IDLE_CLOSED_MAX = 500

T = TypeVar("T")

_log = logging.getLogger("holdfast.runtime")


class Holder(Protocol):
    """A file that may have a handle."""

    def give_up_handle(self) -> None:
        """Close the handle; the file gets another one when it is used again."""


class Handles:
    """The handles of one disk; at most `limit` (None: any number) apart from those that are pinned."""

    __slots__ = ("_idle_timer", "_next_line_s", "lru", "opening")

    def __init__(self, limit: int | None) -> None:
        self.lru: HandleLru[Holder] = HandleLru(limit)
        self._next_line_s = 0.0
        #: runs while a file has a handle
        self._idle_timer: asyncio.TimerHandle | None = None
        #: held while a thread opens a file, whose handle is not counted yet
        self.opening = asyncio.Semaphore(_OPENING_MAX if limit is None else min(limit, _OPENING_MAX))

    def opened(self, holder: Holder, *, is_clean: bool) -> None:
        """The file has a handle now."""
        self.lru.opened(holder, is_clean=is_clean)
        if self._idle_timer is None:
            self._look_for_idle(IDLE_S)

    def _look_for_idle(self, delay_s: float) -> None:
        self._idle_timer = asyncio.get_running_loop().call_later(delay_s, self._idle_looked_for)

    def _idle_looked_for(self) -> None:
        self._idle_timer = None
        is_done = self.close_idle()
        if len(self.lru):
            self._look_for_idle(IDLE_S if is_done else 0)

    def close_idle(self) -> bool:
        """Close what is idle; a span of time is over with it. False when some are left for the next call."""
        for _ in range(IDLE_CLOSED_MAX):
            holder = self.lru.give_up_idle()
            if holder is None:
                self.lru.next_span()
                return True
            holder.give_up_handle()
        return False

    def make_room(self, coming: int = 1) -> None:
        """Close handles until `coming` more may be opened."""
        excess = self.lru.excess(coming)
        if excess:
            self._close(excess)

    def close_some(self) -> bool:
        """The system gives no more: close some of ours. False when all are in use."""
        return self._close(_CLOSED_AT_ONCE) > 0

    def _close(self, count: int) -> int:
        closed = 0
        while closed < count and (holder := self.lru.give_up()) is not None:
            holder.give_up_handle()
            closed += 1
        return closed

    async def waited_out(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """The result of an attempt that did not meet OutOfResources; tries until there is one."""
        while True:
            try:
                return await attempt()
            except OutOfResources as error:
                if self.lru.may_pin and self.close_some():
                    await asyncio.sleep(0)
                    continue
                now_s = asyncio.get_running_loop().time()
                if now_s >= self._next_line_s:
                    self._next_line_s = now_s + _LINE_S
                    _log.warning("waits for file handles or memory: %s", error)
                await asyncio.sleep(_PAUSE_S)
