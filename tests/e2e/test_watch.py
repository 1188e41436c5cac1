"""`holdfast watch` follows a real cluster in a terminal."""

import asyncio
import os
import pty
import select
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from holdfast.client.admin import Admin
from holdfast.localcluster.processes import LocalCluster

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]
WAIT_S = 60.0


def watch(cluster: LocalCluster, *words: str) -> list[str]:
    return [sys.executable, "-m", "holdfast.cli", "watch", "--dir", str(cluster.folder), *words]


def one_frame(cluster: LocalCluster) -> list[str]:
    """Its lines, as `--once` prints it."""
    once = subprocess.run(
        watch(cluster, "--once", "--timeout-ms", "60000"),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert once.returncode == 0, once.stderr
    return once.stdout.splitlines()


def read_until(terminal: int, text: str) -> None:
    """Until the terminal has shown it."""
    seen, deadline = "", time.monotonic() + WAIT_S
    while text not in seen:
        assert time.monotonic() < deadline, seen
        if select.select([terminal], [], [], 1.0)[0]:
            seen += os.read(terminal, 1 << 16).decode(errors="replace")


def read_to_the_end(terminal: int, process: "subprocess.Popen[bytes]") -> None:
    """Until the process has ended: it could not while what it draws is not taken."""
    deadline = time.monotonic() + WAIT_S
    while process.poll() is None:
        assert time.monotonic() < deadline
        if select.select([terminal], [], [], 0.2)[0]:
            with suppress(OSError):  # the other side is closed
                os.read(terminal, 1 << 16)


def test_a_killed_broker_is_seen_and_q_ends_it(cluster: LocalCluster) -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "40"}
    process = subprocess.Popen(watch(cluster), stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    try:
        read_until(ours, "no topics yet")
        cluster.kill([cluster.broker(1)])
        read_until(ours, "fenced")
        os.write(ours, b"q")
        read_to_the_end(ours, process)
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert any(line.split()[:3] == ["1", "-", "fenced"] for line in one_frame(cluster))


def test_groups_are_shown_whichever_broker_coordinates_them(cluster: LocalCluster) -> None:
    async def commit() -> None:
        async with Admin(cluster.bootstrap_servers) as admin:
            await admin.create_topic("t", 1)
            for group in ("a", "b", "c", "d"):
                await admin.alter_group_offsets(group, {("t", 0): 0})

    asyncio.run(commit())
    wanted = [[group, "Empty", "0", "0"] for group in "abcd"]
    deadline, rows = time.monotonic() + WAIT_S, list[list[str]]()
    while rows != wanted:  # a node that is busy for long is left out of a frame
        assert time.monotonic() < deadline, rows
        lines = [line.split()[:4] for line in one_frame(cluster)]
        rows = [line for line in lines if line[1:2] == ["Empty"]]
