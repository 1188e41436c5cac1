"""Slow links between containers: a `packet_delay` in the namespace of each receiver (root, Linux)."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from holdfast.localcluster import packet_delay
from holdfast.localcluster.faults.fault import FaultRefused

_PROGRAM = Path(packet_delay.__file__).resolve()
_END_S = 30.0


class DelayedPackets:
    """Some receivers hear later from some senders; it ends with this process, also when that is killed."""

    def __init__(self, delay_ms: int) -> None:
        self._delay_ms = delay_ms
        self._processes: list[subprocess.Popen[str]] = []

    @staticmethod
    def why_not() -> str:
        """Why packets cannot be held on this machine; empty when they can, as far as is known before."""
        if os.geteuid() != 0:
            return "to hold packets of containers needs root"
        for name, package in (("nsenter", "util-linux"), ("iptables", "iptables")):
            if shutil.which(name) is None:
                return f"{name} is not installed (Debian: apt-get install {package})"
        return ""

    def start(self, senders: Mapping[int, Sequence[str]]) -> None:
        """`senders`: {process of the receiver: addresses}. Raises: FaultRefused; nothing is held then."""
        for pid, addresses in senders.items():
            process = subprocess.Popen(
                ["nsenter", "--target", str(pid), "--net", sys.executable, "-I", "-S", str(_PROGRAM),
                 str(self._delay_ms), *addresses],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                start_new_session=True,  # Ctrl-C in the terminal is for this process
            )  # fmt: skip
            self._processes.append(process)
        for process in self._processes:
            assert process.stdout is not None
            line = process.stdout.readline().strip()
            if line != packet_delay.READY:
                self.stop()
                raise FaultRefused(line or "the process that holds packets has ended")

    def stop(self) -> None:
        """What waits passes, and the rules are gone; may be repeated."""
        for process in self._processes:
            assert process.stdin is not None
            with suppress(BrokenPipeError):
                process.stdin.close()
        for process in self._processes:
            assert process.stdout is not None
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:  # the kernel lets packets pass without it
                process.kill()
                process.wait()
            process.stdout.close()
        self._processes.clear()
