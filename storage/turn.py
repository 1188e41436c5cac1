"""Yields the event loop during long work, so that heartbeats go on during recovery.

Needs no clock: one turn of the loop is enough.
"""

import asyncio


async def next_turn() -> None:
    """Let everything that is ready run once, then go on."""
    turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def come_back() -> None:
        if not turn.done():
            turn.set_result(None)

    asyncio.get_running_loop().call_soon(come_back)
    await turn
