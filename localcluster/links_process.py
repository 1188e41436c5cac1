"""The process of `localcluster.links`, as seen by the cluster that it belongs to: start, order, stop."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.localcluster.nodes import ClusterError

PID_FILE = "links.pid"
LOG_FILE = "links.log"
_MODULE = "holdfast.localcluster.links"
_TIMEOUT_S = 10.0


class LinksProcess:
    """At most one for each cluster's folder; it outlives the process that started it, as nodes do."""

    def __init__(self, folder: Path, port: int) -> None:
        self._folder = folder
        self.port = port
        #: a child of this very process, which must be reaped
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it unless it runs. Raises: ClusterError when it takes no orders."""
        if self._pid() is not None:
            return
        with (self._folder / LOG_FILE).open("ab") as log:
            self._child = subprocess.Popen(
                [sys.executable, "-m", _MODULE, str(self._folder)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        (self._folder / PID_FILE).write_text(f"{self._child.pid}\n")
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            try:
                self.order("", None)
            except ClusterError:
                if self._child.poll() is not None or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
            else:
                return

    def order(self, name: str, order: Mapping[str, Any] | None) -> None:
        """Set or forget (None) a named order; it holds on return. Raises: ClusterError."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), _TIMEOUT_S) as connection:
                connection.sendall(json.dumps({"name": name, "order": order}).encode() + b"\n")
                answer = connection.recv(16)
        except OSError as error:
            raise ClusterError(f"links take no orders: {error}; see {self._folder / LOG_FILE}") from error
        if answer != b"done\n":
            raise ClusterError(f"links took no order; see {self._folder / LOG_FILE}")

    @property
    def is_running(self) -> bool:
        """False after a crash, and when no node has run for a minute."""
        return self._pid() is not None

    def stop(self) -> None:
        """End it, if it runs."""
        pid = self._pid()
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + _TIMEOUT_S
        while self._pid() is not None and time.monotonic() < deadline:
            time.sleep(0.005)
        self._child = None

    def _pid(self) -> int | None:
        if self._child is not None and self._child.poll() is not None:
            self._child = None
        try:
            pid = int((self._folder / PID_FILE).read_text())
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except (OSError, ValueError):
            return None
        is_ours = {_MODULE.encode(), os.fsencode(self._folder)} <= set(words)
        return pid if is_ours or (self._child is not None and self._child.pid == pid) else None
