"""The mind of `holdfast unclean-recovery`, event by event: the text files beside this one."""

from pathlib import Path

import pytest

from holdfast.scenario.grammar import run_file
from tests.unit.cli.recovery_scenario import RecoveryScenario

FILES = sorted((Path(__file__).parent / "unclean_recovery").glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_scenario(path: Path) -> None:
    diff = run_file(path, RecoveryScenario().execute)
    assert diff == "", diff
