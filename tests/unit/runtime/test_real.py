"""The end of a process, and what files do when the machine says no. The rest is in tests/contract."""

import asyncio
import errno
import gc
import os
import resource
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.runtime.api import DiskError, NetworkError, Runtime
from holdfast.runtime.real.disk import FLUSH_THREADS, NAME_THREADS, RealDisk
from holdfast.runtime.real.machine import (
    RealClock,
    RealRandom,
    ShortCollections,
    StopSignals,
    new_event_loop,
    real_runtime,
    run,
    until_stopped,
)
from holdfast.runtime.tasks import HeldTasks
from tests.contract.test_network import Recorder

ROOT = Path(__file__).parents[3]


def test_run_gives_main_a_runtime_and_returns_its_exit_code() -> None:
    async def main(runtime: Runtime) -> int:
        assert isinstance(runtime.clock, RealClock)
        assert isinstance(runtime.random, RealRandom)
        await runtime.clock.sleep(0)
        return 7

    assert run(main) == 7


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_the_wait_without_a_failure(number: signal.Signals) -> None:
    async def main(runtime: Runtime) -> int:
        signals = StopSignals()
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), number)
        assert await until_stopped(runtime, signals) is None
        assert await signals.wait() is number
        return 0

    assert run(main) == 0


def test_first_failed_task_ends_the_wait(failures_logged: list[str]) -> None:
    error = ValueError("own bug")

    async def bad() -> None:
        raise error

    async def main(runtime: Runtime) -> int:
        runtime.tasks.start("bad", bad())
        assert await until_stopped(runtime, StopSignals()) is error
        return 1

    assert run(main) == 1


def test_exception_in_a_callback_on_the_loop_is_a_failure_too(failures_logged: list[str]) -> None:
    def bad() -> None:
        raise AssertionError("own bug")

    async def main(runtime: Runtime) -> int:
        runtime.clock.call_later(0, bad)
        assert isinstance(await until_stopped(runtime, StopSignals()), AssertionError)
        return 1

    assert run(main) == 1


async def test_trouble_of_a_socket_on_the_loop_stops_no_other() -> None:
    tasks = HeldTasks()
    tasks.adopt_callbacks()
    loop = asyncio.get_running_loop()
    loop.call_exception_handler({"message": "accept", "exception": OSError("too many open files")})
    asked = asyncio.create_task(tasks.failure())
    await asyncio.sleep(0)
    assert not asked.done()
    asked.cancel()


@pytest.mark.parametrize(
    ("host", "port"),
    [("b2..example", 9092), ("b" * 64, 9092), ("127.0.0.1", 65_536), ("127.0.0.1", -1)],
)
@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, new_event_loop])
def test_an_address_that_cannot_be_is_an_error_and_no_evidence(
    host: str, port: int, make_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """Others tell us addresses: one that is mistyped must not end us, nor pass for a broker that is gone."""

    async def ask() -> None:
        network = real_runtime().network
        with pytest.raises(NetworkError, match=f"cannot connect to {host}") as raised:
            await network.connect(host, port, Recorder(), 5000)
        assert type(raised.value) is NetworkError
        with pytest.raises(NetworkError, match=f"cannot listen at {host}"):
            await network.listen(host, port, Recorder)

    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(ask())


def test_python_without_assertions_is_refused() -> None:
    program = "from holdfast.runtime.real.machine import run; run(None)"
    done = subprocess.run(
        [sys.executable, "-O", "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "assertions" in done.stderr


def test_uvloop_is_used_where_it_is_installed() -> None:
    loop = new_event_loop()
    loop.close()
    assert type(loop).__module__.startswith("uvloop")


@contextmanager
def size_limit(size: int) -> Iterator[None]:
    """No file of this process may grow beyond `size`: the kernel writes short, then refuses. Our own output
    too, so nothing may be printed meanwhile."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_append_that_was_cut_short_poisons_the_file_and_keeps_its_size_true(tmp_path: Path) -> None:
    path = str(tmp_path / "log")
    file = await RealDisk().open(path, create=True)
    file.append([b"x" * 900])
    error: DiskError | None = None
    with size_limit(1000):
        try:
            file.append([b"y" * 50, b"z" * 150])
        except DiskError as raised:
            error = raised
    assert error is not None
    assert error.operation == "append"
    assert file.size == os.path.getsize(path) == 1000
    with pytest.raises(DiskError):
        await file.flush()
    await file.close()


async def test_failed_flush_poisons_the_file_for_all_who_wait_a20(tmp_path: Path) -> None:
    file = await RealDisk().open("/dev/full", create=False)  # a device that fdatasync refuses
    flushes = [asyncio.create_task(file.flush()) for _ in range(3)]
    results = await asyncio.gather(*flushes, return_exceptions=True)
    assert [type(result) for result in results] == [DiskError] * 3
    with pytest.raises(DiskError, match="flush"):
        file.append([b"x"])
    await file.close()


async def test_opens_and_renames_do_not_wait_behind_folders_whose_sync_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sick disk does not hold up another one."""
    released = threading.Event()
    monkeypatch.setattr(os, "fsync", lambda descriptor: released.wait(30))
    disk = RealDisk()
    syncs = [asyncio.ensure_future(disk.sync_folder(str(tmp_path))) for _ in range(NAME_THREADS)]
    try:
        await disk.make_folder(str(tmp_path / "made"))
        assert await disk.listdir(str(tmp_path)) == ["made"]
        assert not any(sync.done() for sync in syncs)
    finally:
        released.set()
        await asyncio.gather(*syncs)


async def test_what_the_disk_cannot_read_is_not_taken_for_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A-20: an identity would be written over it."""

    def fail(path: str) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "lstat", fail)
    with pytest.raises(DiskError):
        await RealDisk().exists(str(tmp_path))


async def test_lock_is_free_when_the_process_that_held_it_was_killed(tmp_path: Path) -> None:
    program = (
        "import asyncio, sys\n"
        "from holdfast.runtime.real.disk import RealDisk\n"
        "async def main():\n"
        "    disk = RealDisk()\n"
        "    await disk.lock_folder(sys.argv[1])\n"
        "    print('locked', flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "locked\n"
    disk = real_runtime().disk
    with pytest.raises(DiskError, match="another process"):
        await disk.lock_folder(str(tmp_path))
    holder.kill()
    holder.wait()
    holder.stdout.close()
    await disk.lock_folder(str(tmp_path))


def test_threads_of_a_disk_run_before_there_may_be_no_memory_for_them() -> None:
    before = set(threading.enumerate())
    disk = RealDisk()
    names = Counter(thread.name.partition("_")[0] for thread in set(threading.enumerate()) - before)
    assert names == {"flush": FLUSH_THREADS, "disk": NAME_THREADS}
    del disk


def test_what_survives_a_long_collection_is_left_out_until_all_is_looked_at_again() -> None:
    now_ns, frozen = 0, []
    short = ShortCollections(lambda: now_ns)
    try:
        for took_ms in (1, *[50] * 16):
            short("start", {"generation": 2})
            now_ns += took_ms * 1_000_000
            short("start", {"generation": 1})
            short("stop", {"generation": 1})
            short("stop", {"generation": 2})
            frozen.append(gc.get_freeze_count() > 0)
    finally:
        gc.unfreeze()
    assert frozen == [False, *[True] * 15, False]
