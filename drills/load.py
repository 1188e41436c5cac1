"""Load for a drill: a background producer with a ledger, which knows what was acknowledged.

Owns a thread with an event loop and a runtime. Use as a context manager; leaving it waits for every answer.
"""

import threading
import time
from contextlib import suppress
from pathlib import Path

from holdfast.client.core.batch import Batch
from holdfast.client.core.outcomes import DeliveryOutcome
from holdfast.client.ledger import Ledger
from holdfast.client.producer import Acks, Producer
from holdfast.localcluster.nodes import ClusterError
from holdfast.runtime.api import Runtime
from holdfast.runtime.real.machine import run

RUN = "drill"
VALUE_BYTES = 128
PACE_MS = 10
_SLOW_PACE_MS = 200
#: most records without an answer; more would only wait for the partition to come back
_BACKLOG_BYTES = 128 << 10
DELIVERY_TIMEOUT_MS = 60_000


class DrillLoad:
    """Idempotent producer of `topic`; its records go to the partitions in turn."""

    def __init__(
        self,
        bootstrap_servers: str,
        ledger: Path,
        topic: str,
        *,
        name: str,
        acks: Acks = "all",
        records_per_second: int = 500,
        partitions: int = 1,
    ) -> None:
        self.name = name
        self._bootstrap_servers = bootstrap_servers
        self._acks: Acks = acks
        self._ledger = ledger
        self._topic = topic
        self._partitions = partitions
        self._portion = max(1, records_per_second * PACE_MS // 1000)
        #: longer than PACE_MS where that would be less than a record
        self._pace_ms = max(PACE_MS, 1000 * self._portion // records_per_second)
        self._stop = threading.Event()
        self._held = threading.Event()
        self._patience_ms = DELIVERY_TIMEOUT_MS
        self._error: BaseException | None = None
        #: number of acknowledged records, and the offset after the last of them in any partition
        self.acked = 0
        self.acked_end = 0
        #: a record is on its way, or may be soon
        self._outstanding = True
        #: records that ended without an acknowledgement
        self.failed = 0
        self._began_s = self._acked_s = 0.0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin to write; returns when the first record is acknowledged."""
        self._began_s = time.monotonic()
        self._thread.start()
        self.wait_acked(1)

    @property
    def acked_per_second(self) -> float:
        """Records acknowledged in a second, on average until the last of them."""
        return self.acked / max(0.001, self._acked_s - self._began_s)

    def hold(self) -> None:
        """Send nothing until `go_on`; returns when every record has an answer. Raises: ClusterError."""
        self._held.set()
        deadline = time.monotonic() + 30.0
        while self._outstanding:
            self._check(deadline, "still writes")
            time.sleep(0.01)

    def go_on(self) -> None:
        """Write again."""
        self._outstanding = True
        self._held.clear()

    def slow_down(self) -> None:
        """From now on write a record now and then: enough for a judge that waits for news."""
        self._portion, self._pace_ms = 1, _SLOW_PACE_MS

    def stop(self) -> None:
        """Stop writing and wait until every record has an outcome. Raises: ClusterError."""
        self._stop.set()
        if self._thread.ident is None:
            return
        self._thread.join(DELIVERY_TIMEOUT_MS / 1000 + 30)
        if self._thread.is_alive():
            raise ClusterError(f"producer {self.name} does not end")
        if self._error is not None:
            raise ClusterError(f"producer {self.name} failed: {self._error}") from self._error

    def abandon(self) -> None:
        """End at once, after a failure that is reported elsewhere; do not wait for answers."""
        self._patience_ms = 0
        with suppress(ClusterError):
            self.stop()

    def wait_acked(self, more: int, timeout_s: float = 30.0) -> None:
        """Until `more` further records are acknowledged. Raises: ClusterError."""
        target = self.acked + more
        deadline = time.monotonic() + timeout_s
        while self.acked < target:
            self._check(deadline, f"got no {more} acknowledgements within {timeout_s:.0f} s")
            time.sleep(0.01)

    def _check(self, deadline: float, problem: str) -> None:
        if self._error is not None:
            raise ClusterError(f"producer {self.name} failed: {self._error}") from self._error
        if time.monotonic() > deadline:
            raise ClusterError(f"producer {self.name} {problem}")

    def _run(self) -> None:
        try:
            run(self._work)
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits
            self._error = error

    async def _work(self, runtime: Runtime) -> int:
        ledger = Ledger(str(self._ledger), RUN, self.name, runtime=runtime)
        producer = Producer(
            self._bootstrap_servers,
            acks=self._acks,
            delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
            retry_max_ms=100,
            client_id=self.name,
            ledger=ledger,
            on_batch=self._on_batch,
            runtime=runtime,
        )
        await producer.start()
        await producer.partition_count(self._topic)
        while not self._stop.is_set():
            if producer.buffered_bytes < _BACKLOG_BYTES and not self._held.is_set():
                for _ in range(self._portion):
                    pseq, value = ledger.next_value(VALUE_BYTES)
                    producer.send_nowait(self._topic, value, None, pseq % self._partitions, tag=pseq)
            self._outstanding = producer.buffered_bytes > 0 or not self._held.is_set()
            await runtime.clock.sleep(self._pace_ms)
        await producer.close(self._patience_ms)
        return 0

    def _on_batch(self, batch: Batch) -> None:
        self.note(batch.outcome, batch.base_offset, batch.count)

    def note(self, outcome: DeliveryOutcome | None, base_offset: int, count: int) -> None:
        """So many records have this outcome, the acknowledged ones from `base_offset` on."""
        if outcome in (DeliveryOutcome.OK, DeliveryOutcome.OK1):
            self.acked_end = max(self.acked_end, base_offset + count)
            self.acked += count
            self._acked_s = time.monotonic()
        else:
            self.failed += count
