"""Tests that share a cluster or a Spark session are played by one worker (newer pytest: by two)."""

import os
import subprocess
import sys
from pathlib import Path

MODULE = """
import os
import pytest

@pytest.mark.xdist_group("shared cluster")
@pytest.mark.parametrize("number", range(6))
def test_shared(number):
    with open("workers", "a") as file:
        print(os.environ["PYTEST_XDIST_WORKER"], file=file)
"""


def test_one_worker_plays_a_group(tmp_path: Path) -> None:
    (tmp_path / "test_shared.py").write_text(MODULE)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "2",
        "--dist",
        "loadgroup",
        "--no-loadscope-reorder",
    ]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    workers = (tmp_path / "workers").read_text().split()
    assert len(workers) == 6
    assert len(set(workers)) == 1
