"""One drill as a user plays it: the same fault with the manager off and on, on processes that lose power."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.timeout(300)]


def test_in_a_power_outage_the_baseline_loses_what_the_manager_keeps(tmp_path: Path) -> None:
    """B1: lost records are named, and nothing else is wrong with the other side."""
    report = tmp_path / "report.json"
    words = ("drill", "power-outage", "--compare", "--seed", "1", "--power-loss", "tracked")
    done = subprocess.run(
        [sys.executable, "-m", "holdfast.cli", *words, "--report", str(report)],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Leader=NoLeader, ISR=[], ELR=[2, 3], LastKnownELR=[]" in done.stdout
    off, on = json.loads(report.read_text())["data"]["runs"]
    assert (off["manager"], off["result"], on["manager"], on["result"]) == (
        False,
        "EXPECTED",
        True,
        "EXPECTED",
    )
    assert off["counts"]["lost"] == len(off["lost"]) > 0
    assert {one["offset"] for one in off["lost"]} <= set(range(off["facts"]["acked"]))
    first = off["elections"][0]
    assert (first["leader"], first["reason"], first["predicted_loss"]) == (3, "last_known_leader", None)
    assert on["counts"].get("lost", 0) == 0
    assert on["facts"]["ok"] == on["facts"]["acked"] > 0
    assert on["elections"][0]["leader"] == 2
