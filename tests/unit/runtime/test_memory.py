"""The clock that is moved by hand."""

import asyncio

import pytest

from holdfast.runtime.memory.machine import ManualClock, memory_runtime, settle


async def test_time_stands_still_until_it_is_advanced() -> None:
    clock = ManualClock()
    start = clock.now_ms()
    await settle()
    assert clock.now_ms() == start
    await clock.advance(1500)
    assert clock.now_ms() == start + 1500


async def test_each_timer_runs_at_its_own_time_and_what_follows_from_it_before_the_next() -> None:
    runtime, world = memory_runtime()
    start = world.clock.now_ms()
    seen: list[tuple[str, int]] = []

    async def tick(name: str, period_ms: int) -> None:
        while True:
            await runtime.clock.sleep(period_ms)
            seen.append((name, runtime.clock.now_ms() - start))

    runtime.tasks.start("slow", tick("slow", 30))
    runtime.tasks.start("fast", tick("fast", 20))
    await world.clock.advance(60)
    await runtime.tasks.cancel_all()
    expected = [("fast", 20), ("slow", 30), ("fast", 40), ("slow", 60), ("fast", 60)]
    assert seen == expected
    assert world.clock.next_deadline_ms() is None


async def test_timers_with_one_deadline_run_in_the_order_in_which_they_were_set() -> None:
    clock = ManualClock()
    ran: list[int] = []
    for number in range(5):
        clock.call_later(10, lambda number=number: ran.append(number))  # type: ignore[misc]
    await clock.advance(10)
    assert ran == [0, 1, 2, 3, 4]


async def test_settle_ends_with_the_work_and_refuses_work_that_never_rests() -> None:
    reached: list[int] = []

    async def work() -> None:
        for _ in range(1000):
            await asyncio.sleep(0)
        reached.append(1)

    task = asyncio.create_task(work())
    await settle()
    assert reached == [1]
    assert task.done()

    async def restless() -> None:
        while True:
            await asyncio.sleep(0)

    task = asyncio.create_task(restless())
    with pytest.raises(AssertionError, match="busy"):
        await settle()
    task.cancel()


async def test_one_seed_draws_the_same_values() -> None:
    draws = []
    for _ in range(2):
        runtime, _ = memory_runtime(seed=42)
        draws.append((runtime.random.randint(0, 1 << 30), runtime.random.random(), runtime.random.uuid()))
    assert draws[0] == draws[1]
    assert memory_runtime(seed=43)[0].random.uuid() != draws[0][2]


async def test_nodes_may_share_clock_and_network_but_not_tasks() -> None:
    _, first = memory_runtime(1)
    second_runtime, second = memory_runtime(2, clock=first.clock, network=first.network)
    assert second_runtime.clock is first.clock
    assert second.network is first.network
    assert second.disk is not first.disk
    assert second.tasks is not first.tasks
