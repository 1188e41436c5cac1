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


def test_the_load_is_what_is_done_while_it_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The start of the cluster is said before, in the same line."""
    done: list[str] = []
    progress = Progress()
    monkeypatch.setattr(progress, "phase", lambda name, *rest: done.append(name))

    @contextmanager
    def started(folder: Path | None) -> Iterator[Any]:
        done.append("a cluster starts")
        with some_cluster(folder) as cluster:
            yield cluster

    begin(monkeypatch, started, lambda load: done.append("the load"))
    _measured("kill", 0, 1, 2.0, None, progress)
    assert done == ["a cluster starts", "kill -9 of a leader", "the load"]


def load_on(*controllers: int) -> FailoverLoad:
    """No nodes but these controllers, and signals that are not sent."""
    nodes: Any = SimpleNamespace(
        broker=lambda broker_id: SimpleNamespace(node_id=broker_id),
        controllers=[SimpleNamespace(node_id=node_id) for node_id in controllers],
        signal=lambda node, number: None,
    )
    cluster: Any = SimpleNamespace(bootstrap_servers="")
    load = FailoverLoad(cluster, nodes, 1, 2.0)
    load._bring_back = lambda node: None  # type: ignore[method-assign]
    return load


async def test_a_partition_that_has_another_leader_before_the_signal_is_not_waited_for() -> None:
    load = load_on()
    load._led = lambda: {1: {0: 5}}  # type: ignore[method-assign]
    load.acks.epochs.add((0, 6))
    await load._end_leader()
    assert (load.waits_ms, load.never) == ([], 0)


async def test_the_end_of_the_active_controller_waits_until_there_is_one() -> None:
    answers = iter([None, 9, 2])

    async def describe_quorum() -> Any:
        return SimpleNamespace(leader_id=next(answers))

    admin: Any = SimpleNamespace(describe_quorum=describe_quorum)
    assert (await load_on(1, 2)._active(admin)).node_id == 2
