"""Append, truncate and roll of one log run in the order in which they were issued (D2)."""

import asyncio

import pytest

from holdfast.runtime.memory.machine import memory_runtime, settle
from holdfast.storage.serial import Serial


class Trace:
    """Two kinds of work that say when they ran."""

    def __init__(self) -> None:
        runtime, self.world = memory_runtime()
        self.serial = Serial(runtime.tasks, "log")
        self.events: list[str] = []
        self.gate = asyncio.Event()

    async def slow(self, name: str) -> str:
        self.events.append(f"{name} begins")
        await self.gate.wait()
        self.events.append(f"{name} ends")
        return name

    def submit(self, name: str) -> None:
        def work() -> str:
            self.events.append(name)
            return name

        self.serial.submit(work, lambda result: self.events.append(f"{result} done"), self.fail)

    def fail(self, error: Exception) -> None:
        self.events.append(f"failed: {error}")


async def test_synchronous_work_runs_at_once_when_nothing_is_under_way() -> None:
    trace = Trace()
    trace.submit("append")
    assert trace.events == ["append", "append done"]
    assert trace.serial.is_idle


async def test_work_behind_a_roll_waits_its_turn() -> None:
    trace = Trace()
    roll = trace.serial.run(lambda: trace.slow("roll"))
    await settle()
    assert not trace.serial.is_idle
    trace.submit("append 1")
    truncate = trace.serial.run(lambda: trace.slow("truncate"))
    trace.submit("append 2")
    assert trace.events == ["roll begins"]
    trace.gate.set()
    assert [await roll, await truncate] == ["roll", "truncate"]
    assert trace.events == [
        "roll begins",
        "roll ends",
        "append 1",
        "append 1 done",
        "truncate begins",
        "truncate ends",
        "append 2",
        "append 2 done",
    ]
    assert trace.serial.is_idle


async def test_an_error_reaches_its_submitter_and_no_other() -> None:
    trace = Trace()

    async def broken() -> None:
        raise ValueError("roll")

    def broken_append() -> None:
        raise ValueError("append")

    with pytest.raises(ValueError, match="roll"):
        await trace.serial.run(broken)
    trace.serial.submit(broken_append, lambda _: None, trace.fail)
    trace.submit("append")
    assert trace.events == ["failed: append", "append", "append done"]
    trace.gate.set()
    assert await trace.serial.run(lambda: trace.slow("roll")) == "roll"


async def test_an_error_of_who_hears_the_result_reaches_the_submitter_too_and_the_others_go_on() -> None:
    trace = Trace()

    def submit(name: str) -> None:
        def refuse(_: None) -> None:
            raise ValueError(name)

        trace.serial.submit(lambda: None, refuse, trace.fail)

    submit("at once")
    roll = trace.serial.run(lambda: trace.slow("roll"))
    submit("behind a roll")
    trace.submit("append")
    trace.gate.set()
    await roll
    await settle()
    assert trace.events == [
        "failed: at once",
        "roll begins",
        "roll ends",
        "failed: behind a roll",
        "append",
        "append done",
    ]
    assert trace.serial.is_idle


async def test_a_submitter_that_is_cancelled_leaves_the_work_to_its_end() -> None:
    trace = Trace()
    roll = trace.serial.run(lambda: trace.slow("roll"))
    await settle()
    roll.cancel()
    trace.submit("append")
    trace.gate.set()
    await settle()
    assert trace.events == ["roll begins", "roll ends", "append", "append done"]
