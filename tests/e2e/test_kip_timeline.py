"""T0 to T7 of KIP-966's picture, four brokers and min ISR 3, by the command line alone.

Lagging and cut-off brokers are paused processes, offline ones are killed; an unclean shutdown is `kill -9`.
The scenario kip_timeline_t0_to_t7.txt tells the same story to the controller's core.
"""

import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

#: A paused broker lags after one second, long before its session ends, on a slow machine too.
PROPERTIES = (
    "broker.session.timeout.ms=20000",
    "broker.heartbeat.interval.ms=500",
    "replica.lag.time.max.ms=1000",
)
WAIT_S = 60.0


def holdfast(*words: str, text: str = "") -> str:
    """Run one command as a user would; its standard output."""
    done = subprocess.run(
        [sys.executable, "-m", "holdfast.cli", *words],
        input=text,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


class Timeline:
    """A cluster in a folder and the one partition that the story is about."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)
        words = [word for pair in PROPERTIES for word in ("--property", pair)]
        up = holdfast("cluster", "up", "--dir", self.folder, "--brokers", "4", *words)
        found = re.search(r"bootstrap servers: (\S+)\nbootstrap controllers: (\S+)", up)
        assert found
        self.servers = ("--bootstrap-server", found[1])
        self.controllers = ("--bootstrap-controller", found[2])
        holdfast(
            "topics", *self.servers, "--create", "--topic", "t",
            "--replica-assignment", "1:2:3:4", "--config", "min.insync.replicas=3",
        )  # fmt: skip

    def node(self, verb: str, brokers: str) -> None:
        holdfast("cluster", verb, "--dir", self.folder, "--broker", brokers)

    def produce(self, *values: str, acks: str) -> None:
        lines = "".join(f"{value}\n" for value in values)
        holdfast("console-producer", *self.servers, "--topic", "t", "--acks", acks, text=lines)

    def sets(self) -> str:
        """Leader, ISR, ELR and LastKnownElr as `topics --describe` prints them."""
        # the controllers, since at T5 no broker is there to be asked
        line = holdfast("topics", *self.controllers, "--describe", "--topic", "t").splitlines()[-1]
        found = re.search(r"Leader: (\S+)\tReplicas: \S+\tIsr: (\S*)\tElr: (\S*)\tLastKnownElr: (\S*)", line)
        assert found, line

        def ascending(text: str) -> str:
            return ",".join(sorted(text.split(","))) if text else "-"

        return f"{found[1]} isr {ascending(found[2])} elr {ascending(found[3])} known {ascending(found[4])}"

    def wait(self, wanted: str, *, never: Callable[[str], bool] = lambda seen: False) -> None:
        """Ask until the partition looks so; what `never` names must not be seen on the way."""
        deadline = time.monotonic() + WAIT_S
        seen = ""
        while (seen := self.sets()) != wanted:
            assert not never(seen), f"{seen}, on the way to {wanted}"
            assert time.monotonic() < deadline, f"{seen}, expected {wanted}"

    def records(self, count: int) -> list[str]:
        """The first `count`, once they are to be had."""
        words = ("--topic", "t", "--from-beginning", "--max-messages", str(count))
        return holdfast("console-consumer", *self.servers, *words).split()


@pytest.fixture
def timeline(tmp_path: Path) -> "Timeline":
    return Timeline(tmp_path / "kip")


def test_the_sets_are_those_of_the_picture_and_what_was_acknowledged_is_there_at_the_end(
    timeline: Timeline, request: pytest.FixtureRequest
) -> None:
    request.addfinalizer(lambda: holdfast("cluster", "kill", "--dir", timeline.folder, "--all"))
    timeline.wait("1 isr 1,2,3,4 elr - known -")  # T0, everyone is online
    timeline.produce(*(f"all-{n}" for n in range(100)), acks="all")

    timeline.node("pause", "3,4")  # T1, 3 and 4 lag: one proposal takes both out, once there is something new
    timeline.produce("hidden", acks="1")
    timeline.wait("1 isr 1,2 elr 3,4 known -")

    timeline.node("resume", "3")  # T2, 3 catches up: the ELR is cleaned
    timeline.wait("1 isr 1,2,3 elr - known -")

    timeline.node("pause", "2")  # T3, 2 is cut off, 3 is killed
    timeline.wait("1 isr 1,3 elr 2 known -")
    timeline.node("kill", "3")
    timeline.wait("1 isr 1 elr 2,3 known -")

    timeline.node("resume", "4")  # T4, 4 catches up: two are still too few to forget the ELR
    timeline.wait("1 isr 1,4 elr 2,3 known -")

    timeline.node("kill", "1")  # T5, 1 and 4 go, 3 comes back from an unclean shutdown
    timeline.wait("4 isr 4 elr 1,2,3 known -")
    timeline.node("kill", "4")
    timeline.wait("none isr - elr 1,2,3,4 known -")
    timeline.node("start", "3")
    timeline.wait("none isr - elr 1,2,4 known 3")

    timeline.node("start", "1")  # T6, 1 comes back unclean, 2 comes back with all it had, and leads
    timeline.wait("none isr - elr 2,4 known 1,3")
    timeline.node("resume", "2")

    # T7, 1 and 3 catch up. On the way 2 leads with 4 still eligible; one of the two may be in sync first
    timeline.wait("2 isr 1,2,3 elr - known -", never=lambda seen: not re.match("(none|2) ", seen))
    assert timeline.records(100) == [f"all-{n}" for n in range(100)]
