"""One set of containers for all tests of them; each test leaves it healed."""

import shutil
from collections.abc import Iterator

import pytest

from holdfast.localcluster.compose import ComposeCluster
from holdfast.localcluster.nodes import ClusterError
from tests.e2e.chaos_command import ROOT

PROJECT = "holdfast-signals"


@pytest.fixture(scope="session")
def containers() -> Iterator[ComposeCluster]:
    if shutil.which("docker") is None:
        pytest.skip("docker is not installed")
    try:
        found = ComposeCluster.create(ROOT, PROJECT)
        found.up()
    except ClusterError as error:
        pytest.skip(f"no containers here: {error}")
    try:
        yield found
    finally:
        found.down()
