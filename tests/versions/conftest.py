"""An earlier build of this project, from its history."""

import io
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: The build before the metadata log had snapshots: fetches of version 0, records of version 3.
EARLIER = "6a9cff29499d"
#: What its nodes run.
PACKAGES = (
    "holdfast",
    "broker",
    "cli",
    "client",
    "controller",
    "localcluster",
    "metadata",
    "protocol",
    "raft",
    "rpc",
    "runtime",
    "scenario",
    "storage",
)


def _git(*words: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, check=False)


@pytest.fixture(scope="session")
def earlier_build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with its packages, for PYTHONPATH. Skips where the history is not there."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    if _git("cat-file", "-e", f"{EARLIER}^{{commit}}").returncode:
        pytest.skip(f"commit {EARLIER} is not in the history here: a shallow clone, or no checkout")
    archive = _git("archive", EARLIER, "--", *PACKAGES)
    assert archive.returncode == 0, archive.stderr
    folder = tmp_path_factory.mktemp("earlier-build")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as packed:
        packed.extractall(folder, filter="data")
    return folder
