"""The consumer's decisions: what to fetch from whom, and what each answer means for a position.

Owns the positions of the assigned partitions and what was fetched ahead; at most one request in flight a
partition and `requests_per_broker_max` a broker, since a parked request must not hold back partitions that
have room again. Looks at batch headers only. Rules: R55 (epochs), A-6 (unknown high watermark), R81
(diverging epoch), D9.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from holdfast.client.core.broker_link import BrokerLink, Link
from holdfast.client.core.effects import Connect, RefreshMetadata
from holdfast.client.core.errors import ClientError, CorruptRecords, LogTruncated, NoSuchOffset, code_of
from holdfast.client.core.fetcher_effects import (
    Effect,
    FetchedBatch,
    FetcherConfig,
    LookupOffsets,
    ResetPolicy,
    SendFetch,
)
from holdfast.client.core.metadata_cache import LeaderAndEpoch, MetadataCache
from holdfast.client.core.partition_fetch import PartitionFetch
from holdfast.client.core.portions import portions
from holdfast.client.core.subscription import Subscription
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.fetch import (
    CONSUMER_REPLICA_ID,
    EpochEndOffset,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
)
from holdfast.protocol.messages.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from holdfast.protocol.record_batch import BatchHeader, CorruptBatch, iter_batches
from holdfast.protocol.topic_names import TopicPartition

#: Leader epochs remembered of each partition.
EPOCHS_KEPT = 100
#: Partitions of one request: brokers refuse one that asks for too much at once.
ROWS_MAX = 2_000

# --- state ---------------------------------------------------------------------------------------------


class _Broker(BrokerLink):
    __slots__ = ("in_flight",)

    def __init__(self) -> None:
        super().__init__()
        #: requests without answer
        self.in_flight = 0


@dataclass(frozen=True, slots=True)
class _Request:
    broker_id: int
    sent_ms: int
    parts: tuple[PartitionFetch, ...]


class Fetcher:
    """All decisions of one consumer."""

    def __init__(self, config: FetcherConfig, cache: MetadataCache) -> None:
        self._config = config
        self._cache = cache
        #: in the order in which they are asked for next: who was answered goes to the end
        self._parts: dict[TopicPartition, PartitionFetch] = {}
        self._brokers: dict[int, _Broker] = {}
        self._requests: dict[int, _Request] = {}
        self._request_id = 0
        self.buffered_bytes = 0
        self._stall_check_ms = 0
        #: what decides which partitions are assigned; None: the application
        self._subscription: Subscription | None = None
        #: a subscribed topic is not there; raised at the next poll
        self._missing_topic: ClientError | None = None
        #: a partition that is there no more is no error
        self._drops_homeless = False
        #: partitions to leave when the plan is made: their topic was made again without them
        self._dropped: list[TopicPartition] = []

    @property
    def parts(self) -> dict[TopicPartition, PartitionFetch]:
        """The assigned partitions. Read only."""
        return self._parts

    @property
    def has_data(self) -> bool:
        """True when a poll would give something or raise."""
        return self._missing_topic is not None or any(
            part.buffer or part.error is not None for part in self._parts.values()
        )

    # --- the application's wishes ---------------------------------------------------------------------

    @property
    def topics(self) -> frozenset[str]:
        """Topics that are read, subscribed ones that were not met yet among them."""
        subscribed = () if self._subscription is None else self._subscription.topics
        return frozenset(topic for topic, _ in self._parts).union(subscribed)

    def subscribe(self, topics: Iterable[str], now_ms: int) -> None:
        """Read all partitions of these, whichever there are; what was assigned before stays where it was."""
        subscription = Subscription(topics, self._config.retry, now_ms)
        self.assign([part for part in self._parts if part.topic in subscription.topics])
        self._subscription = subscription
        self._drops_homeless = True
        self._follow_subscription()

    def _follow_subscription(self) -> None:
        if self._subscription is None:
            return
        for topic_partition, is_late in self._subscription.news(self._cache):
            if topic_partition not in self._parts:
                part = self._parts[topic_partition] = PartitionFetch(topic_partition)
                self._reset(part, ResetPolicy.EARLIEST if is_late else self._config.reset)
        if self._subscription.is_complete:
            self._missing_topic = None

    def assign(self, partitions: list[TopicPartition], *, by_group: bool = False) -> None:
        """Read exactly these, from the reset policy's end unless they were assigned before. `by_group`: a
        partition that is there no more is left, and the group shares the others anew."""
        self._subscription = self._missing_topic = None
        self._drops_homeless = by_group
        kept = {p: self._parts.get(p) for p in partitions}
        for topic_partition, part in self._parts.items():
            if topic_partition not in kept:
                self.buffered_bytes -= part.drop_buffer()
                part.request_id = None
        self._parts = {}
        for topic_partition, old in kept.items():
            if old is None:
                self._parts[topic_partition] = PartitionFetch(topic_partition)
                self._reset(self._parts[topic_partition], self._config.reset)
            else:
                self._parts[topic_partition] = old

    def seek(self, topic_partition: TopicPartition, offset: int) -> None:
        """Go on at `offset`."""
        assert offset >= 0
        part = self._parts[topic_partition]
        self._move(part, offset)
        part.topic_id = self._topic_id(part)

    def place(self, topic_partition: TopicPartition, offset: int, leader_epoch: int) -> None:
        """Go on at `offset`, where a group has come to; the record before it was read in that leader epoch,
        -1 when that is not known."""
        self.seek(topic_partition, offset)
        if leader_epoch >= 0 and offset > 0:
            # The leader is asked whether it still has that record: an unclean election may have cut it.
            self._parts[topic_partition].epochs.append((leader_epoch, offset - 1))

    def put_back(self, batch: FetchedBatch) -> None:
        """It could not be handed out: go on with it, in the topic that it is of, though one of its name may
        have been made since."""
        place = TopicPartition(batch.topic, batch.partition)
        self._cut(self._parts[place], batch.start_offset)
        self._parts[place] = self._parts.pop(place)  # it must not stand before those that have something

    def seek_to(self, topic_partition: TopicPartition, end: ResetPolicy) -> None:
        """Go on at the first or the last offset, looked up when it is needed."""
        assert end is not ResetPolicy.NONE
        self._reset(self._parts[topic_partition], end)

    def _move(self, part: PartitionFetch, offset: int) -> None:
        self.buffered_bytes -= part.drop_buffer()
        part.position = part.fetch_offset = offset
        part.epochs.clear()
        part.lookup = part.request_id = part.error = None
        part.deleted_at = -1
        part.hold_until_ms = 0

    def _cut(self, part: PartitionFetch, offset: int) -> None:
        """Go back to `offset`; what was read before it is still known."""
        epochs = [(epoch, start) for epoch, start in part.epochs if start < offset]
        self._move(part, offset)
        part.epochs = epochs

    def _reset(self, part: PartitionFetch, policy: ResetPolicy) -> None:
        if policy is ResetPolicy.NONE:
            text = f"{_name(part)} has no position: seek first"
            part.error = NoSuchOffset(text, ErrorCode.OFFSET_OUT_OF_RANGE, part.topic_partition)
            return
        self._move(part, 0)
        part.topic_id = self._topic_id(part)
        part.position = None
        part.lookup = EARLIEST_TIMESTAMP if policy is ResetPolicy.EARLIEST else LATEST_TIMESTAMP

    def _reset_out_of_range(self, part: PartitionFetch, log_start_offset: int) -> None:
        stood_at, epochs = part.fetch_offset, part.epochs.copy()
        self._reset(part, self._config.reset)
        if stood_at < log_start_offset:
            # Log starts differ: by the time of the lookup another may lead, whose log starts earlier, and
            # who went back to that start would be given again what it has read.
            part.deleted_at = stood_at
            part.epochs = epochs

    def _topic_id(self, part: PartitionFetch) -> bytes | None:
        view = self._cache.topic(part.topic_partition.topic)
        return None if view is None else view.topic_id

    def _is_left_over(self, part: PartitionFetch) -> bool:
        """True when its topic was deleted and made again."""
        topic_id = self._topic_id(part)
        return None not in (topic_id, part.topic_id) and topic_id != part.topic_id

    def _is_homeless(self, part: PartitionFetch) -> bool:
        """True for a partition that metadata does not name. New ones may be on their way."""
        topic, partition = part.topic_partition
        view = self._cache.topic(topic)
        return view is not None and partition >= len(view.leaders)

    def _end_homeless(self, part: PartitionFetch, now_ms: int, effects: list[Effect]) -> None:
        # Partitions only ever vanish with their topic: it was made again with fewer, and no leader will come.
        part.request_id = None
        if self._drops_homeless:
            self._dropped.append(part.topic_partition)
            return
        name = part.topic_partition.topic
        text = f"{name} was made again without partition {part.topic_partition.partition}: assign others"
        part.error = ClientError(text, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        # With a pause: who only polls again would hear nothing else, and never let go of the processor.
        self._trouble(part, now_ms, effects, stale_epoch=None)

    def _begin_anew(self, part: PartitionFetch) -> None:
        # Offsets and epochs of the old topic mean nothing in the new one.
        part.high_watermark = part.log_start_offset = -1
        part.stale_epoch = part.request_id = None
        if self._config.reset is ResetPolicy.NONE:
            text = f"topic {part.topic_partition.topic} was deleted and made again: seek"
            part.error = NoSuchOffset(text, ErrorCode.OFFSET_OUT_OF_RANGE, part.topic_partition)
        else:
            # All that it holds is younger than the position: `latest`, too, goes on with its first record.
            self._reset(part, ResetPolicy.EARLIEST)

    def take(self, *, may_raise: bool = True) -> FetchedBatch | None:
        """The next batch that was fetched ahead, partitions in turn; its position moves behind it.

        With `may_raise` False errors wait: who holds batches that it has not handed out would lose them.
        Raises: ClientError for a partition that cannot go on; it is tried again afterwards.
        """
        for topic_partition, part in self._parts.items():
            if part.buffer:
                batch = part.buffer.popleft()
                size = len(batch.data)
                part.buffered_bytes -= size
                self.buffered_bytes -= size
                part.position = batch.header.next_offset
                if not part.buffer:
                    self._parts[topic_partition] = self._parts.pop(topic_partition)
                return batch
            if part.error is not None and may_raise:
                error = part.error
                if part.position is not None or part.lookup is not None:
                    part.error = None  # the next fetch or lookup may succeed
                # Who fails again and again must not stand before those that have something.
                self._parts[topic_partition] = self._parts.pop(topic_partition)
                raise error
        if self._missing_topic is not None and may_raise:
            missing, self._missing_topic = self._missing_topic, None
            raise missing
        return None

    # --- the plan -------------------------------------------------------------------------------------

    def plan(self, now_ms: int) -> list[Effect]:
        """Everything that is to be asked now."""
        effects: list[Effect] = []
        loads: dict[int, list[PartitionFetch]] = {}
        lookups: dict[int, list[PartitionFetch]] = {}
        self._look_for_topics(now_ms, effects)
        for part in self._parts.values():
            if self._is_left_over(part):
                if part.buffer:
                    continue  # what is there is read first
                if self._is_homeless(part):
                    if part.hold_until_ms <= now_ms:
                        self._end_homeless(part, now_ms, effects)
                    continue
                self._begin_anew(part)
            if part.topic_id is None:
                part.topic_id = self._topic_id(part)
            if part.request_id is not None or part.error is not None or part.hold_until_ms > now_ms:
                continue
            if part.lookup is None and (
                part.position is None
                or self.buffered_bytes >= self._config.buffer_bytes_max
                or part.buffered_bytes >= self._config.partition_bytes_max
            ):
                continue
            leader = self._cache.leader(*part.topic_partition)
            if leader.broker_id < 0:
                code = self._cache.topic_error(part.topic_partition.topic)
                if code is not None and not code.is_retriable:
                    part.error = ClientError(f"topic {part.topic_partition.topic}: {code.name}", code)
                self._trouble(part, now_ms, effects, stale_epoch=leader.leader_epoch)
                continue
            if part.lookup is not None:
                lookups.setdefault(leader.broker_id, []).append(part)
                continue
            broker = self._broker(leader.broker_id)
            if not broker.is_up:
                if broker.begin(now_ms):
                    effects.append(Connect(leader.broker_id))
                continue
            if broker.in_flight < self._config.requests_per_broker_max:
                loads.setdefault(leader.broker_id, []).append(part)
        for topic_partition in self._dropped:
            del self._parts[topic_partition]
        self._dropped.clear()
        for broker_id, parts in loads.items():
            effects += [self._fetch(broker_id, one, now_ms) for one in portions(parts, ROWS_MAX)]
        # One question a leader: who does not answer holds back only what it leads.
        for broker_id, parts in lookups.items():
            effects.append(self._look_up(broker_id, parts))
        if self._stalled_ms() is not None and now_ms >= (self._stalled_ms() or 0):
            self._stall_check_ms = now_ms + self._config.stall_ms
            effects.append(RefreshMetadata())
        return effects

    def _look_for_topics(self, now_ms: int, effects: list[Effect]) -> None:
        if self._subscription is None:
            return
        if self._missing_topic is None:
            self._missing_topic = self._subscription.problem(self._cache, now_ms)
        if self._subscription.wants_metadata(now_ms):
            effects.append(RefreshMetadata())

    def next_deadline_ms(self, now_ms: int) -> int | None:
        """When `plan` should be called at the latest although nothing happened."""
        deadlines = [p.hold_until_ms for p in self._parts.values() if p.hold_until_ms > now_ms]
        deadlines += [
            broker.retry_ms
            for broker in self._brokers.values()
            if broker.state is Link.DOWN and broker.retry_ms > now_ms
        ]
        stalled_ms = self._stalled_ms()
        if stalled_ms is not None:
            deadlines.append(stalled_ms)
        asks_ms = None if self._subscription is None else self._subscription.next_deadline_ms()
        if asks_ms is not None:
            deadlines.append(asks_ms)
        return min(deadlines, default=None)

    def _stalled_ms(self) -> int | None:
        for request in self._requests.values():
            patience_ms = self._config.max_wait_ms + self._config.stall_ms
            return max(request.sent_ms + patience_ms, self._stall_check_ms)
        return None

    def _look_up(self, broker_id: int, parts: list[PartitionFetch]) -> LookupOffsets:
        self._request_id += 1
        wanted = []
        for part in parts:
            assert part.lookup is not None
            part.request_id = self._request_id
            part.sent_epoch = self._cache.leader(*part.topic_partition).leader_epoch
            wanted.append((part.topic_partition, part.lookup))
        return LookupOffsets(self._request_id, broker_id, tuple(wanted))

    def _fetch(self, broker_id: int, parts: Iterable[PartitionFetch], now_ms: int) -> SendFetch:
        self._request_id += 1
        rows = []
        for part in parts:
            leader = self._cache.leader(*part.topic_partition)
            view = self._cache.topic(part.topic_partition.topic)
            assert view is not None
            part.request_id = self._request_id
            part.sent_epoch = leader.leader_epoch
            rows.append(
                FetchPartition(
                    topic_id=view.topic_id,
                    partition_index=part.topic_partition.partition,
                    current_leader_epoch=leader.leader_epoch,
                    fetch_offset=part.fetch_offset,
                    last_fetched_epoch=part.fetch_epoch,
                    flushed_offset=-1,
                    max_bytes=self._config.partition_bytes_max,
                )
            )
        self._requests[self._request_id] = _Request(broker_id, now_ms, tuple(parts))
        self._broker(broker_id).in_flight += 1
        request = FetchRequest(
            cluster_id=None,
            replica_id=CONSUMER_REPLICA_ID,
            broker_epoch=-1,
            max_wait_ms=self._config.max_wait_ms,
            min_bytes=self._config.min_bytes,
            max_bytes=self._config.request_bytes_max,
            partitions=tuple(rows),
        )
        return SendFetch(self._request_id, broker_id, request)

    def _broker(self, broker_id: int) -> _Broker:
        found = self._brokers.get(broker_id)
        if found is None:
            found = self._brokers[broker_id] = _Broker()
        return found

    # --- events: connections and metadata -------------------------------------------------------------

    def connected(self, broker_id: int) -> None:
        """The connection stands."""
        self._broker(broker_id).connected()

    def connect_failed(self, broker_id: int, now_ms: int) -> list[Effect]:
        """The connection was refused, or no answer came: look for other leaders."""
        self._broker(broker_id).failed(now_ms, self._config.retry)
        effects: list[Effect] = []
        for part in self._parts.values():
            leader = self._cache.leader(*part.topic_partition)
            if leader.broker_id == broker_id and part.request_id is None:
                self._trouble(part, now_ms, effects, stale_epoch=leader.leader_epoch)
        return effects

    def disconnected(self, broker_id: int) -> None:
        """The connection is gone; its requests are reported one by one with `failed`."""
        self._broker(broker_id).lost()

    def metadata_changed(self) -> list[Effect]:
        """A metadata answer was merged into the cache, or none could be had."""
        self._follow_subscription()
        effects: list[Effect] = []
        for part in self._parts.values():
            leader = self._cache.leader(*part.topic_partition)
            if part.request_id in self._requests and leader.leader_epoch > part.sent_epoch:
                if leader.broker_id != self._requests[part.request_id].broker_id:
                    part.request_id = None  # the old leader's silence ends here
            if part.stale_epoch is None:
                continue
            if leader.broker_id >= 0 and leader.leader_epoch > part.stale_epoch:
                part.stale_epoch = None
                part.hold_until_ms = 0
            elif not effects:
                effects.append(RefreshMetadata())
        return effects

    # --- events: answers ------------------------------------------------------------------------------

    def answered(self, request_id: int, response: FetchResponse, now_ms: int) -> list[Effect]:
        """The broker answered; partitions without news have no row."""
        request = self._close(request_id)
        effects: list[Effect] = []
        rows = {(row.topic_id, row.partition_index): row for row in response.partitions}
        whole = code_of(response.error_code)
        for part in request.parts:
            if part.request_id != request_id:
                continue  # it was moved, or found its leader elsewhere
            part.request_id = None
            topic, partition = part.topic_partition
            view = self._cache.topic(topic)
            row = None if view is None else rows.get((view.topic_id, partition))
            if whole is not ErrorCode.NONE:
                self._refused(part, whole, now_ms, effects)
            elif row is not None:
                self._judge(part, row, now_ms, effects)
            self._parts[part.topic_partition] = self._parts.pop(part.topic_partition)
        return effects

    def failed(self, request_id: int, now_ms: int) -> list[Effect]:
        """No answer will come."""
        request = self._close(request_id)
        effects: list[Effect] = []
        for part in request.parts:
            if part.request_id == request_id:
                part.request_id = None
                self._trouble(part, now_ms, effects, stale_epoch=part.sent_epoch)
        return effects

    def found(self, request_id: int, offsets: dict[TopicPartition, int]) -> None:
        """Offsets that `LookupOffsets` asked for."""
        for topic_partition, offset in offsets.items():
            part = self._parts.get(topic_partition)
            if part is not None and part.request_id == request_id:
                if offset <= part.deleted_at:
                    self._cut(part, part.deleted_at)
                else:
                    self._move(part, offset)
                part.failures = 0
                part.stale_epoch = None

    def not_found(
        self, request_id: int, errors: Mapping[TopicPartition, ClientError], now_ms: int
    ) -> list[Effect]:
        """What `LookupOffsets` asked for in vain: again after a pause, unless it never can succeed."""
        effects: list[Effect] = []
        for topic_partition, error in errors.items():
            part = self._parts.get(topic_partition)
            if part is None or part.request_id != request_id:
                continue
            part.request_id = None
            stale_epoch: int | None = part.sent_epoch
            if error.code is not None and not error.code.is_retriable:
                part.error = error
                stale_epoch = None
            elif error.code is ErrorCode.OFFSET_NOT_AVAILABLE:
                stale_epoch = None  # it leads, and knows its high watermark soon
            self._trouble(part, now_ms, effects, stale_epoch=stale_epoch)
        return effects

    def _close(self, request_id: int) -> _Request:
        request = self._requests.pop(request_id)
        self._broker(request.broker_id).in_flight -= 1
        return request

    def _judge(
        self, part: PartitionFetch, row: FetchPartitionResponse, now_ms: int, effects: list[Effect]
    ) -> None:
        code = code_of(row.error_code)
        if code is not ErrorCode.NONE:
            if row.leader_epoch > part.sent_epoch:
                self._learn(part, LeaderAndEpoch(row.leader_id, row.leader_epoch))
            self._refused(part, code, now_ms, effects, log_start_offset=row.log_start_offset)
            return
        part.failures = 0
        part.stale_epoch = None
        part.log_start_offset = row.log_start_offset
        # A new leader's own mark may lag behind: what was seen stays seen.
        part.high_watermark = max(part.high_watermark, row.high_watermark)
        if row.diverging_epoch is not None:
            self._diverged(part, row.diverging_epoch)
            return
        try:
            for header, data in iter_batches(row.records):
                self._keep(part, header, data, row.high_watermark)
        except CorruptBatch as error:
            text = f"{_name(part)} at offset {part.fetch_offset}: {error}"
            code, place = ErrorCode.CORRUPT_MESSAGE, part.topic_partition
            part.error = CorruptRecords(text, code, place, part.fetch_offset, None)

    def _keep(self, part: PartitionFetch, header: BatchHeader, data: memoryview, high_watermark: int) -> None:
        if header.next_offset <= part.fetch_offset:
            return
        start_offset = max(part.fetch_offset, header.base_offset)
        part.fetch_offset = header.next_offset
        if header.leader_epoch > part.fetch_epoch:
            part.epochs.append((header.leader_epoch, start_offset))
            if len(part.epochs) > EPOCHS_KEPT:
                del part.epochs[0]
        if header.is_control:
            return
        topic, partition = part.topic_partition
        part.buffer.append(FetchedBatch(topic, partition, start_offset, header, data, high_watermark))
        part.buffered_bytes += len(data)
        self.buffered_bytes += len(data)

    def _diverged(self, part: PartitionFetch, leader_end: EpochEndOffset) -> None:
        # As for a follower (R81): what was read in epochs that the leader does not have is gone, however long
        # its log is.
        end_offset = min(leader_end.end_offset, part.end_of_epoch(leader_end.epoch))
        text = (
            f"{_name(part)}: the log was truncated to {end_offset}, reading had come to {part.fetch_offset}"
        )
        position = part.position if part.position is not None else part.fetch_offset
        self._cut(part, min(end_offset, position))
        part.high_watermark = min(part.high_watermark, end_offset)
        if self._config.reset is ResetPolicy.NONE and end_offset < position:
            part.error = LogTruncated(text, ErrorCode.OFFSET_OUT_OF_RANGE)

    def _learn(self, part: PartitionFetch, leader: LeaderAndEpoch) -> None:
        topic, partition = part.topic_partition
        view = self._cache.topic(topic)
        if view is not None:
            self._cache.note_leader(topic, view.topic_id, partition, leader.broker_id, leader.leader_epoch)

    def _refused(
        self,
        part: PartitionFetch,
        code: ErrorCode,
        now_ms: int,
        effects: list[Effect],
        log_start_offset: int = -1,
    ) -> None:
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            text = f"{_name(part)} has no offset {part.fetch_offset}: seek"
            if self._config.reset is ResetPolicy.NONE:
                part.error = NoSuchOffset(text, code, part.topic_partition)
            elif not part.buffer:
                self._reset_out_of_range(part, log_start_offset)
            else:
                part.hold_until_ms = now_ms + self._config.max_wait_ms  # what is there is read first
        elif not code.is_retriable:
            part.error = ClientError(f"{_name(part)}: {code.name}", code)
        elif code is ErrorCode.OFFSET_NOT_AVAILABLE:
            self._trouble(part, now_ms, effects, stale_epoch=None)
        else:
            self._trouble(part, now_ms, effects, stale_epoch=part.sent_epoch)

    def _trouble(
        self, part: PartitionFetch, now_ms: int, effects: list[Effect], *, stale_epoch: int | None
    ) -> None:
        leader = self._cache.leader(*part.topic_partition)
        part.failures += 1
        if stale_epoch is not None and leader.leader_epoch > stale_epoch and leader.broker_id >= 0:
            part.hold_until_ms = 0  # the news are here already
            return
        part.hold_until_ms = now_ms + self._config.retry.pause_ms(part.failures)
        if stale_epoch is not None:
            part.stale_epoch = stale_epoch
            effects.append(RefreshMetadata())


def _name(part: PartitionFetch) -> str:
    return f"{part.topic_partition.topic}-{part.topic_partition.partition}"
