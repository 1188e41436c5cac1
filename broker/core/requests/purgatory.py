"""Where produce and fetch requests wait for an offset or a deadline.

Owns the waiting requests and nothing else: it never looks at a partition, its owner says how far one has
come. Bounded: with `limit` requests waiting, the caller answers the next one at once. Deadlines are kept in
buckets of `BUCKET_MS`, so that removing a request needs no search.
"""

from collections import deque
from collections.abc import Hashable, Iterator
from heapq import heappop, heappush
from typing import Any, Generic, TypeVar

#: Deadlines are met up to this many ms late.
BUCKET_MS = 10

T = TypeVar("T", bound=Hashable)


def earliest_ms(one_ms: int | None, other_ms: int | None) -> int | None:
    """The earlier one of two deadlines, where None is none."""
    if one_ms is None or (other_ms is not None and other_ms < one_ms):
        return other_ms
    return one_ms


class Deadlines(Generic[T]):
    """Items with a deadline. Within a bucket they keep the order of insertion."""

    __slots__ = ("_buckets", "_due")

    def __init__(self) -> None:
        self._buckets: dict[int, dict[T, None]] = {}
        self._due: list[int] = []  # heap of the bucket ends

    def add(self, item: T, deadline_ms: int) -> int:
        """Add `item`; returns the time at which `expire` will return it, which `remove` needs."""
        due_ms = -(-deadline_ms // BUCKET_MS) * BUCKET_MS
        bucket = self._buckets.get(due_ms)
        if bucket is None:
            bucket = self._buckets[due_ms] = {}
            heappush(self._due, due_ms)
        bucket[item] = None
        return due_ms

    def remove(self, item: T, due_ms: int) -> None:
        """Remove `item`; does nothing when it was returned already."""
        bucket = self._buckets.get(due_ms)
        if bucket is not None:
            bucket.pop(item, None)

    def expire(self, now_ms: int) -> Iterator[T]:
        """Remove and return all items that are due, earliest bucket first."""
        while self._due and self._due[0] <= now_ms:
            bucket = self._buckets.pop(heappop(self._due))
            yield from bucket

    def next_deadline_ms(self) -> int | None:
        """When to call `expire` next, None when nothing waits."""
        while self._due and not self._buckets[self._due[0]]:
            del self._buckets[heappop(self._due)]
        return self._due[0] if self._due else None


class DelayedProduce(Generic[T]):
    """A produce request whose batches are appended and wait for the high watermark or for a flush. `rows` are
    the answers for all its partitions, in order; `waiting` are the batches that wait."""

    __slots__ = ("due_ms", "reply_to", "rows", "undecided", "waiting")

    def __init__(self, reply_to: object, rows: list[Any]) -> None:
        self.reply_to = reply_to
        self.rows = rows
        self.waiting: list[WaitingRow[T]] = []
        #: how many of `waiting` are undecided
        self.undecided = 0
        self.due_ms = 0

    def wait_for(self, row: "WaitingRow[T]") -> None:
        """Add one row to wait for."""
        self.waiting.append(row)
        self.undecided += 1


class WaitingRow(Generic[T]):
    """One batch of a delayed produce."""

    __slots__ = (
        "base_offset",
        "batch_epoch",
        "delayed",
        "index",
        "is_decided",
        "key",
        "leader_epoch",
        "required_offset",
    )

    def __init__(
        self,
        delayed: DelayedProduce[T],
        index: int,
        key: T,
        base_offset: int,
        required_offset: int,
        leader_epoch: int,
        batch_epoch: int,
    ) -> None:
        self.delayed = delayed
        #: position in `delayed.rows`
        self.index = index
        self.key = key
        self.base_offset = base_offset
        #: offset that the high watermark, or the flushed offset, must reach
        self.required_offset = required_offset
        #: epoch of the leader that may acknowledge the batch
        self.leader_epoch = leader_epoch
        #: epoch stamped into the batch; older for a duplicate (R91)
        self.batch_epoch = batch_epoch
        self.is_decided = False

    def decide(self) -> bool:
        """Count it as decided. True when its request waits for nothing else."""
        assert not self.is_decided
        self.is_decided = True
        self.delayed.undecided -= 1
        return self.delayed.undecided == 0


class ProducePurgatory(Generic[T]):
    """Delayed produce requests by partition; each partition's rows in order of the offset that they need."""

    __slots__ = ("_deadlines", "_limit", "_queues", "size")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._queues: dict[T, deque[WaitingRow[T]]] = {}
        self._deadlines: Deadlines[DelayedProduce[T]] = Deadlines()
        #: number of waiting requests
        self.size = 0

    @property
    def is_full(self) -> bool:
        """No further request may wait."""
        return self.size >= self._limit

    def add(self, delayed: DelayedProduce[T], deadline_ms: int) -> None:
        """Add a request. A duplicate (R91) may need a lower offset than rows that wait already. The caller
        checks the limit before the append: an appended batch has to wait in any case."""
        assert delayed.undecided > 0
        self.size += 1
        delayed.due_ms = self._deadlines.add(delayed, deadline_ms)
        for row in delayed.waiting:
            queue = self._queues.get(row.key)
            if queue is None:
                queue = self._queues[row.key] = deque()
            while queue and queue[0].is_decided:
                queue.popleft()  # expired requests leave here while the offset stands still
            later: list[WaitingRow[T]] = []
            while queue and queue[-1].required_offset > row.required_offset:
                later.append(queue.pop())
            queue.append(row)
            queue.extend(reversed(later))

    def release(self, key: T, high_watermark: int) -> list[WaitingRow[T]]:
        """Remove and return the undecided rows of a partition that need no higher offset than this."""
        queue = self._queues.get(key)
        if queue is None:
            return []
        released: list[WaitingRow[T]] = []
        while queue and (queue[0].required_offset <= high_watermark or queue[0].is_decided):
            row = queue.popleft()
            if not row.is_decided:
                released.append(row)
        if not queue:
            del self._queues[key]
        return released

    def release_all(self, key: T) -> list[WaitingRow[T]]:
        """Remove and return all undecided rows of a partition that can acknowledge nothing any more."""
        return [row for row in self._queues.pop(key, ()) if not row.is_decided]

    def release_former(self, key: T, leader_epoch: int) -> list[WaitingRow[T]]:
        """Remove and return the undecided rows of a partition that were appended in another leader epoch."""
        queue = self._queues.get(key)
        if queue is None or all(row.leader_epoch == leader_epoch for row in queue):
            return []
        present = deque(row for row in queue if row.leader_epoch == leader_epoch)
        if present:
            self._queues[key] = present
        else:
            del self._queues[key]
        return [row for row in queue if row.leader_epoch != leader_epoch and not row.is_decided]

    def finish(self, delayed: DelayedProduce[T]) -> None:
        """Remove a request whose rows are all decided."""
        assert delayed.undecided == 0
        delayed.waiting.clear()  # breaks the reference cycle: memory is free at once
        self.size -= 1
        self._deadlines.remove(delayed, delayed.due_ms)

    def expire(self, now_ms: int) -> list[WaitingRow[T]]:
        """The undecided rows of requests whose deadline has passed; the caller decides them."""
        expired: list[WaitingRow[T]] = []
        for delayed in self._deadlines.expire(now_ms):
            expired.extend(row for row in delayed.waiting if not row.is_decided)
        return expired

    def next_deadline_ms(self) -> int | None:
        """When to call `expire` next."""
        return self._deadlines.next_deadline_ms()


class DelayedFetch(Generic[T]):
    """A consumer's fetch that waits for data. `request` is kept to check it again."""

    __slots__ = ("due_ms", "keys", "reply_to", "request")

    def __init__(self, reply_to: object, request: Any, keys: tuple[T, ...]) -> None:
        self.reply_to = reply_to
        self.request = request
        #: partitions whose data it waits for
        self.keys = keys
        self.due_ms = 0


class FetchPurgatory(Generic[T]):
    """Consumers' fetches by partition."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._by_key: dict[T, dict[DelayedFetch[T], None]] = {}
        self._deadlines: Deadlines[DelayedFetch[T]] = Deadlines()
        #: number of waiting requests
        self.size = 0

    @property
    def is_full(self) -> bool:
        return self.size >= self._limit

    def add(self, delayed: DelayedFetch[T], deadline_ms: int) -> None:
        """Add a request."""
        assert not self.is_full
        self.size += 1
        delayed.due_ms = self._deadlines.add(delayed, deadline_ms)
        for key in delayed.keys:
            self._by_key.setdefault(key, {})[delayed] = None

    def waiting_for(self, key: T) -> tuple[DelayedFetch[T], ...]:
        """Requests that wait for this partition, oldest first."""
        return tuple(self._by_key.get(key, ()))

    def remove(self, delayed: DelayedFetch[T]) -> None:
        """Remove an answered request."""
        self._deadlines.remove(delayed, delayed.due_ms)
        self._forget(delayed)

    def expire(self, now_ms: int) -> list[DelayedFetch[T]]:
        """Remove and return the requests whose deadline has passed."""
        expired = list(self._deadlines.expire(now_ms))
        for delayed in expired:
            self._forget(delayed)
        return expired

    def _forget(self, delayed: DelayedFetch[T]) -> None:
        self.size -= 1
        for key in delayed.keys:
            waiting = self._by_key.get(key)
            if waiting is not None:
                waiting.pop(delayed, None)
                if not waiting:
                    del self._by_key[key]

    def next_deadline_ms(self) -> int | None:
        """When to call `expire` next."""
        return self._deadlines.next_deadline_ms()
