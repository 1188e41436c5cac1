"""The demo's producers: `holdfast verifiable-producer` processes and what their JSON lines say."""

import json
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.localcluster.nodes import ClusterError

#: Records a second of all producers that have written their share and wait for the last kill.
AFTER_PER_SECOND = 1_000


@dataclass
class _Heard:
    """What one producer has reported so far."""

    process: subprocess.Popen[str]
    sent: int = 0
    acked: int = 0
    failed: int = 0
    #: (monotonic ns, longest wait in ms of a record answered since the line before)
    waits: list[tuple[int, int]] = field(default_factory=list)
    #: (partition, leader epoch) -> monotonic ns of the first acknowledgement
    first_acks: dict[tuple[int, int], int] = field(default_factory=dict)


class Producers:
    """`count` producer processes that write at least `records` in all, until they are released."""

    def __init__(
        self,
        bootstrap_servers: str,
        ledger: Path,
        topic: str,
        *,
        count: int,
        records: int,
        record_size: int,
        records_per_second: int,
    ) -> None:
        self._ledger = ledger
        self._count = count
        self._records = records
        self._command = [
            *(
                sys.executable,
                "-m",
                "holdfast.cli",
                "verifiable-producer",
                "--quiet",
                "--until-eof",
                "--bootstrap-server",
                bootstrap_servers,
            ),
            *("--topic", topic, "--value-size", str(record_size), "--ledger", str(ledger)),
            *("--throughput", str(max(1, records_per_second // count) if records_per_second else -1)),
            # on a slow machine the kills take longer, and what is written meanwhile has to be compared, too
            *("--throughput-after", str(AFTER_PER_SECOND // count)),
        ]
        self._heard: list[_Heard] = []
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._started = 0.0

    def start(self) -> None:
        """Start all processes."""
        self._ledger.mkdir(parents=True, exist_ok=True)
        self._started = time.monotonic()
        for index in range(self._count):
            share = self._records // self._count + (index < self._records % self._count)
            command = [*self._command, "--max-messages", str(share), "--producer-name", f"p{index}"]
            with (self._ledger.parent / f"producer-{index}.log").open("wb") as log:
                process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
                )
            heard = _Heard(process)
            self._heard.append(heard)
            thread = threading.Thread(target=self._listen, args=(heard,), daemon=True)
            thread.start()
            self._threads.append(thread)

    def release(self) -> None:
        """After the last kill: let each end when it has written its share."""
        for heard in self._heard:
            assert heard.process.stdin is not None
            heard.process.stdin.close()

    def _listen(self, heard: _Heard) -> None:
        assert heard.process.stdout is not None
        for line in heard.process.stdout:
            said: dict[str, Any] = json.loads(line)
            with self._lock:
                if said["name"] == "progress":
                    heard.sent, heard.acked, heard.failed = said["sent"], said["acked"], said["failed"]
                    heard.waits.append((said["at_ns"], said["longest_wait_ms"]))
                elif said["name"] == "new_leader":
                    heard.first_acks[said["partition"], said["leader_epoch"]] = said["at_ns"]

    # --- looking --------------------------------------------------------------------------------------

    @property
    def acked(self) -> int:
        with self._lock:
            return sum(heard.acked for heard in self._heard)

    def progress(self) -> str:
        """One line with count and rate."""
        acked = self.acked
        rate = acked / max(0.001, time.monotonic() - self._started)
        return f"acked {acked} records, {rate:,.0f} records/s"

    def longest_wait_ms(self, since_ns: int) -> int:
        """Longest wait for an acknowledgement that any producer has reported since then."""
        with self._lock:
            return max(
                (ms for heard in self._heard for at_ns, ms in heard.waits if at_ns > since_ns), default=0
            )

    def failures(self) -> list[str]:
        """Producers that failed."""
        return [
            f"producer {index} ended with {heard.process.returncode}, {heard.failed} records failed;"
            f" see {self._ledger.parent / f'producer-{index}.log'}"
            for index, heard in enumerate(self._heard)
            if heard.process.poll() not in (None, 0)
        ]

    # --- waiting --------------------------------------------------------------------------------------

    def wait_acked(self, count: int, timeout_s: float = 30.0) -> None:
        """Wait until `count` records are acknowledged. Raises: ClusterError."""
        deadline = time.monotonic() + timeout_s
        while self.acked < count:
            if time.monotonic() > deadline:
                raise ClusterError(f"fewer than {count} records acknowledged after {timeout_s:.0f} s")
            for line in self.failures():
                raise ClusterError(line)
            time.sleep(0.05)

    def wait_new_leaders(
        self, led: dict[int, int], killed_ns: int, timeout_s: float = 20.0
    ) -> dict[int, float | None]:
        """Seconds from the kill to the first acknowledgement in a later leader epoch, by partition.

        `led` is `{partition: leader epoch at the kill}`. None: nothing acknowledged there within the timeout,
        because it took longer or because the producers had finished.
        """
        waited: dict[int, float | None] = dict.fromkeys(sorted(led))
        deadline = time.monotonic() + timeout_s
        while None in waited.values() and time.monotonic() < deadline and not self._all_ended():
            with self._lock:
                for partition, epoch in led.items():
                    later = [
                        at_ns
                        for heard in self._heard
                        for (p, e), at_ns in heard.first_acks.items()
                        if p == partition and e > epoch and at_ns > killed_ns
                    ]
                    if later:
                        waited[partition] = (min(later) - killed_ns) / 1e9
            time.sleep(0.02)
        return waited

    def wait_done(self, timeout_s: float) -> bool:
        """True once all processes have ended."""
        deadline = time.monotonic() + timeout_s
        while not self._all_ended() and time.monotonic() < deadline:
            time.sleep(0.05)
        if not self._all_ended():
            return False
        for thread in self._threads:
            thread.join(5.0)
        return True

    def stop(self) -> None:
        """End what still runs."""
        for heard in self._heard:
            if heard.process.poll() is None:
                heard.process.terminate()
        for heard in self._heard:
            heard.process.wait(30.0)

    def _all_ended(self) -> bool:
        return all(heard.process.poll() is not None for heard in self._heard)
