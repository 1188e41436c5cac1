"""The scenario files against the real controller core; `holdfast scenario --rewrite` fills in answers."""

from pathlib import Path

import pytest

from holdfast.scenario.controller_commands import Scenario
from holdfast.scenario.grammar import run_file

FILES = sorted((Path(__file__).parents[2] / "scenarios" / "controller").glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_scenario(path: Path) -> None:
    diff = run_file(path, Scenario().execute)
    assert diff == "", diff
