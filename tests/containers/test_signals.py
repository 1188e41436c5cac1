"""Ctrl-C and SIGTERM in the middle of each action on containers: afterwards they are as before."""

import signal
import subprocess
import time

import pytest

from holdfast.localcluster.compose import ComposeCluster
from holdfast.localcluster.compose_delays import DelayedPackets
from tests.containers.conftest import PROJECT
from tests.e2e.chaos_command import ROOT, Command
from tests.e2e.leftovers import leftovers

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.long,
    pytest.mark.xdist_group("containers"),
    pytest.mark.timeout(900),
]

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
@pytest.mark.parametrize(
    "fault",
    ["kill", "stop", "pause", "partition", *([] if DelayedPackets.why_not() else ["slow-links"])],
)
@pytest.mark.parametrize("waits", [True, False], ids=["lasting", "being-made"])
def test_containers_are_as_before_after_a_signal(
    containers: ComposeCluster, fault: str, number: signal.Signals, waits: bool
) -> None:
    before = state(containers)
    words = ("--driver", "compose", "--project", PROJECT, "--target", "broker-2", "--seconds", "600")
    command = Command(fault, *words)
    if waits:
        command.wait_for("broker-2")
    else:  # while Docker is being asked, or just before or after it
        time.sleep(2.0)
    command.end(number)
    assert state(containers) == before
    containers.wait_ready(containers.nodes, 120)


def state(containers: ComposeCluster) -> tuple[object, ...]:
    """What a command could leave behind: on this machine, of the containers, and in their namespaces."""
    return (
        leftovers(ROOT / "none", PROJECT),
        containers.states(),
        containers.disconnected(),
        [] if DelayedPackets.why_not() else [held(pid) for pid in containers.pids().values()],
    )


def held(pid: int) -> bool:
    """Packets wait in the network namespace of the process."""
    command = ["nsenter", "--target", str(pid), "--net", "iptables", "-S", "INPUT"]
    return "NFQUEUE" in subprocess.run(command, capture_output=True, text=True, check=True).stdout
