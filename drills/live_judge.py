"""`holdfast validate --follow` beside a run: a process of its own, killed and begun again meanwhile.

Owns that process and what it says in the end; what it finds is `durability.follow`'s.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from holdfast.drills.chaos_report import LiveVerdict

#: How long a life of it lasts at least.
_LIFE_S = 20.0
#: The first micro-batch of a cold Spark takes long on a busy machine; more than the judge itself allows one.
_PATIENCE_S = 660.0
_POLL_S = 0.1
_HOLDFAST = (sys.executable, "-m", "holdfast.cli")


class LiveJudge:
    """Follows from when it is entered to when it is left; then no process of it is there."""

    def __init__(
        self, folder: Path, ledger: Path, bootstrap_servers: str, program: Sequence[str] = _HOLDFAST
    ) -> None:
        """Its state and what it says are in `folder`, which must be outside of `ledger`. `program`: what
        takes the arguments of `holdfast`."""
        self._folder, self._ledger = folder, ledger
        state = ("--follow", str(folder / "state"), "--ledger", str(ledger))
        self._command = [
            *(*program, "validate", *state),
            *("--bootstrap-server", bootstrap_servers, "--output", "json"),
        ]
        self._process: subprocess.Popen[bytes] | None = None
        self._began = 0.0
        #: micro-batches that were done when its life began
        self._done_before = 0
        self._kills = 0

    def __enter__(self) -> "LiveJudge":
        self._folder.mkdir(parents=True)
        self._ledger.mkdir(parents=True, exist_ok=True)
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._kill()

    def kill_if_old(self) -> bool:
        """Kill it and begin again, when it has followed for a while: not while Spark still starts."""
        if time.monotonic() - self._began < _LIFE_S or not self._has_gone_on():
            return False
        self._begin_again()
        return True

    def end(self) -> LiveVerdict:
        """Let it go on from where the one before was killed, of which there is one at least, and take its
        verdict. Producers must still be at work."""
        self._wait_for_progress()
        if not self._kills:
            self._begin_again()
            self._wait_for_progress()
        process = self._process
        assert process is not None, "it was entered"
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._kill()
            code = process.returncode
        try:
            data = json.loads((self._folder / "verdict.json").read_text(encoding="utf-8"))["data"]
        except ValueError:
            data = {}
        return LiveVerdict(code, data, self._kills)

    def _begin_again(self) -> None:
        self._kill()
        self._kills += 1
        self._start()

    def _wait_for_progress(self) -> None:
        process, until = self._process, time.monotonic() + _PATIENCE_S
        assert process is not None, "it was entered"
        while process.poll() is None and not self._has_gone_on() and time.monotonic() < until:
            time.sleep(_POLL_S)

    def _has_gone_on(self) -> bool:
        return self._done() > self._done_before

    def _done(self) -> int:
        return sum(1 for _ in (self._folder / "state" / "steps").glob("[0-9]*.json"))

    def _start(self) -> None:
        self._done_before = self._done()
        with (
            (self._folder / "verdict.json").open("wb") as verdict,
            (self._folder / "said.log").open("ab") as said,
        ):
            self._process = subprocess.Popen(
                self._command, stdout=verdict, stderr=said, start_new_session=True
            )
        self._began = time.monotonic()

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
