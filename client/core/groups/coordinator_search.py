"""Which broker a member takes for its group's coordinator, and when it asks for another one.

Owns that, and the pauses between the questions. A failure counts against the coordinator only when it comes
from the one that is asked now.
"""

from holdfast.client.core.backoff import Backoff
from holdfast.client.core.groups.effects import Coordinator

#: A member that waits for the others asks so often who the coordinator is: a dead host is silent.
PROBE_MS = 5_000


class CoordinatorSearch:
    """Of one member."""

    def __init__(self, retry: Backoff) -> None:
        self._retry = retry
        #: None while it is looked for
        self.known: Coordinator | None = None
        #: who has answered, or not, what is being judged
        self.heard_from: Coordinator | None = None
        #: not before that one that was lost is looked for, and one that is silent is doubted
        self.find_ms = self.probe_ms = 0
        self._is_asking = False
        self._failures = 0

    def begin(self, now_ms: int, *, is_waiting: bool) -> bool:
        """True when any broker is to be asked now; `found` or `not_found` follows. `is_waiting`: the
        coordinator owes an answer that takes long."""
        is_lost = self.known is None and now_ms >= self.find_ms
        if self._is_asking or not (is_lost or (is_waiting and now_ms >= self.probe_ms)):
            return False
        self._is_asking = True
        return True

    def found(self, coordinator: Coordinator, now_ms: int) -> None:
        """Any broker says so."""
        self._is_asking = False
        self.probe_ms = now_ms + PROBE_MS
        self.known = coordinator

    def not_found(self, now_ms: int) -> None:
        """No broker can say it now."""
        self._is_asking = False
        self.probe_ms = now_ms + PROBE_MS
        self._failures += 1
        self.find_ms = now_ms + self._retry.pause_ms(self._failures)

    def wait(self, now_ms: int) -> None:
        """It was asked for what takes long."""
        self.probe_ms = now_ms + PROBE_MS

    def confirm(self) -> None:
        """Who was heard from is the coordinator, though another request to it may have failed meanwhile."""
        self.known = self.heard_from

    def works(self) -> None:
        """The coordinator does its work."""
        self._failures = 0

    def lose(self, now_ms: int) -> None:
        """Who was heard from, or was not, is not the coordinator any more."""
        if self.known is None or self.heard_from != self.known:
            return  # that is known
        self.known = None
        self.find_ms = max(self.find_ms, now_ms + self._retry.pause_ms(self._failures))
        self._failures += 1
