"""Ledgers as Arrow IPC streams (`client.core.arrow_rows` writes them): their rows are those of JSON lines.

A killed process leaves whole batches and at most the beginning of one, which claims nothing. What begins with
other bytes than a batch, what is there and cannot be read, and what a whole batch comes after is damage.
Knows nothing of what a row may say.
"""

import os
import struct
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import IO, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.client.core.arrow_rows import KINDS, OUTCOME_WORDS, PRODUCER_KEY, RUN_KEY, SCHEMA
from holdfast.durability.ledger_files import FIELDS, UnreadableLedger, problem_of_row

#: With what each message of an Arrow stream begins.
_MARKER = b"\xff\xff\xff\xff"
#: How writers of streams may say that they have ended.
_END = _MARKER + bytes(4)
_ERRORS = (pa.ArrowException, OSError, EOFError)
_ARROW_TYPES = {0: pa.string(), 31: pa.int32(), 63: pa.int64()}
#: The columns of `ledger_files.FIELDS`.
ROW_SCHEMA = pa.schema([(name, _ARROW_TYPES[bits]) for name, bits in FIELDS.items()])
_WORDS = {"kind": pa.array(KINDS), "outcome": pa.array(OUTCOME_WORDS)}
#: Batches are small: handing their columns to other threads takes longer than unpacking them.
_ONE_THREAD = pa.ipc.IpcReadOptions(use_threads=False)
#: Bytes that are looked through at a time.
_WINDOW_BYTES = 1 << 20
#: More than what describes a batch of so few columns can take.
_HEAD_BYTES_MAX = 1 << 16
#: Bytes in which a message's head mostly is.
_HEAD_BYTES = 1 << 12
#: Where a message's description, a flatbuffer, has the place of its body's length: vtable entry 3 of 4.
_BODY_LENGTH_ENTRY = 4 + 2 * 3


class CutTail(Exception):
    """The end of a file is the beginning of a batch. The text says where."""


class DamagedBatch(Exception):
    """Bytes that are no batch of a ledger. The text says which and why."""


class Batch(NamedTuple):
    """One batch as it was written."""

    #: byte of the file
    position: int
    #: columns of `client.core.arrow_rows.SCHEMA`
    rows: pa.RecordBatch


def run_of(path: str) -> str | None:
    """The run of a file, None when it has none to say yet. Raises: OSError."""
    try:
        with closing(_Stream(path)) as stream:
            return stream.names[0] if stream.names else None
    except (CutTail, DamagedBatch):
        return None


def read_batches(path: str, start: int = 0, end: int | None = None) -> Generator[Batch, None, None]:
    """The batches in bytes [start, end) of a file; `start` is 0 or where one begins.

    Raises: CutTail, DamagedBatch, both behind what can be read; OSError.
    """
    with closing(_Stream(path, start)) as stream:
        yield from stream.batches(end)


def whole_end(path: str, start: int) -> int:
    """Where the last whole batch behind byte `start` ends; the end of the file where something is damaged,
    which `read_batches` tells. Raises: OSError."""
    end = start
    try:
        with closing(_Stream(path, start)) as stream:
            for position in stream.ends():
                end = position
    except CutTail:
        return end
    except DamagedBatch:
        return Path(path).stat().st_size
    return end


def cuts(path: str, size: int, width: int) -> list[int]:
    """The bytes of [0, size) at which a file may be cut into ranges, the first of which is 0: where batches
    begin, at least `width` apart. Only heads of batches are read. Behind what does not look like one no place
    is known, and the last range has it. Raises: OSError."""
    found, position = [0], 0
    with Path(path).open("rb", buffering=0) as file:
        while position < size and (length := _message_bytes(file.fileno(), position)) is not None:
            if position - found[-1] >= width:
                found.append(position)
            position += length
    return found


