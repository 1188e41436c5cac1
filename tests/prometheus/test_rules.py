"""Prometheus' own tool reads the rules, and lets each alert fire on its example history."""

import shutil
import subprocess
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "docker" / "prometheus"

pytestmark = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is missing: apt-get install prometheus"
)


@pytest.mark.parametrize(
    "words",
    [
        ["test", "rules", "holdfast.test.yml"],
        ["check", "rules", "holdfast.rules.yml", "compat-strimzi.rules.yml"],
    ],
    ids=" ".join,
)
def test_the_rules_are_right(words: list[str]) -> None:
    done = subprocess.run(["promtool", *words], cwd=FOLDER, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
