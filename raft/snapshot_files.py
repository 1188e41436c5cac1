"""The snapshots of one node as files beside its metadata log: written aside, checked, found again (K15).

Owns their names and the order of writes: a file has its real name only when it is whole and durable. Decides
neither when one is made nor which the log may rely on. Long files are read and written in pieces, between
which the event loop has its turn.
"""

import logging
import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from holdfast.protocol.schema.fields import WrittenLater
from holdfast.raft.core.control_records import SnapshotHeaderRecord, Voter, directory_rows
from holdfast.raft.core.snapshot_format import (
    CorruptSnapshot,
    SnapshotDecoder,
    SnapshotEncoder,
    SnapshotId,
    parse_name,
)
from holdfast.runtime.api import Buffer, DiskError, File, FileMissing, Runtime
from holdfast.storage.shortage import waited_out
from holdfast.storage.turn import next_turn

#: Snapshots that are kept: when the newest turns out to be damaged, the log goes on from the one before.
KEPT = 2
#: Records and bytes of one batch: some ms of encoding and decoding.
_BATCH_RECORDS = 100
_BATCH_BYTES = 16 << 10
_READ_BYTES = 8 << 10
_WRITING, _FETCHING, _INSTALLING = ".tmp", ".part", ".install"

_log = logging.getLogger("holdfast.raft")


class SnapshotSource(NamedTuple):
    """The state of the owner of the metadata, for a snapshot."""

    #: everything below is in it; the end of a batch of the log, committed
    offset: int
    #: taken one by one over some time
    values: Iterator[bytes]


class GivenUp(Exception):
    """The values of a snapshot end before their end: its member takes no more part."""


class SnapshotSink(Protocol):
    """Makes the owner's state of the values of a snapshot."""

    def take(self, values: Sequence[bytes], /) -> None:
        """The next values. Raises: WrittenLater; ValueError when they cannot be read."""

    def state(self, offset: int, /) -> Any:
        """The state, after the last value. Raises: ValueError."""


class _NoSink:
    """Looks at nothing: for a check of the bytes alone."""

    def take(self, values: Sequence[bytes], /) -> None:
        pass

    def state(self, offset: int, /) -> Any:
        return None


class Loaded(NamedTuple):
    """A snapshot that was read."""

    id: SnapshotId
    header: SnapshotHeaderRecord
    state: Any
    size_bytes: int
    #: why there is no state: a later build wrote it, and this one does not know all of what it means (K29)
    later: str | None = None


