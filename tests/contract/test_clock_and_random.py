"""What every Clock and Random promises."""

from tests.contract.conftest import World


async def test_sleep_lasts_at_least_as_long_as_asked(world: World) -> None:
    clock = world.runtime.clock
    ends: list[int] = []

    async def sleeper() -> None:
        start = clock.now_ns()
        await clock.sleep(2)
        ends.append(clock.now_ns() - start)

    task = world.runtime.tasks.start("sleeper", sleeper())
    await world.pass_time(2)
    await task.wait()
    assert ends[0] >= 2_000_000


async def test_timers_run_in_order_of_their_deadlines(world: World) -> None:
    ran: list[int] = []
    for delay_ms in (3, 1, 2):
        world.runtime.clock.call_later(delay_ms, lambda delay_ms=delay_ms: ran.append(delay_ms))  # type: ignore[misc]
    while len(ran) < 3:
        await world.pass_time(1)
    assert ran == [1, 2, 3]


async def test_cancelled_timer_never_runs(world: World) -> None:
    ran: list[str] = []
    timer = world.runtime.clock.call_later(1, lambda: ran.append("cancelled"))
    world.runtime.clock.call_later(2, lambda: ran.append("kept"))
    timer.cancel()
    while not ran:
        await world.pass_time(1)
    timer.cancel()
    assert ran == ["kept"]


async def test_monotonic_time_has_one_value_in_two_units(world: World) -> None:
    clock = world.runtime.clock
    before = clock.now_ns()
    now_ms = clock.now_ms()
    after = clock.now_ns()
    assert before // 1_000_000 <= now_ms <= after // 1_000_000
    assert clock.wall_ms() > 1_600_000_000_000


async def test_randint_includes_both_ends_and_random_stays_below_one(world: World) -> None:
    random = world.runtime.random
    assert {random.randint(3, 5) for _ in range(200)} == {3, 4, 5}
    assert all(0 <= random.random() < 1 for _ in range(200))


async def test_uuids_are_16_bytes_and_differ(world: World) -> None:
    ids = {world.runtime.random.uuid() for _ in range(100)}
    assert len(ids) == 100
    assert {len(value) for value in ids} == {16}
