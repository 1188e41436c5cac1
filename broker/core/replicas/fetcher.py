"""The follower's side of replication: one fetch session per source broker for all partitions (R80-R84).

Owns the state of each followed partition's row; `follower_throttle` decides which of them wait for the rate.
Never touches a log: appends, truncations and flushes are effects. A partition is listed again only after its
answer was acted upon. An answer belongs to the request with its session and number, and after any failure the
connection is closed and a new session begins (N-4).

    READY -> OPEN (listed) -> BUSY (append, truncate, reset or flush under way) -> READY
                           -> PAUSED (after an error, for a growing time) -> READY
    READY -> HELD (throttled, not in sync, and the rate is exceeded) -> READY
"""

from itertools import islice

from holdfast.broker.core.events import (
    AppendFetched,
    CloseSource,
    Effect,
    FetchAnswered,
    FetchedRecords,
    FetchFailed,
    Flush,
    MoveLogStart,
    Reset,
    SendFetch,
    Truncate,
)
from holdfast.broker.core.replicas.ceiling import Urgency
from holdfast.broker.core.replicas.followed_row import FollowedRow, RowState, Source
from holdfast.broker.core.replicas.follower_throttle import FollowerThrottle
from holdfast.broker.core.replicas.partition import Partition
from holdfast.broker.core.replicas.replication_quota import ReplicationQuota
from holdfast.metadata.ids import PartitionId
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.fetch import (
    EpochEndOffset,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    ForgottenPartition,
)
from holdfast.protocol.topic_names import OFFSETS_TOPIC
from holdfast.runtime.stats import Level, LogLine

#: Unanswered requests per session: one that waits at the leader and one that lists more rows.
IN_FLIGHT_MAX = 2
#: Rows of one request of each kind, which the leader handles at once; the others follow in the next one.
ROWS_MAX = 500
#: First pause after an error, in ms; doubles up to the configured back-off. The first retry of a connection
#: has no pause (D9).
PAUSE_MS_MIN = 20


