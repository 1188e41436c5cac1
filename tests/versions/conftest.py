"""An earlier build of this project, from its history."""

import io
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from holdfast.localcluster.launch import Child, CommandLauncher, Launcher, Limits, shared_launcher
from holdfast.localcluster.processes import LocalCluster
from tests.e2e.conftest import QUICK

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


class Builds:
    """Starts nodes of the earlier build, and of the present one those that are in `present`."""

    def __init__(self, earlier_build: Path) -> None:
        self._environment: Mapping[str, str] = {"PYTHONPATH": str(earlier_build)}
        self._earlier = CommandLauncher()
        self._present: Launcher = shared_launcher()
        #: names of nodes
        self.present: set[str] = set()

    def launch(self, words: Sequence[str], log_file: Path, limits: Limits | None = None) -> Child:
        """See `Launcher`."""
        if log_file.parent.name in self.present:
            return self._present.launch(words, log_file, limits)
        return self._earlier.launch(words, log_file, limits, self._environment)


@pytest.fixture
def builds(earlier_build: Path) -> Builds:
    return Builds(earlier_build)


@pytest.fixture
def cluster(builds: Builds, tmp_path: Path) -> Iterator[LocalCluster]:
    """Three controllers and three brokers of the earlier build."""
    made = LocalCluster.create(tmp_path / "cluster", 3, 3, properties=QUICK, launcher=builds)
    try:
        made.up()
        yield made
    finally:
        made.kill(made.nodes)
