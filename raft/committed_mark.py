"""How far a voter's metadata log was committed and durable, so that the next start notices a log that ends
before that (K9).

Owns the file, which lies beside the log and lags by at most `STORE_MS`. Committed records are never truncated
(K14), so the offset only rises, and a log that a power loss has cut is never shorter.
"""

import posixpath
from collections.abc import Callable

from holdfast.protocol.topic_names import METADATA_TOPIC
from holdfast.runtime.api import Disk, DiskError, Runtime, Task, Timer
from holdfast.storage import checkpoint
from holdfast.storage.core.files import HIGH_WATERMARK_CHECKPOINT

#: Time from a commit to the write of the file; further commits in between share it.
STORE_MS = 1_000
_ROW = (METADATA_TOPIC, 0)


async def read_committed(disk: Disk, folder: str) -> int:
    """The offset (exclusive) below which the log was committed and durable; 0 when there is no whole file.
    Raises: DiskError."""
    path = posixpath.join(folder, HIGH_WATERMARK_CHECKPOINT)
    return (await checkpoint.read_offsets(disk, path)).get(_ROW, 0)


class CommittedMark:
    """Writes the file of one running voter."""

    def __init__(
        self, runtime: Runtime, folder: str, current: Callable[[], int], failed: Callable[[Exception], None]
    ) -> None:
        """`current` gives the offset to store; `failed` is called with a DiskError."""
        self._runtime = runtime
        self._path = posixpath.join(folder, HIGH_WATERMARK_CHECKPOINT)
        self._current = current
        self._failed = failed
        self._stored = 0
        self._is_ended = False
        self._timer: Timer | None = None
        self._task: Task | None = None

    def advanced(self) -> None:
        """The offset has risen: store it soon."""
        is_writing = self._task is not None and not self._task.is_done
        if self._timer is None and not is_writing and not self._is_ended:
            self._timer = self._runtime.clock.call_later(STORE_MS, self._start)

    def end(self) -> None:
        """Begin no further write."""
        self._is_ended = True
        if self._timer is not None:
            self._timer.cancel()

    async def settle(self) -> None:
        """After `end`: store what is known now."""
        if self._task is not None:
            await self._task.wait()
        await self._store()

    def _start(self) -> None:
        self._timer = None
        self._task = self._runtime.tasks.start(f"write {self._path}", self._store_and_go_on())

    async def _store_and_go_on(self) -> None:
        await self._store()
        if not self._is_ended and self._current() > self._stored:
            self._timer = self._runtime.clock.call_later(STORE_MS, self._start)

    async def _store(self) -> None:
        offset = self._current()
        if offset <= self._stored:
            return
        try:
            await checkpoint.write_offsets(self._runtime.disk, self._path, {_ROW: offset})
        except DiskError as error:
            self._failed(error)
            return
        self._stored = max(self._stored, offset)
