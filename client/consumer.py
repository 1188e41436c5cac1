"""The consumer: records out of assigned partitions, in order. Carries out what `client.core.fetcher` decides.

Owns the connections of one consumer and the decoding, which aiokafka's C codec does. Fetches ahead of the
application within bounds. A batch whose crc does not match is never handed out.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from aiokafka.record.default_records import DefaultRecordBatch

from holdfast.client.cluster_client import ClusterClient
from holdfast.client.core.backoff import Backoff
from holdfast.client.core.decoding import UNDECODABLE
from holdfast.client.core.effects import Call, Connect, RefreshMetadata, take
from holdfast.client.core.errors import ClientError, CorruptRecords
from holdfast.client.core.fetcher import Fetcher
from holdfast.client.core.fetcher_effects import (
    Effect,
    FetchedBatch,
    FetcherConfig,
    LookupOffsets,
    ResetPolicy,
    SendFetch,
)
from holdfast.client.core.next_turn import NEXT_TURN
from holdfast.client.list_offsets import FoundOffset, ask_leader, list_offsets
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.fetch import FetchResponse
from holdfast.protocol.messages.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from holdfast.protocol.topic_names import TopicPartition
from holdfast.rpc.channel import CallRefused, Disconnected
from holdfast.runtime.api import NetworkError, Runtime
from holdfast.runtime.pump import Pump
from holdfast.runtime.tasks import fail_node

_LOOKUP_TIMEOUT_MS = 10_000
OFFSET_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class ConsumerConfig:
    """How to consume. Times in ms."""

    bootstrap_servers: str | Sequence[str]
    #: earliest, latest or none: where to begin, and where to go on when a position is not in the log
    auto_offset_reset: str = "earliest"
    max_wait_ms: int = 500
    min_bytes: int = 1
    request_bytes_max: int = 16 << 20
    partition_bytes_max: int = 2 << 20
    #: fetched ahead of the application
    buffer_bytes_max: int = 32 << 20
    check_crcs: bool = True
    request_timeout_ms: int = 5_000
    stall_ms: int = 500
    retry_first_ms: int = 20
    retry_max_ms: int = 500
    client_id: str = "holdfast-consumer"

    def __post_init__(self) -> None:
        if self.auto_offset_reset not in [policy.value for policy in ResetPolicy]:
            raise ValueError(f"auto_offset_reset {self.auto_offset_reset}: expected earliest, latest or none")
        if self.request_timeout_ms <= self.max_wait_ms:
            raise ValueError("request_timeout_ms must be above max_wait_ms")


class ConsumerRecord(NamedTuple):
    """One record and where it was."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


