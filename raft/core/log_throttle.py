"""Which notes are worth a line in the log: the same trouble is told once a minute.

Owns what was told of late, and forgets the oldest: trouble that lasts must neither flood the log nor fill the
memory.
"""

#: The same text is told again after so long.
REPEAT_MS = 60_000
#: Texts remembered; the one told longest ago makes room.
TEXTS_MAX = 64


class LogThrottle:
    """Texts and when each was told last."""

    __slots__ = ("_told_ms",)

    def __init__(self) -> None:
        #: ascending by time
        self._told_ms: dict[str, int] = {}

    def is_due(self, text: str, now_ms: int) -> bool:
        """Whether to tell `text` now; then it counts as told. Troubles may take turns, as the voters do."""
        told_ms = self._told_ms.get(text)
        if told_ms is not None and now_ms - told_ms < REPEAT_MS:
            return False
        self._told_ms.pop(text, None)
        if len(self._told_ms) >= TEXTS_MAX:
            del self._told_ms[next(iter(self._told_ms))]
        self._told_ms[text] = now_ms
        return True
