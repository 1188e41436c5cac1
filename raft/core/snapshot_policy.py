"""When a node makes a snapshot of the metadata (K15). Owns the counts since the last one; makes none."""


class SnapshotPolicy:
    """Due after so many bytes of committed log, or once there is any and so much time has passed."""

    def __init__(self, bytes_max: int | None, interval_ms: int | None) -> None:
        """None: never for that reason."""
        self._bytes_max = bytes_max
        self._interval_ms = interval_ms
        #: None: counted from the first question on
        self._made_ms: int | None = None
        #: bytes of the log that were delivered since the last snapshot
        self._bytes_since = 0

    def delivered(self, size_bytes: int) -> None:
        """So many bytes more of the log are committed and applied."""
        self._bytes_since += size_bytes

    def is_due(self, now_ms: int) -> bool:
        """True when a snapshot shall be made."""
        if self._made_ms is None:
            self._made_ms = now_ms
        if not self._bytes_since:
            return False
        if self._bytes_max is not None and self._bytes_since >= self._bytes_max:
            return True
        return self._interval_ms is not None and now_ms - self._made_ms >= self._interval_ms

    def made(self, now_ms: int) -> None:
        """A snapshot is being made."""
        self._bytes_since = 0
        self._made_ms = now_ms

    def taken(self) -> None:
        """A snapshot was taken from the leader."""
        self._bytes_since = 0
        self._made_ms = None
