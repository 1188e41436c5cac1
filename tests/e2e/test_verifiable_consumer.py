"""What two members of a group were given while leaders were killed, judged with what producers sent."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.localcluster.processes import LocalCluster
from tests.e2e.load import wait_until, watch

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.timeout(600)]

PATIENCE_S = 120.0


class Tool:
    """A command of Holdfast that reports its progress in lines of JSON."""

    def __init__(self, folder: Path, name: str, *words: str) -> None:
        self._out = folder / f"{name}.out"
        with self._out.open("wb") as out:
            command = [sys.executable, "-m", "holdfast.cli", *words]
            self._process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)

    def count(self, name: str) -> int:
        """A number of the last line of progress."""
        lines = [
            line for line in self._out.read_text().splitlines() if line.startswith('{"name": "progress"')
        ]
        return int(json.loads(lines[-1])[name]) if lines else 0

    def wait(self, name: str, least: int) -> None:
        """Until the number is so large."""
        wait_until(lambda: self.count(name) >= least or self._process.poll() is not None, PATIENCE_S)
        assert self.count(name) >= least, self._out.read_text()

    def end(self) -> int:
        """Interrupt it; its exit code."""
        self._process.send_signal(signal.SIGINT)
        return self._process.wait(PATIENCE_S)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def test_a_group_that_reads_while_leaders_are_killed_is_given_what_was_sent(
    make_cluster: Callable[..., LocalCluster], tmp_path: Path
) -> None:
    cluster, ledger = make_cluster(), str(tmp_path / "ledger")
    servers = ["--bootstrap-server", cluster.bootstrap_servers, "--ledger", ledger, "--topic", "t", "--quiet"]
    look = watch(cluster.bootstrap_servers)
    look.create_topic("t", 4, 3, 2)
    tools = []

    def start(name: str, *words: str) -> Tool:
        tools.append(Tool(tmp_path, name, *words, *servers))
        return tools[-1]

    try:
        producer = start("producer", "verifiable-producer", "--throughput", "500")
        first = start("first", "verifiable-consumer", "--group-id", "g", "--consumer-name", "first")
        first.wait("consumed", 100)
        second = start("second", "verifiable-consumer", "--group-id", "g", "--consumer-name", "second")
        for broker in cluster.brokers:
            cluster.kill([broker])
            producer.wait("acked", producer.count("acked") + 500)
            cluster.start(broker)
            cluster.wait_ready([broker])
            look.wait_full_isr("t")
        second.wait("consumed", 100)
        assert first.end() == 130
        second.wait("consumed", second.count("consumed") + 500)
        assert producer.end() == 130
        assert second.end() == 130
    finally:
        for tool in tools:
            tool.kill()
    words = ["validate", "--ledger", ledger, "--bootstrap-server", cluster.bootstrap_servers]
    judged = subprocess.run(
        [sys.executable, "-m", "holdfast.cli", *words, "--output", "json"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert judged.returncode == 0, judged.stdout + judged.stderr
    data = json.loads(judged.stdout)["data"]
    assert data["facts"]["consumers"] == 2
    assert data["facts"]["polled"] >= 200
    assert {"polled_again", "poll_skipped", "polled_and_gone"} <= set(data["rules"])
