"""The consumer: records out of assigned partitions, in order. Carries out what `client.core.fetcher` decides.

Owns the connections of one consumer and the decoding, which aiokafka's C codec does. Fetches ahead of the
application within bounds. A batch whose crc does not match is never handed out. docs/client.md tells
applications how to use it.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Literal, NamedTuple

from aiokafka.record.default_records import DefaultRecordBatch

from holdfast.client.ask_leaders import ask_leader
from holdfast.client.cluster_client import ClusterClient
from holdfast.client.core.config import ConsumerConfig
from holdfast.client.core.decoding import UNDECODABLE, is_whole, unpacked
from holdfast.client.core.effects import Call, Connect, RefreshMetadata, take
from holdfast.client.core.errors import ClientError, CorruptRecords
from holdfast.client.core.fetcher import Fetcher
from holdfast.client.core.fetcher_effects import (
    Effect,
    FetchedBatch,
    LookupOffsets,
    ResetPolicy,
    SendFetch,
)
from holdfast.client.core.metrics import ConsumerMetrics
from holdfast.client.core.next_turn import NEXT_TURN
from holdfast.client.list_offsets import OFFSETS, FoundOffset, list_offsets
from holdfast.client.own_runtime import ClientRuntime
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


#: Records that `async for` gives in one turn of the event loop at most.
_RECORDS_PER_TURN = 500

_new = tuple.__new__


class ConsumerRecord(NamedTuple):
    """One record and where it was."""

    topic: str
    partition: int
    offset: int
    #: of the leader that appended it
    leader_epoch: int
    #: in ms since 1970, as its producer gave it
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


class Consumer:
    """Reads partitions, each in order. For one task at a time.

    Use it with `async with`, and in it `async for record in consumer` or `poll`. An `async for` over a
    consumer that was not opened opens it, and closes it at its end, however that comes. Nothing connects
    before that.

    Times are in milliseconds, sizes in bytes.

    bootstrap_servers: `"host:port,host:port"` or a sequence of `"host:port"`; any brokers of the cluster.
    topics: as if `subscribe` was called with them; without any, call `subscribe` or `assign`.
    auto_offset_reset: where to begin with a partition, and where to go on when its position is not in the
        log: at the first record, behind the last one, or not at all ("none": NoSuchOffset and
        LogTruncated are raised, and partitions have no position until one is sought).
    max_wait_ms, min_bytes: so long a leader waits for so many bytes before it answers.
    request_bytes_max, partition_bytes_max: what one answer may hold, in all and of a partition.
    buffer_bytes_max: fetched ahead of the application.
    unpacked_bytes_max: what the records of one batch may take here, unpacked and as Python objects; a batch
        beyond it raises CorruptRecords. A few bytes of a compressed batch can hold gigabytes.
    check_crcs: refuse batches whose checksum does not match.
    request_timeout_ms: a broker that does not answer for so long is given up; above max_wait_ms.
    stall_ms: after so long without an answer the consumer looks whether the leader is still the leader.
    retry_first_ms, retry_max_ms: the pause before a third attempt, and what it grows to; the second
        attempt comes at once.
    metadata_max_age_ms: added partitions are noticed after so long at the latest.
    client_id: a name for the logs of brokers.
    runtime: what is used of the world; None: this machine, and asyncio's running event loop.

    Raises: ValueError for a setting that cannot be.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *topics: str,
        auto_offset_reset: Literal["earliest", "latest", "none"] = "earliest",
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        request_bytes_max: int = 16 << 20,
        partition_bytes_max: int = 2 << 20,
        buffer_bytes_max: int = 32 << 20,
        unpacked_bytes_max: int = 256 << 20,
        check_crcs: bool = True,
        request_timeout_ms: int = 5_000,
        stall_ms: int = 500,
        retry_first_ms: int = 20,
        retry_max_ms: int = 500,
        metadata_max_age_ms: int = 60_000,
        client_id: str = "holdfast-consumer",
        runtime: Runtime | None = None,
    ) -> None:
        config = self.config = ConsumerConfig(
            bootstrap_servers=bootstrap_servers,
            auto_offset_reset=auto_offset_reset,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            request_bytes_max=request_bytes_max,
            partition_bytes_max=partition_bytes_max,
            buffer_bytes_max=buffer_bytes_max,
            unpacked_bytes_max=unpacked_bytes_max,
            check_crcs=check_crcs,
            request_timeout_ms=request_timeout_ms,
            stall_ms=stall_ms,
            retry_first_ms=retry_first_ms,
            retry_max_ms=retry_max_ms,
            metadata_max_age_ms=metadata_max_age_ms,
            client_id=client_id,
        )
        self._owner = ClientRuntime(runtime)
        runtime = self._runtime = self._owner.runtime
        self._clock = runtime.clock
        #: to subscribe to once there is an event loop
        self._first_topics = topics
        self._cluster = ClusterClient(
            runtime,
            config.bootstrap_servers,
            config.client_id,
            self._metadata_changed,
            lambda: self._fetcher.topics,
            config.metadata_max_age_ms,
        )
        self._fetcher = Fetcher(config.for_fetcher(), self._cluster.cache)
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
        #: a bug of the consumer itself, or a task of it failed: nothing is fetched any more
        self._failure: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._is_started = False
        self._is_closed = False
        self._records = self._batches = self._bytes = self._requests = 0

    # --- life -----------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to look for the cluster; waits for nothing.

        Raises: ClientError when no topic can be called so.
        """
        if self._is_started:
            return
        self._is_started = True
        self._owner.begin(self._task_failed)
        if self._first_topics:
            self.subscribe(self._first_topics)
        else:
            self._cluster.refresh()

    async def close(self) -> None:
        """End all connections. Positions and what was fetched ahead are gone."""
        self._is_closed = True
        self._cluster.close()
        self._pump.end()
        self._wake()
        await self._owner.end()

    async def __aenter__(self) -> "Consumer":
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # --- what to read ---------------------------------------------------------------------------------

    async def partitions(self, topic: str, timeout_ms: float = 30_000) -> list[TopicPartition]:
        """All partitions of a topic. Raises: ClientError, TimedOut."""
        view = await self._cluster.topic(topic, timeout_ms)
        return [TopicPartition(topic, index) for index in range(len(view.leaders))]

    def subscribe(self, topics: str | Iterable[str]) -> None:
        """Read all partitions of these topics from now on, and nothing else.

        Partitions that are added are read from their first record on; they are noticed within
        `metadata_max_age_ms`. A topic that is deleted is waited for; made again, it is read from its first
        record on. A poll raises ClientError when there has been no such topic for three seconds, and goes on
        looking. Partitions that were read before keep their positions.

        Raises: ClientError when no topic can be called so.
        """
        names = (topics,) if isinstance(topics, str) else tuple(topics)
        now_ms = self._clock.now_ms()
        for topic in names:
            self._cluster.wanted.use(topic, now_ms)
        self._first_topics = ()
        if self._decoded and self._decoded[0].topic not in names:
            self._decoded.clear()
        self._fetcher.subscribe(names, now_ms)
        self._cluster.refresh()

    def assign(
        self,
        partitions: Iterable[tuple[str, int]] | Mapping[tuple[str, int], int | Literal["earliest", "latest"]],
    ) -> None:
        """Read exactly these from now on; a mapping says where from: an offset, "earliest" or "latest".

        Without a mapping, partitions that were read before go on where they were, and new ones begin where
        `auto_offset_reset` says.
        """
        wanted = [TopicPartition(*partition) for partition in partitions]
        for topic, _ in wanted:
            self._cluster.wanted.use(topic, self._clock.now_ms())
        self._first_topics = ()
        if self._decoded and TopicPartition(*self._decoded[0][:2]) not in wanted:
            self._decoded.clear()
        self._fetcher.assign(wanted)
        if isinstance(partitions, Mapping):
            for partition, start in partitions.items():
                if isinstance(start, int):
                    self.seek(partition, start)
                else:
                    self._seek_to(ResetPolicy(start), (partition,))
        self._cluster.refresh()

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """The partitions that are read now, by topic and index."""
        return tuple(sorted(self._fetcher.parts))

    def seek(self, partition: tuple[str, int], offset: int) -> None:
        """Go on at `offset`, which need not exist. Raises: KeyError for a partition that is not assigned."""
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
        """Offset of the next record that a poll or `async for` gives; None until it was looked up.

        Raises: KeyError for a partition that is not assigned.
        """
        if self._decoded and self._decoded[0][:2] == TopicPartition(*partition):
            return self._decoded[0].offset
        return self._fetcher.parts[TopicPartition(*partition)].position

    def high_watermark(self, partition: tuple[str, int]) -> int:
        """Highest high watermark heard of, -1 for none. Raises: KeyError for one that is not assigned."""
        return self._fetcher.parts[TopicPartition(*partition)].high_watermark

    def metrics(self) -> ConsumerMetrics:
        """What this consumer has done so far, in numbers."""
        lag: dict[TopicPartition, int | None] = {}
        for partition in self.assignment:
            position, end = self.position(partition), self.high_watermark(partition)
            lag[partition] = None if position is None or end < 0 else max(0, end - position)
        return ConsumerMetrics(
            records_read=self._records,
            batches_read=self._batches,
            bytes_read=self._bytes,
            requests_sent=self._requests,
            buffered_bytes=self._fetcher.buffered_bytes,
            lag=lag,
        )

    # --- reading --------------------------------------------------------------------------------------

    async def __aiter__(self) -> AsyncGenerator[ConsumerRecord, None]:
        """Every record, as it comes, without end. Raises: as `poll`; another `async for` goes on behind it.

        Cancelled while it waits, it has taken no record.
        """
        closes = not self._is_started
        given = 0
        try:
            await self.start()
            while True:
                while self._decoded:
                    given += 1
                    yield self._decoded.popleft()
                    if given >= _RECORDS_PER_TURN:
                        given = 0
                        await NEXT_TURN  # others have their turn, and may cancel this
                decoded = self._take_decoded(may_raise=True)
                if decoded is not None:
                    self._decoded.extend(decoded)
                    continue
                self._pump.run()
                await self._more(None)
                given = 0
        except BaseException:  # also when the loop over it is left
            if closes:
                await self.close()
            raise

    async def poll(self, max_records: int = 1_000, timeout_ms: float = 1_000) -> list[ConsumerRecord]:
        """At most `max_records`, as soon as there are any; empty when there are none in time.

        Cancelled, it has taken no record. Raises: NoSuchOffset, LogTruncated, CorruptRecords, ClientError.
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
                if self.config.check_crcs and not is_whole(batch.data):
                    self._fetcher.put_back(batch)  # never past it: the next poll fetches it again
                    if not batches:
                        raise _corrupt(batch, "its crc does not match")
                    break
                batches.append(batch)
                size += len(batch.data)
                self._batches += 1
                self._bytes += len(batch.data)
                self._records += batch.header.next_offset - batch.start_offset
            self._pump.run()
            if batches or not await self._more(deadline_ms):
                return batches

    def _take_decoded(self, *, may_raise: bool) -> list[ConsumerRecord] | None:
        # An error waits until what was read before it has been handed out.
        batch = self._fetcher.take(may_raise=may_raise)
        if batch is None:
            return None
        try:
            records = self._decode(batch)
        except Exception:  # also unforeseen errors: the position is behind the batch already
            self._fetcher.put_back(batch)
            if may_raise:
                raise
            return None
        self._batches += 1
        self._bytes += len(batch.data)
        self._records += len(records)
        return records

    async def _more(self, deadline_ms: float | None) -> bool:
        """Wait for data; False when the time is over."""
        if self._is_closed:
            raise ClientError("the consumer is closed")
        if self._failure is not None:
            await NEXT_TURN  # an application that polls on in a loop must not keep others from running
            raise self._failure
        if self._fetcher.has_data:
            return True
        left_ms = None if deadline_ms is None else deadline_ms - self._clock.now_ms()
        if left_ms is not None and left_ms <= 0:
            await NEXT_TURN  # who polls so in a loop would never let an answer be read
            return False
        if self._waiter is not None:
            raise RuntimeError("another task waits for records of this consumer: give each its own")
        waiter = self._waiter = asyncio.get_running_loop().create_future()
        timer = None if left_ms is None else self._clock.call_later(left_ms, self._wake)
        try:
            await waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()
        return True

    def _decode(self, batch: FetchedBatch) -> list[ConsumerRecord]:
        if self.config.check_crcs and not is_whole(batch.data):
            raise _corrupt(batch, "its crc does not match")
        topic, partition, epoch = batch.topic, batch.partition, batch.header.leader_epoch
        try:
            plain = unpacked(batch.header, batch.data, self.config.unpacked_bytes_max)
            # The class itself would go through a function of Python, for each record.
            records = [
                _new(
                    ConsumerRecord,
                    (topic, partition, r.offset, epoch, r.timestamp, r.key, r.value, r.headers),
                )
                for r in DefaultRecordBatch(plain)
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
        """By partition the first record that is at least as young (ms since the epoch); -1 for none."""
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
        self._requests += 1
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
        found, errors = await ask_leader(
            self._cluster, self._clock, OFFSETS, effect.broker_id, wanted, deadline_ms
        )
        if self._is_closed:
            return
        offsets = {partition: answer.offset for partition, answer in found.items()}
        self._fetcher.found(effect.request_id, offsets)
        self._pump.post(partial(self._fetcher.not_found, effect.request_id, errors))

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

    def _task_failed(self, error: BaseException) -> None:
        # What it was to do would be waited for in vain.
        if self._failure is None:
            self._failure = ClientError(f"this consumer has failed, make another one: {error!r}")
            self._failure.__cause__ = error
        self._pump.end()
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _corrupt(batch: FetchedBatch, why: str) -> CorruptRecords:
    header = batch.header
    text = (
        f"{batch.topic}-{batch.partition} at offset {header.base_offset}: {why}; "
        f"seek to {header.next_offset} to go on behind this batch"
    )
    place = TopicPartition(batch.topic, batch.partition)
    return CorruptRecords(text, ErrorCode.CORRUPT_MESSAGE, place, header.base_offset, header.next_offset)
