"""Under which id and epoch a producer writes (R90-R93), and what its partitions wait for when there is none.

Owns asking for an identity, one question at a time, and the pause after a refusal. Never knows brokers.
"""

from holdfast.client.core.backoff import Backoff
from holdfast.client.core.batch import ProducerIdAndEpoch
from holdfast.client.core.partition_queue import PartitionQueue
from holdfast.client.core.sender_effects import AskIdentity
from holdfast.protocol.errors import ErrorCode


class ProducerIdentity:
    """Of one producer."""

    __slots__ = (
        "_failures",
        "_is_asked",
        "_is_fenced",
        "_is_overtaken",
        "_is_wanted",
        "_retry",
        "_retry_ms",
        "error",
        "newest",
        "trouble",
        "waiting",
    )

    def __init__(self, retry: Backoff) -> None:
        #: None before the first
        self.newest: ProducerIdAndEpoch | None = None
        #: queues that only a new identity lets go on
        self.waiting: dict[PartitionQueue, None] = {}
        #: why the last attempt to get one failed; empty once it did not
        self.trouble = ""
        self.error: ErrorCode | None = None
        self._retry = retry
        self._retry_ms = 0
        self._failures = 0
        self._is_asked = False
        #: the answer to the question under way is of another cluster
        self._is_overtaken = False
        #: before any queue needs it
        self._is_wanted = False
        #: the id itself is unusable (R93): take a fresh one instead of a new epoch
        self._is_fenced = False

    def want(self) -> None:
        """Get one before the first record needs it."""
        if self.newest is None:
            self._is_wanted = True
            self._retry_ms = 0

    def fenced(self, identity: ProducerIdAndEpoch | None) -> None:
        """A log refused it for good."""
        if identity == self.newest:
            self._is_fenced = True

    def forget(self) -> None:
        """What was given, and will be given to the question under way, is worth nothing any more."""
        self.newest = None
        self._is_fenced = False
        self._is_overtaken = self._is_asked

    def question(self, now_ms: int) -> AskIdentity | None:
        """What to ask now, marked as asked. None: no partition waits, or for an answer or a pause."""
        if not (self.waiting or self._is_wanted) or self._is_asked or now_ms < self._retry_ms:
            return None
        self._is_asked = True
        return AskIdentity(-1, -1) if self.newest is None or self._is_fenced else AskIdentity(*self.newest)

    def next_deadline_ms(self) -> int | None:
        """When there will be a question."""
        return self._retry_ms if (self.waiting or self._is_wanted) and not self._is_asked else None

    def given(self, identity: ProducerIdAndEpoch) -> list[PartitionQueue]:
        """A fresh id or a new epoch; returns the queues that waited for it."""
        assert self._is_asked
        if self._is_overtaken:
            self._is_asked = self._is_overtaken = False
            return []
        self._is_asked = self._is_fenced = self._is_wanted = False
        self._failures = 0
        self.error, self.trouble = None, ""
        self.newest = identity
        return list(self.waiting)

    def failed(self, now_ms: int, code: ErrorCode | None, text: str) -> None:
        """No broker gave one: there will be another question after a pause."""
        assert self._is_asked
        self._is_asked = self._is_overtaken = False
        self._failures += 1
        self._retry_ms = now_ms + self._retry.pause_ms(self._failures)
        self.error, self.trouble = code, f"no producer id: {text}"

    @property
    def is_refused(self) -> bool:
        """True when the last attempt failed and asking again will not help."""
        return self.error is not None and not self.error.is_retriable