class Consumer:
    """Reads assigned partitions. For one task at a time."""

    def __init__(self, runtime: Runtime, config: ConsumerConfig) -> None:
        self.config = config
        self._runtime = runtime
        self._clock = runtime.clock
        self._cluster = ClusterClient(
            runtime, config.bootstrap_servers, config.client_id, self._metadata_changed, self._topics_in_use
        )
        self._fetcher = Fetcher(
            FetcherConfig(
                max_wait_ms=config.max_wait_ms,
                min_bytes=config.min_bytes,
                request_bytes_max=config.request_bytes_max,
                partition_bytes_max=config.partition_bytes_max,
                buffer_bytes_max=config.buffer_bytes_max,
                stall_ms=config.stall_ms,
                retry=Backoff(config.retry_first_ms, config.retry_max_ms),
                reset=ResetPolicy(config.auto_offset_reset),
            ),
            self._cluster.cache,
        )
        #: decoded and not handed out, all of one batch
        self._decoded: deque[ConsumerRecord] = deque()
        self._pump: Pump[Call[Effect], Effect] = Pump(
            runtime.clock,
            take,
            lambda: self._fetcher.next_deadline_ms(self._clock.now_ms()),
            self._break_down,
            queue_empty=self._fetcher.plan,
            idle=self._wake_for_data,
        )
        self._pump.carry_out |= {
            SendFetch: self._send_fetch,
            LookupOffsets: self._start_lookup,
            Connect: self._start_connecting,
            RefreshMetadata: lambda _: self._cluster.refresh(),
        }
        #: a bug of the consumer itself: nothing is fetched any more
        self._failure: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._is_closed = False

    def close(self) -> None:
        """End all connections."""
        self._is_closed = True
        self._cluster.close()
        self._pump.end()
        self._wake()

    # --- what to read ---------------------------------------------------------------------------------

    async def partitions(self, topic: str, timeout_ms: float = 30_000) -> list[TopicPartition]:
        """All partitions of a topic. Raises: ClientError, TimedOut."""
        view = await self._cluster.topic(topic, timeout_ms)
        return [TopicPartition(topic, index) for index in range(len(view.leaders))]

    def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Read exactly these from now on; new ones begin where `auto_offset_reset` says unless sought."""
        wanted = [TopicPartition(*partition) for partition in partitions]
        for topic, _ in wanted:
            self._cluster.wanted.use(topic, self._clock.now_ms())
        if self._decoded and TopicPartition(*self._decoded[0][:2]) not in wanted:
            self._decoded.clear()
        self._fetcher.assign(wanted)
        self._cluster.refresh()

    def seek(self, partition: tuple[str, int], offset: int) -> None:
        """Go on at `offset`, which need not exist."""
        if not 0 <= offset <= OFFSET_MAX:
            raise ValueError(f"offset {offset}: expected 0 to {OFFSET_MAX}")
        self._forget_decoded(TopicPartition(*partition))
        self._fetcher.seek(TopicPartition(*partition), offset)

    def seek_to_beginning(self, *partitions: tuple[str, int]) -> None:
        """Go on at the first offset still kept; all assigned partitions when none is named."""
        self._seek_to(ResetPolicy.EARLIEST, partitions)

    def seek_to_end(self, *partitions: tuple[str, int]) -> None:
        """Go on at the high watermark; all assigned partitions when none is named."""
        self._seek_to(ResetPolicy.LATEST, partitions)

    def _seek_to(self, end: ResetPolicy, partitions: tuple[tuple[str, int], ...]) -> None:
        for partition in partitions or tuple(self._fetcher.parts):
            self._forget_decoded(TopicPartition(*partition))
            self._fetcher.seek_to(TopicPartition(*partition), end)

    def _forget_decoded(self, partition: TopicPartition) -> None:
        if self._decoded and self._decoded[0][:2] == partition:
            self._decoded.clear()

    def position(self, partition: tuple[str, int]) -> int | None:
        """Offset of the next record that a poll gives; None until it was looked up."""
        if self._decoded and self._decoded[0][:2] == TopicPartition(*partition):
            return self._decoded[0].offset
        return self._fetcher.parts[TopicPartition(*partition)].position

    def high_watermark(self, partition: tuple[str, int]) -> int:
        """Highest high watermark heard of, -1 for none."""
        return self._fetcher.parts[TopicPartition(*partition)].high_watermark

    # --- reading --------------------------------------------------------------------------------------

    async def poll(self, max_records: int = 1_000, timeout_ms: float = 1_000) -> list[ConsumerRecord]:
        """At most `max_records`, as soon as there are any; empty when there are none in time.

        Raises: NoSuchOffset, LogTruncated, CorruptRecords, ClientError.
        """
        assert max_records > 0
        deadline_ms = self._clock.now_ms() + timeout_ms
        records: list[ConsumerRecord] = []
        while True:
            while len(records) < max_records:
                if not self._decoded:
                    decoded = self._take_decoded(may_raise=not records)
                    if decoded is None:
                        break
                    self._decoded.extend(decoded)
                    continue
                missing = max_records - len(records)
                if len(self._decoded) <= missing:
                    records += self._decoded
                    self._decoded.clear()
                else:
                    records += [self._decoded.popleft() for _ in range(missing)]
            self._pump.run()
            if records or not await self._more(deadline_ms):
                return records

    async def poll_batches(self, max_bytes: int = 8 << 20, timeout_ms: float = 1_000) -> list[FetchedBatch]:
        """Batches as they came, crc checked, not decoded; at least one when there are any in time.

        A batch may begin below its `start_offset`. Raises as `poll`, with which it must not be mixed.
        """
        assert not self._decoded, "poll and poll_batches do not mix"
        deadline_ms = self._clock.now_ms() + timeout_ms
        while True:
            batches: list[FetchedBatch] = []
            size = 0
            while size < max_bytes and (batch := self._fetcher.take(may_raise=not batches)) is not None:
                if self.config.check_crcs and not DefaultRecordBatch(batch.data).validate_crc():
                    self._fetcher.put_back(batch)  # never past it: the next poll fetches it again
                    if not batches:
                        raise _corrupt(batch, "its crc does not match")
                    break
                batches.append(batch)
                size += len(batch.data)
            self._pump.run()
            if batches or not await self._more(deadline_ms):
                return batches

    def _take_decoded(self, *, may_raise: bool) -> list[ConsumerRecord] | None:
        # An error waits until what was read before it has been handed out.
        batch = self._fetcher.take(may_raise=may_raise)
        if batch is None:
            return None
        try:
            return self._decode(batch)
        except Exception:  # also what nobody foresaw: the position is behind the batch already
            self._fetcher.put_back(batch)
            if may_raise:
                raise
            return None

    async def _more(self, deadline_ms: float) -> bool:
        """Wait for data; False when the time is over."""
        if self._is_closed:
            raise ClientError("the consumer is closed")
        if self._failure is not None:
            await NEXT_TURN  # an application that polls on in a loop must not keep others from running
            raise self._failure
        if self._fetcher.has_data:
            return True
        left_ms = deadline_ms - self._clock.now_ms()
        if left_ms <= 0:
            await NEXT_TURN  # who polls so in a loop would never let an answer be read
            return False
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiter = waiter
        timer = self._clock.call_later(left_ms, self._wake)
        try:
            await waiter
        finally:
            timer.cancel()
        return True

    def _decode(self, batch: FetchedBatch) -> list[ConsumerRecord]:
        decoder = DefaultRecordBatch(batch.data)
        if self.config.check_crcs and not decoder.validate_crc():
            raise _corrupt(batch, "its crc does not match")
        topic, partition, epoch = batch.topic, batch.partition, batch.header.leader_epoch
        try:
            records = [
                ConsumerRecord(topic, partition, r.offset, epoch, r.timestamp, r.key, r.value, r.headers)
                for r in decoder
            ]
        except UNDECODABLE as error:
            raise _corrupt(batch, str(error) or type(error).__name__) from error
        if batch.start_offset > batch.header.base_offset:
            return [record for record in records if record.offset >= batch.start_offset]
        return records

    # --- offsets --------------------------------------------------------------------------------------

    async def beginning_offsets(
        self, partitions: Iterable[tuple[str, int]], timeout_ms: float = 30_000
    ) -> dict[TopicPartition, int]:
        """First offset still kept of each partition. Raises: ClientError, TimedOut."""
        return await self._ends(partitions, EARLIEST_TIMESTAMP, timeout_ms)

    async def end_offsets(
        self, partitions: Iterable[tuple[str, int]], timeout_ms: float = 30_000
    ) -> dict[TopicPartition, int]:
        """High watermark of each partition; waits until new leaders know it (A-6). Raises: as above."""
        return await self._ends(partitions, LATEST_TIMESTAMP, timeout_ms)

    async def offsets_for_times(
        self, timestamps: Mapping[tuple[str, int], int], timeout_ms: float = 30_000
    ) -> dict[TopicPartition, FoundOffset]:
        """By partition the first batch that holds a record at least as young (ms since the epoch)."""
        wanted = {TopicPartition(*partition): stamp for partition, stamp in timestamps.items()}
        return await list_offsets(self._cluster, self._clock, wanted, timeout_ms)

    async def _ends(
        self, partitions: Iterable[tuple[str, int]], timestamp: int, timeout_ms: float
    ) -> dict[TopicPartition, int]:
        wanted = {TopicPartition(*partition): timestamp for partition in partitions}
        found = await list_offsets(self._cluster, self._clock, wanted, timeout_ms)
        return {partition: found[partition].offset for partition in wanted}

    # --- effects --------------------------------------------------------------------------------------

    def _send_fetch(self, effect: SendFetch) -> None:
        channel = self._cluster.channel(effect.broker_id)
        if channel is None:
            self._lost(effect, is_disconnected=True)
            return
        answer = channel.call_soon(effect.request, self.config.request_timeout_ms)
        answer.add_done_callback(partial(self._answered, effect))

    def _lost(self, effect: SendFetch, *, is_disconnected: bool) -> None:
        def lose(now_ms: int) -> list[Effect]:
            if is_disconnected:
                self._fetcher.disconnected(effect.broker_id)
            return self._fetcher.failed(effect.request_id, now_ms)

        self._pump.post(lose)

    def _answered(self, effect: SendFetch, answer: "asyncio.Future[FetchResponse]") -> None:
        error = answer.exception()
        if self._is_closed:
            return
        if error is None:
            self._pump.post(partial(self._fetcher.answered, effect.request_id, answer.result()))
        else:
            assert isinstance(error, (NetworkError, CallRefused)), error
            self._cluster.suspect(effect.broker_id)
            self._lost(effect, is_disconnected=isinstance(error, Disconnected))

    def _start_connecting(self, effect: Connect) -> None:
        self._runtime.tasks.start("consumer connect", self._connect(effect.broker_id))

    async def _connect(self, broker_id: int) -> None:
        try:
            await self._cluster.connect(broker_id)
        except (NetworkError, ClientError):
            self._pump.post(partial(self._fetcher.connect_failed, broker_id))
        else:
            self._fetcher.connected(broker_id)
            self._pump.run()

    def _start_lookup(self, effect: LookupOffsets) -> None:
        self._runtime.tasks.start("consumer lookup", self._look_up(effect))

    async def _look_up(self, effect: LookupOffsets) -> None:
        wanted = dict(effect.timestamps)
        deadline_ms = self._clock.now_ms() + _LOOKUP_TIMEOUT_MS
        found, errors = await ask_leader(self._cluster, self._clock, effect.broker_id, wanted, deadline_ms)
        if self._is_closed:
            return
        offsets = {partition: answer.offset for partition, answer in found.items()}
        self._fetcher.found(effect.request_id, offsets)
        self._pump.post(partial(self._fetcher.not_found, effect.request_id, errors))

    def _topics_in_use(self) -> frozenset[str]:
        return frozenset(topic for topic, _ in self._fetcher.parts)

    def _metadata_changed(self) -> None:
        self._pump.post(lambda _: self._fetcher.metadata_changed())

    def _wake_for_data(self) -> None:
        if self._fetcher.has_data:
            self._wake()

    def _break_down(self, error: Exception) -> None:
        """A bug of the consumer itself: fetch nothing more, raise it from each poll, fail a task with it."""
        self._failure = error
        fail_node(self._runtime.tasks, "consumer", error)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _corrupt(batch: FetchedBatch, why: str) -> CorruptRecords:
    text = f"{batch.topic}-{batch.partition} at offset {batch.header.base_offset}: {why}"
    return CorruptRecords(text, ErrorCode.CORRUPT_MESSAGE)
