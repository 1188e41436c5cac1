"""Answers that take long: made in steps, each in a turn of the event loop, and encoded beside it when large.

Owns that order only; what a step makes is the answer's own business.
"""

import asyncio
from collections.abc import Callable, Generator
from typing import Any

from holdfast.rpc.exchange import Exchange
from holdfast.runtime.api import Tasks

#: An answer that took so many steps is too large to be encoded in one turn.
LARGE_STEPS = 3


def answer_in_steps(
    tasks: Tasks,
    exchange: Exchange,
    steps: Generator[None, None, Any],
    is_over: Callable[[], bool],
    number: int = 0,
) -> None:
    """Make one step now and the others in later turns; `steps` returns the answer. `is_over`: the node
    answers nothing any more."""
    if is_over() or not exchange.is_open:
        exchange.drop()
        return
    try:
        next(steps)
    except StopIteration as done:
        if number < LARGE_STEPS:
            exchange.respond(done.value)
        else:
            tasks.start(f"answer {exchange.api_key}", exchange.respond_aside(done.value))
    else:
        loop = asyncio.get_running_loop()
        loop.call_soon(answer_in_steps, tasks, exchange, steps, is_over, number + 1)
