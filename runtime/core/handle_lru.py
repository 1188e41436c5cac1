"""Which open file handles are given up when there are too many.

Owns the order of use and the limit. The least recently used handle goes first, of files without unflushed
bytes while there is one: the kernel reports a failed write-back to the descriptors that are open then. A
pinned handle, which a thread is using, stays.
"""

from collections import OrderedDict
from typing import Generic, TypeVar

K = TypeVar("K")

#: Share of a process' open files that logs may have: the other half is for connections (`rpc.server`), and a
#: quarter of ours for outgoing connections, folders that are synced, and small files.
_LOGS_OF_EIGHT = 3
_HANDLES_MIN = 4


def handle_limit(open_files_max: int) -> int:
    """How many handles of files a process may keep open that may open `open_files_max` files and
    connections."""
    return max(_HANDLES_MIN, open_files_max * _LOGS_OF_EIGHT // 8)


class HandleLru(Generic[K]):
    """The open handles, by the files that have them; `limit` None: any number."""

    __slots__ = ("_clean", "_limit", "_pins", "_span", "_unflushed")

    def __init__(self, limit: int | None) -> None:
        assert limit is None or limit > 0
        self._limit = limit
        # {file: span of time in which it was used}, least recently used first; pinned ones are in neither.
        self._clean: OrderedDict[K, int] = OrderedDict()
        self._unflushed: OrderedDict[K, int] = OrderedDict()
        self._pins: dict[K, int] = {}
        #: number of this span of time
        self._span = 0

    def __len__(self) -> int:
        return len(self._clean) + len(self._unflushed) + len(self._pins)

    def opened(self, key: K, *, is_clean: bool) -> None:
        """The file has a handle now, the most recently used."""
        (self._clean if is_clean else self._unflushed)[key] = self._span

    def used(self, key: K) -> None:
        """The handle was used."""
        handles = self._clean if key in self._clean else self._unflushed
        if key in handles:
            handles[key] = self._span
            handles.move_to_end(key)

    def wrote(self, key: K) -> None:
        """The file has unflushed bytes from now on."""
        if key not in self._pins:
            self._clean.pop(key, None)
            self._unflushed[key] = self._span
            self._unflushed.move_to_end(key)

    def pin(self, key: K) -> None:
        """The handle must stay until as many calls of `unpin`."""
        self._clean.pop(key, None)
        self._unflushed.pop(key, None)
        self._pins[key] = self._pins.get(key, 0) + 1

    def unpin(self, key: K, *, is_clean: bool) -> None:
        """A use that needed the handle has ended; harmless after `closed`."""
        pins = self._pins.pop(key, 0)
        if pins > 1:
            self._pins[key] = pins - 1
        elif pins:
            self.opened(key, is_clean=is_clean)

    def closed(self, key: K) -> None:
        """The file has no handle any more."""
        self._clean.pop(key, None)
        self._unflushed.pop(key, None)
        self._pins.pop(key, None)

    def excess(self, coming: int = 0) -> int:
        """How many are to be given up before `coming` more are opened."""
        return 0 if self._limit is None else max(0, len(self) + coming - self._limit)

    @property
    def may_pin(self) -> bool:
        """False when as many are pinned as there may be handles."""
        return self._limit is None or len(self._pins) < self._limit

    def next_span(self) -> None:
        """A span of time is over. Who uses nothing for a whole one is idle."""
        self._span += 1

    def give_up_idle(self) -> K | None:
        """Take out a handle that was not used in this span and the one before; None when there is none."""
        for handles in (self._clean, self._unflushed):
            if handles and next(iter(handles.values())) < self._span - 1:
                return handles.popitem(last=False)[0]
        return None

    def give_up(self) -> K | None:
        """Take out the handle that is to be closed; None when all are pinned."""
        for handles in (self._clean, self._unflushed):
            if handles:
                return handles.popitem(last=False)[0]
        return None
