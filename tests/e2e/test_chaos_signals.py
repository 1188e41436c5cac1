"""Ctrl-C and SIGTERM in the middle of each action: afterwards nothing is left of it.

Stopped processes, mounts, loop devices, packet filter tables and namespaces are listed before and after.
"""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.drills.fault_kinds import KINDS
from holdfast.localcluster import clocks
from holdfast.localcluster.power import loop_disk
from holdfast.localcluster.processes import LocalCluster
from tests.e2e.chaos_command import Command, chaos
from tests.e2e.conftest import QUICK
from tests.e2e.leftovers import leftovers, processes
from tests.e2e.load import produce, watch

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.long,
    pytest.mark.xdist_group("chaos-signals"),
    pytest.mark.timeout(600),
]

#: nodes have disks of their own, which needs root; else these faults are refused
HAS_DISKS = not loop_disk.why_not(loop_disk.FILE_SYSTEMS["ext4"])
#: their wall clocks can be put wrong
HAS_CLOCKS = not clocks.why_not()
ON_DISKS = ("full-disk", "frozen-disk", "slow-disk")
NOT_HERE = {*(() if HAS_DISKS else ON_DISKS), *(() if HAS_CLOCKS else ("clock-jump",))}
SIGNALS = (signal.SIGINT, signal.SIGTERM)
#: what a fault needs to be told beside its target
WORDS = {
    "flip-bit": ("--part", "active-segment", "--partition", "t-0"),
    "cut-file": ("--part", "active-segment", "--partition", "t-0"),
    "remove-file": ("--part", "active-segment", "--partition", "t-0"),
    "unread-fetches": ("--topic", "t"),
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    made = LocalCluster.create(
        tmp_path_factory.mktemp("signals"),
        3,
        1,
        properties=QUICK,
        power_loss="auto",
        has_links=True,
        has_clocks=HAS_CLOCKS,
    )
    try:
        made.up()
        watch(made.bootstrap_servers).create_topic("t", 1, 3, 2)
        produce(made.bootstrap_servers, "t", 100)
        yield made
    finally:
        made.destroy()


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
@pytest.mark.parametrize("fault", [fault for fault in KINDS if fault not in NOT_HERE])
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
