"""One turn of the event loop for all other callbacks, without a timer."""

from collections.abc import Generator


class _NextTurn:
    def __await__(self) -> Generator[None, None, None]:
        yield


#: Awaiting it lets the event loop turn once.
NEXT_TURN = _NextTurn()
