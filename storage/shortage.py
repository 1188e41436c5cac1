"""Waits while handles or memory are short.

A start without some of the logs is worse than a late one, and a change of files that is left half-way costs
its log. Only synchronous calls of a file meet a shortage, so these are what is tried again here.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from holdfast.runtime.api import Clock, File, OutOfResources

#: Pause before the next attempt, and least time between two lines in the log, in ms.
_PAUSE_MS = 100
_LINE_MS = 10_000

T = TypeVar("T")

_log = logging.getLogger("holdfast.log_manager")


async def waited_out(clock: Clock, attempt: Callable[[], Awaitable[T]]) -> T:
    """The result of the first attempt that did not meet OutOfResources. An attempt that did leaves nothing
    behind that the next one could not begin with."""
    next_line_ms = clock.now_ms()
    while True:
        try:
            return await attempt()
        except OutOfResources as error:
            if clock.now_ms() >= next_line_ms:
                next_line_ms = clock.now_ms() + _LINE_MS
                _log.warning("waits for file handles or memory: %s", error)
            await clock.sleep(_PAUSE_MS)


async def stored(file: File, store: Callable[[], object]) -> None:
    """Let `store` append to the file, all or nothing. Raises: DiskError, never OutOfResources."""
    while True:
        try:
            store()
        except OutOfResources:
            await file.flush()  # which waits for a handle
        else:
            return
