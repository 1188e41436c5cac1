"""The state of one connection to a broker as a core sees it: when it stands, when to try again (D9)."""

from enum import Enum

from holdfast.client.core.backoff import Backoff


class Link(Enum):
    """Of one broker."""

    DOWN = 0
    CONNECTING = 1
    UP = 2


class BrokerLink:
    """Reported to, never connects by itself."""

    __slots__ = ("failures", "retry_ms", "state")

    def __init__(self) -> None:
        self.state = Link.DOWN
        #: attempts that failed since it last stood
        self.failures = 0
        #: no attempt before
        self.retry_ms = 0

    @property
    def is_up(self) -> bool:
        return self.state is Link.UP

    def begin(self, now_ms: int) -> bool:
        """True when the caller is to connect now: it is down, and its pause is over."""
        if self.state is not Link.DOWN or now_ms < self.retry_ms:
            return False
        self.state = Link.CONNECTING
        return True

    def connected(self) -> None:
        """It stands."""
        self.state = Link.UP
        self.failures = 0

    def failed(self, now_ms: int, backoff: Backoff) -> None:
        """The attempt failed."""
        self.state = Link.DOWN
        self.failures += 1
        self.retry_ms = now_ms + backoff.pause_ms(self.failures)

    def lost(self) -> None:
        """It stood and broke: the first attempt to get it back needs no pause. Told again, it is no news."""
        if self.state is Link.UP:
            self.state = Link.DOWN