class SnapshotFiles:
    """The snapshots in one folder."""

    def __init__(self, runtime: Runtime, folder: str) -> None:
        self._disk = runtime.disk
        self._clock = runtime.clock
        self._folder = folder
        #: those that are whole, or were not looked at yet; ascending
        self.ids: list[SnapshotId] = []
        #: a fetched one that the log does not begin at yet: a stop interrupted its installation
        self.installing: SnapshotId | None = None
        #: open for readers, which follow the newest
        self._served: dict[SnapshotId, File] = {}
        self._received: File | None = None

    # --- looking ---------------------------------------------------------------------------------------

    async def find(self, names: Sequence[str]) -> bool:
        """Look for snapshots among the names in the folder, and delete what a stop left half done. True when
        there are some. Raises: DiskError."""
        for name in names:
            if (id := parse_name(name)) is not None:
                self.ids.append(id)
            elif (id := parse_name(name.removesuffix(_INSTALLING))) is not None:
                self.installing = id
            elif parse_name(name.removesuffix(_WRITING).removesuffix(_FETCHING)) is not None:
                await self._disk.unlink(posixpath.join(self._folder, name))
        self.ids.sort()
        return bool(self.ids) or self.installing is not None

    async def load_newest(self, sink: Callable[[], SnapshotSink]) -> Loaded | None:
        """The newest one that is whole. Others are told of and not counted; they are deleted when another is
        made. Raises: DiskError."""
        while self.ids:
            id = self.ids[-1]
            try:
                return await self.load(id, sink())
            except CorruptSnapshot as problem:
                _log.error("%s is refused, the one before is used: %s", self._path(id), problem)
                self.ids.pop()
        return None

    async def load(self, id: SnapshotId, sink: SnapshotSink, suffix: str = "") -> Loaded:
        """Read one from its beginning to its end. Raises: CorruptSnapshot, DiskError."""
        file = await self._disk.open(self._path(id, suffix), create=False)
        try:
            try:
                loaded = await self._read(file, id, sink)
            except WrittenLater as later:
                whole = await self._read(file, id, _NoSink())
                loaded = whole._replace(later=f"metadata snapshot at offset {id.offset}: {later}")
        except (DiskError, CorruptSnapshot):
            await file.close()
            raise
        await file.close()
        return loaded

    async def _read(self, file: File, id: SnapshotId, sink: SnapshotSink) -> Loaded:
        decoder = SnapshotDecoder(id)
        position = 0

        async def next_piece() -> bytes:
            return file.read_at(position, _READ_BYTES)

        try:
            while position < file.size:
                piece = await waited_out(self._clock, next_piece)
                position += len(piece)
                sink.take(decoder.feed(piece))
                await next_turn()
            return Loaded(id, decoder.finish(), sink.state(id.offset), file.size)
        except WrittenLater:
            raise
        except ValueError as error:
            raise CorruptSnapshot(str(error)) from error

    async def check(self, id: SnapshotId, suffix: str = "") -> bool:
        """True when the file is whole. Raises: DiskError."""
        try:
            await self.load(id, _NoSink(), suffix)
        except (CorruptSnapshot, FileMissing):
            return False
        return True

    async def check_installing(self) -> SnapshotId | None:
        """The one whose installation was interrupted, if it is whole. Raises: DiskError."""
        id = self.installing
        return id if id is not None and await self.check(id, _INSTALLING) else None

    async def read(self, id: SnapshotId, position: int, max_bytes: int) -> tuple[int, bytes]:
        """(size of the file, bytes at `position`). Raises: DiskError; FileMissing when it was deleted."""
        file = self._served.get(id)
        if file is None:
            file = await self._disk.open(self._path(id), create=False)
            for other in list(self._served):
                await self._served.pop(other).close()
            self._served[id] = file
        size_bytes = file.size
        # A peer may ask for any position, and one that no file can have is to `pread` as a failed disk.
        return size_bytes, file.read_at(position, max_bytes) if position < size_bytes else b""

    # --- making ----------------------------------------------------------------------------------------

    async def write(
        self,
        id: SnapshotId,
        voters: Sequence[int],
        directories: Mapping[int, bytes],
        values: Iterator[bytes],
        voter_set: tuple[Voter, ...] = (),
    ) -> tuple[SnapshotHeaderRecord, int]:
        """Make a snapshot; durable on return. Returns its header, and its size in bytes. Raises: DiskError,
        GivenUp of `values`."""
        header = SnapshotHeaderRecord(
            self._clock.wall_ms(), tuple(sorted(voters)), directory_rows(directories), voter_set
        )
        encoder = SnapshotEncoder(id, header.timestamp_ms)
        file = await self._begin(self._path(id, _WRITING))
        try:
            file.append([encoder.header(header)])
            for batch in _batches(values):
                file.append([encoder.values(batch)])
                await next_turn()
            file.append([encoder.footer()])
            await file.flush()
            size_bytes = file.size
        except (DiskError, GivenUp):
            await file.close()
            with suppress(DiskError):  # the next start deletes it, if this disk takes no more
                await self._disk.unlink(self._path(id, _WRITING))
            raise
        await file.close()
        await self._name(id, _WRITING)
        return header, size_bytes

    async def _begin(self, path: str) -> File:
        file = await self._disk.open(path, create=True)
        if file.size:
            await file.truncate(0)
        return file

    async def _name(self, id: SnapshotId, suffix: str) -> None:
        """Give a file that is whole and durable its real name."""
        await self._disk.rename(self._path(id, suffix), self._path(id))
        await self._disk.sync_folder(self._folder)
        if id not in self.ids:
            self.ids = sorted([*self.ids, id])

    async def drop_old(self) -> None:
        """Delete all but the newest, and those that were refused. Raises: DiskError."""
        self.ids = self.ids[-KEPT:]
        for name in await self._disk.listdir(self._folder):
            id = parse_name(name)
            if id is not None and id not in self.ids:
                if (served := self._served.pop(id, None)) is not None:
                    await served.close()
                await self._disk.unlink(posixpath.join(self._folder, name))
        await self._disk.sync_folder(self._folder)

    # --- taking the leader's ---------------------------------------------------------------------------

    async def save(self, id: SnapshotId, position: int, data: Buffer) -> None:
        """Write a piece of the leader's snapshot aside; position 0 begins anew. Raises: DiskError."""
        if position == 0:
            await self._close_received()
            await self._drop_given_up(id)
            self._received = await self._begin(self._path(id, _FETCHING))
        assert self._received is not None and self._received.size == position, "pieces come in order"
        self._received.append([data])

    async def _drop_given_up(self, id: SnapshotId) -> None:
        """Delete what was fetched of any but this one."""
        for name in await self._disk.listdir(self._folder):
            other = parse_name(name.removesuffix(_FETCHING)) if name.endswith(_FETCHING) else None
            if other not in (None, id):
                await self._disk.unlink(posixpath.join(self._folder, name))

    async def refuse(self, id: SnapshotId) -> None:
        """Delete what was fetched. Raises: DiskError."""
        await self._close_received()
        await self._disk.unlink(self._path(id, _FETCHING))

    async def received(self, id: SnapshotId, sink: SnapshotSink) -> Loaded:
        """Read what was fetched, and make it durable. The log may be replaced then: a start finishes that.
        Raises: CorruptSnapshot, DiskError."""
        assert self._received is not None
        await self._received.flush()
        await self._close_received()
        loaded = await self.load(id, sink, _FETCHING)
        await self._disk.rename(self._path(id, _FETCHING), self._path(id, _INSTALLING))
        await self._disk.sync_folder(self._folder)
        self.installing = id
        return loaded

    async def installed(self) -> None:
        """The log begins at the end of the one that was fetched. Others are of another log. Raises:
        DiskError."""
        id = self.installing
        assert id is not None
        self.ids = []
        await self._name(id, _INSTALLING)
        self.installing = None
        await self.drop_old()

    async def drop_installing(self) -> None:
        """Delete a fetched one that is not whole. Raises: DiskError."""
        if self.installing is not None:
            await self._disk.unlink(self._path(self.installing, _INSTALLING))
            self.installing = None

    async def close(self) -> None:
        """Close what is open."""
        await self._close_received()
        for id in list(self._served):
            await self._served.pop(id).close()

    async def _close_received(self) -> None:
        if self._received is not None:
            await self._received.close()
            self._received = None

    def _path(self, id: SnapshotId, suffix: str = "") -> str:
        return posixpath.join(self._folder, id.file_name + suffix)


def _batches(values: Iterator[bytes]) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    size_bytes = 0
    for value in values:
        batch.append(value)
        size_bytes += len(value)
        if len(batch) >= _BATCH_RECORDS or size_bytes >= _BATCH_BYTES:
            yield batch
            batch, size_bytes = [], 0
    if batch:
        yield batch
