"""The simulated loop: whose turn it is, what time it is, and that the dead do nothing."""

import asyncio
import gc
import warnings
import weakref
from collections.abc import Iterator

import pytest

from holdfast.runtime.tasks import HeldTasks
from holdfast.sim.machine.choices import Choices
from holdfast.sim.machine.loop import Deadlock, Process, SimLoop, make_loop

MS = 1_000_000


@pytest.fixture
def loop() -> Iterator[SimLoop]:
    loop = make_loop(Choices("loop").stream("sched"))
    yield loop
    loop.dispose()


def settle(loop: SimLoop, duration_ms: int = 0) -> None:
    """Run what is ready, and what becomes due within that time."""
    over: list[bool] = []
    loop.at_ns(loop.now_ns + duration_ms * MS, loop.kernel, over.append, True)
    loop.run(lambda: bool(over) and not any(process.is_runnable for process in loop._processes))


def start(process: Process, work: object) -> None:
    """A task of that process."""
    process.call(lambda: process.loop.create_task(work, name="work"))  # type: ignore[arg-type]


def test_handles_of_one_process_run_in_the_order_in_which_they_became_ready(loop: SimLoop) -> None:
    ran: list[int] = []
    process = loop.process("one")
    for number in range(50):
        process.call(ran.append, number)
    settle(loop)
    assert ran == list(range(50))


def test_who_runs_next_is_drawn_and_the_same_for_the_same_seed() -> None:
    def order(seed: str) -> list[str]:
        loop = make_loop(Choices(seed).stream("sched"))
        ran: list[str] = []
        for name in ("a", "b", "c"):
            process = loop.process(name)
            for _ in range(6):
                process.call(ran.append, name)
        settle(loop)
        return ran

    assert order("1") == order("1")
    assert len({tuple(order(str(seed))) for seed in range(8)}) > 4


def test_time_jumps_to_the_next_timer_and_timers_of_one_instant_keep_their_order(loop: SimLoop) -> None:
    process = loop.process("one")
    fired: list[tuple[int, int]] = []
    start_ns = loop.now_ns
    for number, delay_ms in enumerate((30, 10, 10, 3_600_000, 10)):
        loop.at_ns(
            start_ns + delay_ms * MS,
            process,
            lambda number=number: fired.append((number, (loop.now_ns - start_ns) // MS)),
        )
    settle(loop, 3_600_000)
    assert fired == [(1, 10), (2, 10), (4, 10), (0, 30), (3, 3_600_000)]


def test_a_cancelled_timer_does_not_fire(loop: SimLoop) -> None:
    fired: list[int] = []
    loop.at_ns(loop.now_ns + MS, loop.process("one"), fired.append, 1).cancel()
    settle(loop, 10)
    assert fired == []


def test_a_deadlock_names_every_pending_task_and_where_it_waits(loop: SimLoop) -> None:
    async def wait_for_ever() -> None:
        await asyncio.get_running_loop().create_future()

    start(loop.process("stuck"), wait_for_ever())
    with pytest.raises(Deadlock, match=r"stuck: work at sim/test_loop.py:\d+ .*wait_for_ever"):
        loop.run(lambda: False)


def test_a_killed_process_runs_no_more_code_not_even_finally(loop: SimLoop) -> None:
    ran: list[str] = []

    async def work() -> None:
        try:
            ran.append("begun")
            await asyncio.get_running_loop().create_future()
        finally:
            ran.append("finally")

    process = loop.process("victim")
    start(process, work())
    loop.at_ns(loop.now_ns + 5 * MS, process, ran.append, "timer")
    settle(loop)
    process.call(ran.append, "ready")
    process.kill()
    gc.collect()
    settle(loop, 100)
    assert ran == ["begun"]


def test_what_a_killed_process_held_is_kept_until_the_end(loop: SimLoop) -> None:
    class Held:
        pass

    held = Held()
    kept = weakref.ref(held)

    async def work(_: Held) -> None:
        await asyncio.get_running_loop().create_future()

    process = loop.process("victim")
    start(process, work(held))
    settle(loop)
    del held
    process.kill()
    gc.collect()
    assert kept() is not None


def test_a_paused_process_goes_on_with_what_came_due_meanwhile(loop: SimLoop) -> None:
    ran: list[str] = []
    process = loop.process("paused")
    process.call(ran.append, "ready")
    loop.at_ns(loop.now_ns + 5 * MS, process, ran.append, "timer")
    process.pause()
    settle(loop, 100)
    assert ran == []
    process.resume()
    settle(loop)
    assert ran == ["ready", "timer"]


def test_handles_cost_time_so_that_timers_come_between_them() -> None:
    loop = make_loop(Choices("loop").stream("sched"), step_ns=MS)
    process, ran = loop.process("one"), list[str]()
    loop.at_ns(loop.now_ns + 2 * MS, loop.kernel, ran.append, "timer")
    for _ in range(4):
        process.call(ran.append, "handle")
    settle(loop)
    assert ran == ["handle", "handle", "timer", "handle", "handle"]


def test_a_failing_callback_is_told_to_its_own_process(loop: SimLoop) -> None:
    heard: list[tuple[str, object]] = []

    def fail() -> None:
        raise ValueError("own bug")

    for name in ("a", "b"):
        process = loop.process(name)
        process.call(
            lambda name=name: loop.set_exception_handler(
                lambda _, context: heard.append((name, context["exception"]))
            )
        )
        if name == "b":
            process.call(fail)
    settle(loop)
    assert [name for name, _ in heard] == ["b"]


def test_what_is_started_by_a_task_that_is_closed_is_closed_as_well() -> None:
    """A warning of a coroutine that was never awaited would end whichever test runs when it is collected."""
    loop = make_loop(Choices("loop").stream("sched"))
    process = loop.process("one")

    async def last_words() -> None:
        raise AssertionError("it never runs")

    async def work() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            HeldTasks().start("last words", last_words())

    start(process, work())
    settle(loop)
    loop.dispose()
    del loop, process
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        gc.collect()
    assert not warned