def _message_bytes(handle: int, position: int) -> int | None:
    """How long the message at this byte says that it is; None where none begins."""
    head = os.pread(handle, _HEAD_BYTES, position)
    if not head.startswith(_MARKER) or not _may_be_size(head[4:8]):
        return None
    (size,) = struct.unpack_from("<i", head, 4)
    description = head[8 : 8 + size]
    if len(description) < size:
        description += os.pread(handle, size - len(description), position + 8 + len(description))
    try:
        (table,) = struct.unpack_from("<I", description)
        (back,) = struct.unpack_from("<i", description, table)
        (entries,) = struct.unpack_from("<H", description, table - back)
        at = 0  # not there: nothing but a head
        if entries > _BODY_LENGTH_ENTRY:
            (at,) = struct.unpack_from("<H", description, table - back + _BODY_LENGTH_ENTRY)
        (body,) = struct.unpack_from("<q", description, table + at) if at else (0,)
    except struct.error:
        return None
    return 8 + size + body if body >= 0 else None


def may_go_on_at(path: str, position: int) -> bool:
    """False when what is written at this byte begins no batch: none can have ended here. Raises: OSError."""
    with Path(path).open("rb") as file:
        file.seek(position)
        return _MARKER.startswith(file.read(len(_MARKER)))


def as_rows(batches: Sequence[Batch]) -> pa.Table:
    """Batches of one file in the columns of ROW_SCHEMA; NULL where a code stands for nothing."""
    table = pa.Table.from_batches([batch.rows for batch in batches])
    names = table.schema.metadata
    columns = []
    for field in ROW_SCHEMA:
        if field.name in ("run", "producer"):
            column = pa.repeat(names[RUN_KEY if field.name == "run" else PRODUCER_KEY].decode(), len(table))
        elif field.name in _WORDS:
            column = _words(table[field.name], _WORDS[field.name])
        else:
            column = table[field.name].cast(field.type)
        columns.append(column)
    return pa.table(columns, schema=ROW_SCHEMA)


def place_in(path: str, number: int, position: int) -> str:
    """Row `number`, counted from 1, of the batch at byte `position`, for people."""
    return f"{path}, row {number} of the batch at byte {position}"


