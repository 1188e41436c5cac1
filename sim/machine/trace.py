"""What a run did, as lines and as one hash: equal hashes mean equal runs.

Owns the rolling hash, the last lines for a report, and an optional sink for all of them. Lines hold times,
names and checksums only; never addresses, hashes of objects or anything else that differs between processes.
"""

import hashlib
from collections import Counter, deque
from collections.abc import Callable

_PENDING_MAX = 256
_LINES_KEPT = 40


class Trace:
    """Events in order of virtual time."""

    def __init__(self, now_ns: Callable[[], int], sink: Callable[[str], object] | None = None) -> None:
        self.now_ns = now_ns
        self._sink = sink
        self._hash = hashlib.blake2b(digest_size=8)
        self._pending: list[str] = []
        #: hears of every event
        self.listener: Callable[[str, str], None] | None = None
        #: the newest lines, for people
        self.last: deque[str] = deque(maxlen=_LINES_KEPT)
        #: events by the first word of their kind
        self.counts: Counter[str] = Counter()

    def add(self, kind: str, text: str) -> None:
        """One event. `kind` is a word that is counted."""
        self.counts[kind] += 1
        line = f"{self.now_ns()} {kind} {text}"
        self._pending.append(line)
        if len(self._pending) >= _PENDING_MAX:
            self._flush()
        if self.listener is not None:
            self.listener(kind, text)

    def digest(self) -> str:
        """Hash of everything so far."""
        self._flush()
        return self._hash.hexdigest()

    def newest(self) -> list[str]:
        """The last lines, oldest first."""
        self._flush()
        return list(self.last)

    def _flush(self) -> None:
        if not self._pending:
            return
        text = "\n".join(self._pending) + "\n"
        self._hash.update(text.encode())
        if self._sink is not None:
            self._sink(text)
        self.last.extend(self._pending[-_LINES_KEPT:])
        self._pending.clear()
