"""When the active controller does by itself what no event asks for: unclean elections, records for idle logs.

Owns when each is next; what is done then is in `quorum_controller`.
"""


class ActiveTimers:
    """Of one controller. None runs on a standby."""

    def __init__(self, unclean_interval_ms: int, idle_interval_ms: int) -> None:
        """`idle_interval_ms`: a log that is idle for so long gets a record of no content; 0 for never."""
        self._unclean_interval_ms = unclean_interval_ms
        self._idle_interval_ms = idle_interval_ms
        self._next_noop_ms: int | None = None
        self._next_unclean_pass_ms: int | None = None

    def start(self, now_ms: int) -> None:
        """This controller is active from now on."""
        self._next_unclean_pass_ms = self._unclean_pass_after(now_ms)
        self.appended(now_ms)

    def stop(self) -> None:
        """It is active no more."""
        self._next_noop_ms = self._next_unclean_pass_ms = None

    def appended(self, now_ms: int) -> None:
        """The log is not idle."""
        self._next_noop_ms = now_ms + self._idle_interval_ms if self._idle_interval_ms else None

    def next_deadline_ms(self) -> int | None:
        """When the first of them is due."""
        deadlines = (self._next_noop_ms, self._next_unclean_pass_ms)
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def take_unclean_pass(self, now_ms: int) -> bool:
        """True when partitions without a leader are to be looked for now; once for each interval."""
        if self._next_unclean_pass_ms is None or now_ms < self._next_unclean_pass_ms:
            return False
        self._next_unclean_pass_ms = self._unclean_pass_after(now_ms)
        return True

    def take_noop(self, now_ms: int) -> bool:
        """True when the log has been idle for an interval; once for each."""
        if self._next_noop_ms is None or now_ms < self._next_noop_ms:
            return False
        self._next_noop_ms = now_ms + self._idle_interval_ms
        return True

    def _unclean_pass_after(self, now_ms: int) -> int:
        """The next multiple of the interval (F38)."""
        return (now_ms // self._unclean_interval_ms + 1) * self._unclean_interval_ms
