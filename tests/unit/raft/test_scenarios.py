"""Runs the raft scenarios. `REWRITE=1 pytest` refills their answers, for a review of the diff."""

import os
from pathlib import Path

import pytest

from cli.datadriven import run_file
from tests.unit.raft.harness import Harness

_FOLDER = Path(__file__).parents[2] / "scenarios" / "raft"


@pytest.mark.parametrize("path", sorted(_FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    diff = run_file(path, Harness().execute, rewrite="REWRITE" in os.environ)
    assert not diff, f"\n{diff}"
