"""When `make test` runs tests once more: only when pytest says that tests failed."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
#: Each call takes the next of the exit codes.
PYTHON = """#!/bin/sh
echo "$*" >>"$NOTES"
code=$(head -n 1 "$CODES"); sed -i 1d "$CODES"
exit "$code"
"""


def made(folder: Path, codes: list[int], *words: str) -> tuple[int, list[str]]:
    """(exit code, what pytest was asked) of `make test`; `codes`: how pytest ends, call by call."""
    python = folder / "bin" / "python"
    python.parent.mkdir()
    python.write_text(PYTHON)
    python.chmod(0o755)
    for name in ("python", "base", "dev", "spark"):
        (folder / f".have-{name}").touch()
    (folder / "codes").write_text("".join(f"{code}\n" for code in codes))
    (folder / "notes").touch()
    # what the `make` that runs this test was told is not for this one
    inherited = {name: os.environ[name] for name in os.environ if name not in ("MAKEFLAGS", "RETRY", "ARGS")}
    environment = {**inherited, "NOTES": str(folder / "notes"), "CODES": str(folder / "codes")}
    line = ["make", "-C", str(ROOT), "test", f"VENV={folder}", *words]
    done = subprocess.run(line, capture_output=True, env=environment, check=False, timeout=60)
    return done.returncode, (folder / "notes").read_text().splitlines()


@pytest.mark.parametrize(
    ("codes", "ends_well"),
    [
        ([0, 0], True),
        ([0, 5], True),  # ARGS has left no test
        ([0, 1, 0], True),
        ([0, 1, 1], False),
        ([0, 1, 5], False),
        ([0, 2], False),  # interrupted, or a module that cannot be imported
        ([0, 3], False),
        ([0, 4], False),  # wrong usage
        ([0, 137], False),
        ([1, 0, 0], True),
        ([1, 1], False),
        ([1, 0, 1, 0], True),
    ],
    ids=str,
)
def test_only_tests_that_failed_run_once_more(tmp_path: Path, codes: list[int], ends_well: bool) -> None:
    code, asked = made(tmp_path, [*codes, 0, 0], "RETRY=1")
    assert (code == 0) is ends_well
    assert len(asked) == len(codes)
    once_more = ["--last-failed " in line for line in asked]
    assert once_more == [
        number > 0 and codes[number - 1] == 1 and not once_more[number - 1] for number in range(len(codes))
    ]


def test_by_hand_nothing_runs_once_more(tmp_path: Path) -> None:
    code, asked = made(tmp_path, [0, 1, 0])
    assert (code != 0, len(asked)) == (True, 2)
