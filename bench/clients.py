"""Client processes of a benchmark (`bench.worker`), seen from the process that starts them.

Owns the process and its pipes. One that ends early becomes one sentence: a write to it would else be a broken
pipe, with which click ends a command without a word.
"""

import json
import signal
import subprocess
import sys
from typing import Any

import click


class ClientProcess:
    """One client, from its order to its end."""

    def __init__(self, order: dict[str, Any]) -> None:
        """`order`: what `bench.worker` takes, with the bootstrap servers."""
        self._order = order
        self._process = subprocess.Popen(
            [sys.executable, "-m", "holdfast.bench.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def give_order(self) -> None:
        """Hand it the order; others may take theirs meanwhile.

        Raises: click.ClickException, as all that follow, when the process has ended.
        """
        self._say(json.dumps(self._order), "before it was ready")

    def wait_ready(self) -> None:
        """Until it is connected and waits for `begin`."""
        self._hear("before it was ready")

    def begin(self) -> None:
        """Let it measure."""
        self._say("go", "before it had a result")

    def end_phase(self, last: str = "phase") -> None:
        """A line to one whose work has phases."""
        self._say(last, "before it had a result")

    def result(self) -> dict[str, Any]:
        """What it has measured."""
        found: dict[str, Any] = json.loads(self._hear("before it had a result"))
        return found

    def wait_ended(self) -> None:
        """Until it has ended well."""
        if self._process.wait() != 0:
            raise self._ended("after it had a result")

    def end(self) -> None:
        """Whether it has failed, or a signal has cut the benchmark short: it does not stay."""
        self._process.kill()
        self._process.communicate()

    def _say(self, line: str, when: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._ended(when) from None

    def _hear(self, when: str) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line:
            raise self._ended(when)
        return line

    def _ended(self, when: str) -> click.ClickException:
        code = self._process.wait()
        how = f"with exit code {code}" if code >= 0 else f"by {signal.Signals(-code).name}"
        who = f"a client process ({self._order['work']} of {self._order['topic']})"
        return click.ClickException(f"{who} ended {how} {when}; what it said is above")