class Fetchers:
    """All sources of this broker."""

    def __init__(
        self,
        broker_id: int,
        *,
        wait_ms: int,
        max_bytes: int,
        response_max_bytes: int,
        backoff_ms: int,
        timeout_ms: int,
        quota: ReplicationQuota,
        silence_ms: int = 3000,
    ) -> None:
        """`silence_ms`: a connection with a fetch under way and not a byte for so long, beyond the wait that
        the fetch asks for, is given up; a source that did not answer for twice as long is unreachable."""
        self._broker_id = broker_id
        self._wait_ms = wait_ms
        self._max_bytes = max_bytes
        self._response_max_bytes = response_max_bytes
        self._backoff_ms = max(backoff_ms, PAUSE_MS_MIN)
        self._timeout_ms = timeout_ms
        self._silence_ms = silence_ms
        self.throttle = FollowerThrottle(quota)
        #: sources that do not answer, also over a new connection
        self.unreachable: set[int] = set()
        self._sources: dict[int, Source] = {}
        self._source_of: dict[PartitionId, Source] = {}
        #: effects under way on a followed log: its row waits for all of them
        self._pending: dict[PartitionId, int] = {}
        #: partitions whose row waits for a flush; counted in `_pending` too
        self._flushing: dict[PartitionId, None] = {}
        #: partitions whose row waits for a ceiling; counted in `_pending` too
        self._promising: dict[PartitionId, None] = {}
        #: partitions that need a higher ceiling since the caller last took this
        self.low_ceilings: dict[PartitionId, Urgency] = {}
        self._paused: dict[PartitionId, FollowedRow] = {}
        #: {leader: its last session}: the leader drops a delayed request of an earlier one
        self._last_session_ids: dict[int, int] = {}
        #: sources that may have something to send
        self._touched: dict[int, Source] = {}
        #: broker epoch of the registration; no fetches without one
        self.broker_epoch = -1
        #: {(topic, partition_index): [records truncated above the local high watermark, below it]}
        self.truncated: dict[tuple[str, int], list[int]] = {}

    # --- which partitions -----------------------------------------------------------------------------------

    def follow(self, partition: Partition, source_id: int, host: str, port: int) -> None:
        """Fetch this partition from that broker from now on, in the partition's leader epoch."""
        key = partition.key
        self.unfollow(key)
        source = self._sources.get(source_id)
        if source is None:
            source = self._sources[source_id] = Source(source_id, host, port)
        source.host, source.port = host, port
        row = FollowedRow(partition, RowState.BUSY if self._pending.get(key) else RowState.READY)
        source.rows[key] = row
        self._source_of[key] = source
        if row.state is RowState.READY:
            self._make_ready(source, row)

    def unfollow(self, key: PartitionId) -> None:
        """Stop fetching this partition; an answer under way is ignored."""
        source = self._source_of.pop(key, None)
        if source is None:
            return
        if source.rows.pop(key).state is RowState.OPEN:
            source.open_count -= 1
        self.ceiling_stored(key)  # checked again before the row is listed at another leader
        source.ready.pop(key, None)
        self._paused.pop(key, None)
        self.throttle.release(key)
        source.forgotten[key] = None
        self._touched[source.source_id] = source

    def move_source(self, source_id: int, host: str, port: int) -> None:
        """The source has a new address."""
        source = self._sources.get(source_id)
        if source is not None:
            source.host, source.port = host, port

    def restart(self, broker_epoch: int) -> list[Effect]:
        """The broker epoch is new or gone (-1): all sessions begin anew."""
        self.broker_epoch = broker_epoch
        effects: list[Effect] = []
        for source_id in sorted(self._sources):
            effects += self._close_session(self._sources[source_id])
        return effects

    @property
    def partition_count(self) -> int:
        """Number of followed partitions."""
        return len(self._source_of)

    # --- answers --------------------------------------------------------------------------------------------

    def answered(self, event: FetchAnswered, now_ms: int) -> list[Effect]:
        """Act upon a response if it belongs to an unanswered request of the current session (N-4, A-15)."""
        source = self._sources.get(event.source_id)
        if (
            source is None
            or event.session_id != source.session_id
            or event.session_epoch not in source.in_flight
        ):
            return []
        source.in_flight.remove(event.session_epoch)
        source.silent_since_ms = now_ms if source.in_flight else None
        self.unreachable.discard(source.source_id)
        self._touched[source.source_id] = source
        response = event.response
        if response.error_code != ErrorCode.NONE:
            if response.last_session_id >= 0:
                self._last_session_ids[source.source_id] = response.last_session_id
            return self._fail(source, now_ms)
        source.failures = 0
        effects: list[Effect] = []
        fetched: list[FetchedRecords] = []
        for answer in response.partitions:
            key = PartitionId(answer.topic_id, answer.partition_index)
            row = source.rows.get(key)
            if row is None or row.state is not RowState.OPEN or row.listed_in > event.session_epoch:
                continue
            self._row_answered(row, answer, fetched, effects, now_ms)
            if row.state is not RowState.OPEN:
                source.open_count -= 1
        if fetched:
            effects.append(AppendFetched(tuple(fetched)))
        return effects

    def _row_answered(
        self,
        row: FollowedRow,
        answer: FetchPartitionResponse,
        fetched: list[FetchedRecords],
        effects: list[Effect],
        now_ms: int,
    ) -> None:
        partition = row.partition
        key = partition.key
        assert partition.leader_epoch == row.leader_epoch, "a new leader epoch makes a new row"
        code = answer.error_code
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            # R83, D8: no record here is known to match the leader's log, so start where that starts.
            self._begin(row)
            story = f"is outside the log of leader {partition.leader_id}"
            effects.extend(self._began_anew(partition, story, answer.log_start_offset))
        elif code != ErrorCode.NONE:
            self._pause(row, now_ms)
        elif answer.diverging_epoch is not None:
            # R82: before anything else is taken from this answer.
            self._begin(row)
            effects.extend(self._parted(partition, answer.diverging_epoch, answer.log_start_offset))
        elif len(answer.records):
            row.failures = 0
            self.throttle.fetched(row, len(answer.records), now_ms)
            row.leader_high_watermark, row.leader_end = answer.high_watermark, answer.log_end_offset
            row.leader_start = answer.log_start_offset
            self._begin(row)
            fetched.append(FetchedRecords(key, answer.records, row.leader_epoch))
        else:
            row.failures = 0
            partition.leader_answered(answer.high_watermark, answer.log_end_offset)
            row.is_behind = partition.log.log_end_offset < answer.high_watermark
            effects.extend(_moved_start(row, answer.high_watermark, answer.log_start_offset))
            if row.listed_start_offset < min(answer.log_start_offset, partition.log.durable_start_offset):
                self._make_ready(self._source_of[key], row)  # the leader waits for that

    def _parted(self, partition: Partition, known: EpochEndOffset, leader_start: int) -> tuple[Effect, ...]:
        """The local log diverges from the leader's; up to its last epoch the leader knows none above
        `known`."""
        story = f"diverges from leader {partition.leader_id} in epoch {known.epoch}"
        end_offset = partition.truncation_offset(known.epoch, known.end_offset)
        if end_offset is None or _may_cut_snapshot(partition, leader_start):
            return self._began_anew(partition, story, leader_start)
        self._count_truncated(partition, max(end_offset, partition.log.log_start_offset))
        level = Level.WARNING if end_offset < partition.high_watermark else Level.INFO  # R84
        text = f"{_name(partition)}: {_span(partition)} {story}, truncated to {end_offset}"
        return LogLine(level, text), Truncate(partition.key, end_offset)

    def _began_anew(self, partition: Partition, story: str, leader_start: int) -> tuple[Effect, ...]:
        self._count_truncated(partition, partition.log.log_start_offset)
        text = (
            f"{_name(partition)}: {_span(partition)} {story}, dropped; going on at its start {leader_start}"
        )
        return LogLine(Level.WARNING, text), Reset(partition.key, leader_start)

    def appended(
        self, key: PartitionId, error_message: str | None, must_flush: bool, now_ms: int
    ) -> list[Effect]:
        """Fetched records were appended, or refused by the log."""
        effects: list[Effect] = [Flush(key)] if must_flush else []
        row = self._row(key)
        if row is not None and error_message is not None:
            effects.append(
                LogLine(Level.WARNING, f"{_name(row.partition)}: refused fetched records: {error_message}")
            )
            row.has_refused = True
            self._pause(row, now_ms)
        elif row is not None and row.leader_end >= 0:
            row.has_refused = False
            row.partition.leader_answered(row.leader_high_watermark, row.leader_end)
            effects.extend(_moved_start(row, row.leader_high_watermark, row.leader_start))
            row.is_behind = row.partition.log.log_end_offset < row.leader_high_watermark
            row.leader_end = -1
        self._end(key)
        return effects

    def flushed(self, key: PartitionId) -> None:
        """A flush of this log is done. After a flush that began before the last append (A-21) the row is not
        durable to its end, and waits for the next flush."""
        if key in self._flushing:
            del self._flushing[key]
            self._end(key)

    def ceiling_stored(self, key: PartitionId) -> None:
        """A higher ceiling is stored: more of the log may be shown."""
        if key in self._promising:
            del self._promising[key]
            self._end(key)

    def show_durable(self, key: PartitionId) -> None:
        """From now on only durable records count (D6), and a flush of the log is under way. If the leader was
        shown a log that was not durable to its end, list the row again after the flush."""
        row = self._row(key)
        if row is None or row.state is not RowState.OPEN:
            return
        if row.listed_flushed_offset < row.partition.log.log_end_offset:
            self._source_of[key].open_count -= 1
            self._begin(row)
            self._flushing[key] = None

    def start_stored(self, key: PartitionId) -> None:
        """The log begins later now, durably: the leader may wait for that."""
        row = self._row(key)
        if row is None or row.state is not RowState.OPEN:
            return
        if row.listed_start_offset < row.partition.log.durable_start_offset:
            source = self._source_of[key]
            source.open_count -= 1
            self._make_ready(source, row)

    def cut(self, key: PartitionId) -> None:
        """A truncation or a reset of this log is done."""
        self._end(key)

    def failed(self, event: FetchFailed, now_ms: int) -> list[Effect]:
        """No answer will come: close the connection before the next request (N-4)."""
        source = self._sources.get(event.source_id)
        if source is None or event.session_id != source.session_id:
            return []
        effects = self._fail(source, now_ms)
        if source.failures == 1:
            effects.append(
                LogLine(
                    Level.INFO,
                    f"fetch from broker {source.source_id} failed ({event.failure.value}): {event.text}",
                )
            )
        return effects

    # --- requests -------------------------------------------------------------------------------------------

    def requests(self, now_ms: int) -> list[Effect]:
        """The fetches that are due now. Skips sources that nothing has happened to."""
        if self._paused:
            self._resume(now_ms)
        if self.throttle.is_over(now_ms):
            self.throttle_changed()
        if not self._touched:
            return []
        effects: list[Effect] = []
        touched, self._touched = self._touched, {}
        for source in touched.values():
            if not source.rows:
                effects += self._close_session(source)
                self._touched.pop(source.source_id, None)
                self._sources.pop(source.source_id, None)
                self.unreachable.discard(source.source_id)
            elif self.broker_epoch < 0:
                continue  # `restart` marks all as touched
            elif now_ms < source.resume_ms:
                self._touched[source.source_id] = source  # checked again after the pause
            # with that many requests in flight, the next answer touches the source again
            elif len(source.in_flight) < IN_FLIGHT_MAX:
                self.throttle.hold_back(source.ready, now_ms)
                effects += self._flush_first(source)
                self._promise_first(source)
                request = self._next_request(source)
                if request is not None:
                    if source.silent_since_ms is None:
                        source.silent_since_ms = now_ms
                    effects.append(
                        SendFetch(
                            source.source_id,
                            source.host,
                            source.port,
                            request,
                            self._wait_ms + self._timeout_ms,
                            self._wait_ms + self._silence_ms,
                        )
                    )
        return effects

    # --- the throttle ---------------------------------------------------------------------------------------

    def throttle_changed(self) -> None:
        """Rate or replicas are others, or the rate is exceeded no more: what waits is looked at anew."""
        for row in self.throttle.release_all():
            self._make_ready(self._source_of[row.partition.key], row)

    def registration_changed(self, key: PartitionId) -> None:
        """The replica may be in sync now; then it waits no longer."""
        row = self.throttle.release(key)
        if row is not None:
            self._make_ready(self._source_of[key], row)

    # --- what is listed -------------------------------------------------------------------------------------

    def _flush_first(self, source: Source) -> list[Effect]:
        """With every write flushed (D6), a row that is not durable to its end waits for a flush before it is
        listed, after an append as well as after this broker led. Otherwise it would hold back the leader
        until new records come: a flush alone does not list a row."""
        effects: list[Effect] = []
        for key, row in list(source.ready.items()):
            partition = row.partition
            if partition.counts_flushed and partition.log.flushed_offset < partition.log.log_end_offset:
                del source.ready[key]
                self._begin(row)
                self._flushing[key] = None
                effects.append(Flush(key))
        return effects

    def _promise_first(self, source: Source) -> None:
        """A row whose log ends above its ceiling waits until a higher ceiling is stored (R68)."""
        for key, row in list(source.ready.items()):
            urgency = row.partition.ceiling_urgency()
            if urgency is not Urgency.NOT_NOW:
                self.low_ceilings[key] = urgency
            if row.partition.is_above_ceiling:
                del source.ready[key]
                self._begin(row)
                self._promising[key] = None

    def _next_request(self, source: Source) -> FetchRequest | None:
        if not source.ready and not source.forgotten and (source.in_flight or not source.open_count):
            return None
        if source.session_id == 0:
            if not source.ready:
                return None
            source.session_id = self._last_session_ids.get(source.source_id, 0) + 1
            self._last_session_ids[source.source_id] = source.session_id
            source.session_epoch = 0
            source.forgotten.clear()
        epoch = source.session_epoch
        rows = self._list_rows(source)
        gone = list(islice(source.forgotten, ROWS_MAX))
        for key in gone:
            del source.forgotten[key]
        if source.ready or source.forgotten:
            self._touched[source.source_id] = source
        forgotten = tuple(ForgottenPartition(key.topic_id, key.partition_index) for key in gone)
        source.in_flight.append(epoch)
        source.session_epoch = epoch + 1
        return FetchRequest(
            cluster_id=None,
            replica_id=self._broker_id,
            broker_epoch=self.broker_epoch,
            max_wait_ms=self._wait_ms,
            min_bytes=1,
            max_bytes=self._response_max_bytes,
            partitions=tuple(rows),
            session_id=source.session_id,
            session_epoch=epoch,
            forgotten=forgotten,
        )

    def _list_rows(self, source: Source) -> list[FetchPartition]:
        rows: list[FetchPartition] = []
        window = self.throttle.window()
        items = source.ready.items()
        for key, row in list(islice(items, ROWS_MAX if window is None else None)):
            if len(rows) == ROWS_MAX:
                break
            max_bytes = self._max_bytes
            if window is not None and self.throttle.may_wait(row):
                if window.is_used_up:
                    continue  # others share this request
                max_bytes = window.take(max_bytes)
            del source.ready[key]
            log = row.partition.log
            row.state = RowState.OPEN
            source.open_count += 1
            row.listed_in = source.session_epoch
            row.listed_flushed_offset = log.flushed_offset
            row.listed_start_offset = log.durable_start_offset
            source.forgotten.pop(key, None)
            rows.append(
                FetchPartition(
                    topic_id=key.topic_id,
                    partition_index=key.partition_index,
                    current_leader_epoch=row.leader_epoch,
                    fetch_offset=log.log_end_offset,
                    last_fetched_epoch=log.last_epoch,
                    flushed_offset=log.flushed_offset,
                    max_bytes=max_bytes,
                    has_refused=row.has_refused,
                    log_start_offset=log.durable_start_offset,
                )
            )
        return rows

    def next_deadline_ms(self) -> int | None:
        """When the next pause, or the wait for the throttle, ends."""
        ends = [row.resume_ms for row in self._paused.values()]
        throttled_until_ms = self.throttle.next_deadline_ms()
        if throttled_until_ms is not None:
            ends.append(throttled_until_ms)
        ends += [source.resume_ms for source in self._touched.values()]
        return min(ends) if ends else None

    # --- inside ---------------------------------------------------------------------------------------------

    def _row(self, key: PartitionId) -> FollowedRow | None:
        source = self._source_of.get(key)
        return None if source is None else source.rows[key]

    def _make_ready(self, source: Source, row: FollowedRow) -> None:
        row.state = RowState.READY
        source.ready[row.partition.key] = row
        self._touched[source.source_id] = source

    def _begin(self, row: FollowedRow) -> None:
        key = row.partition.key
        row.state = RowState.BUSY
        self._pending[key] = self._pending.get(key, 0) + 1

    def _end(self, key: PartitionId) -> None:
        left = self._pending.get(key, 0) - 1
        assert left >= 0, "an effect on a followed log ended that was not begun"
        if left:
            self._pending[key] = left
            return
        del self._pending[key]
        source = self._source_of.get(key)
        if source is not None and source.rows[key].state is RowState.BUSY:
            self._make_ready(source, source.rows[key])

    def _pause(self, row: FollowedRow, now_ms: int) -> None:
        row.resume_ms = now_ms + min(PAUSE_MS_MIN << min(row.failures, 10), self._backoff_ms)
        row.failures += 1
        row.state = RowState.PAUSED
        self._paused[row.partition.key] = row

    def _resume(self, now_ms: int) -> None:
        for key in [key for key, row in self._paused.items() if row.resume_ms <= now_ms]:
            row = self._paused.pop(key)
            if self._pending.get(key):
                row.state = RowState.BUSY
            else:
                self._make_ready(self._source_of[key], row)

    def _fail(self, source: Source, now_ms: int) -> list[Effect]:
        pause_ms = (
            0 if source.failures == 0 else min(PAUSE_MS_MIN << min(source.failures - 1, 10), self._backoff_ms)
        )
        source.failures += 1
        source.resume_ms = now_ms + pause_ms
        since_ms = source.silent_since_ms
        if source.failures > 1 and since_ms is not None and now_ms - since_ms >= 2 * self._silence_ms:
            self.unreachable.add(source.source_id)
        return self._close_session(source)

    def _close_session(self, source: Source) -> list[Effect]:
        self._touched[source.source_id] = source
        if source.session_id == 0:
            return []
        source.session_id = 0
        source.in_flight.clear()
        source.open_count = 0
        for row in source.rows.values():
            if row.state is RowState.OPEN:
                self._make_ready(source, row)
        return [CloseSource(source.source_id)]

    def _count_truncated(self, partition: Partition, end_offset: int) -> None:
        above = max(end_offset, partition.high_watermark)
        name = (partition.topic_name, partition.key.partition_index)
        counted = self.truncated.setdefault(name, [0, 0])
        counted[0] += max(0, partition.log.log_end_offset - above)
        counted[1] += max(0, partition.high_watermark - end_offset)


