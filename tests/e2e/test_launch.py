"""How processes of nodes are started: both launchers, and what becomes of forks."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.localcluster.launch import Child, CommandLauncher, ForkLauncher, Launcher
from holdfast.localcluster.nodes import ClusterError
from holdfast.localcluster.processes import LocalCluster

pytestmark = pytest.mark.e2e


@pytest.fixture
def forks() -> Iterator[ForkLauncher]:
    launcher = ForkLauncher()
    yield launcher
    launcher.close()


def wait_until(condition: Callable[[], bool], timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def launched(launcher: Launcher, tmp_path: Path) -> tuple[Child, LocalCluster]:
    """A controller that takes requests."""
    cluster = LocalCluster.create(tmp_path / "cluster", 1, 1)
    (node,) = cluster.controllers
    words = ["controller", "--config", str(cluster.properties_file(node))]
    child = launcher.launch(words, cluster.log_file(node))
    wait_until(lambda: "listens on port" in cluster.last_words(node, 100))
    (cluster.home(node) / "node.pid").write_text(f"{child.pid}\n")
    return child, cluster


@pytest.mark.parametrize("kind", ["command", "fork"])
def test_a_node_is_a_process_of_its_own_that_others_find_and_signals_end(
    kind: str, forks: ForkLauncher, tmp_path: Path
) -> None:
    child, cluster = launched(forks if kind == "fork" else CommandLauncher(), tmp_path)
    try:
        assert child.is_running()
        assert os.getsid(child.pid) == child.pid
        found = LocalCluster.load(cluster.folder)  # as another process finds it: by its command line
        assert found.pid(found.controllers[0]) == child.pid
    finally:
        os.kill(child.pid, signal.SIGTERM)
    wait_until(lambda: not child.is_running())
    assert "controller 101 stopped" in cluster.last_words(cluster.controllers[0])


@pytest.mark.parametrize("kind", ["command", "fork"])
def test_python_files_of_the_working_folder_are_not_a_nodes_code(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An http.py beside one's data, say: the HTTP endpoint imports a package of that name."""
    (tmp_path / "http.py").write_text("raise SystemExit('this is not the node')\n")
    monkeypatch.chdir(tmp_path)
    launcher = ForkLauncher() if kind == "fork" else CommandLauncher()
    try:
        child, cluster = launched(launcher, tmp_path)
        os.kill(child.pid, signal.SIGTERM)
        wait_until(lambda: not child.is_running())
        assert "controller 101 stopped" in cluster.last_words(cluster.controllers[0])
    finally:
        if isinstance(launcher, ForkLauncher):
            launcher.close()


def test_a_fork_that_was_killed_is_no_zombie(forks: ForkLauncher, tmp_path: Path) -> None:
    child, _ = launched(forks, tmp_path)
    os.kill(child.pid, signal.SIGKILL)
    wait_until(lambda: not child.is_running())
    wait_until(lambda: not Path(f"/proc/{child.pid}").exists())


def test_forks_die_with_their_launcher(forks: ForkLauncher, tmp_path: Path) -> None:
    child, _ = launched(forks, tmp_path)
    forks.close()
    assert not child.is_running()


def test_a_launcher_whose_server_has_ended_says_so(forks: ForkLauncher, tmp_path: Path) -> None:
    forks._server.kill()
    forks._server.wait()
    with pytest.raises(ClusterError, match="has ended with exit code -9"):
        forks.launch(["controller"], tmp_path / "log")
