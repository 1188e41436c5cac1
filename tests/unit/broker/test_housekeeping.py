"""Work that goes on beside everything else: its pauses, and its end."""

import asyncio

from holdfast.broker.housekeeping import Housekeeping, Interval
from holdfast.runtime.memory.machine import memory_runtime, settle


async def test_work_is_done_once_an_interval_and_not_at_once() -> None:
    runtime, world = memory_runtime()
    housekeeping, done_ms = Housekeeping(runtime), list[int]()
    started_ms = world.clock.now_ms()

    async def work() -> None:
        done_ms.append(world.clock.now_ms() - started_ms)

    housekeeping.repeat("work", 100, work)
    await settle()
    for _ in range(25):
        await world.clock.advance(10)
    assert done_ms == [100, 200]
    await housekeeping.stop()


async def test_stop_ends_pauses_and_waits_for_what_is_being_done() -> None:
    runtime, world = memory_runtime()
    housekeeping, story = Housekeeping(runtime), list[str]()
    may_end = asyncio.Event()

    async def work() -> None:
        story.append("begun")
        await may_end.wait()
        story.append("done")

    async def end() -> None:
        await housekeeping.stop()
        story.append("stopped")

    housekeeping.repeat("slow", 10, work)
    housekeeping.repeat("rare", 1_000_000, work)
    await settle()
    await world.clock.advance(10)
    stopping = asyncio.ensure_future(end())
    await settle()
    assert story == ["begun"]
    may_end.set()
    await stopping
    assert story == ["begun", "done", "stopped"]


async def test_a_nap_that_was_ended_before_it_began_is_no_pause() -> None:
    """Who is told of something new while it looks around must not sleep over it."""
    runtime, _ = memory_runtime()
    housekeeping, interval = Housekeeping(runtime), Interval()
    interval.end()
    interval.end()
    await housekeeping.pause(1_000_000, interval)