def _name(partition: Partition) -> str:
    return f"{partition.topic_name}-{partition.key.partition_index}"


def _span(partition: Partition) -> str:
    log = partition.log
    return f"the local log [{log.log_start_offset}, {log.log_end_offset}) last epoch {log.last_epoch}"


def _may_cut_snapshot(partition: Partition, leader_start: int) -> bool:
    """A log of offsets that begins later than the leader's begins at a snapshot, of which a cut could leave
    half, or nothing: what it repeats is still below. Not so for a member of the ISR or the ELR: the snapshot
    was committed, and no cut goes below that."""
    return (
        partition.topic_name == OFFSETS_TOPIC
        and leader_start < partition.log.log_start_offset
        and not partition.is_isr_or_elr_member(partition.broker_id)
    )


def _moved_start(row: FollowedRow, leader_high_watermark: int, leader_start: int) -> tuple[Effect, ...]:
    """Followers let their logs begin no earlier than the leader's, as far as is committed: what was deleted
    must not come back with the next leader. Coordinators of groups move the start of theirs to a snapshot:
    followers go along once they have all that is committed, and so the whole snapshot."""
    partition = row.partition
    if not max(partition.log.log_start_offset, row.start_asked) < leader_start <= partition.high_watermark:
        return ()
    if partition.topic_name != OFFSETS_TOPIC:
        row.start_asked = leader_start
        return (MoveLogStart(partition.key, leader_start, is_stored=True),)
    if leader_high_watermark == partition.high_watermark:
        return (MoveLogStart(partition.key, leader_start),)
    return ()
