"""How fast bytes come, measured as Kafka does: over some windows of time, the present one among them."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class RateWindows:
    """Over what a rate is measured: `number` windows, the present one among them."""

    number: int
    size_ms: int

    @classmethod
    def of(cls, static: Mapping[str, Any], quota: str) -> "RateWindows":
        """Those of a broker's file."""
        return cls(static[f"{quota}.window.num"], static[f"{quota}.window.size.seconds"] * 1000)

    @property
    def total_ms(self) -> int:
        """What is older than this counts no more."""
        return self.number * self.size_ms


class ByteRate:
    """Bytes of one sender or reader in the last windows."""

    __slots__ = ("_windows",)

    def __init__(self) -> None:
        #: [start, ms; bytes], oldest first
        self._windows: deque[list[int]] = deque()

    def count(self, size_bytes: int, limit: int, windows: RateWindows, now_ms: int) -> int:
        """Add bytes; returns for how many ms it must rest, 0 while it is at or below the limit.
        `limit`: bytes a second."""
        kept = self._windows
        while kept and now_ms - kept[0][0] >= windows.total_ms:
            kept.popleft()
        if not kept or now_ms - kept[-1][0] >= windows.size_ms:
            kept.append([now_ms, 0])
        kept[-1][1] += size_bytes
        elapsed_ms = now_ms - kept[0][0]
        # As Kafka: what has just begun is measured as if the windows before had been empty.
        missing = windows.number - 1 - elapsed_ms // windows.size_ms
        elapsed_ms = max(elapsed_ms + max(0, missing) * windows.size_ms, windows.size_ms)
        allowed_ms = -(-sum(size for _, size in kept) * 1000 // limit)
        return max(0, allowed_ms - elapsed_ms)

    def is_idle(self, windows: RateWindows, now_ms: int) -> bool:
        """Nothing counts any more."""
        return not self._windows or now_ms - self._windows[-1][0] >= windows.total_ms
