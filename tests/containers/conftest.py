"""Containers of their own for the tests here, where this machine has an engine for them."""

import shutil
import subprocess
from collections.abc import Iterator

import pytest

from holdfast.localcluster.compose import ComposeCluster
from tests.e2e.chaos_command import ROOT

PROJECT = "holdfast-signals"


@pytest.fixture(scope="session")
def containers() -> Iterator[ComposeCluster]:
    """All up. Only a machine without an engine skips: where there is one, what does not start is a defect."""
    if shutil.which("docker") is None:
        pytest.skip("docker is not installed")
    engine = subprocess.run(["docker", "info"], capture_output=True, text=True, check=False)
    if engine.returncode != 0:
        pytest.skip(f"no engine runs: {engine.stderr.strip()}")
    found = ComposeCluster.create(ROOT, PROJECT)
    try:
        found.up()
        yield found
    finally:
        found.down()
