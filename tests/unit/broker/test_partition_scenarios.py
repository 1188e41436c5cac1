"""The scenario files against one partition; REWRITE=1 fills in the answers, to be reviewed."""

import os
from pathlib import Path

import pytest

from cli.datadriven import run_file
from tests.unit.broker.harness import PartitionScenario

FILES = sorted((Path(__file__).parents[2] / "scenarios" / "partition").glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_scenario(path: Path) -> None:
    diff = run_file(path, PartitionScenario().execute, rewrite="REWRITE" in os.environ)
    assert diff == "", diff
