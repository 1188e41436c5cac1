"""The benchmarks run and say what they promise; how fast is not judged here (D13)."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click
import psutil
import pytest

from holdfast.bench.cluster import BenchCluster
from holdfast.bench.rounds import run_round
from holdfast.localcluster.processes import LocalCluster

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
SMALL = ("--runs", "2", "--megabytes", "2", "--record-sizes", "100")


def run_bench(
    name: str, tmp_path: Path, *options: str, json_option: tuple[str, ...] = ("--json",)
) -> dict[str, Any]:
    command = [sys.executable, "-m", f"holdfast.bench.{name}", *json_option, "--dir", str(tmp_path), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=250)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    assert answer["ok"]
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"
    data: dict[str, Any] = answer["data"]
    return data


def test_produce_reports_rates_latencies_usage_and_the_machines_limits(tmp_path: Path) -> None:
    data = run_bench("produce", tmp_path, *SMALL, "--producers", "2", "--one-by-one", "50")
    block = data["sizes"]["100"]
    assert block["limits"]["append_mb_s"]["runs"] == 2
    found = block["throughput"]["2"]
    assert found["mb_s"]["low"] <= found["mb_s"]["median"] <= found["mb_s"]["high"]
    assert found["broker_rss_mb"]["median"] > 0
    assert found["paced_latency"]["p99_ms"]["median"] >= found["paced_latency"]["p50_ms"]["median"]
    one = block["one_by_one"]
    assert one["corrected"]["p99_ms"]["median"] >= one["latency"]["p50_ms"]["median"] > 0


def test_many_partitions_stay_below_the_limit_of_open_files(tmp_path: Path) -> None:
    data = run_bench("many_partitions", tmp_path, "--partitions", "60", "--nofile", "128")
    assert len(data["steps"]) == 8
    assert all(0 < max(step["open_files"]) < 128 for step in data["steps"])


def test_each_node_starts_again_after_years_of_changes_and_tells_the_last_ones(tmp_path: Path) -> None:
    options = ("--changes", "4000", "--partitions", "10", "--snapshot-bytes", "20000")
    data = run_bench("metadata_log", tmp_path, *options, json_option=("--output", "json"))
    assert sorted(data["nodes"]) == ["observer 4", "voter 1", "voter 2", "voter 3"]
    for node in data["nodes"].values():
        assert 0 < node["disk_mb"] <= node["disk_max_mb"]
        assert node["explained_changes"] >= 4
        assert node["restart_s"] > 0


def test_consume_reads_everything_decoded_and_raw(tmp_path: Path) -> None:
    data = run_bench("consume", tmp_path, *SMALL, "--consumers", "2")
    found = data["sizes"]["100"]["consumers"]
    assert sorted(found) == ["2 raw", "2 records"]
    assert all(block["mb_s"]["median"] > 0 for block in found.values())


def test_failover_sees_every_partition_of_a_leader_that_goes_come_back_in_each_way(tmp_path: Path) -> None:
    data = run_bench("failover", tmp_path, "--times", "1", json_option=("--output", "json"))
    assert [cell["way"] for cell in data["cells"]] == ["kill", "stop", "pause", "controller"]
    for cell in data["cells"]:
        assert cell["wait"]["count"] == len(cell["waits_ms"]) >= 1
        assert cell["never_within_30_s"] == cell["records_failed"] == 0
        assert cell["error"] is None


def test_recovery_gives_every_partition_a_leader_by_its_log(tmp_path: Path) -> None:
    options = ("--runs", "1", "--partitions", "8", "--records", "2", "--power-loss", "tracked")
    data = run_bench("recovery", tmp_path, *options)
    assert data["power_loss"] == "tracked"
    assert data["compared"][0] > 0
    assert data["to_leaders_s"]["median"] >= 0
    assert data["to_registration_s"]["median"] > 0


@pytest.mark.spark
def test_a_verdict_is_measured_beside_its_source_and_the_first_of_each_apart(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="needs the extra `spark`")
    home, page = tmp_path / "home", tmp_path / "validate.html"
    home.mkdir()
    options = ("--records", "2000", "--few", "", "--runs", "2", "--report", str(page))
    data = run_bench("validate", home, *options)
    (found,) = data["records"]
    assert found["share"]["runs"] == found["cpu_share"]["runs"] == 2, "without the first"
    assert found["source_records_s"]["median"] > 0 < found["verdict_records_s"]["median"]
    assert found["first"]["verdict_cpu_s"] > 0 < found["first"]["source_cpu_s"]
    assert {"ledger", "offsets", "compare", "rest"} <= found["seconds"].keys()
    assert "Plotly.newPlot" in page.read_text()


def test_a_quick_look_has_all_figures_and_a_page_with_pictures(tmp_path: Path) -> None:
    page, home = tmp_path / "bench.html", tmp_path / "home"
    home.mkdir()
    command = [sys.executable, "-m", "holdfast.bench", "--tiny", "--output", "json", "--report", str(page)]
    done = subprocess.run(
        [*command, "--dir", str(home)], capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)["data"]
    assert data["produce"]["records_per_s"] > 0 < data["consume"]["records_per_s"]
    assert [row["share"] for row in data["load"]] == [0.05]
    assert data["failover"]["partitions"] >= 1
    assert [row["partitions"] for row in data["partitions"]] == [5]
    text = page.read_text()
    assert all(title in text for title in ("Latency over load", "Failover", "Growth with partitions"))
    assert text.count("Plotly.newPlot") >= 4
    assert list(home.iterdir()) == [], "nothing is left behind"


@pytest.mark.parametrize("name", ["produce", "recovery"])
def test_a_benchmark_that_is_told_to_end_leaves_no_node_running(tmp_path: Path, name: str) -> None:
    options = ("--runs", "1000", "--json", "--dir", str(tmp_path))
    process = subprocess.Popen(
        [sys.executable, "-m", f"holdfast.bench.{name}", *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        deadline = time.monotonic() + 120
        while len(list(tmp_path.glob("*/cluster/*/node.pid"))) < 6:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.terminate()
        _, said = process.communicate(timeout=120)
        assert (process.returncode, said.splitlines()[-1]) == (128 + signal.SIGTERM, b"ended by SIGTERM")
    finally:
        process.kill()
        process.communicate()
    assert list(tmp_path.iterdir()) == []
    left = [
        other
        for other in psutil.process_iter(["cmdline"])
        if str(tmp_path) in " ".join(other.info["cmdline"] or ())
    ]
    assert left == []


def test_abuse_shows_a_neighbours_rate_and_the_brokers_memory_around_each_attack(tmp_path: Path) -> None:
    options = ("--attacks", "partial-frames,pipelined-flood", "--connections", "3", "--seconds", "0.5")
    data = run_bench("abuse", tmp_path, *options, json_option=("--output", "json"))
    assert list(data["attacks"]) == ["partial-frames", "pipelined-flood"]
    for found in data["attacks"].values():
        assert found["counts"]["connections"] >= 3
        for phase in ("before", "during", "after"):
            assert found[phase]["records_per_s"] > 0
            assert found[phase]["broker_rss_mb"] > 0


def test_a_record_without_an_acknowledgement_ends_a_benchmark(
    cluster: LocalCluster, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    bench = BenchCluster(cluster.bootstrap_servers, None, tmp_path)
    configs = {"max.message.bytes": "100"}
    bench.ask(lambda admin: admin.create_topic("small", 1, 3, configs=configs))
    order = {
        "work": "produce", "topic": "small", "records": 10, "record_bytes": 1000, "linger_ms": 5,
        "batch_size_bytes": 10_000, "compression": "none",
    }  # fmt: skip
    with pytest.raises(click.ClickException, match="produce of small. ended with exit code 1"):
        run_round(bench, [order])
    assert "were not acknowledged" in capfd.readouterr().err
