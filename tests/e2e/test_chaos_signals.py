"""Ctrl-C and SIGTERM in the middle of each action: afterwards nothing is left of it.

Stopped processes, mounts, loop devices, packet filter tables and namespaces are listed before and after.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.drills.fault_kinds import KINDS
from holdfast.localcluster.compose import ComposeCluster
from holdfast.localcluster.nodes import ClusterError
from holdfast.localcluster.power import loop_disk
from holdfast.localcluster.processes import LocalCluster
from tests.e2e.conftest import QUICK
from tests.e2e.leftovers import leftovers, processes
from tests.e2e.load import produce, watch

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.long,
    pytest.mark.xdist_group("chaos-signals"),
    pytest.mark.timeout(600),
]

ROOT = Path(__file__).parent.parent.parent
NO_ROOT = loop_disk.why_not(loop_disk.FILE_SYSTEMS["ext4"])
SIGNALS = (signal.SIGINT, signal.SIGTERM)
#: what a fault needs to be told beside its target
WORDS = {
    "flip-bit": ("--part", "active-segment", "--partition", "t-0"),
    "cut-file": ("--part", "active-segment", "--partition", "t-0"),
    "remove-file": ("--part", "active-segment", "--partition", "t-0"),
    "unread-fetches": ("--topic", "t"),
}
PROJECT = "holdfast-signals"


class Command:
    """`holdfast chaos ...` as a process of its own."""

    def __init__(self, *words: str, folder: Path = ROOT) -> None:
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(ROOT)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "holdfast.cli", "chaos", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=folder,
            env=environment,
        )
        self.said = ""

    def wait_for(self, words: str) -> None:
        """Until it has printed a line with the words."""
        assert self._process.stdout is not None
        while words not in (line := self._process.stdout.readline()):
            self.said += line
            assert line, f"it ended before it said {words!r}:\n{self.said}"
        self.said += line

    def end(self, number: signal.Signals) -> int:
        """Send the signal; the exit code."""
        self._process.send_signal(number)
        self.said += self._process.communicate(timeout=180)[0]
        return self._process.returncode


def chaos(*words: str, folder: Path = ROOT) -> str:
    command = [sys.executable, "-m", "holdfast.cli", "chaos", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=180, cwd=folder).stdout


# --- processes -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    if NO_ROOT:
        pytest.skip(f"no disks that can be cut or frozen: {NO_ROOT}")
    made = LocalCluster.create(
        tmp_path_factory.mktemp("signals"), 3, 1, properties=QUICK, power_loss="ext4", has_links=True
    )
    try:
        made.up()
        watch(made.bootstrap_servers).create_topic("t", 1, 3, 2)
        produce(made.bootstrap_servers, "t", 100)
        yield made
    finally:
        made.destroy()


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
@pytest.mark.parametrize("fault", KINDS)
def test_a_fault_that_lasts_is_healed_by_a_signal(
    cluster: LocalCluster, fault: str, number: signal.Signals
) -> None:
    cluster.up(120)  # a node that met a full disk has ended by itself
    watch(cluster.bootstrap_servers).wait_full_isr("t")
    before = leftovers(cluster.folder)
    target = ("--target", "leader of t-0", "--seconds", "600", "--dir", str(cluster.folder))
    command = Command(fault, *target, *WORDS.get(fault, ()))
    command.wait_for("broker-")
    command.end(number)
    assert "healed" in command.said, command.said
    assert leftovers(cluster.folder) == before
    assert chaos("heal", "--dir", str(cluster.folder)) == "nothing was left to heal\n"


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
@pytest.mark.parametrize("moment", ["the cluster starts", "it runs", "was in the page cache", "wait 600 s"])
def test_a_run_takes_its_cluster_away_at_a_signal(
    tmp_path: Path, moment: str, number: signal.Signals
) -> None:
    before = leftovers(tmp_path)
    scenario = tmp_path / "story.toml"
    scenario.write_text(STORY)
    command = Command("run", str(scenario), "--no-verdict", "--keep", str(tmp_path / "kept"))
    command.wait_for(moment)
    assert command.end(number) != 0
    assert leftovers(tmp_path) == before
    assert processes(tmp_path) == []


STORY = """
name = "story"
says = "a leader is killed, a follower is paused, and both stay so"
[topic.t]
[producer.p]
topic = "t"
[[phase]]
name = "both"
steps = [
    { fault = "kill", target = "leader of t-0" },
    { fault = "pause", target = "random controller" },
    { wait = "600 s" },
]
[[expect]]
verdict = "nothing lost"
because = "nothing is judged"
"""


# --- containers ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def containers() -> Iterator[ComposeCluster]:
    if shutil.which("docker") is None:
        pytest.skip("docker is not installed")
    try:
        found = ComposeCluster.create(ROOT, PROJECT)
        found.up()
    except ClusterError as error:
        pytest.skip(f"no containers here: {error}")
    try:
        yield found
    finally:
        found.down()


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
@pytest.mark.parametrize("fault", ["kill", "stop", "pause", "partition"])
@pytest.mark.parametrize("waits", [True, False], ids=["lasting", "being-made"])
def test_containers_are_as_before_after_a_signal(
    containers: ComposeCluster, fault: str, number: signal.Signals, waits: bool
) -> None:
    before = (leftovers(ROOT / "none"), containers.states(), containers.disconnected())
    words = ("--driver", "compose", "--project", PROJECT, "--target", "broker-2", "--seconds", "600")
    command = Command(fault, *words)
    if waits:
        command.wait_for("broker-2")
    else:  # while Docker is being asked, or just before or after it
        time.sleep(2.0)
    command.end(number)
    assert (leftovers(ROOT / "none"), containers.states(), containers.disconnected()) == before
    containers.wait_ready(containers.nodes, 120)
