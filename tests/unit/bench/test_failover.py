"""A way of losing a leader that cannot be measured costs no other one."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from holdfast.bench import failover
from holdfast.bench.failover import FailoverLoad, _measured, _text
from holdfast.cli.progress import Progress


@contextmanager
def no_cluster(folder: Path | None) -> Iterator[Any]:
    raise FileNotFoundError(f"{folder} is gone")
    yield


@contextmanager
def some_cluster(folder: Path | None) -> Iterator[Any]:
    yield SimpleNamespace(local=SimpleNamespace(), create_topic=lambda topic: None)


def begin(
    monkeypatch: pytest.MonkeyPatch,
    cluster: Callable[[Path | None], AbstractContextManager[Any]],
    load: Callable[[FailoverLoad], object],
) -> None:
    """Measure with this cluster, where `load` stands for what is done to it."""
    monkeypatch.setattr(failover, "own_cluster", cluster)
    monkeypatch.setattr(failover, "run", lambda main: load(main.__self__))


def test_a_way_that_fails_says_why_and_has_no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    begin(monkeypatch, no_cluster, lambda load: None)
    cell = _measured("kill", 100, 1, 2.0, Path("folder"), Progress())
    assert cell["error"] == "folder is gone"
    assert cell["wait"] is None
    lines = _text([cell]).splitlines()
    assert lines[1].split() == [*"kill -9 of a leader beside 100 partitions".split(), "0", *"----", "0", "0"]


def test_partitions_that_never_come_back_are_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    begin(monkeypatch, some_cluster, lambda load: setattr(load, "never", 12))
    ran = CliRunner().invoke(failover.main, ["--way", "kill", "--times", "1"])
    assert ran.exit_code == 1
    assert "kill -9 of a leader: 12 partitions never came back" in ran.output
