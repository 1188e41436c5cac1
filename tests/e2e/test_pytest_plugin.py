"""The pytest plugin in a project of another owner: docs/pytest.md as it stands there, and what it promises.

Each test writes a project and runs pytest on it, with this plugin and no other.
"""

import os
import re
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tests.e2e.pages import blocks

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]


class Project:
    """A folder with tests."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(textwrap.dedent(text))

    def command(self, *options: str) -> list[str]:
        return [
            sys.executable,
            *("-m", "pytest", "-p", "holdfast.localcluster.pytest_plugin", "-p", "no:cacheprovider"),
            *("-W", "error", "--basetemp", str(self.folder / "temporary"), *options),
        ]

    def environment(self) -> dict[str, str]:
        return {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}

    def run(self, *options: str) -> str:
        """What pytest prints."""
        done = subprocess.run(
            self.command(*options),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            cwd=self.folder,
            env=self.environment(),
        )
        return done.stdout + done.stderr

    def processes(self) -> list[str]:
        """Command lines of nodes with files in this project."""
        found = []
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if str(self.folder) in words and "server.properties" in words:
                found.append(words)
        return found


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_the_page_shows_a_test_of_ten_lines_and_all_its_tests_pass(project: Project) -> None:
    pages = blocks("pytest.md")
    for number, block in enumerate(pages):
        project.write(f"test_page_{number}.py", block)
    assert len(textwrap.dedent(pages[0][pages[0].index("def test_") :]).strip().splitlines()) <= 10
    assert f"{len(pages)} passed" in project.run("--strict-markers")
    assert project.processes() == []


def test_the_ini_file_of_the_page_makes_small_clusters(project: Project) -> None:
    (ini,) = blocks("pytest.md", "ini")
    project.write("pytest.ini", ini)
    project.write(
        "test_it.py",
        """
        def test_it(holdfast_cluster):
            assert [node.name for node in holdfast_cluster.nodes] == ["controller-101", "broker-1"]
            text = (holdfast_cluster.folder / "broker-1" / "server.properties").read_text()
            assert "log.segment.bytes=1048576" in text.split()
        """,
    )
    assert "1 passed" in project.run("--strict-config")


def test_a_test_plays_with_all_that_can_happen_to_nodes(project: Project) -> None:
    project.write(
        "test_it.py",
        """
        def test_it(holdfast_cluster):
            c = holdfast_cluster
            topic = c.create_topic(partitions=2, configs={"min.insync.replicas": "2"})
            leader = c.leader(topic, 1)
            assert leader not in c.followers(topic, 1) and len(c.followers(topic, 1)) == 2

            c.stop(leader)
            assert not c.is_running(leader)
            c.wait_until(lambda: leader not in c.isr(topic, 1))
            c.restart(leader)
            c.wait_until(lambda: leader in c.isr(topic, 1))

            c.pause(leader)
            assert c.is_running(leader)
            c.wait_until(lambda: leader not in c.isr(topic, 1))
            c.resume(leader)
            c.wait_until(lambda: leader in c.isr(topic, 1))

            c.kill(c.broker(1), c.broker(2))
            c.wait_until(lambda: len(c.elr(topic)) == 1)
            losses = c.power_loss(*c.brokers, seed=7)
            assert [loss.node for loss in losses] == ["broker-1", "broker-2", "broker-3"]
            assert not any(map(c.is_running, c.brokers))
            c.restart()
            assert c.wait_until(lambda: c.leader(topic)) in c.brokers
            assert c.active_controller() == c.controllers[0]
            assert "registered" in c.log(c.broker(1))
            assert (c.folder / "broker-1" / "data" / f"{topic}-0").is_dir()
        """,
    )
    assert "1 passed" in project.run()


def test_waiting_in_vain_says_what_is_down(project: Project) -> None:
    project.write(
        "test_it.py",
        """
        import pytest

        @pytest.mark.holdfast(brokers=1)
        def test_it(holdfast_cluster):
            holdfast_cluster.kill(holdfast_cluster.broker(1))
            with pytest.raises(TimeoutError, match="not so within 0.1 s; down: broker-1"):
                holdfast_cluster.wait_until(lambda: False, timeout_s=0.1)
            with pytest.raises(ValueError, match="name at least one node"):
                holdfast_cluster.kill()
            with pytest.raises(TypeError, match="1 is no node"):
                holdfast_cluster.kill(1)
        """,
    )
    assert "1 passed" in project.run()


def test_the_marker_that_is_closest_wins_and_the_ini_file_says_the_rest(project: Project) -> None:
    project.write(
        "pytest.ini",
        """
        [pytest]
        holdfast_brokers = 1
        holdfast_properties =
            log.retention.ms=7777
            min.insync.replicas=1
        """,
    )
    project.write(
        "test_it.py",
        """
        import pytest

        pytestmark = pytest.mark.holdfast(brokers=2, properties={"log.segment.bytes": "1048576"})

        @pytest.mark.holdfast(brokers=3, properties={"log.retention.ms": "8888"})
        def test_it(holdfast_cluster):
            assert (len(holdfast_cluster.brokers), len(holdfast_cluster.controllers)) == (3, 1)
            text = (holdfast_cluster.folder / "broker-1" / "server.properties").read_text()
            wanted = {"log.retention.ms=8888", "log.segment.bytes=1048576", "min.insync.replicas=1"}
            assert wanted <= set(text.split())
        """,
    )
    assert "1 passed" in project.run()


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("holdfast_brokers = none", "none: give a number from 1 on"),
        ("holdfast_properties = a", "give KEY=VALUE"),
    ],
)
def test_a_bad_setting_is_told_in_a_sentence(project: Project, line: str, problem: str) -> None:
    project.write("pytest.ini", f"[pytest]\n{line}\n")
    project.write("test_it.py", "def test_it(holdfast_cluster): pass")
    assert problem in project.run()


def test_the_cluster_of_a_session_is_made_once_and_whole_again_for_each_test(project: Project) -> None:
    project.write(
        "test_it.py",
        """
        seen = []

        def test_one(holdfast_session_cluster):
            seen.append(holdfast_session_cluster)
            holdfast_session_cluster.kill(*holdfast_session_cluster.brokers)
            holdfast_session_cluster.pause(*holdfast_session_cluster.controllers)

        def test_two(holdfast_session_cluster):
            assert seen == [holdfast_session_cluster]
            first, second = holdfast_session_cluster.create_topic(), holdfast_session_cluster.create_topic()
            assert first != second

        def test_of_its_own(holdfast_cluster):
            assert holdfast_cluster not in seen
        """,
    )
    assert "3 passed" in project.run()


def test_a_failed_test_shows_what_the_nodes_logged_and_keeps_their_files(project: Project) -> None:
    project.write(
        "test_it.py",
        """
        def test_good(holdfast_cluster):
            pass

        def test_bad(holdfast_cluster):
            assert holdfast_cluster.broker(2) is None
        """,
    )
    printed = project.run()
    assert "1 failed, 1 passed" in printed
    assert re.search(r"-+ broker-2 of holdfast_cluster -+\n.*broker-2 holdfast", printed)
    kept = {file.resolve() for file in project.folder.glob("temporary/holdfast*/cluster/broker-2/node.log")}
    assert len(kept) == 1
    assert project.processes() == []


def test_a_killed_pytest_leaves_no_node_behind(project: Project) -> None:
    project.write(
        "test_it.py",
        """
        import time

        def test_it(holdfast_cluster):
            (holdfast_cluster.folder / "up").touch()
            time.sleep(100)
        """,
    )
    with subprocess.Popen(
        project.command(), cwd=project.folder, env=project.environment(), stdout=subprocess.DEVNULL
    ) as running:
        deadline = time.monotonic() + 60
        while not list(project.folder.glob("temporary/holdfast*/cluster/up")):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert len(project.processes()) == 4
        running.kill()
    while project.processes():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_pytest_starts_without_holdfast_where_no_test_asks_for_a_cluster(project: Project) -> None:
    project.write(
        "test_it.py",
        """
        import sys

        def test_it():
            loaded = {name for name in sys.modules if name.startswith("holdfast")}
            assert loaded == {"holdfast", "holdfast.localcluster", "holdfast.localcluster.pytest_plugin"}
        """,
    )
    assert "1 passed" in project.run()
    assert "holdfast_session_cluster" in project.run("--fixtures")
