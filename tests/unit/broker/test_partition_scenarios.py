"""The scenario files against one partition; `holdfast scenario --rewrite` fills in answers."""

from pathlib import Path

import pytest

from holdfast.scenario.grammar import run_file
from holdfast.scenario.partition_commands import PartitionScenario

FILES = sorted((Path(__file__).parents[2] / "scenarios" / "partition").glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_scenario(path: Path) -> None:
    diff = run_file(path, PartitionScenario().execute)
    assert diff == "", diff
