"""Extras: a command that needs one names it before it does anything else."""

import subprocess
import sys
from pathlib import Path

import pytest

#: an installation without extras, played by import hooks that do not find their modules
WITHOUT = """
import sys
EXTRA = ("pyspark", "pyarrow", "numpy", "psutil", "plotly")
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in EXTRA:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
import importlib.util
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name: None if name in EXTRA else find_spec(name)
"""


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (["demo", "--keep", "DIR"], "spark"),
        (["demo", "--report", "r.html", "--keep", "DIR"], "report"),
        (["drill", "power-outage", "--keep", "DIR"], "spark"),
        (["validate", "--ledger", ".", "--bootstrap-server", "127.0.0.1:1"], "spark"),
        (["sim", "swarm", "--seeds", "1", "--engine", "spark", "--dir", "DIR"], "spark"),
    ],
)
def test_a_command_names_the_extra_that_it_misses_before_it_does_anything(
    words: list[str], extra: str, tmp_path: Path
) -> None:
    folder = tmp_path / "new"
    words = [str(folder) if word == "DIR" else word for word in words]
    program = f"{WITHOUT}\nfrom holdfast.cli.__main__ import main\nmain({words!r})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    assert f"is missing: install the extra `{extra}`" in done.stderr
    assert not folder.exists()


def test_a_benchmark_names_the_extra_that_it_misses() -> None:
    program = f"{WITHOUT}\nimport holdfast.bench.produce"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "psutil is missing: install the extra `bench`" in done.stderr


def test_help_of_every_command_needs_no_extra() -> None:
    program = (
        f"{WITHOUT}\nfrom click.testing import CliRunner\nfrom holdfast.cli.__main__ import COMMANDS, main\n"
        "print([name for name in COMMANDS if CliRunner().invoke(main, [name, '--help']).exit_code])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
