"""What the rest of Holdfast may know of the world: clock, randomness, network, disk and tasks.

Owns the seam between decisions and the machine; never does anything itself. Every other package reaches
time, random choices, sockets, files and tasks through a `Runtime` only, so that the real runtime
(`runtime.real.machine`), the in-memory twin (`runtime.memory.machine`) and a simulator can stand in for each
other. All implementations pass the same contract tests (`tests/contract`).
"""

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

Buffer: TypeAlias = bytes | bytearray | memoryview

T = TypeVar("T")


# --- errors of the world -------------------------------------------------------------------------------


class NetworkError(Exception):
    """A connection could not be made or broke. The text says which peer and why."""


class ConnectionRefused(NetworkError):
    """The peer's host answered that no process listens there: strong evidence that the process is gone."""


class ConnectTimeout(NetworkError):
    """No answer to the attempt to connect came in time: no evidence of anything."""


class DiskError(Exception):
    """A file operation failed (EIO, ENOSPC, ...). The log dir that it happened in is no longer trusted."""

    def __init__(self, path: str, operation: str, errno: int, reason: str) -> None:
        super().__init__(f"{operation} {path}: {reason}")
        self.path = path
        self.operation = operation
        self.errno = errno
        self.reason = reason


class OutOfResources(DiskError):
    """No file handle or no memory was left for an operation, which has changed nothing. The disk is sound and
    the file may be used again: refuse the one who asked, with an error that says to retry."""


class FileMissing(DiskError):
    """`Disk.open(create=False)`, `rename`, `unlink` or `listdir` met a name that does not exist."""


# --- clock and randomness ------------------------------------------------------------------------------


class Timer(Protocol):
    def cancel(self) -> None:
        """Forget the callback; harmless when it has run already."""


class Clock(Protocol):
    def now_ms(self) -> int:
        """Monotonic milliseconds. The only time that decisions may use."""

    def now_ns(self) -> int:
        """Monotonic nanoseconds, for measurements."""

    def wall_ms(self) -> int:
        """Milliseconds since the epoch: a label for people and records, an input only of decisions about such
        labels: retention, and which timestamps are taken from producers."""

    async def sleep(self, duration_ms: float) -> None: ...

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        """Run `callback` on the event loop once `delay_ms` have passed."""


class Random(Protocol):
    def randint(self, low: int, high: int) -> int:
        """An integer in [low, high], both inclusive."""

    def random(self) -> float:
        """A float in [0, 1)."""

    def uuid(self) -> bytes:
        """16 bytes of a fresh random id."""


# --- network -------------------------------------------------------------------------------------------


class Connection(Protocol):
    """One established TCP connection. Bytes arrive at its `ConnectionHandler`."""

    @property
    def peer(self) -> str:
        """`host:port` of the other side, for messages to people."""

    @property
    def is_closing(self) -> bool: ...

    @property
    def unsent_bytes(self) -> int:
        """Bytes that were written and that the machine has not taken off our hands."""

    def write(self, buffers: Sequence[Buffer]) -> None:
        """Queue the buffers in order. Never blocks; the handler hears when too much is queued."""

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None:
        """Send what is queued, then close."""

    def abort(self) -> None:
        """Close at once and drop what is queued."""


class ConnectionHandler(Protocol):
    """Callbacks of one connection, all on the event loop, in the order shown; none may block or await."""

    def connection_made(self, connection: Connection) -> None: ...

    def bytes_received(self, data: bytes) -> None: ...

    def pause_writing(self) -> None:
        """More than the write limit is queued: stop producing."""

    def resume_writing(self) -> None: ...

    def connection_lost(self, error: NetworkError | None) -> None:
        """Called exactly once; `None` when either side closed in an orderly way."""


class Listener(Protocol):
    @property
    def port(self) -> int:
        """The bound port (useful when 0 was asked for)."""

    async def close(self) -> None:
        """Stop accepting. Connections made before stay open."""


class Network(Protocol):
    async def listen(self, host: str, port: int, handler: Callable[[], ConnectionHandler]) -> Listener:
        """Accept connections, one new handler for each. Raises: NetworkError when the port is taken."""

    async def connect(
        self, host: str, port: int, handler: ConnectionHandler, timeout_ms: float
    ) -> Connection:
        """Raises: ConnectionRefused, ConnectTimeout, NetworkError."""


# --- disk ----------------------------------------------------------------------------------------------


