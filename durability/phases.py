"""How long each phase of a verdict takes."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Seconds:
    """How long each phase took in all; `on_phase` hears of each when it begins."""

    def __init__(self, on_phase: Callable[[str], None] = lambda _: None) -> None:
        self._on_phase = on_phase
        self.found: dict[str, float] = {}

    @contextmanager
    def timed(self, phase: str, text: str) -> Iterator[None]:
        """Raises: what the block raises; a phase that failed has no seconds."""
        self._on_phase(text)
        start = time.monotonic()
        yield
        took = time.monotonic() - start
        self.found[phase] = round(self.found.get(phase, 0.0) + took, 2)
