"""Many that wait for the same slow work cost two runs of it, and none is served by one that began before."""

import asyncio

import pytest

from holdfast.storage.shared_run import SharedRun


class Work:
    """Runs that end when they are let."""

    def __init__(self) -> None:
        self.began = 0
        self.may_end = asyncio.Semaphore(0)
        self.fails = False

    async def __call__(self) -> None:
        self.began += 1
        await self.may_end.acquire()
        if self.fails:
            raise OSError("no")


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_calls_during_a_run_share_the_next_one() -> None:
    shared, work = SharedRun(), Work()
    first = asyncio.ensure_future(shared.run(work))
    await turns()
    others = [asyncio.ensure_future(shared.run(work)) for _ in range(5)]
    work.may_end.release()
    await first
    await turns()
    assert work.began == 2
    assert not any(other.done() for other in others), "what was wanted after a run began is not in it"
    work.may_end.release()
    await asyncio.gather(*others)
    assert work.began == 2


async def test_a_run_that_fails_serves_no_one_else() -> None:
    shared, work = SharedRun(), Work()
    work.fails = True
    first, second = (asyncio.ensure_future(shared.run(work)) for _ in range(2))
    work.may_end.release()
    with pytest.raises(OSError, match="no"):
        await first
    work.fails = False
    work.may_end.release()
    await second
    assert work.began == 2
