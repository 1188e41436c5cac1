"""Packets that are held: in two network namespaces of our own, and between containers."""

import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

from holdfast.drills.fault_kinds import KINDS, Given
from holdfast.localcluster import packet_delay
from holdfast.localcluster.compose import ComposeCluster
from holdfast.localcluster.compose_delays import DelayedPackets

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.long,
    pytest.mark.xdist_group("containers"),
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        bool(DelayedPackets.why_not()), reason=f"no links to slow: {DelayedPackets.why_not()}"
    ),
]

DELAY_MS = 200
ONE, OTHER = "10.99.7.1", "10.99.7.2"
#: seconds from a datagram to its echo
ASK = """
import socket, sys, time
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
    asking.settimeout(20)
    began = time.monotonic()
    asking.sendto(b"x", (sys.argv[1], 9))
    asking.recv(1)
    print(time.monotonic() - began)
"""
ECHO = """
import socket
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as echo:
    echo.bind(("", 9))
    print("ready", flush=True)
    while True:
        data, sender = echo.recvfrom(1)
        echo.sendto(data, sender)
"""
#: seconds to a connection
CONNECT = """
import socket, sys, time
began = time.monotonic()
socket.create_connection((sys.argv[1], int(sys.argv[2])), 20).close()
print(time.monotonic() - began)
"""


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@pytest.fixture
def spaces() -> Iterator[None]:
    """Namespaces hfta and hftb, joined by a cable."""
    if shutil.which("ip") is None:
        pytest.skip("ip is not installed (Debian: apt-get install iproute2)")
    names = {"hfta": ONE, "hftb": OTHER}
    try:
        for name in names:
            ip("netns", "add", name)
        ip("link", "add", "cable", "netns", "hfta", "type", "veth", "peer", "name", "cable", "netns", "hftb")
        for name, address in names.items():
            ip("-n", name, "addr", "add", f"{address}/24", "dev", "cable")
            ip("-n", name, "link", "set", "cable", "up")
        yield
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], check=False)


def inside(space: str, *words: str) -> list[str]:
    return ["ip", "netns", "exec", space, *words]


def asked() -> float:
    done = subprocess.run(
        inside("hfta", sys.executable, "-c", ASK, OTHER), capture_output=True, text=True, check=True
    )
    return float(done.stdout)


@pytest.mark.usefixtures("spaces")
def test_packets_wait_until_standard_input_ends_and_no_rule_is_left() -> None:
    program = str(packet_delay.__file__)
    with subprocess.Popen(
        inside("hftb", sys.executable, "-c", ECHO), stdout=subprocess.PIPE, text=True
    ) as echo:
        try:
            assert echo.stdout is not None
            assert echo.stdout.readline() == "ready\n"
            asked()  # the neighbours' addresses are known from here on
            with subprocess.Popen(
                inside("hftb", sys.executable, "-I", "-S", program, str(DELAY_MS), ONE),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            ) as holding:  # fmt: skip
                assert holding.stdout is not None
                assert holding.stdout.readline().strip() == packet_delay.READY
                assert asked() >= DELAY_MS / 1000
                assert "NFQUEUE" in rules()
                holding.communicate(timeout=60)
            assert holding.returncode == 0
            assert "NFQUEUE" not in rules()
            assert min(asked() for _ in range(20)) < DELAY_MS / 1000
        finally:
            echo.kill()


def rules() -> str:
    command = inside("hftb", "iptables", "-S", "INPUT")
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_links_of_a_container_are_slow_until_they_are_healed(containers: ComposeCluster) -> None:
    broker, other = containers.broker(2), containers.broker(3)
    containers.wait_ready(containers.nodes, 240)

    def connected() -> float:
        words = [sys.executable, "-c", CONNECT, containers.addresses()[other], "9092"]
        command = ["nsenter", "--target", str(containers.pids()[broker]), "--net", *words]
        return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    make = KINDS["slow-links"].on_containers
    assert make is not None
    (fault,) = make(containers, [broker], Given(delay_ms=DELAY_MS))
    try:
        assert "200 ms longer" in fault.apply()
        assert connected() >= 2 * DELAY_MS / 1000  # there, and back
    finally:
        fault.heal()
    assert min(connected() for _ in range(20)) < 2 * DELAY_MS / 1000