def sound_batch_rows(path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(place, row) as `ledger_files.sound_rows` yields them. Raises: UnreadableLedger, OSError."""
    run = run_of(path)
    try:
        for batch in read_batches(path):
            for number, row in enumerate(as_rows([batch]).to_pylist(), 1):
                place = place_in(path, number, batch.position)
                if problem := problem_of_row(row, run):
                    raise UnreadableLedger(f"{place}: {problem}")
                yield place, row
    except DamagedBatch as error:
        raise UnreadableLedger(str(error)) from error
    except CutTail:
        return  # what it said counts as unanswered


def _words(codes: Any, words: Any) -> Any:
    """Code 1 is the first word; NULL for a code that stands for none."""
    indexes = pc.subtract(codes.cast(pa.int32()), 1)
    is_one = pc.and_(pc.greater_equal(indexes, 0), pc.less(indexes, len(words)))
    return pc.take(words, pc.if_else(is_one, indexes, pa.scalar(None, pa.int32())))


class _Source:
    """What Arrow reads a file through; knows whether it wanted more than there is. Nothing is mapped into
    memory: who cuts a file while it is read would end this process."""

    closed = False

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.is_short = False

    def readable(self) -> bool:
        return True

    def read(self, size: int) -> bytes:
        # a damaged length may ask for more than there is memory for
        left = max(0, os.fstat(self.file.fileno()).st_size - self.file.tell())
        data = self.file.read(min(size, left))
        self.is_short = len(data) < size
        return data


class _Stream:
    """The messages of a file from its schema on."""

    def __init__(self, path: str, start: int = 0) -> None:
        """Raises: CutTail, DamagedBatch, OSError."""
        self._path = path
        self._source = _Source(Path(path).open("rb"))
        self._reader = pa.PythonFile(self._source, mode="r")
        self.position = 0
        self.schema = SCHEMA
        #: (run, producer); None: the file is empty
        self.names: tuple[str, str] | None = None
        try:
            self._open(start)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._source.file.close()

    def batches(self, end: int | None = None) -> Iterator[Batch]:
        """Those that end before byte `end`. Raises: CutTail, DamagedBatch."""
        file, start = self._source.file, self.position
        if self.names is None:
            return
        file.seek(0)  # Arrow's reader wants the schema first
        reader = pa.ipc.open_stream(self._reader, options=_ONE_THREAD)
        file.seek(start)
        while end is None or self.position < end:
            try:
                rows = reader.read_next_batch()
                rows.validate(full=True)
            except (*_ERRORS, StopIteration) as error:
                self._stop(error, is_cut=self._source.is_short)
                return
            position, self.position = self.position, file.tell()
            if end is not None and self.position > end:
                raise CutTail(self._place(position))  # it was written further since `end` was looked up
            yield Batch(position, rows)

    def ends(self) -> Iterator[int]:
        """Where each batch ends, none of which is unpacked. Raises: CutTail, DamagedBatch."""
        while (message := self._next()) is not None:
            if message.type != "record batch":
                raise DamagedBatch(f"{self._path}, byte {self.position}: a {message.type} ends there")
            yield self.position

    def _open(self, start: int) -> None:
        message = self._next()
        if message is None:
            return
        try:
            self.schema = pa.ipc.read_schema(message)
        except _ERRORS as error:
            raise DamagedBatch(f"{self._path}: does not begin as an Arrow stream: {error}") from error
        if not self.schema.equals(SCHEMA):
            raise DamagedBatch(f"{self._path}: its columns are not those of a ledger")
        metadata = self.schema.metadata or {}
        try:
            self.names = metadata[RUN_KEY].decode(), metadata[PRODUCER_KEY].decode()
        except (KeyError, UnicodeDecodeError) as error:
            raise DamagedBatch(f"{self._path}: its schema does not name run and producer") from error
        if start > self.position:
            self.position = start
            self._source.file.seek(start)

    def _next(self) -> Any:
        """The message at the position, which moves on; None at the end."""
        try:
            message = pa.ipc.read_message(self._reader)
        except _ERRORS as error:
            self._stop(error, is_cut=self._source.is_short)
            return None
        self.position = self._source.file.tell()
        return message

    def _stop(self, error: Exception, *, is_cut: bool) -> None:
        """Returns when the file ends at the position. Raises: CutTail, DamagedBatch."""
        file, place = self._source.file, self._place(self.position)
        file.seek(self.position)
        head = file.read(len(_END))
        if not head or (head == _END and not file.read(1)):
            return
        if self._is_zeros():
            raise CutTail(place)
        if head == _END:
            raise DamagedBatch(f"{place}: the stream has ended there, and goes on behind it")
        size = head[len(_MARKER) :]
        is_head = _MARKER.startswith(head[: len(_MARKER)]) and (len(size) < 4 or _may_be_size(size))
        if not is_cut or not is_head:
            raise DamagedBatch(f"{place}: {error}")
        has_grown = self._kind_at(self.position) != ""  # whole by now, and so may be what is behind it
        behind = None if has_grown else self._batch_behind()
        if behind is not None:
            raise DamagedBatch(f"{place}: {error}, and a whole one is behind it at byte {behind}")
        raise CutTail(place)

    def _place(self, position: int) -> str:
        return f"{self._path}, batch at byte {position}"

    def _is_zeros(self) -> bool:
        """As a power loss leaves what was not on the disk yet."""
        self._source.file.seek(self.position)
        while data := self._source.file.read(_WINDOW_BYTES):
            if data.strip(b"\0"):
                return False
        return True

    def _batch_behind(self) -> int | None:
        """The byte of a whole batch behind the one that begins at the position."""
        file, start = self._source.file, self.position + 1
        while True:
            file.seek(start)
            data = file.read(_WINDOW_BYTES)
            at = data.find(_MARKER)
            while at >= 0:
                if _may_be_size(data[at + 4 : at + 8]) and self._kind_at(start + at) == "record batch":
                    return start + at
                at = data.find(_MARKER, at + 1)
            if len(data) < _WINDOW_BYTES:
                return None
            start += len(data) - len(_END) + 1

    def _kind_at(self, position: int) -> str:
        """Of a whole message there; empty when there is none."""
        self._source.file.seek(position)
        try:
            return str(pa.ipc.read_message(self._reader).type)
        except _ERRORS:
            return ""


def _may_be_size(size: bytes) -> bool:
    """True of what may say how long the description of a batch is."""
    return len(size) == 4 and 0 < struct.unpack("<i", size)[0] <= _HEAD_BYTES_MAX
