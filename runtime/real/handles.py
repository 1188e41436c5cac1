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
#: Wait before a coroutine tries again, in seconds, and how many waits are between two lines in the log.
_PAUSE_S = 0.05
_PAUSES_PER_LINE = 200

T = TypeVar("T")

_log = logging.getLogger("holdfast.runtime")


class Holder(Protocol):
    """A file that may have a handle."""

    def give_up_handle(self) -> None:
        """Close the handle; the file gets another one when it is used again."""


class Handles:
    """The handles of one disk; at most `limit` (None: any number) apart from those that are pinned."""

    __slots__ = ("lru",)

    def __init__(self, limit: int | None) -> None:
        self.lru: HandleLru[Holder] = HandleLru(limit)

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
        pauses = 0
        while True:
            try:
                return await attempt()
            except OutOfResources as error:
                if self.lru.may_pin and self.close_some():
                    await asyncio.sleep(0)
                    continue
                if pauses % _PAUSES_PER_LINE == 0:
                    _log.warning("waits for file handles or memory: %s", error)
                pauses += 1
                await asyncio.sleep(_PAUSE_S)
