"""Asking again until a deadline, with pauses that grow."""

from holdfast.client.core.backoff import Backoff
from holdfast.client.core.errors import TimedOut
from holdfast.protocol.errors import ErrorCode
from holdfast.runtime.api import Clock


class Repetitions:
    """Of one question."""

    def __init__(self, clock: Clock, timeout_ms: float, backoff: Backoff) -> None:
        self._clock = clock
        self._backoff = backoff
        self._count = 0
        self.deadline_ms = clock.now_ms() + int(timeout_ms)

    def left_ms(self, most_ms: int) -> int:
        """What is left of the time, from 1 to `most_ms`."""
        return max(1, min(most_ms, self.deadline_ms - self._clock.now_ms()))

    async def pause(self, problem: str, code: ErrorCode) -> None:
        """Before the next time. Raises: TimedOut with problem and code when there is none before the
        deadline."""
        pause_ms = self._backoff.pause_ms(self._count)
        self._count += 1
        if self._clock.now_ms() + pause_ms >= self.deadline_ms:
            raise TimedOut(problem, code)
        await self._clock.sleep(pause_ms)
