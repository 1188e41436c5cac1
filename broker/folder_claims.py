"""Who creates or removes which folder of a log: one task at a time for each name."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class FolderClaims:
    """Of one broker, in all its log dirs."""

    def __init__(self) -> None:
        #: {name of a folder: set when its task is done with it}
        self._claimed: dict[str, asyncio.Event] = {}

    @asynccontextmanager
    async def claim(self, name: str) -> AsyncIterator[None]:
        """Wait until no other task creates or removes this folder; until the block ends no other does."""
        while (claimed := self._claimed.get(name)) is not None:
            await claimed.wait()
        self._claimed[name] = asyncio.Event()
        try:
            yield
        finally:
            self._claimed.pop(name).set()

    async def wait(self) -> None:
        """Return when all that is being created or removed now is done."""
        for claimed in list(self._claimed.values()):
            await claimed.wait()
