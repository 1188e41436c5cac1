"""Producer ids for InitProducerId, from blocks that the active controller allocates (D12).

Owns the current block and the requests that wait for the next one; at most one allocation is under way. Ids
left over in a block when the broker stops are never used.
"""

from collections import deque

from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.producer_ids import (
    AllocateProducerIdsResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)

#: Most requests that wait for a block; further ones are refused.
WAITING_MAX = 1000
#: Last epoch of a producer id; after it a producer gets a new id.
EPOCH_MAX = (1 << 15) - 1
#: A block is requested when fewer ids are left.
REFILL_BELOW = 10
#: Pause in ms after an allocation that was refused or failed.
RETRY_MS = 50


class ProducerIds:
    """The current block. Answers are returned as (reply_to, response)."""

    __slots__ = ("_end", "_next", "_not_before_ms", "_waiting", "is_allocating")

    def __init__(self) -> None:
        self._next = 0
        #: exclusive
        self._end = 0
        self._waiting: deque[object] = deque()
        self._not_before_ms = 0
        #: an AllocateProducerIds is under way
        self.is_allocating = False

    def wants_block(self, now_ms: int) -> bool:
        """True when an allocation should be started."""
        due_ms = self.next_deadline_ms()
        return due_ms is not None and due_ms <= now_ms

    def next_deadline_ms(self) -> int | None:
        """When to start an allocation, None when no block is needed."""
        is_short = bool(self._waiting) or self._next + REFILL_BELOW > self._end > 0
        return self._not_before_ms if is_short and not self.is_allocating else None

    def request(self, reply_to: object, request: InitProducerIdRequest) -> InitProducerIdResponse | None:
        """A new id, or the next epoch of a known one; None when the request waits for a block."""
        if request.producer_id >= 0 and 0 <= request.producer_epoch < EPOCH_MAX:
            return _granted(request.producer_id, request.producer_epoch + 1)
        if self._next < self._end:
            return _granted(self._take(), 0)
        if len(self._waiting) >= WAITING_MAX:
            return _refused("too many producers wait for an id on this broker; try again")
        self._waiting.append(reply_to)
        return None

    def allocated(self, response: AllocateProducerIdsResponse) -> list[tuple[object, InitProducerIdResponse]]:
        """Take a block; returns the waiting requests that it answers, oldest first."""
        self.is_allocating = False
        if response.error_code == ErrorCode.NONE:
            self._next = response.producer_id_start
            self._end = response.producer_id_start + response.producer_id_length
        answers: list[tuple[object, InitProducerIdResponse]] = []
        while self._waiting and self._next < self._end:
            answers.append((self._waiting.popleft(), _granted(self._take(), 0)))
        return answers

    def failed(self, text: str, now_ms: int) -> list[tuple[object, InitProducerIdResponse]]:
        """The allocation failed: refuse the waiting requests, and allow the next one after RETRY_MS."""
        self.is_allocating = False
        self._not_before_ms = now_ms + RETRY_MS
        waiting, self._waiting = self._waiting, deque()
        return [
            (reply_to, _refused(f"no producer id is available ({text}); try again")) for reply_to in waiting
        ]

    def _take(self) -> int:
        self._next += 1
        return self._next - 1


def _granted(producer_id: int, producer_epoch: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(ErrorCode.NONE, None, producer_id, producer_epoch)


def _refused(text: str) -> InitProducerIdResponse:
    return InitProducerIdResponse(ErrorCode.BROKER_NOT_AVAILABLE, text, -1, -1)
