"""The consumer: records out of assigned partitions, in order. `client.core.fetcher` decides what is fetched,
`client.core.fetch_collector` what is handed out.

Owns the pump and who waits for records. Fetches ahead of the application within bounds, by
`client.fetch_work`. `client.group_session` is its place in a group. docs/client.md is for applications.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Literal

from holdfast.client.cluster_client import ClusterClient
from holdfast.client.core.backoff import Backoff
from holdfast.client.core.config import ConsumerConfig
from holdfast.client.core.consumer_records import ConsumerRecord
from holdfast.client.core.effects import Call, take
from holdfast.client.core.errors import ClientError
from holdfast.client.core.fetch_collector import FetchCollector
from holdfast.client.core.fetcher import Fetcher
from holdfast.client.core.fetcher_effects import Effect, FetchedBatch, ResetPolicy
from holdfast.client.core.groups.effects import MemberConfig, Position
from holdfast.client.core.metrics import ConsumerMetrics
from holdfast.client.core.next_turn import NEXT_TURN
from holdfast.client.ends_poll import ends_poll
from holdfast.client.fetch_work import FetchWork
from holdfast.client.group_session import GroupSession, RebalanceListener
from holdfast.client.list_offsets import FoundOffset, list_offsets
from holdfast.client.own_runtime import ClientRuntime
from holdfast.protocol.messages.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from holdfast.protocol.topic_names import TopicPartition
from holdfast.runtime.api import Runtime
from holdfast.runtime.pump import Pump
from holdfast.runtime.tasks import fail_node

OFFSET_MAX = (1 << 63) - 1
#: Records that `async for` gives in one turn of the event loop at most.
_RECORDS_PER_TURN = 500


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
    group_id: the group that shares the subscribed topics; None: no group, and the next ones mean nothing.
    group_instance_id: names a static member: when it is closed its place is kept for its session.
    session_timeout_ms, heartbeat_interval_ms: silent for so long a member is removed; so often it is heard.
    max_poll_interval_ms: an application that asks for nothing for so long gives its partitions up.
    assignors: "range", "roundrobin" or "cooperative-sticky", best first; members need one in common.
    enable_auto_commit, auto_commit_interval_ms: commit what was handed out and is done with, so often.
    runtime: what is used of the world; None: this machine, and asyncio's event loop.

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
        group_id: str | None = None,
        group_instance_id: str | None = None,
        session_timeout_ms: int = 45_000,
        heartbeat_interval_ms: int = 3_000,
        max_poll_interval_ms: int = 300_000,
        assignors: Sequence[str] = ("range", "roundrobin"),
        enable_auto_commit: bool = True,
        auto_commit_interval_ms: int = 5_000,
        runtime: Runtime | None = None,
    ) -> None:
        self.config = ConsumerConfig(
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
        member = None
        if group_id is not None or group_instance_id is not None:
            member = MemberConfig(
                group_id=group_id or "",
                group_instance_id=group_instance_id,
                session_timeout_ms=session_timeout_ms,
                heartbeat_interval_ms=heartbeat_interval_ms,
                max_poll_interval_ms=max_poll_interval_ms,
                assignors=tuple(assignors),
                enable_auto_commit=enable_auto_commit,
                auto_commit_interval_ms=auto_commit_interval_ms,
                request_timeout_ms=request_timeout_ms,
                retry=Backoff(retry_first_ms, retry_max_ms),
            )
        self._begin(topics, member, runtime)

    def _begin(self, topics: tuple[str, ...], member: MemberConfig | None, runtime: Runtime | None) -> None:
        config = self.config
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
            self._topics_in_use,
            config.metadata_max_age_ms,
        )
        self._fetcher = Fetcher(config.for_fetcher(), self._cluster.cache)
        self._collector = FetchCollector(
            self._fetcher, self._cluster.cache, config.unpacked_bytes_max, check_crcs=config.check_crcs
        )
        self._pump: Pump[Call[Effect], Effect] = Pump(
            runtime.clock,
            take,
            lambda: self._fetcher.next_deadline_ms(self._clock.now_ms()),
            self._break_down,
            queue_empty=self._fetcher.plan,
            idle=self._wake_for_data,
        )
        self._work = FetchWork(
            runtime,
            self._cluster,
            self._fetcher,
            self._pump,
            config.request_timeout_ms,
            lambda: self._is_closed,
        )
        self._pump.carry_out |= self._work.carry_out
        #: a bug of the consumer itself, or a task of it failed: nothing is fetched any more
        self._failure: Exception | None = None
        self._group: GroupSession | None = None
        if member is not None:
            self._group = GroupSession(
                runtime,
                self._cluster,
                member,
                self._place,
                self._collector.positions,
                self._attend,
                self._break_down,
            )
        #: the group has something to settle before the next record is handed out
        self._has_group_work = False
        self._waiter: asyncio.Future[None] | None = None
        self._is_started = False
        self._is_closed = False

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
        """End all connections. Positions and what was fetched ahead are gone. A member commits what was
        handed out, unless the application does, and leaves its group."""
        await self._close(self._collector.positions())

    async def _close(self, positions: dict[TopicPartition, Position]) -> None:
        try:
            if self._group is not None and self._is_started and self._failure is None:
                await self._group.close(positions)
        finally:
            self._end()
        await self._owner.end()

    def _end(self) -> None:
        self._is_closed = True
        self._cluster.close()
        self._end_work()

    def _end_work(self) -> None:
        self._pump.end()
        if self._group is not None:
            self._group.end()
        self._wake()

    async def __aenter__(self) -> "Consumer":
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After an error what the application was at is not done: it is read again.
        await self._close(self._collector.positions() if error is None else self._collector.handled())

    # --- what to read ---------------------------------------------------------------------------------

    async def partitions(self, topic: str, timeout_ms: float = 30_000) -> list[TopicPartition]:
        """All partitions of a topic. Raises: ClientError, TimedOut."""
        view = await self._cluster.topic(topic, timeout_ms)
        return [TopicPartition(topic, index) for index in range(len(view.leaders))]

    def subscribe(
        self,
        topics: str | Iterable[str] | re.Pattern[str],
        listener: RebalanceListener | None = None,
    ) -> None:
        """Read all partitions of these topics from now on, and nothing else; as a member of a group, those
        that the group leaves to this consumer, which `listener` hears of.

        A member may give a pattern: all topics whose whole name it matches, those of the cluster excluded.

        Partitions that are added are read from their first record on; they are noticed within
        `metadata_max_age_ms`. A topic that is deleted is waited for; made again, it is read from its first
        record on. A poll raises ClientError when there has been no such topic for three seconds, and goes on
        looking. Partitions that were read before keep their positions.

        Raises: ClientError when no topic can be called so.
        """
        if self._group is not None:
            self._group.subscribe(topics, listener)
            self._first_topics = ()
            return
        if isinstance(topics, re.Pattern):
            raise ValueError("a pattern needs a group: give the consumer a group_id")
        names = (topics,) if isinstance(topics, str) else tuple(topics)
        now_ms = self._clock.now_ms()
        for topic in names:
            self._cluster.wanted.use(topic, now_ms)
        self._first_topics = ()
        self._collector.keep_topics(names)
        self._fetcher.subscribe(names, now_ms)
        self._cluster.refresh()

    def assign(
        self,
        partitions: Iterable[tuple[str, int]] | Mapping[tuple[str, int], int | Literal["earliest", "latest"]],
    ) -> None:
        """Read exactly these from now on; a mapping says where from: an offset, "earliest" or "latest".

        Without a mapping, partitions that were read before go on where they were, and new ones begin where
        `auto_offset_reset` says. Raises: ValueError for a member of a group, which gives it its partitions.
        """
        if self._group is not None:
            raise ValueError("a group assigns its members' partitions: subscribe, or leave group_id out")
        wanted = [TopicPartition(*partition) for partition in partitions]
        for topic, _ in wanted:
            self._cluster.wanted.use(topic, self._clock.now_ms())
        self._first_topics = ()
        self._collector.keep(wanted)
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
        self._collector.forget(TopicPartition(*partition))
        self._fetcher.seek(TopicPartition(*partition), offset)

    def seek_to_beginning(self, *partitions: tuple[str, int]) -> None:
        """Go on at the first offset still kept; all assigned partitions when none is named."""
        self._seek_to(ResetPolicy.EARLIEST, partitions)

    def seek_to_end(self, *partitions: tuple[str, int]) -> None:
        """Go on at the high watermark; all assigned partitions when none is named."""
        self._seek_to(ResetPolicy.LATEST, partitions)

    def _seek_to(self, end: ResetPolicy, partitions: tuple[tuple[str, int], ...]) -> None:
        for partition in partitions or tuple(self._fetcher.parts):
            self._collector.forget(TopicPartition(*partition))
            self._fetcher.seek_to(TopicPartition(*partition), end)

    def position(self, partition: tuple[str, int]) -> int | None:
        """Offset of the next record that a poll or `async for` gives; None until it was looked up.

        Raises: KeyError for a partition that is not assigned.
        """
        return self._collector.position(TopicPartition(*partition))

    def high_watermark(self, partition: tuple[str, int]) -> int:
        """Highest high watermark heard of, -1 for none. Raises: KeyError for one that is not assigned."""
        return self._fetcher.parts[TopicPartition(*partition)].high_watermark

    def topic_id(self, partition: tuple[str, int]) -> bytes | None:
        """Of the topic that is read by this name, None before it was met. A topic that is deleted and made
        again has another one. Raises: KeyError for a partition that is not assigned."""
        return self._fetcher.parts[TopicPartition(*partition)].topic_id

    def metrics(self) -> ConsumerMetrics:
        """What this consumer has done so far, in numbers."""
        lag: dict[TopicPartition, int | None] = {}
        for partition in self.assignment:
            position, end = self.position(partition), self.high_watermark(partition)
            lag[partition] = None if position is None or end < 0 else max(0, end - position)
        return ConsumerMetrics(
            records_read=self._collector.records,
            batches_read=self._collector.batches,
            bytes_read=self._collector.bytes,
            requests_sent=self._work.request_count,
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
        collector, decoded = self._collector, self._collector.decoded
        try:
            await self.start()
            while True:
                await self._settle()
                if decoded:
                    self._end_poll()
                while decoded:
                    given += 1
                    record = collector.in_hand = decoded.popleft()
                    yield record
                    if self._has_group_work:
                        break
                    if given >= _RECORDS_PER_TURN:
                        given = 0
                        await NEXT_TURN  # others have their turn, and may cancel this
                if self._has_group_work:
                    continue
                if collector.decode():
                    continue
                self._pump.run()
                await self._more(None)
                given = 0
        except BaseException:  # also when the loop over it is left
            self._end_poll()
            if closes:
                await self._close(self._collector.handled())
            raise

    @ends_poll
    async def poll(self, max_records: int = 1_000, timeout_ms: float = 1_000) -> list[ConsumerRecord]:
        """At most `max_records`, as soon as there are any; empty when there are none in time.

        Cancelled, it has taken no record. Raises: NoSuchOffset, LogTruncated, CorruptRecords, ClientError.
        """
        assert max_records > 0
        deadline_ms = self._clock.now_ms() + timeout_ms
        while True:
            await self._settle()
            records = self._collector.take_records(max_records)
            self._pump.run()
            if records or not await self._more(deadline_ms):
                self._end_poll()
                return records

    @ends_poll
    async def poll_batches(self, max_bytes: int = 8 << 20, timeout_ms: float = 1_000) -> list[FetchedBatch]:
        """Batches as they came, crc checked, not decoded; at least one when there are any in time.

        A batch may begin below its `start_offset`. Raises as `poll`, with which it must not be mixed.
        """
        assert not self._collector.decoded, "poll and poll_batches do not mix"
        deadline_ms = self._clock.now_ms() + timeout_ms
        while True:
            await self._settle()
            batches = self._collector.take_batches(max_bytes)
            self._pump.run()
            if batches or not await self._more(deadline_ms):
                self._end_poll()
                return batches

    async def _more(self, deadline_ms: float | None) -> bool:
        """Wait for data; False when the time is over."""
        if self._is_closed:
            raise ClientError("the consumer is closed")
        if self._failure is not None:
            await NEXT_TURN  # an application that polls on in a loop must not keep others from running
            raise self._failure
        if self._fetcher.has_data or self._has_group_work:
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

    # --- the group ------------------------------------------------------------------------------------

    async def _settle(self) -> None:
        """The application asks for more, so it has done with what it has: time for commits and rebalances."""
        self._collector.begin_poll()
        if self._group is not None:
            await self._group.settle()
            self._has_group_work = False

    def _end_poll(self) -> None:
        if self._group is not None:
            self._group.end_poll()

    def _attend(self) -> None:
        self._has_group_work = True
        self._wake()

    def _place(
        self, partitions: tuple[TopicPartition, ...], starts: Mapping[TopicPartition, Position | None]
    ) -> None:
        self._collector.keep(partitions)
        for topic, _ in partitions:
            self._cluster.wanted.use(topic, self._clock.now_ms())
        self._fetcher.assign(list(partitions), by_group=True)
        for partition, start in starts.items():
            if start is not None:
                self._fetcher.place(partition, start.offset, start.leader_epoch)
        self._pump.run()

    async def commit(
        self, offsets: Mapping[tuple[str, int], int] | None = None, timeout_ms: float = 30_000
    ) -> None:
        """Commit how far this member has come: next offsets to read; None: behind all that was handed out.

        Returns when it is acknowledged. Raises: CommitFailed when the group has rebalanced and others may
        have the partitions, ClientError, TimedOut.
        """
        positions = self._collector.positions()
        if offsets is not None:
            positions = {TopicPartition(*partition): Position(at) for partition, at in offsets.items()}
        await self._member.commit(positions, timeout_ms)

    async def committed(
        self, partitions: Iterable[tuple[str, int]] | None = None, timeout_ms: float = 30_000
    ) -> dict[TopicPartition, int | None]:
        """Next offsets to read as the group has committed them, None without; of all assigned partitions when
        none is named. Raises: ClientError, TimedOut."""
        asked = self.assignment if partitions is None else [TopicPartition(*one) for one in partitions]
        found = await self._member.committed(asked, timeout_ms)
        return {one: None if at is None else at.offset for one, at in found.items()}

    @property
    def _member(self) -> GroupSession:
        if self._group is None:
            raise ValueError("offsets are committed by groups: give the consumer a group_id")
        return self._group

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

    # --- what happens ---------------------------------------------------------------------------------

    def _topics_in_use(self) -> frozenset[str]:
        return self._fetcher.topics.union(() if self._group is None else self._group.core.topics)

    def _metadata_changed(self) -> None:
        if self._group is not None:
            self._group.metadata_changed()
        self._pump.post(lambda _: self._fetcher.metadata_changed())

    def _wake_for_data(self) -> None:
        if self._fetcher.has_data:
            self._wake()

    def _break_down(self, error: Exception) -> None:
        """A bug of the consumer itself: fetch nothing more, raise it from each poll, fail a task with it."""
        self._failure = error
        fail_node(self._runtime.tasks, "consumer", error)
        self._end_work()

    def _task_failed(self, error: BaseException) -> None:
        # What it was to do would be waited for in vain.
        if self._failure is None:
            self._failure = ClientError(f"this consumer has failed, make another one: {error!r}")
            self._failure.__cause__ = error
        self._end_work()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