class File(Protocol):
    """An open file. `append` and `read_at` are page-cache calls and run on the event loop; `flush` does not.

    After any DiskError from `append`, `flush` or `truncate`, but OutOfResources, the content of the file is
    unknown and the caller must not go on with it (fail-stop, verification A-20). Only `append` and `read_at`
    raise OutOfResources; the coroutines of files and disks wait until there is what they need.

    Handles of the operating system are few, so a file has one only while it is in use or was lately; it is
    found again by its name. Replace and remove files that are closed, and rename open ones by `rename`.
    """

    @property
    def path(self) -> str: ...

    @property
    def size(self) -> int:
        """Bytes in the file as seen through the page cache."""

    def append(self, buffers: Sequence[Buffer]) -> int:
        """Write all buffers at the end; returns the position of the first byte. Raises: DiskError."""

    def read_at(self, position: int, size: int) -> bytes:
        """At most `size` bytes from `position`; shorter only at the end of the file. Raises: DiskError."""

    async def read_aside(self, position: int, size: int) -> bytes:
        """Like `read_at`, but beside the event loop, and the page cache need not keep the bytes: for what is
        read once. Not at the same time as another of these. Raises: DiskError."""

    async def flush(self) -> None:
        """Make durable every byte that was in the file when the flush *started* (A-21). Concurrent calls
        may share one fsync that starts after the later of them. Raises: DiskError."""

    async def drop_cache(self) -> None:
        """Flush, then forget what the page cache holds of the file: later reads see what the disk has.

        After a failed flush the cache holds bytes that look written and are not, and it shows them to later
        processes too (A-20). The size stays. Raises: DiskError.
        """

    async def truncate(self, size: int) -> None:
        """Cut to `size` bytes; not durable until flushed. Raises: DiskError."""

    async def rename(self, target: str) -> None:
        """Give the open file another name, which replaces a file that is closed; reads and appends go on
        meanwhile. The name is durable when its folder was synced. Raises: DiskError."""

    async def close(self) -> None:
        """Close without flushing. Idempotent."""


#: Bytes of the longest name in a folder; a longer one is a DiskError with ENAMETOOLONG.
NAME_BYTES_MAX = 255


class Space(NamedTuple):
    """Of the device that a folder is on; `free_bytes` is what this process may still use."""

    free_bytes: int
    total_bytes: int


class Disk(Protocol):
    """Paths are plain strings with `/`. Names become durable by `sync_folder` only."""

    async def open(self, path: str, *, create: bool) -> File:
        """Open for reading and appending. Raises: FileMissing (create=False), DiskError."""

    async def rename(self, source: str, target: str) -> None:
        """Atomically replace `target`. Raises: FileMissing, DiskError."""

    async def unlink(self, path: str) -> None:
        """Raises: FileMissing, DiskError."""

    async def make_folder(self, path: str) -> None:
        """Create the folder and its parents; fine when it exists. Raises: DiskError."""

    async def remove_folder(self, path: str) -> None:
        """Remove a folder with everything in it; fine when it is missing. Raises: DiskError."""

    async def sync_folder(self, path: str) -> None:
        """Make creations, renames and unlinks of names in this folder durable. Raises: DiskError."""

    async def listdir(self, path: str) -> list[str]:
        """Names in the folder, sorted. Raises: FileMissing, DiskError."""

    async def exists(self, path: str) -> bool:
        """True for a file or a folder. Raises: DiskError."""

    async def space(self, path: str) -> Space:
        """How full the device of a folder is. Raises: DiskError."""

    async def lock_folder(self, path: str) -> None:
        """Take the folder for this process until it ends (`.lock` in it). Raises: DiskError when taken."""


# --- tasks ---------------------------------------------------------------------------------------------


class Task(Protocol):
    def cancel(self) -> None: ...

    @property
    def is_done(self) -> bool: ...

    async def wait(self) -> None:
        """Until the task has ended, however it ended. Never raises what the task raised."""


class Tasks(Protocol):
    """The only way to start concurrent work. Every task is held and named until it ends."""

    def start(self, name: str, work: Coroutine[Any, Any, None]) -> Task:
        """Run `work`. If it ends with an exception other than cancellation the node has met its own bug or a
        dead disk: the first such exception is what `failure` returns."""

    async def compute(self, work: Callable[[], T]) -> T:
        """The result of `work`, a long computation that shares nothing with others: beside the event loop,
        one such work at a time. Raises: what it raises."""

    async def failure(self) -> BaseException:
        """Wait for the first task that failed; entry points stop the node then."""

    async def cancel_all(self) -> None:
        """Cancel every task in order of creation and wait for all of them."""


# --- the bundle ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Runtime:
    """Everything a node may use of the world."""

    clock: Clock
    random: Random
    network: Network
    disk: Disk
    tasks: Tasks
    #: files and connections together that this process may have open at a time; None: any number
    open_files_max: int | None = None
