"""What every Tasks promises."""

import asyncio

import pytest

from holdfast.runtime.api import Task
from tests.contract.conftest import World


async def forever() -> None:
    await asyncio.get_running_loop().create_future()


async def fail_with(error: Exception) -> None:
    raise error


async def test_first_failure_is_reported_to_everyone_who_asks(
    world: World, failures_logged: list[str]
) -> None:
    tasks = world.runtime.tasks
    first = ValueError("first")
    heard: list[BaseException] = []

    async def listen() -> None:
        heard.append(await tasks.failure())

    listener = tasks.start("listener", listen())
    await tasks.start("bad", fail_with(first)).wait()
    await tasks.start("worse", fail_with(ValueError("second"))).wait()
    await listener.wait()
    assert heard == [first]
    assert await tasks.failure() is first
    assert any("bad" in line for line in failures_logged)


async def test_cancelled_task_is_no_failure(world: World) -> None:
    tasks = world.runtime.tasks
    asked = tasks.start("asked", tasks.failure())  # type: ignore[arg-type]
    task = tasks.start("work", forever())
    task.cancel()
    await task.wait()
    assert task.is_done
    assert not asked.is_done


async def test_wait_does_not_raise_what_the_task_raised(world: World, failures_logged: list[str]) -> None:
    task = world.runtime.tasks.start("bad", fail_with(ValueError("own bug")))
    await task.wait()
    await task.wait()
    assert task.is_done
    assert len(failures_logged) == 1


async def test_cancelling_a_wait_leaves_the_task_running(world: World) -> None:
    task = world.runtime.tasks.start("work", forever())
    waiter = world.runtime.tasks.start("waiter", task.wait())
    await asyncio.sleep(0)
    waiter.cancel()
    await waiter.wait()
    assert not task.is_done


async def test_cancel_all_ends_tasks_in_order_of_creation_and_what_they_start_meanwhile(world: World) -> None:
    tasks = world.runtime.tasks
    ended: list[str] = []
    late: list[Task] = []

    async def work(name: str) -> None:
        try:
            await forever()
        finally:
            ended.append(name)
            if name == "b":
                late.append(tasks.start("late", work("late")))

    for name in ("c", "a", "b", "d"):
        tasks.start(name, work(name))
    await asyncio.sleep(0)
    await tasks.cancel_all()
    assert ended[:4] == ["c", "a", "b", "d"]
    assert late[0].is_done


async def test_a_task_may_cancel_all_others(world: World) -> None:
    tasks = world.runtime.tasks
    other = tasks.start("other", forever())
    reached: list[bool] = []

    async def stop() -> None:
        await tasks.cancel_all()
        reached.append(other.is_done)

    await tasks.start("stop", stop()).wait()
    assert reached == [True]


@pytest.mark.parametrize("count", [1, 100])
async def test_started_work_runs_to_its_end(world: World, count: int) -> None:
    done: list[int] = []

    async def work(number: int) -> None:
        done.append(number)

    started = [world.runtime.tasks.start(f"work {number}", work(number)) for number in range(count)]
    for task in started:
        await task.wait()
    assert done == list(range(count))


async def test_cancel_all_ends_when_a_task_has_just_ended_by_itself(world: World) -> None:
    tasks = world.runtime.tasks
    ended = asyncio.get_running_loop().create_future()

    async def work() -> None:
        ended.set_result(None)

    tasks.start("short", work())
    await ended  # woken in the same turn of the loop in which the task's own callback is still to run
    await tasks.cancel_all()


async def test_computations_give_their_results_and_errors_and_let_others_run(world: World) -> None:
    tasks = world.runtime.tasks
    results: list[int] = []

    async def work(number: int) -> None:
        results.append(await tasks.compute(lambda: number))

    started = [tasks.start(f"work {number}", work(number)) for number in range(3)]
    assert results == []
    for task in started:
        await task.wait()
    assert results == [0, 1, 2], "one after the other"

    def fail() -> int:
        raise ValueError("own bug")

    with pytest.raises(ValueError, match="own bug"):
        await tasks.compute(fail)
