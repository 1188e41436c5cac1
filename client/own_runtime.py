"""The runtime of a client: the one it was given, or the machine's own, which ends with the client.

The only module of clients that knows the real machine, since an application names no runtime. Tasks of an
own runtime are the client's: `end` leaves none behind, and one that fails ends the client.
"""

import asyncio
import warnings
from collections.abc import Callable

from holdfast.runtime.api import Runtime
from holdfast.runtime.real.machine import real_runtime


class ClientRuntime:
    """What one client uses of the world."""

    def __init__(self, runtime: Runtime | None) -> None:
        """None: the machine's own. Needs no event loop yet."""
        self._is_own = runtime is None
        self.runtime = real_runtime() if runtime is None else runtime
        #: `begin` was called, `end` was not
        self._is_open = False

    def begin(self, on_failure: Callable[[BaseException], None]) -> None:
        """The client starts; `on_failure` hears of the first of its own tasks that fails."""
        if self._is_own and not self._is_open:
            self._is_open = True
            self.runtime.tasks.start("client failures", self._watch(on_failure))

    async def end(self) -> None:
        """Cancel the tasks of an own runtime and wait for them; those of another one belong to its owner."""
        self._is_open = False
        if self._is_own:
            await self.runtime.tasks.cancel_all()

    async def _watch(self, on_failure: Callable[[BaseException], None]) -> None:
        try:
            on_failure(await self.runtime.tasks.failure())
        except asyncio.CancelledError:
            if self._is_open:  # the event loop ends, and what the client has to send is lost
                warnings.warn("a Holdfast client was not closed: use `async with`", ResourceWarning, 1)
            raise
