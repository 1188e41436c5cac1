"""The scenario files against one raft node; `holdfast scenario --rewrite` fills in answers."""

from pathlib import Path

import pytest

from holdfast.scenario.grammar import run_file
from holdfast.scenario.raft_commands import RaftScenario

FILES = sorted((Path(__file__).parents[2] / "scenarios" / "raft").glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_scenario(path: Path) -> None:
    diff = run_file(path, RaftScenario().execute)
    assert diff == "", diff
