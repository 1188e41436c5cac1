"""The producer: records in, outcomes out. `client.core.sender` decides what is sent when, and
`client.produce_work` sends it.

Owns the pump of one producer, and who waits for what. Per record it only encodes and counts; everything else
is done per batch. With a ledger every record is written down before it is sent and again with its outcome
(D11). docs/client.md tells applications how to use it.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Literal, TypeAlias

from holdfast.client.cluster_client import ClusterClient
from holdfast.client.core.batch import Batch, ProducerIdAndEpoch, check_record
from holdfast.client.core.config import ProducerConfig
from holdfast.client.core.effects import Call
from holdfast.client.core.errors import BufferFull, ClientError, ProduceFailed, TimedOut
from holdfast.client.core.history import SentFields, headers_crc32c, key_crc32c, value_crc32c
from holdfast.client.core.metrics import ProducerCounters, ProducerMetrics
from holdfast.client.core.next_turn import NEXT_TURN
from holdfast.client.core.outcomes import DeliveryOutcome
from holdfast.client.core.partition_queue import IN_FLIGHT_MAX
from holdfast.client.core.router import Router
from holdfast.client.core.sender import Sender
from holdfast.client.core.sender_effects import Complete, Effect
from holdfast.client.delivery import Delivery, RecordMetadata, wake
from holdfast.client.ledger import Ledger
from holdfast.client.own_runtime import ClientRuntime
from holdfast.client.produce_work import ProduceWork
from holdfast.protocol.errors import ErrorCode
from holdfast.runtime.api import DiskError, Runtime
from holdfast.runtime.pump import Pump
from holdfast.runtime.tasks import fail_node

__all__ = ["Acks", "Delivery", "Producer", "ProducerMetrics", "RecordMetadata"]

Acks: TypeAlias = Literal["all", 1, 0]

#: Batches whose failure was told nowhere that are kept: the newest of them are enough to tell of.
_UNTOLD_MAX = 1_000


class Producer:
    """Sends records. One for an event loop and a purpose; many tasks of that loop may share it.

    Use it with `async with`: leaving the block sends what is there and waits for its outcome. Where a block
    does not fit, `await start()` and `await close()`. Nothing connects before that.

    Times are in milliseconds, sizes in bytes.

    bootstrap_servers: `"host:port,host:port"` or a sequence of `"host:port"`; any brokers of the cluster.
    acks: when a record counts as acknowledged. "all": it is below the high watermark, so every in-sync
        replica has it, and there are at least `min.insync.replicas` of them; 1: the leader has it; 0: it
        was written to the connection, and its offset is not known.
    idempotent: a record that is sent again is in the log once. Has no effect with acks 0.
    linger_ms: so long a batch waits for more records; 0 sends the first one at once, and those that
        come while it is under way together.
    batch_size_bytes: a batch that is as large is sent without waiting.
    compression: of batches.
    buffer_memory_bytes: records without outcome; `send` and `submit` wait beyond it.
    delivery_timeout_ms: a record without acknowledgement so long after it was taken has failed.
    request_timeout_ms: so long a leader may wait for its followers before it says that it has no answer.
    max_block_ms: so long `send` and `submit` wait for metadata or for room.
    record_size_bytes_max: of key, value and headers together; a larger record is refused.
    request_size_bytes_max: of the batches in one request.
    in_flight_max: batches of a partition under way at a time, 1 to 5 while idempotent.
    stall_ms: after so long without an answer the producer looks whether the leader is still the leader.
    retry_first_ms, retry_max_ms: the pause before a third attempt, and what it grows to; the second
        attempt comes at once.
    metadata_max_age_ms: added partitions are noticed after so long at the latest.
    client_id: a name for the logs of brokers.
    ledger: a file in which every record is written down before it is sent, and again with its outcome.
    on_batch: called once for each batch when it has its outcome; what it raises goes to the event
        loop's exception handler.
    runtime: what is used of the world; None: this machine, and asyncio's running event loop.

    Raises: ValueError for a setting that cannot be.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        acks: Acks = "all",
        idempotent: bool = True,
        linger_ms: int = 5,
        batch_size_bytes: int = 256 << 10,
        compression: Literal["none", "gzip", "lz4", "zstd"] = "none",
        buffer_memory_bytes: int = 32 << 20,
        delivery_timeout_ms: int = 120_000,
        request_timeout_ms: int = 10_000,
        max_block_ms: int = 60_000,
        record_size_bytes_max: int = (1 << 20) - 1024,
        request_size_bytes_max: int = 4 << 20,
        in_flight_max: int = IN_FLIGHT_MAX,
        stall_ms: int = 500,
        retry_first_ms: int = 20,
        retry_max_ms: int = 500,
        metadata_max_age_ms: int = 60_000,
        client_id: str = "holdfast-producer",
        ledger: Ledger | None = None,
        on_batch: Callable[[Batch], None] | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        if acks not in _ACKS:
            raise ValueError(f'acks {acks!r}: expected "all", 1 or 0')
        self.config = ProducerConfig(
            bootstrap_servers=bootstrap_servers,
            acks=_ACKS[acks],
            idempotent=idempotent,
            linger_ms=linger_ms,
            batch_size_bytes=batch_size_bytes,
            compression=compression,
            buffer_memory_bytes=buffer_memory_bytes,
            delivery_timeout_ms=delivery_timeout_ms,
            request_timeout_ms=request_timeout_ms,
            max_block_ms=max_block_ms,
            record_size_bytes_max=record_size_bytes_max,
            request_size_bytes_max=request_size_bytes_max,
            in_flight_max=in_flight_max,
            stall_ms=stall_ms,
            retry_first_ms=retry_first_ms,
            retry_max_ms=retry_max_ms,
            metadata_max_age_ms=metadata_max_age_ms,
            client_id=client_id,
        )
        self._begin(ledger, on_batch, runtime)

    def _begin(
        self, ledger: Ledger | None, on_batch: Callable[[Batch], None] | None, runtime: Runtime | None
    ) -> None:
        config = self.config
        self._owner = ClientRuntime(runtime)
        self._runtime = self._owner.runtime
        self._clock = self._runtime.clock
        # looked at once a record, as `_accumulator` below
        self._record_bytes_max, self._buffer_bytes_max = (
            config.record_size_bytes_max,
            config.buffer_memory_bytes,
        )
        self._ledger = ledger
        self._on_batch = on_batch
        #: only deliveries tell of a failure
        self._is_quiet = ledger is None and on_batch is None
        self._cluster = ClusterClient(
            self._runtime,
            config.bootstrap_servers,
            config.client_id,
            self._metadata_changed,
            lambda: self._sender.busy_topics,
            config.metadata_max_age_ms,
        )
        self._sender = Sender(config.for_sender(), self._cluster.cache)
        self._accumulator = self._sender.accumulator
        self._router = Router(self._sender)
        self._pump: Pump[Call[Effect], Effect] = Pump(
            self._clock,
            self._take,
            self._sender.next_deadline_ms,
            self._break_down,
            queue_empty=self._sender.drain,
        )
        self._work = ProduceWork(
            self._runtime,
            self._cluster,
            self._sender,
            self._pump,
            config,
            self._write_ledger,
            lambda: self._is_closed,
        )
        self._pump.carry_out |= {Complete: self._complete, **self._work.carry_out}
        #: closing: what is there is sent, nothing is added
        self._is_started = self._is_closing = self._is_closed = self._is_scheduled = False
        #: an error of the ledger's disk, a failed task, or a bug of the producer: nothing is sent any more
        self._failure: Exception | None = None
        self._counters, self._event_ms = ProducerCounters(), 0
        #: batches whose failure was told nowhere
        self._untold: deque[Batch] = deque(maxlen=_UNTOLD_MAX)
        self._room_waiters: list[asyncio.Future[None]] = []
        #: (serial up to which all must be done, who waits)
        self._flush_waiters: list[tuple[int, asyncio.Future[None]]] = []

    # --- life -----------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the ledger, begin to look for the cluster and an identity; waits for neither of the two.

        Raises: DiskError.
        """
        if self._is_started:
            return
        self._is_started = True
        self._owner.begin(self._task_failed)
        try:
            if self._ledger is not None:
                await self._ledger.open()
        except BaseException:
            await self._owner.end()
            raise
        self._cluster.refresh()
        self._sender.want_identity()
        self._pump.run()

    async def close(self, timeout_ms: float = 30_000) -> None:
        """Send what is there, wait for its outcome, end; what has none by then fails, also when cancelled.

        New records are refused from now on. Raises: DiskError when the ledger cannot be written.
        """
        self._is_closing = True
        try:
            await self.flush(timeout_ms)
        except TimedOut:
            pass  # told to those who wait, below
        except BaseException:  # cancelled, most of all: who waits for a record is told all the same
            await self._end()
            raise
        await self._end()

    async def __aenter__(self) -> "Producer":
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close, after an exception too. Raises: ProduceFailed when there was none, and a record failed whose
        failure was told nowhere: no delivery awaited or asked, no `on_batch`, no ledger."""
        await self.close()
        untold = [batch for batch in self._untold if not batch.is_told]
        if error is None and untold:
            first, count = untold[0], sum(batch.count for batch in untold)
            raise ProduceFailed(
                f"{count} records were not acknowledged: {first.error_text}",
                first.error,
                may_be_appended=any(batch.outcome is DeliveryOutcome.INFO for batch in untold),
            )

    async def _end(self) -> None:
        if self._is_closed:
            return  # by another caller, or by an earlier call
        self._is_closed = True
        self._pump.end()
        # Callers that wait for a record would wait for ever.
        self._give_up("the producer was closed")
        self._cluster.close()
        try:
            if self._ledger is not None:
                await self._ledger.close()
        except BaseException:
            await self._owner.end()
            raise
        await self._owner.end()

    async def flush(self, timeout_ms: float | None = None) -> None:
        """Send all records now and wait until each has an outcome. Raises: TimedOut."""
        self._sender.hurry()
        self._pump.run()
        target = self._sender.newest_serial
        if self._sender.oldest_incomplete_serial > target:
            return
        if timeout_ms is not None and timeout_ms <= 0:
            raise TimedOut("records are without outcome")
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._flush_waiters.append((target, waiter))
        await self._wait(waiter, timeout_ms, "records are without outcome")

    # --- records --------------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        tag: Any = None,
    ) -> RecordMetadata:
        """Send a record and wait until it is acknowledged; where it is.

        Takes what `submit` takes. Cancelled, the record was either not taken at all or is sent all the same,
        whole; `submit` tells the two apart.

        Raises: ProduceFailed, which says whether the record may be in the log; and what `submit` raises.
        """
        return await (await self.submit(topic, value, key, partition, timestamp_ms, headers, tag))

    async def submit(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        tag: Any = None,
    ) -> Delivery:
        """Take a record, after waiting for metadata and room where needed; what comes back is its future.

        Without `partition` the key decides; without key records go to one partition until a batch is full.
        `timestamp_ms` counts from 1970, None is now. With a ledger `tag` is the record's number in it, else
        it comes back in `on_batch`. Once this has returned the record is sent, even if the caller is
        cancelled; cancelled before, it was not taken.

        Raises: ClientError (no such topic or partition, record too large, producer closed), TimedOut after
        `max_block_ms`, DiskError of the ledger; TypeError or ValueError for what cannot be encoded.
        """
        if topic not in self._router.topics:
            await self.partition_count(topic)
        if self._accumulator.buffered_bytes >= self._buffer_bytes_max:
            await self.room()
        elif self._is_scheduled:
            await NEXT_TURN  # once a batch, so that answers are read while a caller sends without pause
        delivery = self._add(topic, value, key, partition, timestamp_ms, headers, tag, True)
        assert delivery is not None, "it was asked for"
        return delivery

    def send_nowait(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        tag: Any = None,
    ) -> None:
        """Queue a record whose outcome only `on_batch` hears; `tag` comes back in the batch's `tags`.

        Needs a topic that `partition_count` was awaited for. Raises: BufferFull, ClientError, DiskError;
        TypeError or ValueError for what cannot be encoded.
        """
        if self._accumulator.buffered_bytes >= self._buffer_bytes_max:
            raise BufferFull(f"{self.config.buffer_memory_bytes} bytes are without outcome: await room()")
        self._add(topic, value, key, partition, timestamp_ms, headers, tag, False)

    async def room(self) -> None:
        """Wait until there is room for another record. Raises: TimedOut after `max_block_ms`."""
        deadline_ms = self._clock.now_ms() + self.config.max_block_ms
        while self._accumulator.buffered_bytes >= self._buffer_bytes_max:
            self._check_usable()
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._room_waiters.append(waiter)
            await self._wait(waiter, deadline_ms - self._clock.now_ms(), "no room in the buffer")

    async def partition_count(self, topic: str) -> int:
        """Partitions of the topic; makes the topic known to `send_nowait`. Raises: ClientError, TimedOut."""
        self._check_usable()
        view = await self._cluster.topic(topic, self.config.max_block_ms)
        self._router.learn(topic, len(view.leaders))
        return len(view.leaders)

    def metrics(self) -> ProducerMetrics:
        """What this producer has done so far, in numbers; cheap."""
        return self._counters.metrics(self._work.request_count, self._accumulator.buffered_bytes)

    @property
    def buffered_bytes(self) -> int:
        """Bytes of records without outcome."""
        return self._accumulator.buffered_bytes

    @property
    def identity(self) -> ProducerIdAndEpoch | None:
        """Producer id and epoch in use, None before the first."""
        return self._sender.identity

    def _add(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Sequence[tuple[str, bytes | None]],
        tag: Any,
        with_delivery: bool,
    ) -> Delivery | None:
        sender = self._sender
        if type(value) is bytes and key is None and timestamp_ms is None and not headers:
            size = len(value)  # nothing of it can be wrong, and the call takes a tenth of a record's time
        else:
            size = check_record(key, value, headers, timestamp_ms)
        queue = self._router.route(topic, key, partition, size)
        if size > self._record_bytes_max or self._is_closing or self._failure is not None:
            self._check_usable()
            limit = self.config.record_size_bytes_max
            raise ClientError(f"record of {size} bytes, {limit} are allowed", ErrorCode.MESSAGE_TOO_LARGE)
        if timestamp_ms is None:
            timestamp_ms = self._clock.wall_ms()
        if self._ledger is not None:
            if tag is None:
                tag = self._ledger.take_pseq()
            crc, acks, t0 = value_crc32c(bytes(value or b"")), self.config.acks, self._clock.now_ns()
            fields = SentFields(timestamp_ms, key_crc32c(key), headers_crc32c(headers) if headers else None)
            self._ledger.invoke(tag, topic, queue.partition, crc, acks, t0, fields)
        batch = sender.append(queue, timestamp_ms, key, value, headers, tag)
        if batch is None:
            now_ms = self._clock.now_ms()
            if self._cluster.wanted.use(topic, now_ms):
                self._cluster.refresh()
            sender.open_batch(queue, now_ms)
            batch = sender.append(queue, timestamp_ms, key, value, headers, tag)
            assert batch is not None, "the first record of a batch always fits"
            self._pump.set_timer()
        # Before anything is sent: what hears of its outcome may add to the same batch.
        delivery = Delivery(batch, batch.count - 1, timestamp_ms) if with_delivery else None
        if self._accumulator.ready:
            if queue.in_flight == 0 and self.config.linger_ms == 0:
                self._pump.run()  # nothing to wait for: not even the next turn of the loop
            elif not self._is_scheduled:
                self._is_scheduled = True
                asyncio.get_running_loop().call_soon(self._pump_scheduled)
        return delivery

    def _take(self, event: Call[Effect], now_ms: int) -> Sequence[Effect]:
        self._event_ms = now_ms  # of the batches that end because of it, too
        return event(now_ms)

    def _pump_scheduled(self) -> None:
        self._is_scheduled = False
        self._pump.run()

    # --- what happens ---------------------------------------------------------------------------------

    def _metadata_changed(self) -> None:
        self._router.metadata_changed(self._cluster.cache, self._cluster.wanted)
        self._pump.post(self._sender.metadata_changed)

    def _write_ledger(self) -> bool:
        """Write down what is about to be sent; False when the disk refuses."""
        if self._ledger is None:
            return True
        try:
            self._ledger.write()
        except DiskError as error:
            self._ledger_failed(error)
            return False
        return True

    def _complete(self, effect: Complete) -> None:
        batch = effect.batch
        if self._ledger is not None and self._failure is None:
            error = None if batch.error is None or batch.outcome in _GOOD else batch.error.name
            try:
                self._ledger.complete(
                    batch.tags,
                    batch.topic,
                    batch.partition,
                    batch.outcome or DeliveryOutcome.INFO,
                    batch.base_offset,
                    batch.leader_epoch,
                    error,
                    self._clock.now_ns(),
                    batch.sent_topic_id,
                )
            except DiskError as disk_error:
                self._ledger_failed(disk_error)
        self._counters.complete(batch, self._event_ms)
        if batch.outcome not in _GOOD and not batch.waiters and self._is_quiet:
            self._untold.append(batch)
        for _, waiter in batch.waiters:
            _call("a callback of a record", waiter)
        batch.waiters.clear()
        if self._on_batch is not None:
            _call("on_batch of the producer", partial(self._on_batch, batch))
        if self._room_waiters and self._accumulator.buffered_bytes < self.config.buffer_memory_bytes:
            waiters, self._room_waiters = self._room_waiters, []
            for room_waiter in waiters:
                wake(room_waiter)
        if self._flush_waiters:
            oldest = self._sender.oldest_incomplete_serial
            for target, flush_waiter in self._flush_waiters:
                if oldest > target:
                    wake(flush_waiter)
            self._flush_waiters = [entry for entry in self._flush_waiters if entry[0] >= oldest]

    # --- the end --------------------------------------------------------------------------------------

    def _give_up(self, text: str) -> None:
        for effect in self._sender.give_up_all(text):
            self._pump.carry_out[type(effect)](effect)

    def _fail(self, error: Exception, text: str) -> None:
        if self._failure is None:
            self._failure = error
            self._pump.post(lambda _: self._sender.give_up_all(text))

    def _ledger_failed(self, error: DiskError) -> None:
        # Without its ledger a run proves nothing: stop, and tell all that wait.
        self._fail(error, f"the ledger cannot be written: {error}")

    def _task_failed(self, error: BaseException) -> None:
        # What it was to do would be waited for in vain.
        text = f"this producer has failed, make another one: {error!r}"
        failure = ClientError(text)
        failure.__cause__ = error
        self._fail(failure, text)

    def _break_down(self, error: Exception) -> None:
        """A bug of the producer itself: send nothing more, fail what has no outcome, raise it from each call,
        fail a task with it."""
        self._failure = self._failure or error
        fail_node(self._runtime.tasks, "producer", error)
        self._give_up(f"the producer has met a bug of its own: {error!r}")

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._is_closing:
            raise ClientError("the producer is closed: send before close(), or make another one")

    async def _wait(self, waiter: "asyncio.Future[None]", timeout_ms: float | None, what: str) -> None:
        if timeout_ms is None:
            await waiter
            return
        timer = self._clock.call_later(
            max(0, timeout_ms), lambda: _time_out(waiter, f"{what} after {timeout_ms:g} ms")
        )
        try:
            await waiter
        finally:
            timer.cancel()


_GOOD = (DeliveryOutcome.OK, DeliveryOutcome.OK1)
_ACKS: dict[Acks, int] = {"all": -1, 1: 1, 0: 0}


def _call(what: str, callback: Callable[[], None]) -> None:
    """Call what the application gave us; its exception is the event loop's to tell, as with any callback.

    The others who wait for the same batch must hear of it all the same.
    """
    try:
        callback()
    except Exception as error:  # noqa: BLE001  reported to the loop, of any kind
        context = {"message": f"{what} raised: mend it", "exception": error}
        asyncio.get_running_loop().call_exception_handler(context)


def _time_out(waiter: "asyncio.Future[None]", text: str) -> None:
    if not waiter.done():
        waiter.set_exception(TimedOut(text))
