"""A benchmark whose client, node or question fails says so in one sentence and ends with exit code 1."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from holdfast.bench.cluster import BenchCluster, bench_cluster, own_cluster
from holdfast.bench.rounds import run_round
from holdfast.client.core.errors import TimedOut
from holdfast.localcluster.nodes import ClusterError
from holdfast.localcluster.processes import LocalCluster

#: Longer than what a pipe holds: it cannot be written to a process that has ended.
LONG = "x" * 200_000
READY = "read order; echo ready; read go; "
REPORT = """echo '{"elapsed_s": 1, "bytes": 1, "records": 1, "cpu_s": 1, "rss_mb": 1}'; """


def told(tmp_path: Path, order: dict[str, Any]) -> Result:
    """A benchmark command with one client."""

    @click.command()
    def bench() -> None:
        run_round(BenchCluster("127.0.0.1:1", None, tmp_path), [{"topic": "bench-1", **order}])

    return CliRunner().invoke(bench, [])


@pytest.mark.parametrize(
    ("client", "padding", "sentence"),
    [
        ("exit 3", LONG, "ended with exit code 3 before it was ready"),
        ("exit 0", "", "ended with exit code 0 before it was ready"),
        ("kill -9 $$", "", "ended by SIGKILL before it was ready"),
        (READY + "exit 3", "", "ended with exit code 3 before it had a result"),
        (READY + REPORT + "exit 3", "", "ended with exit code 3 after it had a result"),
    ],
    ids=["unread order", "unready", "killed", "no result", "bad end"],
)
def test_a_client_that_ends_early_is_told_with_its_exit_code(
    client: str, padding: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "client"
    program.write_text(f"#!/bin/sh\n{client}\n")
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program))
    result = told(tmp_path, {"work": "produce", "padding": padding})
    assert result.exit_code == 1
    assert f"of bench-1) {sentence}" in result.stderr, result.exception


def test_a_client_that_knows_no_such_work_is_told(tmp_path: Path) -> None:
    result = told(tmp_path, {"work": "none"})
    assert result.exit_code == 1
    assert "a client process (none of bench-1) ended with exit code 1" in result.stderr


def visit(work: Callable[[BenchCluster], None]) -> Result:
    @click.command()
    def bench() -> None:
        with bench_cluster("127.0.0.1:1", None) as cluster:
            work(cluster)

    return CliRunner().invoke(bench, [])


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (TimedOut("CreateTopics had no answer"), "Error: CreateTopics had no answer"),
        (ClusterError("broker-1 has ended"), "Error: broker-1 has ended"),
        (BrokenPipeError(32, "Broken pipe"), "Error: [Errno 32] Broken pipe"),
    ],
)
def test_what_ends_a_benchmark_is_one_sentence(error: Exception, sentence: str) -> None:
    def fail(_: BenchCluster) -> None:
        raise error

    result = visit(fail)
    assert (result.exit_code, result.stderr.strip()) == (1, sentence)


def test_a_node_that_cannot_start_is_told_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder with its log is gone afterwards."""

    def up(local: LocalCluster) -> None:
        node = local.nodes[0]
        local.log_file(node).write_text("the disk is on fire\n")
        raise ClusterError(f"not ready after 60 s: {node.name}; see {local.log_file(node)}")

    monkeypatch.setattr(LocalCluster, "up", up)

    @click.command()
    def bench() -> None:
        with own_cluster(tmp_path):
            raise AssertionError("it did not start")

    result = CliRunner().invoke(bench, [])
    assert result.exit_code == 1
    assert "not ready after 60 s: controller-101" in result.stderr
    assert "controller-101 has ended; its last words:\nthe disk is on fire" in result.stderr
    assert list(tmp_path.iterdir()) == []
