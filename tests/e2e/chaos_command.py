"""`holdfast chaos` as a process of its own, which can be sent signals."""

import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


class Command:
    """`holdfast chaos ...` as a process of its own."""

    def __init__(self, *words: str, folder: Path = ROOT) -> None:
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(ROOT)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "holdfast.cli", "chaos", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=folder,
            env=environment,
        )
        self.said = ""

    def wait_for(self, words: str) -> None:
        """Until it has printed a line with the words."""
        assert self._process.stdout is not None
        while words not in (line := self._process.stdout.readline()):
            self.said += line
            assert line, f"it ended before it said {words!r}:\n{self.said}"
        self.said += line

    def end(self, number: signal.Signals) -> int:
        """Send the signal; the exit code."""
        self._process.send_signal(number)
        self.said += self._process.communicate(timeout=180)[0]
        return self._process.returncode


def chaos(*words: str, folder: Path = ROOT) -> str:
    command = [sys.executable, "-m", "holdfast.cli", "chaos", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=180, cwd=folder).stdout
