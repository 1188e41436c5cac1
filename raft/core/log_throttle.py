"""Limits repeated log lines: the same text at most once a minute.

Owns when each text was logged last, and forgets the oldest: a lasting problem must fill neither the log nor
the memory.
"""

#: The same text is logged again after this time.
REPEAT_MS = 60_000
#: Texts remembered; the one logged longest ago makes room.
TEXTS_MAX = 64


class LogThrottle:
    """Texts and when each was told last."""

    __slots__ = ("_told_ms",)

    def __init__(self) -> None:
        #: ascending by time
        self._told_ms: dict[str, int] = {}

    def is_due(self, text: str, now_ms: int) -> bool:
        """True if `text` should be logged now; then it counts as logged. Several problems may alternate."""
        told_ms = self._told_ms.get(text)
        if told_ms is not None and now_ms - told_ms < REPEAT_MS:
            return False
        self._told_ms.pop(text, None)
        if len(self._told_ms) >= TEXTS_MAX:
            del self._told_ms[next(iter(self._told_ms))]
        self._told_ms[text] = now_ms
        return True
