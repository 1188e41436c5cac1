"""Writes the ledger of one producer process to a file of its own (D11); the format is
`client.core.history`'s.

A line is in the page cache before the record it tells of is sent, so the death of this process cannot make
a sent record unknown. fsync, when asked for, follows every `flush_ms`.
"""

import posixpath
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from holdfast.client.core.history import RowWriter, SentFields, make_value
from holdfast.client.core.outcomes import DeliveryOutcome
from holdfast.client.own_runtime import ClientRuntime
from holdfast.runtime.api import DiskError, File, Runtime, Task

#: Completed rows are written out when so many characters are waiting, at the latest.
_PENDING_MAX = 1 << 20
#: JSON lines, or an Arrow IPC stream, which takes a tenth of the bytes and needs pyarrow.
LedgerFormat: TypeAlias = Literal["json", "arrow"]


class JsonRows(RowWriter):
    """Lines of JSON, and how they become bytes."""

    __slots__ = ()
    suffix = ".jsonl"

    @staticmethod
    def size(lines: str) -> int:
        """Bytes that the lines of `complete` take."""
        return len(lines)

    @staticmethod
    def joined(pending: Sequence[str]) -> bytes:
        """What to append to the file for these results of `invoke` and `complete`."""
        return "".join(pending).encode()


class Ledger:
    """One file `<run>.<producer>.<random>.jsonl`, or `.arrows`, in `folder`. Not shared between producers."""

    def __init__(
        self,
        folder: str,
        run: str,
        producer: str,
        *,
        flush_ms: int = 100,
        fsync: bool = False,
        first_pseq: int = 0,
        file_format: LedgerFormat = "json",
        runtime: Runtime | None = None,
    ) -> None:
        """Nothing is opened yet; the producer does that, and closes it.

        folder: made when it is missing.
        run, producer: names of 1 to 64 of A-Z a-z 0-9 . _ -.
        flush_ms: a row is in the page cache before its record is sent, and its outcome at most so long after.
        fsync: flush the file as often, so that it survives a power loss as well.
        first_pseq: the number of the first record.
        file_format: "arrow" takes a tenth of the bytes and needs pyarrow.
        runtime: what is used of the world; None: this machine.

        Raises: ValueError for a name that cannot be, and for "arrow" without pyarrow.
        """
        self._owner = ClientRuntime(runtime)
        self._runtime = self._owner.runtime
        self._folder = folder
        self.run = run
        self.producer = producer
        self._rows = _rows(file_format, run, producer)
        self._flush_ms = flush_ms
        self._fsync = fsync
        self._next_pseq = first_pseq
        self._pending: list[Any] = []
        self._pending_size = 0
        self._file: File | None = None
        self._task: Task | None = None
        #: the disk failed: nothing may be sent any more
        self.failure: DiskError | None = None

    async def open(self) -> None:
        """Make the file and its folder. Raises: DiskError."""
        disk = self._runtime.disk
        # the folder's own name, and those of the ones above that are made with it, must last as well
        parents = [posixpath.dirname(self._folder.rstrip("/")) or _root(self._folder)]
        while not await disk.exists(parents[-1]):
            parents.append(posixpath.dirname(parents[-1]) or _root(self._folder))
        await disk.make_folder(self._folder)
        name = f"{self.run}.{self.producer}.{self._runtime.random.uuid().hex()[:12]}{self._rows.suffix}"
        self._file = await disk.open(posixpath.join(self._folder, name), create=True)
        if self._fsync:
            for folder in (self._folder, *parents):
                await disk.sync_folder(folder)
        self._task = self._runtime.tasks.start(f"ledger {self.producer}", self._flush_regularly())

    @property
    def path(self) -> str:
        """Where it is written."""
        assert self._file is not None, "open first"
        return self._file.path

    def take_pseq(self) -> int:
        """The next number of this producer's records."""
        pseq = self._next_pseq
        self._next_pseq += 1
        return pseq

    def next_value(self, size_bytes: int) -> tuple[int, bytes]:
        """A new number and the value that carries it: send the value with `tag=` the number."""
        pseq = self.take_pseq()
        return pseq, make_value(self.producer, pseq, size_bytes)

    def invoke(
        self,
        pseq: int,
        topic: str,
        partition: int,
        value_crc32c: int,
        acks: int,
        t0: int,
        fields: SentFields | None = None,
    ) -> None:
        """A record is about to be sent."""
        self._pending.append(self._rows.invoke(pseq, topic, partition, value_crc32c, acks, t0, fields))

    def complete(
        self,
        pseqs: list[int],
        topic: str,
        partition: int,
        outcome: DeliveryOutcome,
        base_offset: int,
        leader_epoch: int,
        error: str | None,
        t1: int,
        topic_id: bytes = b"",
    ) -> None:
        """A batch has its outcome; `topic_id` is the one it was sent to, if it was. Raises: DiskError."""
        rows = self._rows.complete(
            pseqs, topic, partition, outcome, base_offset, leader_epoch, error, t1, topic_id
        )
        self._pending.append(rows)
        self._pending_size += self._rows.size(rows)
        if self._pending_size > _PENDING_MAX:
            self.write()

    def write(self) -> None:
        """Put all rows into the page cache. Raises: DiskError, now and ever after."""
        if self.failure is not None:
            raise self.failure
        if not self._pending:
            return
        assert self._file is not None, "open first"
        data = self._rows.joined(self._pending)
        self._pending.clear()
        self._pending_size = 0
        try:
            self._file.append([data])
        except DiskError as error:
            self.failure = error
            raise

    async def close(self) -> None:
        """Write, flush when asked for, close. Raises: DiskError."""
        if self._task is not None:
            self._task.cancel()
            await self._task.wait()
        await self._owner.end()
        if self._file is not None:
            self.write()
            if self._fsync:
                await self._file.flush()
            await self._file.close()

    async def _flush_regularly(self) -> None:
        assert self._file is not None
        try:
            while True:
                await self._runtime.clock.sleep(self._flush_ms)
                self.write()
                if self._fsync:
                    await self._file.flush()
        except DiskError as error:
            self.failure = error
            raise


def _rows(file_format: LedgerFormat, run: str, producer: str) -> Any:
    if file_format == "json":
        return JsonRows(run, producer)
    try:
        from holdfast.client.core.arrow_rows import ArrowRows
    except ImportError as error:
        raise ValueError(f"an Arrow ledger needs pyarrow (extra `spark`): {error}") from error
    return ArrowRows(run, producer)


def _root(path: str) -> str:
    """Where the names of a path begin."""
    return "/" if path.startswith("/") else "."
