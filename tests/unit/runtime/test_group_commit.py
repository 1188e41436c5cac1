"""A-21: an fsync covers only what was there when it started, so callers share the next one."""

import asyncio

import pytest

from holdfast.runtime.real.group_commit import GroupCommit


class Syncs:
    """Runs that a test finishes by hand."""

    def __init__(self) -> None:
        self.runs: list[asyncio.Future[None]] = []
        self.commit = GroupCommit(self._start)

    def _start(self) -> "asyncio.Future[None]":
        self.runs.append(asyncio.get_running_loop().create_future())
        return self.runs[-1]

    async def callers(self, count: int) -> list["asyncio.Task[None]"]:
        tasks = [asyncio.create_task(self.commit.commit()) for _ in range(count)]
        await asyncio.sleep(0)
        return tasks


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_caller_during_a_run_waits_for_the_next_one_and_shares_it() -> None:
    syncs = Syncs()
    (first,) = await syncs.callers(1)
    late = await syncs.callers(3)
    assert len(syncs.runs) == 1
    syncs.runs[0].set_result(None)
    await turns()
    assert first.done()
    assert not any(task.done() for task in late)
    assert len(syncs.runs) == 2
    syncs.runs[1].set_result(None)
    await asyncio.gather(*late)
    assert len(syncs.runs) == 2


async def test_failure_reaches_the_callers_of_the_run_and_those_who_wait_for_the_next() -> None:
    syncs = Syncs()
    callers = [*await syncs.callers(2), *await syncs.callers(2)]
    syncs.runs[0].set_exception(OSError("gone"))
    results = await asyncio.gather(*callers, return_exceptions=True)
    assert [type(result) for result in results] == [OSError] * 4
    assert len(syncs.runs) == 1


async def test_cancelled_caller_leaves_the_run_to_the_others() -> None:
    syncs = Syncs()
    first, second = await syncs.callers(2)
    third = (await syncs.callers(1))[0]
    first.cancel()
    second.cancel()
    await turns()
    syncs.runs[0].set_result(None)
    await turns()
    syncs.runs[1].set_result(None)
    await third
    with pytest.raises(asyncio.CancelledError):
        await second


async def test_idle_waits_for_all_runs_even_for_one_that_fails() -> None:
    syncs = Syncs()
    await syncs.commit.idle()
    callers = [*await syncs.callers(1), *await syncs.callers(1)]
    idle = asyncio.create_task(syncs.commit.idle())
    await turns()
    syncs.runs[0].set_result(None)
    await turns()
    assert not idle.done()
    syncs.runs[1].set_exception(OSError("gone"))
    await idle
    results = await asyncio.gather(*callers, return_exceptions=True)
    assert [type(result) for result in results] == [type(None), OSError]
