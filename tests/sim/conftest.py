"""Simulated worlds end with the test that made them."""

from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.sim.machine.loop import SimLoop


@pytest.fixture(autouse=True)
def _closed_loops(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close what a test leaves open, also where it returns early or fails: a coroutine of a task that never
    ran warns when it is collected, and that ends whichever test runs then."""
    made: list[SimLoop] = []
    original = SimLoop.__init__

    def init(self: SimLoop, *args: Any, **more: Any) -> None:
        made[:] = [loop for loop in made if not loop.is_closed()]
        made.append(self)
        original(self, *args, **more)

    monkeypatch.setattr(SimLoop, "__init__", init)
    yield
    for loop in made:
        loop.close()
