"""The scenario files against the real controller core; REWRITE=1 fills in the answers, to be reviewed."""

import os
from pathlib import Path

import pytest

from tests.datadriven import run_file
from tests.unit.controller.harness import Scenario

FILES = sorted((Path(__file__).parents[2] / "scenarios" / "controller").glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_scenario(path: Path) -> None:
    diff = run_file(path, Scenario().execute, rewrite="REWRITE" in os.environ)
    assert diff == "", diff
