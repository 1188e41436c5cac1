"""One request to each of several voters, repeated until each has answered.

Owns which voters are still to be asked and when, not the requests. Used for votes, BeginQuorumEpoch and
EndQuorumEpoch.
"""

from collections.abc import Iterable

#: Most doublings of the delay between two attempts at the same voter.
_DOUBLINGS_MAX = 5


class VoterCalls:
    """Calls of one role in one epoch. Dropped with the role, so that late answers are ignored (N-4)."""

    __slots__ = ("_attempts", "_due_ms", "_in_flight", "_retry_ms")

    def __init__(self, voter_ids: Iterable[int], now_ms: int, retry_ms: int) -> None:
        #: {voter: when to ask}; without voters that are being asked or are done
        self._due_ms: dict[int, int] = dict.fromkeys(sorted(voter_ids), now_ms)
        #: {request id: voter}
        self._in_flight: dict[int, int] = {}
        self._attempts: dict[int, int] = dict.fromkeys(self._due_ms, 0)
        self._retry_ms = retry_ms

    def due(self, now_ms: int) -> list[int]:
        """Voters to ask now, ascending."""
        return sorted(voter_id for voter_id, due_ms in self._due_ms.items() if due_ms <= now_ms)

    def next_due_ms(self) -> int | None:
        return min(self._due_ms.values(), default=None)

    def sent(self, voter_id: int, request_id: int) -> None:
        """The voter has been asked; nothing more until the outcome."""
        del self._due_ms[voter_id]
        self._in_flight[request_id] = voter_id

    def answered(self, request_id: int) -> int | None:
        """The voter whose request was answered, which is done; None for a request that is not one of
        these."""
        return self._in_flight.pop(request_id, None)

    def failed(self, request_id: int, now_ms: int) -> None:
        """Ask again after a delay that doubles with each failure in a row."""
        voter_id = self._in_flight.pop(request_id, None)
        if voter_id is None:
            return
        attempts = self._attempts[voter_id] = self._attempts[voter_id] + 1
        self._due_ms[voter_id] = now_ms + (self._retry_ms << min(attempts - 1, _DOUBLINGS_MAX))

    def done(self, voter_id: int) -> None:
        """The voter needs no call any more."""
        self._due_ms.pop(voter_id, None)

    def add(self, voter_id: int, now_ms: int) -> None:
        """Ask one more voter."""
        self._due_ms[voter_id], self._attempts[voter_id] = now_ms, 0

    def drop(self, voter_id: int) -> None:
        """It is no voter any more: nothing that it answers counts, and it is asked nothing again."""
        self.done(voter_id)
        self._in_flight = {call: asked for call, asked in self._in_flight.items() if asked != voter_id}
