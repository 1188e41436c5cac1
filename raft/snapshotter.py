"""Makes snapshots of the owner's state, trims the log below them, and takes the leader's (K14, K15).

Owns the files and what is under way on them. `raft.core.snapshot_policy` decides when a snapshot is due, the
node which one a follower needs; this carries it out, beside appends and fetches.
"""

import logging
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from typing import Any, Protocol

from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.quorum import FetchSnapshotResponse
from holdfast.raft.core.config import RaftConfig
from holdfast.raft.core.control_records import SnapshotHeaderRecord, Voter
from holdfast.raft.core.effects import (
    PieceSaved,
    ReadPiece,
    Reply,
    SavePiece,
    SnapshotInstalled,
    SnapshotRefused,
    SnapshotsKept,
)
from holdfast.raft.core.log_shape import BEGINNING
from holdfast.raft.core.node import RaftNode
from holdfast.raft.core.quorum import LogPosition
from holdfast.raft.core.snapshot_format import CorruptSnapshot, SnapshotId
from holdfast.raft.core.snapshot_policy import SnapshotPolicy
from holdfast.raft.log_writer import LogWriter
from holdfast.raft.snapshot_files import KEPT, GivenUp, Loaded, SnapshotFiles, SnapshotSink, SnapshotSource
from holdfast.runtime.api import FileMissing, OutOfResources, Runtime, Task
from holdfast.storage.log import Log
from holdfast.storage.serial import Serial

#: Wait before a write that found no file handle or memory is tried again.
_SHORTAGE_PAUSE_MS = 50

_log = logging.getLogger("holdfast.raft")


class SnapshotOwner(Protocol):
    """Who has the state that snapshots are made of."""

    def snapshot_source(self) -> SnapshotSource | None:
        """The state as it is now; None while there is none to tell."""

    def snapshot_sink(self) -> SnapshotSink:
        """Reads a snapshot; what it makes of it comes back in `on_snapshot`, or is dropped."""

    def on_snapshot(self, state: Any, offset: int) -> None:
        """The state of a snapshot takes the place of what was handed over so far: everything below `offset`
        is in it. Between two calls of `on_committed`."""

    def on_later_snapshot(self, reason: str) -> None:
        """In place of `on_snapshot`, for one that a later build wrote: it is kept, and what it holds is not
        known here (K29)."""


def directories_of(header: SnapshotHeaderRecord) -> dict[int, bytes]:
    """{voter: directory id} as a snapshot names them."""
    return {row.voter_id: row.directory_id for row in header.directories}


