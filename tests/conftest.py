"""Settings of the whole suite: property tests never judge by time, because two busy cores would, and try
the same examples in every run; `make fuzz` tries others each time."""

import asyncio
import logging
import os
import signal
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from holdfast.runtime.tasks import HeldTask, HeldTasks

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A background job of a script ignores SIGINT, and so would every process that a test starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)

patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("default", parent=patient, derandomize=True)
# not a child of "default", which keeps no examples that failed
settings.register_profile("fuzz", parent=patient, derandomize=False, max_examples=5_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

#: What a further row of a long table may take where others use the machine as well: a hang is told, late.
LONG_TIMEOUT_S = 600


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--share",
        metavar="K/N",
        type=_share,
        help="play of N shares of the rows marked long the one with number K, from 0 on",
    )


def _share(text: str) -> tuple[int, int]:
    """Raises: ValueError."""
    number, _, shares = text.partition("/")
    if not 0 <= int(number) < int(shares):
        raise ValueError(text)
    return int(number), int(shares)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Groups that share a cluster or a session begin first, then what may take longest: no worker has a long
    test left when the others are done."""
    number, shares = config.getoption("--share") or (0, 1)
    long_rows = [item for item in items if item.get_closest_marker("long") is not None]
    left_out = {item for nth, item in enumerate(long_rows) if nth % shares != number}
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]
    for item in items:
        if item.get_closest_marker("long") is not None and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(LONG_TIMEOUT_S))
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> tuple[bool, float]:
    timeout = item.get_closest_marker("timeout")
    return item.get_closest_marker("xdist_group") is None, -timeout.args[0] if timeout is not None else 0.0


#: what runs tasks on the event loop of the present test
_running: dict[int, HeldTasks] = {}


@pytest.fixture(autouse=True)
def _tasks_live_as_long_as_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop cancels what a test leaves running, when it is closed after the test's fixtures.

    Tasks that only refer to each other could be collected before, and each tells of that as an error, in
    whichever test runs then.
    """
    _running.clear()
    original = HeldTasks.start

    def start(self: HeldTasks, name: str, work: Coroutine[Any, Any, None]) -> HeldTask:
        if isinstance(
            asyncio.get_running_loop(), asyncio.BaseEventLoop
        ):  # simulated loops close their own tasks
            _running[id(self)] = self
        return original(self, name, work)

    monkeypatch.setattr(HeldTasks, "start", start)


class _Failures(logging.Handler):
    """Keeps what tasks and event loops report as broken: exceptions that no task awaited."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        line = self.format(record)
        # A call whose answer is no longer needed breaks nothing, and it is reported in some later test.
        if not line.startswith("Future exception was never retrieved"):
            self.lines.append(line)


@pytest.fixture(autouse=True)
def _no_unseen_failures(request: pytest.FixtureRequest) -> Iterator[_Failures]:
    """A task or callback that broke fails the test, unless the test takes `failures_logged`."""
    failures = _Failures()
    loggers = [logging.getLogger(name) for name in ("asyncio", "holdfast.tasks")]
    for logger in loggers:
        logger.addHandler(failures)
    yield failures
    for logger in loggers:
        logger.removeHandler(failures)
    if "failures_logged" not in request.fixturenames:
        assert not failures.lines, "a task or a callback broke:\n" + "\n".join(failures.lines)


@pytest.fixture
def failures_logged(_no_unseen_failures: _Failures) -> list[str]:
    """For tests that break something on purpose: what tasks and event loops reported."""
    return _no_unseen_failures.lines
