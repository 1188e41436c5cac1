"""Consumers that check what they read while the cluster is broken, before Spark compares everything.

`StreamCheck` decides (pure); `CheckingConsumer` owns a thread with an event loop, a runtime and a consumer.
"""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from holdfast.client.consumer import Consumer
from holdfast.client.core.consumer_records import ConsumerRecord
from holdfast.client.core.errors import ClientError, CorruptRecords, LogTruncated, NoSuchOffset
from holdfast.client.core.fetcher_effects import FetchedBatch
from holdfast.client.core.history import parse_value
from holdfast.client.poll_ledger import PollLedger, polled_of
from holdfast.drills.load import RUN
from holdfast.localcluster.nodes import ClusterError
from holdfast.runtime.api import Runtime
from holdfast.runtime.real.machine import run

#: Records of one consumer that are written down, some 50 bytes each: however often a log is cut and read
#: again, files and Spark's work stay bounded.
WRITTEN_MAX = 500_000
#: Complaints of one consumer that are kept; more would say the same.
COMPLAINTS_MAX = 5
_POLL_MS = 200.0
_READ_BYTES = 1 << 20


class StreamCheck:
    """What one consumer has seen: offsets rise, values are whole, each producer's numbers rise.

    Keeps a number a partition and one a partition and producer, however much is read.
    """

    def __init__(self) -> None:
        self._next_offset: dict[tuple[str, int], int] = {}
        self._last_pseq: dict[tuple[str, int, str], int] = {}
        #: records read
        self.count = 0
        self.complaints: list[str] = []

    def take(self, records: Sequence[ConsumerRecord]) -> None:
        """Check records in the order in which they came."""
        for record in records:
            self._take(record)
        self.count += len(records)

    def complain(self, text: str) -> None:
        """Keep the first few."""
        if len(self.complaints) < COMPLAINTS_MAX:
            self.complaints.append(text)

    def cut(self) -> None:
        """The log was cut below what was read: what comes now may have been seen before."""
        self._next_offset.clear()
        self._last_pseq.clear()

    def _take(self, record: ConsumerRecord) -> None:
        place = (record.topic, record.partition)
        where = f"{record.topic}-{record.partition}, offset {record.offset}"
        if record.offset < self._next_offset.get(place, 0):
            self.complain(f"{where} came after offset {self._next_offset[place] - 1}")
        self._next_offset[place] = record.offset + 1
        value = parse_value(record.value or b"")
        if value is None:
            self.complain(f"{where} is damaged or was never sent")
            return
        last = self._last_pseq.get((*place, value.producer), -1)
        if value.pseq <= last:
            self.complain(f"{where}: record {value.pseq} of {value.producer} came after its record {last}")
        self._last_pseq[*place, value.producer] = value.pseq


class CheckingConsumer:
    """Reads one topic from its first record on until it is stopped."""

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        *,
        name: str,
        ledger: Path,
        says: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`ledger`: folder that gets what it was given; `says` hears of a log that was cut below what was
        read."""
        self.name = name
        self.check = StreamCheck()
        #: how often the log was cut below what was read
        self.cuts = 0
        self._written = 0
        self._servers = bootstrap_servers
        self._topic = topic
        self._folder = ledger
        self._says = says
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin to read; waits for nothing."""
        self._thread.start()

    def stop(self) -> None:
        """End it; what it found is in `check`. Raises: ClusterError when it failed by itself."""
        self._stop.set()
        if self._thread.ident is None:
            return
        self._thread.join(30.0)
        if self._thread.is_alive():
            raise ClusterError(f"consumer {self.name} does not end")
        if self._error is not None:
            raise ClusterError(f"consumer {self.name} failed: {self._error}") from self._error

    def _run(self) -> None:
        try:
            run(self._work)
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits
            self._error = error

    async def _work(self, runtime: Runtime) -> int:
        consumer = Consumer(
            self._servers, self._topic, auto_offset_reset="none", client_id=self.name, runtime=runtime
        )
        ledger = PollLedger(str(self._folder), RUN, self.name, runtime=runtime)
        await ledger.open()
        try:
            async with consumer:
                await self._read(consumer, ledger, runtime)
        finally:
            await ledger.close()
        return 0

    async def _read(self, consumer: Consumer, ledger: PollLedger, runtime: Runtime) -> None:
        consumer.assign(dict.fromkeys(await consumer.partitions(self._topic), "earliest"))
        while not self._stop.is_set():
            try:
                self._take(consumer, ledger, await consumer.poll_batches(_READ_BYTES, _POLL_MS))
            except (LogTruncated, NoSuchOffset) as error:
                self._cut(str(error))
                ledger.begin_session()
                consumer.seek_to_beginning(*consumer.assignment)
            except CorruptRecords as error:
                self._pass_over(consumer, ledger, error)
            except ClientError:  # no broker answers now
                await runtime.clock.sleep(_POLL_MS)

    def _take(self, consumer: Consumer, ledger: PollLedger, batches: Sequence[FetchedBatch]) -> None:
        polled, problems = polled_of(consumer, batches)
        if self._written < WRITTEN_MAX:
            ledger.write(polled)
        for one in polled:
            self._written += len(one.records)
            self.check.take(one.records)
        for problem in problems:
            self._pass_over(consumer, ledger, problem)

    def _pass_over(self, consumer: Consumer, ledger: PollLedger, problem: CorruptRecords) -> None:
        self.check.complain(str(problem))
        if problem.next_offset is not None:
            ledger.begin_session()
            consumer.seek(problem.partition, problem.next_offset)

    def _cut(self, text: str) -> None:
        self.cuts += 1
        self.check.cut()
        self._says(f"{self.name}: what was read is gone: {text}")
