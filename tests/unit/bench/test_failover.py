"""A way of losing a leader that cannot be measured costs no other one."""

from pathlib import Path

from holdfast.bench.failover import _measured, _text
from holdfast.cli.progress import Progress


def test_a_way_that_fails_says_why_and_has_no_figures(tmp_path: Path) -> None:
    cell = _measured("kill", 100, 1, 2.0, tmp_path / "gone", Progress())
    assert "gone" in cell["error"]
    assert cell["wait"] is None
    lines = _text([cell]).splitlines()
    assert lines[1].split() == [*"kill -9 of a leader beside 100 partitions".split(), "0", *"----", "0", "0"]
