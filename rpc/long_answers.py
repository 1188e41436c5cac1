"""Answers that take long: made in steps, one step of one answer in a turn of the event loop, and encoded
beside it when large.

Owns that order only; what a step makes is the answer's own business.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

from holdfast.rpc.exchange import Exchange
from holdfast.runtime.api import Tasks

#: An answer that took so many steps is too large to be encoded in one turn.
LARGE_STEPS = 3


class _Begun(NamedTuple):
    exchange: Exchange
    steps: Generator[None, None, Any]
    #: steps that were made
    made: int


class LongAnswers:
    """Those of one node. Forty clients that ask for everything take turns with each other, not one step each
    in every turn."""

    def __init__(self, tasks: Tasks, is_over: Callable[[], bool]) -> None:
        """`is_over`: the node answers nothing any more."""
        self._tasks = tasks
        self._is_over = is_over
        self._waiting: deque[_Begun] = deque()

    def begin(self, exchange: Exchange, steps: Generator[None, None, Any]) -> None:
        """Make the first step now and the others in later turns; `steps` returns the answer."""
        self._step(_Begun(exchange, steps, 0))

    def _step(self, begun: _Begun) -> None:
        exchange = begun.exchange
        if self._is_over() or not exchange.is_open:
            exchange.drop()
            return
        try:
            next(begun.steps)
        except StopIteration as done:
            if begun.made < LARGE_STEPS:
                exchange.respond(done.value)
            else:
                self._tasks.start(f"answer {exchange.api_key}", exchange.respond_aside(done.value))
            return
        self._waiting.append(begun._replace(made=begun.made + 1))
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        begun = self._waiting.popleft()
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._go_on)
        self._step(begun)
