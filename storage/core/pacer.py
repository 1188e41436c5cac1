"""At which rate a background task may read and write."""


class Pacer:
    """Pauses that keep a rate of bytes."""

    __slots__ = ("_bytes_per_second", "_free_ms")

    def __init__(self, bytes_per_second: int) -> None:
        assert bytes_per_second > 0
        self._bytes_per_second = bytes_per_second
        #: when what was done so far is paid for; monotonic
        self._free_ms = 0.0

    def pause_ms(self, size_bytes: int, now_ms: int) -> float:
        """How long to wait after so many bytes."""
        self._free_ms = max(self._free_ms, now_ms) + size_bytes * 1000 / self._bytes_per_second
        return self._free_ms - now_ms
