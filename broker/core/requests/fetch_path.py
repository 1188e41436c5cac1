"""The path of a FetchRequest, of consumers and of followers, and of requests about offsets (R55, F6).

Owns the consumers' waiting requests and the followers' sessions. A follower's request proves what it holds;
`broker.core.replicas.partition` decides what follows from that. The rows of an answer are fixed here, and the
shell reads the records afterwards.
"""

from bisect import bisect_right
from collections.abc import Mapping
from itertools import islice

from holdfast.broker.core.events import (
    AnswerFetch,
    AnswerOffsets,
    Effect,
    OffsetRow,
    ReadRow,
    Respond,
    RowsOmitted,
)
from holdfast.broker.core.replicas.divergence import Refusal
from holdfast.broker.core.replicas.leadership import Proposal
from holdfast.broker.core.replicas.partition import Partition
from holdfast.broker.core.replicas.replication_quota import ReplicationQuota
from holdfast.broker.core.requests.fetch_session import (
    HIGH_WATERMARK_LINGER_MS,
    FollowerSession,
    FollowerSessions,
    SessionRow,
)
from holdfast.broker.core.requests.purgatory import DelayedFetch, FetchPurgatory, earliest_ms
from holdfast.metadata.ids import PartitionId
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.fetch import DEBUGGING_REPLICA_ID, FetchPartition, FetchRequest, FetchResponse
from holdfast.protocol.messages.list_offsets import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    MAX_TIMESTAMP,
    ListOffsetsRequest,
)
from holdfast.protocol.messages.offset_for_leader_epoch import (
    EpochPartition,
    EpochPartitionResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)

#: Longest wait that a fetch may ask for, in ms.
WAIT_MS_MAX = 60_000
#: Rows with records of one answer to a follower, each a read of its log, and the same of rows with no more
#: than a high watermark. The others follow in the next answers.
ANSWER_ROWS_MAX = 500
#: Due rows of a session that are looked at for the throttle at once. The others follow with the next answers.
THROTTLE_ROWS_MAX = 1_000
#: Batches per partition whose sizes are remembered, to know how much a reader would get.
SIZES_KEPT = 32
#: Said of a range that begins before the remembered sizes: more than any fetch wants at once.
UNKNOWN_SIZE_BYTES = 1 << 40

_EARLIEST = (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP)

_NAMED_TWICE = "name each partition once per request"
_NEW_SESSION = "start a new session with session_epoch 0 and all partitions"


class RecentSizes:
    """Sizes of the last appends to a partition."""

    __slots__ = ("_ends", "_sizes")

    def __init__(self, base_offset: int) -> None:
        #: offsets where a batch ends, ascending; the first one is where the remembered part begins
        self._ends: list[int] = [base_offset]
        #: bytes appended up to each of them
        self._sizes: list[int] = [0]

    def appended(self, end_offset: int, size_bytes: int) -> None:
        """The log has grown to `end_offset` by this many bytes."""
        self._ends.append(end_offset)
        self._sizes.append(self._sizes[-1] + size_bytes)
        if len(self._ends) > 2 * SIZES_KEPT:
            del self._ends[:SIZES_KEPT]
            del self._sizes[:SIZES_KEPT]

    def between(self, fetch_offset: int, end_offset: int) -> int:
        """Bytes of the batches that end in (fetch_offset, end_offset]; PLENTY_BYTES when not remembered."""
        if fetch_offset >= end_offset:
            return 0
        first = bisect_right(self._ends, fetch_offset)
        if first == 0:
            return UNKNOWN_SIZE_BYTES
        return self._sizes[bisect_right(self._ends, end_offset) - 1] - self._sizes[first - 1]


class _Answer:
    """The rows of an answer to a follower that is being made."""

    __slots__ = ("left", "rows", "throttled_left")

    def __init__(self, max_bytes: int, throttled_bytes_max: int) -> None:
        self.rows: list[ReadRow] = []
        #: bytes that there is room for, and those of throttled replicas
        self.left = max_bytes
        self.throttled_left = throttled_bytes_max


