"""One turn for all other tasks, and not more."""

import asyncio

from holdfast.client.core.next_turn import NEXT_TURN


async def test_a_task_that_waits_for_the_next_turn_lets_all_that_is_ready_run_once() -> None:
    seen: list[str] = []

    async def other() -> None:
        seen.append("first turn")
        await NEXT_TURN
        seen.append("second turn")

    task = asyncio.ensure_future(other())
    await NEXT_TURN
    assert seen == ["first turn"]
    await task
    assert seen == ["first turn", "second turn"]
