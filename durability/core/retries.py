"""Whether a stream whose reads fail is begun again, and what is in doubt until it has gone on. Pure.

Each attempt ends in progress or in a problem. Progress is a micro-batch with a higher number than all that
were completed, or a look at the ends of all logs that found nothing new; only it takes the last problem back.
"""

#: So many failures in a row are borne, and more of them for as long as a read may be without progress.
ATTEMPTS = 3


class Retries:
    """Hears what a stream does. `problem` is what speaks against a verdict at this moment."""

    def __init__(self, timeout_ms: int, now_ms: int) -> None:
        """`timeout_ms`: longest time without progress."""
        self._timeout_ms = timeout_ms
        #: why the newest attempt failed, None once the stream has gone on
        self.problem: str | None = None
        #: number of the highest micro-batch that was completed, -1 for none
        self._completed = -1
        self._failures = 0
        self._since_ms = now_ms

    def completed(self, batch: int, now_ms: int) -> None:
        """The highest micro-batch that is complete has this number. One that is repeated is no progress."""
        if batch > self._completed:
            self._completed = batch
            self.went_on(now_ms)

    def went_on(self, now_ms: int) -> None:
        """All that there was has been read."""
        self.problem = None
        self.allow_all(now_ms)

    def allow_all(self, now_ms: int) -> None:
        """As many attempts as at first, for they will be others; the problem stands."""
        self._failures = 0
        self._since_ms = now_ms

    def failed(self, problem: str, now_ms: int) -> bool:
        """True when it may be tried again: reads have not failed too often and for too long yet."""
        self.problem = problem
        self._failures += 1
        return self._failures < ATTEMPTS or now_ms - self._since_ms < self._timeout_ms
