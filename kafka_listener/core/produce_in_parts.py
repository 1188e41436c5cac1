"""A write of very many batches is given to the broker in parts, one in a turn of the event loop.

Owns which parts are answered; the answer of all goes back as one. Each part is a request of its own for the
broker's handlers. Parts begin in order, and nothing that came later over the connection before the last one.
"""

from collections.abc import Callable, Sequence
from typing import Any

from holdfast.metadata.ids import PartitionId
from holdfast.protocol.api_keys import ApiKey
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.produce import (
    NAMED_TWICE,
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
)

#: Batches that are appended in one turn of the event loop.
BATCHES_A_TURN = 250


class ProduceInParts:
    """One such write. `whole` has its open question, and the methods of `rpc.server.Exchange`."""

    def __init__(self, whole: Any) -> None:
        request: ProduceRequest = whole.message
        self.whole = whole
        #: {place in the request: partition} of each batch of a partition that has one before
        self._repeated: dict[int, PartitionId] = {}
        rows = self._without_repeated(request.partitions)
        self._parts = [
            ProducePart(self, request, rows[start : start + BATCHES_A_TURN])
            for start in range(0, len(rows), BATCHES_A_TURN)
        ]
        self._begun = 0
        self._held = self._undecided = len(self._parts)

    def _without_repeated(self, batches: Sequence[ProducePartition]) -> list[ProducePartition]:
        """Two parts may have batches of the same partition; the broker sees that within one of them only."""
        seen: set[PartitionId] = set()
        first: list[ProducePartition] = []
        for place, row in enumerate(batches):
            key = PartitionId(row.topic_id, row.partition_index)
            if key in seen:
                self._repeated[place] = key
            else:
                seen.add(key)
                first.append(row)
        return first

    def begin_next(self, ask: Callable[[Any], None]) -> bool:
        """Ask about the next part; True when it is not the last one."""
        part = self._parts[self._begun]
        self._begun += 1
        has_more = self._begun < len(self._parts)
        ask(part)
        return has_more

    def let_go(self) -> None:
        """A part's records are in the log."""
        self._held -= 1
        if not self._held:
            self.whole.let_go()

    def decided(self) -> None:
        """A part needs nothing more; the last one decides the whole."""
        self._undecided -= 1
        if self._undecided:
            return
        reason = next((part.reason for part in self._parts if part.reason is not None), None)
        has_answer = any(part.rows is not None for part in self._parts)
        if reason is None and not has_answer and self._repeated:
            reason = f"a write with acks 0 was refused with INVALID_REQUEST: {NAMED_TWICE}"
        if reason is not None:
            self.whole.hang_up(reason)
        elif has_answer:
            rows = [row for part in self._parts for row in part.rows or ()]
            self.whole.respond(ProduceResponse(tuple(self._with_repeated(rows))))
        else:
            self.whole.drop()

    def _with_repeated(self, rows: Sequence[ProducePartitionResponse]) -> Sequence[ProducePartitionResponse]:
        """One row for each batch of the request, in its order."""
        if not self._repeated:
            return rows
        answered = iter(rows)
        places = range(len(rows) + len(self._repeated))
        return [
            next(answered) if key is None else _refused(key, ErrorCode.INVALID_REQUEST, NAMED_TWICE)
            for key in map(self._repeated.get, places)
        ]


class ProducePart:
    """Some of the batches. Towards the broker's handlers an `rpc.server.Exchange`."""

    __slots__ = ("_keys", "_of", "api_key", "client_id", "message", "reason", "rows")

    def __init__(
        self, of: ProduceInParts, request: ProduceRequest, batches: Sequence[ProducePartition]
    ) -> None:
        self._of = of
        self._keys = [PartitionId(row.topic_id, row.partition_index) for row in batches]
        self.api_key = ApiKey.PRODUCE
        self.client_id: str = of.whole.client_id
        self.message: ProduceRequest | None = ProduceRequest(
            request.required_acks, request.timeout_ms, tuple(batches)
        )
        #: the broker's answer, None before and where there is none
        self.rows: Sequence[ProducePartitionResponse] | None = None
        #: why the connection is to end
        self.reason: str | None = None

    def throttle(self, rest_ms: int) -> None:
        """See `OfConnection`."""
        self._of.whole.throttle(rest_ms)

    def let_go(self) -> None:
        """The batches are not needed any more."""
        if self.message is not None:
            self.message = None
            self._of.let_go()

    def respond(self, message: ProduceResponse) -> None:
        """The broker's answer."""
        self.rows = message.partitions
        self._done()

    def fail(self, error_code: ErrorCode, text: str) -> None:
        """The broker refuses the part."""
        self.rows = [_refused(key, error_code, text) for key in self._keys]
        self._done()

    def drop(self) -> None:
        """There is no answer (acks 0)."""
        self._done()

    def hang_up(self, reason: str) -> None:
        """There is no answer, and the connection ends behind the other parts."""
        self.reason = reason
        self._done()

    def _done(self) -> None:
        self.let_go()
        self._of.decided()


def _refused(key: PartitionId, error_code: ErrorCode, text: str) -> ProducePartitionResponse:
    return ProducePartitionResponse(*key, error_code, text, -1, -1, -1, -1)