class Snapshotter:
    """The snapshots of one member."""

    def __init__(
        self,
        runtime: Runtime,
        config: RaftConfig,
        log: Log,
        writer: LogWriter,
        owner: SnapshotOwner,
        post: Callable[[SnapshotsKept | PieceSaved | SnapshotInstalled | SnapshotRefused], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """`failed` is called with a DiskError or a bug."""
        self._runtime = runtime
        self._config = config
        self._log = log
        self._writer = writer
        self._owner = owner
        self._post = post
        self._failed = failed
        self._files = SnapshotFiles(runtime, log.folder)
        self._policy = SnapshotPolicy(config.snapshot_bytes, config.snapshot_interval_ms)
        self._serial = Serial(runtime.tasks, f"snapshots of {log.folder}")
        self._making: Task | None = None
        #: called when the state of the leader's snapshot takes the place of what was delivered
        self.jump_to: Callable[[int], None] = lambda _: None
        self._is_ended = False
        #: the newest one; None for none
        self.newest: Loaded | None = None

    @property
    def ids(self) -> tuple[SnapshotId, ...]:
        """Those that are whole, ascending."""
        return tuple(self._files.ids)

    # --- at the start ----------------------------------------------------------------------------------

    async def load(self) -> LogPosition | None:
        """Load the newest snapshot that is whole, and fit the log to it. Returns where the log begins; None
        when what lay below it is nowhere any more. Raises: DiskError."""
        log, files = self._log, self._files
        if not await files.find(log.recovery.other_names):
            return BEGINNING if log.log_start_offset == 0 else None
        installing = await files.check_installing()
        if installing is not None:
            _log.warning("%s: going on with the leader's snapshot at %d", log.folder, installing.offset)
            await log.reset_to(installing.offset)
            await files.installed()
        else:
            await files.drop_installing()
        loaded = await files.load_newest(self._owner.snapshot_sink)
        start = log.log_start_offset
        if loaded is not None and log.log_end_offset < loaded.id.offset:
            _log.warning("%s ends below its snapshot at %d: it begins there", log.folder, loaded.id.offset)
            await log.reset_to(loaded.id.offset)
            start = loaded.id.offset
        if loaded is None or loaded.id.offset < start:
            files.ids.clear()
            return BEGINNING if start == 0 else None
        self._hand_over(loaded)
        self.newest = loaded._replace(state=None)
        if start == 0:
            return BEGINNING
        return next(id.position for id in files.ids if id.offset >= start)

    def _hand_over(self, loaded: Loaded) -> None:
        if loaded.later is None:
            self._owner.on_snapshot(loaded.state, loaded.id.offset)
        else:
            self._owner.on_later_snapshot(loaded.later)

    # --- making ----------------------------------------------------------------------------------------

    def delivered(self, size_bytes: int) -> None:
        """So many bytes more of the log were handed to the owner."""
        self._policy.delivered(size_bytes)

    def make_if_due(self, node: RaftNode) -> None:
        """Make a snapshot when it is time. Called between two events."""
        if not self._policy.is_due(node.now_ms) or self._is_ended or node.is_installing:
            return
        if self._making is not None and not self._making.is_done:
            return
        source = self._owner.snapshot_source()
        if source is None:
            return
        newest = self.newest
        self._policy.made(node.now_ms)
        if source.offset <= max(node.log_start_offset, -1 if newest is None else newest.id.offset):
            return
        id = node.snapshot_at(source.offset)
        offset = source.offset
        work = self._make(id, source, dict(node.directories_below(offset)), node.voters_below(offset))
        self._making = self._runtime.tasks.start(f"snapshot {id.file_name}", self._guarded(work))

    async def _make(
        self, id: SnapshotId, source: SnapshotSource, directories: dict[int, bytes], named: tuple[Voter, ...]
    ) -> None:
        voters = [voter.voter_id for voter in named] or sorted(self._config.voters)
        values = self._until_the_end(source.values)
        try:
            # So that a power loss leaves no log that ends below its snapshot, and the log can be trimmed.
            await self._log.flush()
            header, size_bytes = await self._files.write(id, voters, directories, values, named)
        except GivenUp:
            return
        except OutOfResources as shortage:
            _log.warning("no snapshot at %d: %s", id.offset, shortage)
            return
        await self._serial.run(lambda: self._made(Loaded(id, header, None, size_bytes)))

    def _until_the_end(self, values: Iterator[bytes]) -> Iterator[bytes]:
        for value in values:
            if self._is_ended:
                raise GivenUp
            yield value

    async def _made(self, made: Loaded) -> None:
        """A snapshot is durable: the log may begin at the one before it."""
        if self._is_ended or (self.newest is not None and self.newest.id.offset > made.id.offset):
            return
        self.newest = made
        await self._files.drop_old()
        await self._writer.roll()
        ids, start = self.ids, None
        if len(ids) == KEPT and self._log.log_start_offset < ids[0].offset <= self._log.flushed_offset:
            start = ids[0]
        _log.info("%s: snapshot at %d, %d bytes", self._log.folder, made.id.offset, made.size_bytes)
        # The node first: from now on it refers no follower to what is about to go.
        self._post(SnapshotsKept(ids, start))
        if start is not None:
            await self._writer.trim(start.offset)

    # --- the leader's snapshot -------------------------------------------------------------------------

    def save(self, piece: SavePiece) -> None:
        """Carry out a SavePiece."""
        self._serial.run(lambda: self._guarded(self._save(piece)))

    async def _save(self, piece: SavePiece) -> None:
        while True:
            try:
                await self._files.save(piece.id, piece.position, piece.data)
            except OutOfResources:
                await self._runtime.clock.sleep(_SHORTAGE_PAUSE_MS)
            else:
                break
        if not piece.is_last:
            self._post(PieceSaved(piece.id, piece.position + len(piece.data)))
            return
        try:
            loaded = await self._files.received(piece.id, self._owner.snapshot_sink())
        except CorruptSnapshot as problem:
            await self._files.refuse(piece.id)
            self._post(SnapshotRefused(piece.id, str(problem)))
            return
        if self._is_ended:
            return  # the next start goes on from here
        offset = piece.id.offset
        self.newest = loaded._replace(state=None)
        self.jump_to(offset)
        self._hand_over(loaded)
        await self._writer.reset_to(offset)
        await self._files.installed()
        self._policy.taken()
        _log.info("%s: begins at the leader's snapshot at %d", self._log.folder, offset)
        self._post(SnapshotInstalled(piece.id, directories_of(loaded.header), loaded.header.voter_set))

    def answer(self, reply: Reply, respond: Callable[[Reply], None]) -> None:
        """Answer with a piece of a snapshot that is kept here."""
        self._serial.run(lambda: self._guarded(self._answer(reply, respond)))

    async def _answer(self, reply: Reply, respond: Callable[[Reply], None]) -> None:
        read, response = reply.read, reply.response
        assert isinstance(read, ReadPiece) and isinstance(response, FetchSnapshotResponse)
        try:
            size_bytes, data = await self._files.read(read.id, read.position, read.max_bytes)
        except (FileMissing, OutOfResources) as error:
            code, text = ErrorCode.SNAPSHOT_NOT_FOUND, f"it was not read: {error}; fetch the log again"
            response = replace(response, error_code=code, error_message=text, position=-1)
        else:
            response = replace(response, size=size_bytes, data=memoryview(data))
            if read.position > size_bytes:
                code, text = (
                    ErrorCode.POSITION_OUT_OF_RANGE,
                    f"the snapshot has {size_bytes} bytes: begin anew",
                )
                response = replace(response, error_code=code, error_message=text)
        respond(Reply(reply.token, response))

    # --- the end ---------------------------------------------------------------------------------------

    def end(self) -> None:
        """Begin nothing more."""
        self._is_ended = True

    async def settle(self) -> None:
        """After `end`: wait for what is under way, so that the log may be closed."""
        if self._making is not None:
            await self._making.wait()

        async def nothing() -> None:
            pass

        await self._serial.run(nothing)
        await self._files.close()

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 - passed on to the node
            self._failed(error)
