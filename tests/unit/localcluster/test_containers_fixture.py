"""When tests of containers are skipped; a `docker` that does nothing stands in for the real one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("fails", "code", "says"),
    [
        ("info", 0, "1 skipped"),
        ("compose up", 1, "1 error"),
        ("ps", 1, "1 error"),
    ],
)
def test_only_a_machine_without_an_engine_skips_tests_of_containers(
    tmp_path: Path, fails: str, code: int, says: str
) -> None:
    docker = tmp_path / "docker"
    docker.write_text(f'#!/bin/sh\ncase "$*" in\n    {fails.replace(" ", "?")}*) exit 1 ;;\nesac\n')
    docker.chmod(0o755)
    words = ["-m", "", "-q", "-p", "no:cacheprovider", "-k", "kill and SIGINT and lasting"]
    line = [sys.executable, "-m", "pytest", "tests/containers/test_signals.py", *words]
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        line, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, says in done.stdout) == (code, True), done.stdout + done.stderr
