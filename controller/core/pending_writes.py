"""What the active controller has appended and the quorum has not committed, and the answers that wait for it.

An answer that was decided on such a state waits for its commit (K20). A controller that is active no more has
no answer to give: what it appended may be committed all the same.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from holdfast.controller.core.events import RequestReceived
from holdfast.metadata.image import MetadataImage


@dataclass(slots=True)
class PendingWrite:
    """Records that were appended together, and the answers that wait for their commit."""

    #: end offset of the records, exclusive
    end_offset: int
    #: image after them
    image: MetadataImage
    drafted_ms: int
    #: leaders elected by them
    elections: int
    #: (request, answer)
    answers: list[tuple[RequestReceived, Any]] = field(default_factory=list)


class PendingWrites:
    """Of one controller, the oldest first."""

    def __init__(self) -> None:
        self._writes: deque[PendingWrite] = deque()
        #: requests whose answers wait
        self.answer_count = 0

    def __len__(self) -> int:
        return len(self._writes)

    def add(self, write: PendingWrite) -> None:
        """It was appended behind the others."""
        self._writes.append(write)

    def hold(self, request: RequestReceived, answer: Any) -> None:
        """Answer when all that is pending now is committed."""
        self._writes[-1].answers.append((request, answer))
        self.answer_count += 1

    def take_committed(self, committed_offset: int) -> Iterator[PendingWrite]:
        """Each that is committed now; it is no longer pending when it is given."""
        while self._writes and self._writes[0].end_offset <= committed_offset:
            write = self._writes.popleft()
            self.answer_count -= len(write.answers)
            yield write

    def give_up(self) -> list[RequestReceived]:
        """Wait for nothing more: the requests that have no answer."""
        requests = [request for write in self._writes for request, _ in write.answers]
        self._writes.clear()
        self.answer_count = 0
        return requests
