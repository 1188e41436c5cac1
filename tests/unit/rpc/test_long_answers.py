"""Answers that take many steps share the event loop with each other and with everything else."""

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any, cast

import pytest

from holdfast.rpc.exchange import Exchange
from holdfast.rpc.long_answers import LARGE_STEPS, LongAnswers
from holdfast.runtime.tasks import HeldTasks


class Asked:
    """A request whose client may go."""

    api_key = 3

    def __init__(self) -> None:
        self.is_open = True
        self.answer: Any = None
        self.how = ""

    def respond(self, message: Any) -> None:
        self.answer, self.how = message, "in its turn"

    async def respond_aside(self, message: Any) -> None:
        self.answer, self.how = message, "aside"

    def drop(self) -> None:
        self.how = "dropped"


def steps(name: str, count: int, log: list[str]) -> Generator[None, None, str]:
    for number in range(count):
        log.append(f"{name}{number}")
        yield
    return name


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def play(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


@pytest.fixture
def is_over() -> list[bool]:
    return [False]


def answers(is_over: list[bool]) -> LongAnswers:
    return LongAnswers(HeldTasks(), lambda: is_over[0])


def test_one_step_of_one_answer_is_made_in_a_turn(is_over: list[bool]) -> None:
    async def work() -> None:
        long, log = answers(is_over), list[str]()
        asked = [Asked(), Asked(), Asked()]
        for name, one in zip("abc", asked, strict=True):
            long.begin(cast("Exchange", one), steps(name, 3, log))
        assert log == ["a0", "b0", "c0"]
        for expected in ("a1", "b1", "c1", "a2", "b2", "c2"):
            await turns(1)
            assert log[-1] == expected
        await turns(5)
        assert [one.answer for one in asked] == ["a", "b", "c"]

    play(work())


@pytest.mark.parametrize(("count", "how"), [(0, "in its turn"), (LARGE_STEPS, "aside")])
def test_a_large_answer_is_encoded_beside_the_loop(is_over: list[bool], count: int, how: str) -> None:
    async def work() -> None:
        one = Asked()
        answers(is_over).begin(cast("Exchange", one), steps("a", count, []))
        await turns(count + 3)
        assert (one.answer, one.how) == ("a", how)

    play(work())


@pytest.mark.parametrize("ended", ["the client", "the node"])
def test_an_answer_that_no_client_waits_for_is_not_made(is_over: list[bool], ended: str) -> None:
    async def work() -> None:
        one, log = Asked(), list[str]()
        answers(is_over).begin(cast("Exchange", one), steps("a", 5, log))
        one.is_open, is_over[0] = ended != "the client", ended == "the node"
        await turns(5)
        assert (log, one.how) == (["a0"], "dropped")

    play(work())