class FetchPath:
    """All fetches of a broker."""

    def __init__(
        self,
        partitions: Mapping[PartitionId, Partition],
        purgatory_limit: int,
        answer_max_bytes: int,
        quota: ReplicationQuota,
    ) -> None:
        self._partitions = partitions
        #: of what this broker sends to followers
        self.quota = quota
        self._answer_max_bytes = answer_max_bytes
        self._purgatory: FetchPurgatory[PartitionId] = FetchPurgatory(purgatory_limit)
        self._sessions: FollowerSessions[PartitionId] = FollowerSessions()
        self._sizes: dict[PartitionId, RecentSizes] = {}

    @property
    def waiting_count(self) -> int:
        """Consumers' requests that wait for data."""
        return self._purgatory.size

    def followers_quiet_since_ms(self) -> dict[int, int | None]:
        """{follower: when it got its last answer; None while its request waits here}."""
        return self._sessions.quiet_since_ms()

    # --- consumers ---------------------------------------------------------------------------------------

    def consumer_request(self, reply_to: object, request: FetchRequest, now_ms: int) -> list[Effect]:
        """Answer at once if there is enough data, an error, or no time to wait; otherwise let it wait."""
        keys = _keys_of(request)
        if keys is None:
            return [_refuse(reply_to, ErrorCode.INVALID_REQUEST, _NAMED_TWICE)]
        if request.replica_id == DEBUGGING_REPLICA_ID:
            rows = tuple(self._debugging_row(wanted) for wanted in request.partitions)
            return [AnswerFetch(reply_to, rows, min(max(0, request.max_bytes), self._answer_max_bytes))]
        wait_ms = min(request.max_wait_ms, WAIT_MS_MAX)
        if wait_ms > 0 and keys and not self._purgatory.is_full and not self._is_ready(request):
            self._purgatory.add(DelayedFetch(reply_to, request, keys), now_ms + wait_ms)
            return []
        return [self._answer_consumer(reply_to, request)]

    def _is_ready(self, request: FetchRequest) -> bool:
        wanted = max(1, request.min_bytes)
        available = 0
        for row in request.partitions:
            key = PartitionId(row.topic_id, row.partition_index)
            partition = self._partitions.get(key)
            if partition is None or partition.check_reader(row) is not None:
                return True
            if row.fetch_offset < partition.high_watermark:
                if wanted == 1:
                    return True
                sizes = self._sizes.get(key)
                size = (
                    UNKNOWN_SIZE_BYTES
                    if sizes is None
                    else sizes.between(row.fetch_offset, partition.high_watermark)
                )
                available += min(size, row.max_bytes)
                if available >= wanted:
                    return True
        return False

    def _answer_consumer(self, reply_to: object, request: FetchRequest) -> Effect:
        # Rows with something to say; when there are none, every row with its offsets.
        rows: list[ReadRow] = []
        quiet: list[ReadRow] = []
        for wanted in request.partitions:
            row = self._consumer_row(wanted)
            (rows if row.max_bytes or row.error_code or row.diverging else quiet).append(row)
        return AnswerFetch(
            reply_to, tuple(rows or quiet), min(max(0, request.max_bytes), self._answer_max_bytes)
        )

    def _consumer_row(self, wanted: FetchPartition) -> ReadRow:
        key = PartitionId(wanted.topic_id, wanted.partition_index)
        partition = self._partitions.get(key)
        if partition is None:
            return _error_row(key, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        refusal = partition.check_reader(wanted)
        if refusal is not None and refusal.diverging is None:
            return _error_row(key, partition, refusal.error_code)
        row = _reader_row(partition, wanted, partition.visible_high_watermark)
        return row if refusal is None else row._replace(diverging=refusal.diverging, max_bytes=0)

    def _debugging_row(self, wanted: FetchPartition) -> ReadRow:
        """What this replica has, whether it leads or not."""
        key = PartitionId(wanted.topic_id, wanted.partition_index)
        partition = self._partitions.get(key)
        if partition is None:
            return _error_row(key, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if wanted.fetch_offset < partition.log.log_start_offset:
            return _error_row(key, partition, ErrorCode.OFFSET_OUT_OF_RANGE)
        return _reader_row(partition, wanted, partition.high_watermark)._replace(verify=True)

    # --- followers ---------------------------------------------------------------------------------------

    def follower_request(
        self, reply_to: object, request: FetchRequest, now_ms: int
    ) -> tuple[list[Effect], list[Partition], list[tuple[PartitionId, Proposal]]]:
        """Take the rows of a follower's request; what they prove counts at once. Returns the answers that
        must go out first, the partitions whose follower has advanced, and ISR proposals. `settle` answers
        this request."""
        if _keys_of(request) is None:
            return [_refuse(reply_to, ErrorCode.INVALID_REQUEST, _NAMED_TWICE)], [], []
        effects: list[Effect] = []
        session = self._sessions.get(request.replica_id)
        if request.session_epoch == 0:
            if not self._sessions.may_open(request.replica_id, request.broker_epoch, request.session_id):
                return [self._no_session(reply_to, request)], [], []
            if session is not None and session.parked is not None:
                effects.append(self._answer_session(session, now_ms))
            session = self._sessions.open(
                request.replica_id, request.broker_epoch, request.session_id, now_ms
            )
        elif session is None or (request.broker_epoch, request.session_id) != session.identity:
            return [self._no_session(reply_to, request)], [], []
        elif session.next_epoch != request.session_epoch:
            return [_refuse(reply_to, ErrorCode.INVALID_FETCH_SESSION_EPOCH, _NEW_SESSION)], [], []
        else:
            session.next_epoch += 1
            if session.parked is not None:
                effects.append(self._answer_session(session, now_ms))
        for gone in request.forgotten:
            self._sessions.forget(session, PartitionId(gone.topic_id, gone.partition_index))
        session.parked = reply_to
        session.max_bytes = min(max(1, request.max_bytes), self._answer_max_bytes)
        wait_ms = max(0, min(request.max_wait_ms, WAIT_MS_MAX))
        session.due_ms = now_ms + (
            min(wait_ms, HIGH_WATERMARK_LINGER_MS) if session.watermark_rows else wait_ms
        )
        moved: list[Partition] = []
        proposals: list[tuple[PartitionId, Proposal]] = []
        for listed in request.partitions:
            self._list_row(session, listed, now_ms, moved, proposals)
        is_held = session.held_rows and self.quota.is_exceeded(now_ms)
        if session.due_rows or (session.held_rows and not is_held) or session.due_ms <= now_ms:
            self._sessions.woken[session] = None
        return effects, moved, proposals

    def _no_session(self, reply_to: object, request: FetchRequest) -> Effect:
        last_id = self._sessions.last_session_id(request.replica_id, request.broker_epoch)
        code = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        return Respond(reply_to, FetchResponse(code, _NEW_SESSION, (), last_id))

    def _list_row(
        self,
        session: FollowerSession[PartitionId],
        listed: FetchPartition,
        now_ms: int,
        moved: list[Partition],
        proposals: list[tuple[PartitionId, Proposal]],
    ) -> None:
        key = PartitionId(listed.topic_id, listed.partition_index)
        partition, former = self._partitions.get(key), session.rows.get(key)
        # What was to be read for the answer was deleted before it was read: an error took its place.
        was_deleted = (
            former is not None
            and partition is not None
            and former.fetch_offset < partition.log.log_start_offset
        )
        row = self._sessions.list_row(
            session, key, listed.fetch_offset, listed.current_leader_epoch, max(1, listed.max_bytes)
        )
        if was_deleted:
            row.sent_high_watermark = -1
        row.verify = listed.has_refused
        if partition is None:
            row.refusal = Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            row.refusal = partition.check_follower(
                session.replica_id,
                session.broker_epoch,
                listed.current_leader_epoch,
                listed.fetch_offset,
                listed.last_fetched_epoch,
            )
        if partition is None or row.refusal is not None:
            self._sessions.due(row)  # KAFKA-13141: a refused row proves no progress
            return
        partition.follower_begins(session.replica_id, listed.log_start_offset)
        proposal = partition.follower_fetched(
            session.replica_id, session.broker_epoch, listed.fetch_offset, listed.flushed_offset, now_ms
        )
        if proposal is not None:
            proposals.append((key, proposal))
        moved.append(partition)
        if 0 <= listed.log_start_offset < partition.log.log_start_offset:
            row.sent_high_watermark = -1  # the follower is to hear where the log begins
        if listed.fetch_offset < partition.log.log_end_offset:
            self._sessions.due(row)
        elif row.sent_high_watermark != partition.high_watermark:
            self._sessions.high_watermark_moved(key, partition.high_watermark, now_ms)

    def _answer_session(self, session: FollowerSession[PartitionId], now_ms: int) -> Effect:
        """Answer with everything due that has room; the rest stays due for the next request. Sizes are
        estimates: what turns out too large when it is read comes back through `left_out`."""
        newly_held = self._hold_back(session, now_ms)
        reply_to, session.parked = session.parked, None
        session.quiet_since_ms = now_ms
        assert reply_to is not None
        is_exceeded = self.quota.is_exceeded(now_ms)
        begun = _Answer(session.max_bytes, 0 if is_exceeded else self.quota.request_bytes_max)
        held = [] if is_exceeded else list(islice(session.held_rows.values(), ANSWER_ROWS_MAX))
        # Neither kind of rows keeps the other from being sent: each has half an answer if it wants so much.
        bytes_kept = min(begun.throttled_left, begun.left // 2) if held else 0
        rows_kept = min(len(held), ANSWER_ROWS_MAX // 2)
        looked_max = THROTTLE_ROWS_MAX if self.quota.is_on else None
        self._add_rows(begun, list(islice(session.due_rows.values(), looked_max)), bytes_kept, rows_kept)
        self._add_rows(begun, held)
        if not is_exceeded:
            self.quota.wait_count += sum(row.key in session.held_rows for row in newly_held)
        rows = begun.rows
        for quiet in list(islice(session.watermark_rows.values(), ANSWER_ROWS_MAX)):
            del session.watermark_rows[quiet.key]
            partition = self._partitions.get(quiet.key)
            if (
                partition is not None
                and quiet.key not in session.due_rows
                and partition.check_leader(quiet.leader_epoch) is ErrorCode.NONE
            ):
                rows.append(_leader_row(partition, quiet, 0))
                quiet.sent_high_watermark = partition.high_watermark
        return AnswerFetch(reply_to, tuple(rows), session.max_bytes, session)

    def _add_rows(
        self,
        begun: "_Answer",
        waiting: list[SessionRow[PartitionId]],
        bytes_kept: int = 0,
        rows_kept: int = 0,
    ) -> None:
        for due in waiting:
            if begun.left <= bytes_kept or len(begun.rows) >= ANSWER_ROWS_MAX - rows_kept:
                break
            waits = self.quota.is_on and self._counts(due.key) and self._may_wait(due)
            has_turn = due.is_omitted or due.key in due.session.held_rows
            if waits and not (has_turn and begun.throttled_left > 0) and self._has_records(due):
                self._sessions.hold(due)
                continue
            row = self._follower_row(due)
            if row is None:  # the log was truncated or the row answered meanwhile: nothing is due
                self._sessions.nothing_due(due)
                continue
            if row.max_bytes and self.quota.is_on and self._counts(due.key):
                row = row._replace(is_throttled=True)
                if waits:
                    row = row._replace(max_bytes=min(row.max_bytes, begun.throttled_left))
            if row.max_bytes and bytes_kept:  # a window may be less than this row wants
                row = row._replace(max_bytes=min(row.max_bytes, begun.left - bytes_kept))
            begun.rows.append(row)
            if row.max_bytes:
                sizes = self._sizes.get(due.key)
                size = (
                    UNKNOWN_SIZE_BYTES if sizes is None else sizes.between(row.fetch_offset, row.end_offset)
                )
                begun.left -= min(size, row.max_bytes)
                if row.is_throttled:
                    begun.throttled_left -= min(size, row.max_bytes)
            # The follower takes no high watermark from a diverging answer (R82), nor from an error.
            is_taken = row.diverging is None and row.error_code == ErrorCode.NONE
            due.sent_high_watermark = row.high_watermark if is_taken else -1
            self._sessions.close_row(due)

    # --- the throttle --------------------------------------------------------------------------------------

    def _counts(self, key: PartitionId) -> bool:
        """Bytes of this partition count for the throttle."""
        partition = self._partitions.get(key)
        return partition is not None and self.quota.is_throttled(partition.topic_name, key.partition_index)

    def _may_wait(self, row: SessionRow[PartitionId]) -> bool:
        """The follower is not in sync, and so holds back no write."""
        partition = self._partitions.get(row.key)
        return (
            partition is not None
            and partition.leadership is not None
            and row.session.replica_id not in partition.leadership.maximal_isr
        )

    def _has_records(self, row: SessionRow[PartitionId]) -> bool:
        """There are records to be sent, no error."""
        partition = self._partitions.get(row.key)
        return (
            partition is not None
            and row.refusal is None
            and row.fetch_offset < partition.log.log_end_offset
            and partition.check_leader(row.leader_epoch) is ErrorCode.NONE
        )

    def _hold_back(self, session: FollowerSession[PartitionId], now_ms: int) -> list[SessionRow[PartitionId]]:
        """Let the session's throttled rows with records wait for their turn. One that the last answer had no
        room for has had it, unless the rate is exceeded. Returns the rows."""
        if not session.due_rows or not self.quota.is_on:
            return []
        is_exceeded = self.quota.is_exceeded(now_ms)
        held = [
            row
            for row in islice(session.due_rows.values(), THROTTLE_ROWS_MAX)
            if (is_exceeded or not row.is_omitted)
            and self._counts(row.key)
            and self._may_wait(row)
            and self._has_records(row)
        ]
        for row in held:
            self._sessions.hold(row)
        if is_exceeded:
            self.quota.wait_count += len(held)
        return held

    def throttled_sent(self, size_bytes: int, now_ms: int) -> None:
        """An answer had so many bytes of throttled replicas."""
        self.quota.count(size_bytes, now_ms)

    def throttle_changed(self) -> None:
        """Rate or replicas are others: what waits is looked at anew."""
        self._sessions.release()

    def in_sync_changed(self, key: PartitionId) -> None:
        """A follower that is in sync now does not wait for the throttle."""
        self._sessions.release(key)

    # --- what was read -------------------------------------------------------------------------------------

    def rows_omitted(self, event: RowsOmitted) -> None:
        """These rows were not answered after all."""
        assert isinstance(event.session, FollowerSession)
        self._sessions.rows_omitted(event.session, event.keys)

    def _follower_row(self, due: SessionRow[PartitionId]) -> ReadRow | None:
        partition = self._partitions.get(due.key)
        refusal = due.refusal
        if partition is None:  # deleted since the row was listed
            refusal = Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            code = partition.check_leader(due.leader_epoch)
            if code is not ErrorCode.NONE:
                refusal = Refusal(code)
        if refusal is not None and refusal.diverging is None:
            return _error_row(due.key, partition, refusal.error_code)
        assert partition is not None
        if refusal is not None:
            return _leader_row(partition, due, 0)._replace(diverging=refusal.diverging)
        if due.fetch_offset >= partition.log.log_end_offset:
            return None
        row = _leader_row(partition, due, due.max_bytes)
        return row._replace(verify=True) if due.verify else row

    # --- what happened -----------------------------------------------------------------------------------

    def log_grew(self, key: PartitionId, base_offset: int, log_end_offset: int, size_bytes: int) -> None:
        """The leader has appended [base_offset, log_end_offset)."""
        sizes = self._sizes.get(key)
        if sizes is None:
            sizes = self._sizes[key] = RecentSizes(base_offset)
        sizes.appended(log_end_offset, size_bytes)
        self._sessions.log_grew(key, log_end_offset)

    def high_watermark_moved(self, partition: Partition, now_ms: int) -> list[Effect]:
        """Answer the consumers that wait for it; followers get it with their next answer."""
        key = partition.key
        self._sessions.high_watermark_moved(key, partition.high_watermark, now_ms)
        effects: list[Effect] = []
        for delayed in self._purgatory.waiting_for(key):
            if self._is_ready(delayed.request):
                self._purgatory.remove(delayed)
                effects.append(self._answer_consumer(delayed.reply_to, delayed.request))
        return effects

    def log_start_moved(self, key: PartitionId) -> None:
        """The leader's log begins later now: its followers are told."""
        self._sessions.log_start_moved(key)

    def role_changed(self, key: PartitionId) -> list[Effect]:
        """Answer the requests that wait for this partition."""
        self._sizes.pop(key, None)
        self._sessions.role_changed(key)
        effects: list[Effect] = []
        for delayed in self._purgatory.waiting_for(key):
            self._purgatory.remove(delayed)
            effects.append(self._answer_consumer(delayed.reply_to, delayed.request))
        return effects

    def settle(self, now_ms: int) -> list[Effect]:
        """Answer the followers' requests that have something due."""
        woken = self._sessions.woken
        if not woken:
            return []
        self._sessions.woken = {}
        effects: list[Effect] = []
        for session in woken:
            if session.parked is None:
                continue
            if self.quota.is_exceeded(now_ms):
                self._hold_back(session, now_ms)
                is_due = session.due_ms <= now_ms or session.due_rows or session.watermark_rows
                if session.held_rows and not is_due:
                    continue  # nothing is left to be told now
            effects.append(self._answer_session(session, now_ms))
        return effects

    def expire(self, now_ms: int) -> list[Effect]:
        """Answer the consumers that have waited long enough, and wake such followers' sessions."""
        self._sessions.expire(now_ms)
        if not self.quota.is_exceeded(now_ms):
            self._sessions.wake_held()
        return [
            self._answer_consumer(delayed.reply_to, delayed.request)
            for delayed in self._purgatory.expire(now_ms)
        ]

    def next_deadline_ms(self) -> int | None:
        """When to call `expire` next."""
        resume_ms = self.quota.resume_ms if self._sessions.holds_rows else None
        deadline_ms = earliest_ms(self._purgatory.next_deadline_ms(), self._sessions.next_deadline_ms())
        return earliest_ms(deadline_ms, resume_ms)

    # --- questions about offsets -------------------------------------------------------------------------

    def list_offsets(self, reply_to: object, request: ListOffsetsRequest) -> Effect:
        """The first offset, the last one, or one by the timestamp of a record. The last one is not available
        while the high watermark may be lower than one that an earlier leader has shown (F6, A-6)."""
        rows: list[OffsetRow] = []
        for asked in request.partitions:
            partition = self._partitions.get(PartitionId(asked.topic_id, asked.partition_index))
            offset = -1
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if partition is not None:
                code = partition.check_leader(asked.current_leader_epoch)
                if code is ErrorCode.NONE and asked.timestamp < LATEST_TIERED_TIMESTAMP:
                    code = ErrorCode.INVALID_REQUEST
                elif code is ErrorCode.NONE and asked.timestamp in _EARLIEST:
                    offset = partition.log.log_start_offset
                elif code is ErrorCode.NONE and asked.timestamp != LATEST_TIERED_TIMESTAMP:
                    offset = partition.visible_high_watermark
                    if offset < 0:
                        code = ErrorCode.OFFSET_NOT_AVAILABLE
            is_by_time = asked.timestamp >= 0 or asked.timestamp == MAX_TIMESTAMP
            lookup = asked.timestamp if is_by_time and code is ErrorCode.NONE else None
            rows.append(
                OffsetRow(
                    asked.topic_id,
                    asked.partition_index,
                    code,
                    lookup,
                    offset if lookup is None else -1,
                    offset,
                    -1 if partition is None else partition.leader_epoch,
                )
            )
        return AnswerOffsets(reply_to, tuple(rows))

    def offset_for_leader_epoch(self, reply_to: object, request: OffsetForLeaderEpochRequest) -> Effect:
        """Where leader epochs end in this log (R80)."""
        rows = tuple(self._epoch_row(asked) for asked in request.partitions)
        return Respond(reply_to, OffsetForLeaderEpochResponse(ErrorCode.NONE, None, rows))

    def _epoch_row(self, asked: EpochPartition) -> EpochPartitionResponse:
        partition = self._partitions.get(PartitionId(asked.topic_id, asked.partition_index))
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        found: tuple[int, int] | None = None
        if partition is not None:
            code = partition.check_leader(asked.current_leader_epoch)
            if code is ErrorCode.NONE:
                found = partition.log.end_offset_for_epoch(asked.leader_epoch)
        epoch, end_offset = found or (-1, -1)
        return EpochPartitionResponse(asked.topic_id, asked.partition_index, code, epoch, end_offset)


def _leader_row(partition: Partition, row: SessionRow[PartitionId], max_bytes: int) -> ReadRow:
    log = partition.log
    return ReadRow(
        row.key.topic_id,
        row.key.partition_index,
        0,
        partition.high_watermark,
        log.log_start_offset,
        log.log_end_offset,
        None,
        partition.leader_id,
        partition.leader_epoch,
        row.fetch_offset,
        log.log_end_offset,
        max_bytes,
    )


def _reader_row(partition: Partition, wanted: FetchPartition, shown_high_watermark: int) -> ReadRow:
    # F6, A-6: records below the known high watermark, also while it is not shown yet
    end_offset = partition.high_watermark
    return ReadRow(
        partition.key.topic_id,
        partition.key.partition_index,
        0,
        shown_high_watermark,
        partition.log.log_start_offset,
        -1,
        None,
        partition.leader_id,
        partition.leader_epoch,
        wanted.fetch_offset,
        end_offset,
        max(1, wanted.max_bytes) if wanted.fetch_offset < end_offset else 0,
    )


def _error_row(key: PartitionId, partition: Partition | None, code: ErrorCode) -> ReadRow:
    leader_id, leader_epoch = (-1, -1) if partition is None else (partition.leader_id, partition.leader_epoch)
    start_offset, end_offset = -1, -1
    if code is ErrorCode.OFFSET_OUT_OF_RANGE and partition is not None:
        start_offset, end_offset = partition.log.log_start_offset, partition.log.log_end_offset
    return ReadRow(
        key.topic_id,
        key.partition_index,
        code,
        -1,
        start_offset,
        end_offset,
        None,
        leader_id,
        leader_epoch,
        -1,
        -1,
        0,
    )


def _keys_of(request: FetchRequest) -> tuple[PartitionId, ...] | None:
    """The partitions, None when one is named twice: so a request costs, and keeps, at most one row for
    each."""
    keys = dict.fromkeys([PartitionId(p.topic_id, p.partition_index) for p in request.partitions])
    return tuple(keys) if len(keys) == len(request.partitions) else None


def _refuse(reply_to: object, code: ErrorCode, text: str) -> Effect:
    return Respond(reply_to, FetchResponse(code, text, ()))
