"""Carries out the node's effects on the log: appends, truncations and flushes, in order (D2).

Owns that order and the flush under way; never decides what to do or when. Appends go to the page cache at
once. Those of one turn of the event loop, and those that come during a flush, share the next fsync. Full
segments are rolled between appends.
"""

import asyncio
from collections.abc import Callable

from holdfast.protocol.record_batch import Record, encode_batch
from holdfast.raft.core.control_records import LEADER_CHANGE_KEY, VOTERS_KEY
from holdfast.raft.core.effects import Append, AppendFetched, Control, Truncate
from holdfast.runtime.api import Buffer, DiskError, OutOfResources, Runtime, Task
from holdfast.storage.log import Log
from holdfast.storage.serial import Serial

#: Wait before an append that found no file handle or memory is tried again.
_SHORTAGE_PAUSE_MS = 50
_KEYS = {Control.LEADER_CHANGE: LEADER_CHANGE_KEY, Control.VOTERS: VOTERS_KEY}


class LogWriter:
    """The only writer of the log while the driver runs."""

    def __init__(
        self,
        runtime: Runtime,
        log: Log,
        appended: Callable[[], None],
        flushed: Callable[[int], None],
        truncated: Callable[[int], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._runtime = runtime
        self._log = log
        self._appended = appended
        self._flushed = flushed
        self._truncated = truncated
        self._failed = failed
        self._serial = Serial(runtime.tasks, f"order of {log.folder}")
        self._is_flush_wanted = False
        self._is_flushing = False
        self._flush_task: Task | None = None

    def append(self, effect: Append) -> None:
        """Append the leader's own batch."""
        timestamp_ms = self._runtime.clock.wall_ms()
        key = None if effect.control is None else _KEYS[effect.control]
        records = [
            Record(effect.base_offset + index, timestamp_ms, key, value)
            for index, value in enumerate(effect.values)
        ]
        batch = encode_batch(
            records,
            base_offset=effect.base_offset,
            leader_epoch=effect.raft_epoch,
            is_control=effect.control is not None,
        )
        self._submit(batch, effect.base_offset)

    def append_fetched(self, effect: AppendFetched) -> None:
        """Append batches fetched from a leader, unchanged."""
        self._submit(effect.records, effect.base_offset)

    def flush(self) -> None:
        """Make durable what was appended before this call."""
        self._serial.submit(lambda: None, lambda _: self._want_flush(), self._failed)

    def truncate(self, effect: Truncate) -> None:
        """Truncate the log."""
        turn = self._serial.run(lambda: self._log.truncate_to(effect.end_offset))
        self._runtime.tasks.start(f"cut {self._log.folder}", self._truncate(effect.end_offset, turn))

    async def roll(self) -> None:
        """Begin a new segment, so that those before it can be deleted later. Raises: DiskError."""
        await self._serial.run(self._log.roll)

    async def trim(self, offset: int) -> None:
        """Let the log begin at `offset`, where a snapshot ends, and delete what can be (K15). Raises:
        DiskError."""

        async def work() -> None:
            self._log.move_start(offset)
            await self._log.delete_old_segments(self._runtime.clock.wall_ms(), offset)

        await self._serial.run(work)

    async def reset_to(self, offset: int) -> None:
        """Drop everything, and let the log begin at `offset`, where a snapshot ends (K14). Raises:
        DiskError."""
        await self._serial.run(lambda: self._log.reset_to(offset))

    async def settle(self) -> None:
        """Wait until everything issued so far is done, so that the log may be closed."""

        async def nothing() -> None:
            pass

        await self._serial.run(nothing)
        if self._flush_task is not None:
            await self._flush_task.wait()

    def _submit(self, batch: Buffer, base_offset: int) -> None:
        def work() -> None:
            try:
                self._append(batch, base_offset)
            except OutOfResources:
                self._serial.put_first(lambda: self._append_later(batch, base_offset))
            else:
                self._after_append()

        self._serial.submit(work, lambda _: None, self._failed)

    def _append(self, batch: Buffer, base_offset: int) -> None:
        appended = self._log.append_as_follower(batch)
        assert appended is not None and appended.base_offset == base_offset, "the node knows the log's end"

    async def _append_later(self, batch: Buffer, base_offset: int) -> None:
        """Wait until there is what the append needs: the node counts on it."""
        while True:
            await self._runtime.clock.sleep(_SHORTAGE_PAUSE_MS)
            try:
                self._append(batch, base_offset)
                self._after_append()
            except OutOfResources:
                continue
            except Exception as error:  # noqa: BLE001 - passed on to the node
                self._failed(error)
            return

    def _after_append(self) -> None:
        if self._log.needs_roll(0):
            turn = self._serial.run(self._log.roll)
            self._runtime.tasks.start(f"roll {self._log.folder}", self._roll(turn))
        self._appended()

    async def _roll(self, turn: "asyncio.Future[None]") -> None:
        try:
            await turn
        except DiskError as error:
            self._failed(error)

    async def _truncate(self, end_offset: int, turn: "asyncio.Future[int]") -> None:
        try:
            reached = await turn
        except DiskError as error:
            self._failed(error)
            return
        assert reached == end_offset, f"logs diverge at batch boundaries, {end_offset} is inside a batch"
        self._truncated(end_offset)

    def _want_flush(self) -> None:
        self._is_flush_wanted = True
        if not self._is_flushing:
            self._is_flushing = True
            self._flush_task = self._runtime.tasks.start(f"flush {self._log.folder}", self._flush())

    async def _flush(self) -> None:
        while self._is_flush_wanted:
            self._is_flush_wanted = False
            try:
                up_to_offset = await self._log.flush()
            except DiskError as error:
                # Not durable, and not retried: what the file holds now is unknown.
                self._failed(error)
                return
            # The flush covers what was in the log when it started, not what came later.
            self._flushed(up_to_offset)
        self._is_flushing = False
