"""How the process of a node starts: as a command of its own, or as a fork of a process that has it loaded.

Owns the children it started; what they do and where they write is the caller's. A forked node is a process
like any other: it is killed, paused and waited for in the same way. It is ready in a tenth of the time, since
nine tenths of a node's start are imports.
"""

import atexit
import contextlib
import json
import os
import resource
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple, Protocol

from holdfast.localcluster.nodes import ClusterError

#: What a node's command is, for `-m`.
COMMAND = "holdfast.cli"
#: What runs `broker` and `controller` in a fork, and what it would load first.
ENTRY = "holdfast.cli.__main__:main"
LOADED_BEFORE = (
    "holdfast.cli.node",
    "holdfast.broker.__main__",
    "holdfast.broker.kafka_clients",
    "holdfast.controller.__main__",
    "holdfast.runtime.http.telemetry",
    "holdfast.runtime.power.power_loss",
)
#: The command line of a fork is written over it.
_ROOM = " " * 1024

#: {name as `resource` spells it: (soft, hard)}
Limits = Mapping[str, tuple[int, int]]


class Child(Protocol):
    """A process that a launcher started."""

    @property
    def pid(self) -> int: ...

    def is_running(self) -> bool:
        """False once it has ended; it is no zombie then."""


class Launcher(Protocol):
    """Starts processes."""

    def launch(self, words: Sequence[str], log_file: Path, limits: Limits | None = None) -> Child:
        """Start `holdfast <words>` in a session of its own, its output at the end of `log_file`."""


# --- a command -----------------------------------------------------------------------------------------


class CommandChild:
    """A child of this very process, which reaps it when it is asked for."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    def is_running(self) -> bool:
        return self._process.poll() is None


class CommandLauncher:
    """A fresh Python for each process. They outlive this one."""

    def __init__(self, open_files_max: int | None = None) -> None:
        """`open_files_max`: files and connections that each process may have open; None: as many as this
        one."""
        self._before: tuple[str, ...] = ()
        if open_files_max is not None:
            self._before = ("sh", "-c", 'ulimit -n "$0" && exec "$@"', str(open_files_max))

    def launch(
        self,
        words: Sequence[str],
        log_file: Path,
        limits: Limits | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Child:
        """`environment`: beside this process's own."""
        with log_file.open("ab") as log:
            # -P: files of the working folder, such as an http.py, are not a node's code.
            process = subprocess.Popen(
                [*self._before, sys.executable, "-P", "-m", COMMAND, *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, **(environment or {})},
            )
        for name, pair in (limits or {}).items():  # long before it has loaded what opens files
            resource.prlimit(process.pid, getattr(resource, name), pair)
        return CommandChild(process)


# --- a fork --------------------------------------------------------------------------------------------


class Fork:
    """A child of the server that forks."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        #: tells it from a later process of the same number
        self._started = _start_time(pid)

    @property
    def pid(self) -> int:
        return self._pid

    def is_running(self) -> bool:
        return self._started is not None and _start_time(self._pid) == self._started


class ForkLauncher:
    """Forks of one server process. All of them die with it, and it dies with this process. Linux only."""

    @staticmethod
    def is_possible() -> bool:
        """True where processes can be forked safely and found again."""
        return sys.platform == "linux"

    def __init__(self) -> None:
        """Start the server; it loads while this process goes on."""
        assert self.is_possible()
        self._server = subprocess.Popen(
            [sys.executable, "-P", "-m", "holdfast.localcluster.fork_server", _ROOM, ENTRY, *LOADED_BEFORE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    def launch(self, words: Sequence[str], log_file: Path, limits: Limits | None = None) -> Child:
        order = {
            "words": list(words),
            "log_file": str(log_file),
            "folder": os.getcwd(),
            "environment": dict(os.environ),
            "limits": limits or {},
        }
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._server.stdin.write(json.dumps(order).encode() + b"\n")
            self._server.stdin.flush()
        answer = self._server.stdout.readline()
        if not answer:
            raise ClusterError(f"the process that forks nodes has ended with exit code {self._server.wait()}")
        return Fork(int(answer))

    def close(self) -> None:
        """End the server and, with SIGKILL, every process that it started."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._server.stdin.close()
        self._server.wait()
        self._server.stdout.close()


@cache
def shared_launcher() -> Launcher:
    """The one of this process: forks, where they are possible. What it has forked dies with this process."""
    if not ForkLauncher.is_possible():
        return CommandLauncher()
    launcher = ForkLauncher()
    atexit.register(launcher.close)
    return launcher


def is_ending(pid: int) -> bool:
    """A process of which only threads are left that cannot end yet, as one that waits for a disk.

    Its command line is gone; its files and locks are not.
    """
    status = _status(pid)
    return status is not None and status.is_zombie and status.threads > 1


class _Status(NamedTuple):
    is_zombie: bool
    threads: int
    #: when it began, in the kernel's ticks
    started: str


def _start_time(pid: int) -> str | None:
    """`_Status.started`; None when the last thread of the process has ended."""
    status = _status(pid)
    return None if status is None or (status.is_zombie and status.threads <= 1) else status.started


def _status(pid: int) -> _Status | None:
    """Of a process that has not been reaped."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):  # the latter when it ends between open and read
        return None
    fields = text.rpartition(") ")[2].split()
    return _Status(fields[0] in ("Z", "X"), int(fields[17]), fields[19])
