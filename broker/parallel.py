"""Works of one kind, some at a time."""

from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeAlias

from holdfast.runtime.api import Tasks

Work: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


async def in_parallel(tasks: Tasks, name: str, works: Sequence[Work], limit: int) -> None:
    """Run all works, at most `limit` at a time."""
    waiting = deque(works)
    done_count = 0

    async def worker() -> None:
        nonlocal done_count
        while waiting:
            await waiting.popleft()()
            done_count += 1

    for task in [tasks.start(name, worker()) for _ in range(min(limit, len(works)))]:
        await task.wait()
    assert done_count == len(works), f"{name}: {len(works) - done_count} of {len(works)} did not finish"
