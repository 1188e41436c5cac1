"""Writes what a consumer was given to a file of its own; the format is `client.core.poll_rows`'.

A line is in the page cache before the next poll, and so before the group hears that its records were read.
"""

import posixpath
from collections.abc import Iterable

from holdfast.client.core.poll_rows import SUFFIX, Polled, PollRows
from holdfast.client.own_runtime import ClientRuntime
from holdfast.runtime.api import File, Runtime


class PollLedger:
    """One file `<run>.<consumer>.<random>.polls.jsonl` in `folder`. Not shared between consumers."""

    def __init__(self, folder: str, run: str, consumer: str, *, runtime: Runtime | None = None) -> None:
        """Nothing is opened yet.

        folder: made when it is missing.
        run, consumer: names of 1 to 64 of A-Z a-z 0-9 . _ -.
        runtime: what is used of the world; None: this machine.

        Raises: ValueError for a name that cannot be.
        """
        self._owner = ClientRuntime(runtime)
        token = self._owner.runtime.random.uuid().hex()[:12]
        self._path = posixpath.join(folder, f"{run}.{consumer}.{token}{SUFFIX}")
        self._rows = PollRows(run, consumer, token)
        self._file: File | None = None

    async def open(self) -> None:
        """Make the file and its folder. Raises: DiskError."""
        disk = self._owner.runtime.disk
        await disk.make_folder(posixpath.dirname(self._path))
        self._file = await disk.open(self._path, create=True)

    @property
    def path(self) -> str:
        """Where it is written."""
        return self._path

    def begin_session(self) -> None:
        """The consumer was assigned, sought or reset: what comes next need not follow what came before."""
        self._rows.begin_session()

    def write(self, polled: Iterable[Polled]) -> None:
        """What the poll gave that was just answered. Raises: DiskError."""
        assert self._file is not None, "open first"
        text = self._rows.poll(polled, self._owner.runtime.clock.now_ns())
        if text:
            self._file.append([text.encode()])

    async def close(self) -> None:
        """Close the file. Raises: DiskError."""
        await self._owner.end()
        if self._file is not None:
            await self._file.close()
