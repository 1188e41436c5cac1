"""The path of a DeleteRecordsRequest: a leader moves its log start, and waits for its followers.

Owns the requests that wait. A row is done when the ISR has min ISR members and each begins at the offset or
later, durably: the next leader must not show again what was told to be deleted (R118). Where logs begin is
known by `broker.core.replicas.partition`; followers hear of it with their fetches.
"""

from collections.abc import Callable, Mapping

from holdfast.broker.core.events import Effect, MoveLogStart, Respond
from holdfast.broker.core.replicas.partition import Partition
from holdfast.broker.core.requests.produce_path import TIMEOUT_MS_MAX
from holdfast.broker.core.requests.purgatory import Deadlines
from holdfast.metadata.ids import PartitionId
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.delete_records import (
    TO_HIGH_WATERMARK,
    DeleteRecordsPartition,
    DeleteRecordsPartitionResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
)
from holdfast.protocol.topic_names import OFFSETS_TOPIC

_NOT_LEADER = "this broker does not lead the partition; refresh the metadata and ask its leader"
_LATE = "the ISR is smaller than min ISR, or a member of it still has older records; ask again"


class _Waiting:
    """A request of which some rows wait. `rows`: the answers in order, None while undecided."""

    __slots__ = ("due_ms", "reply_to", "rows")

    def __init__(self, reply_to: object, row_count: int) -> None:
        self.reply_to = reply_to
        self.rows: list[DeleteRecordsPartitionResponse | None] = [None] * row_count
        self.due_ms = 0


class DeletePath:
    """All requests of a broker to delete records."""

    def __init__(self, partitions: Mapping[PartitionId, Partition], waiting_max: int) -> None:
        self._partitions = partitions
        self._waiting_max = waiting_max
        self._deadlines: Deadlines[_Waiting] = Deadlines()
        self._requests: dict[_Waiting, None] = {}
        #: {partition: {(request, its row): offset that is waited for}}
        self._rows: dict[PartitionId, dict[tuple[_Waiting, int], int]] = {}

    @property
    def waiting_count(self) -> int:
        """Requests that wait for followers."""
        return len(self._requests)

    def request(self, reply_to: object, request: DeleteRecordsRequest, now_ms: int) -> list[Effect]:
        """Let the logs begin at the offsets; the request is answered when all rows are decided."""
        effects: list[Effect] = []
        waiting = _Waiting(reply_to, len(request.partitions))
        is_full = len(self._requests) >= self._waiting_max
        asked: set[PartitionId] = set()
        for index, row in enumerate(request.partitions):
            key = PartitionId(row.topic_id, row.partition_index)
            if is_full:
                text = "too many requests to delete records wait on this broker; try again"
                waiting.rows[index] = _refused(key, ErrorCode.REQUEST_LIMIT_REACHED, text)
            elif key in asked:
                waiting.rows[index] = _refused(key, ErrorCode.INVALID_REQUEST, "name each partition once")
            else:
                asked.add(key)
                self._begin(waiting, index, key, row, effects)
        if None not in waiting.rows:
            return [_answer(waiting)]
        self._requests[waiting] = None
        timeout_ms = max(0, min(request.timeout_ms, TIMEOUT_MS_MAX))
        waiting.due_ms = self._deadlines.add(waiting, now_ms + timeout_ms)
        return effects

    def _begin(
        self,
        waiting: _Waiting,
        index: int,
        key: PartitionId,
        row: DeleteRecordsPartition,
        effects: list[Effect],
    ) -> None:
        partition = self._partitions.get(key)
        if partition is None:
            text = "this broker has no replica of the partition; refresh the metadata"
            waiting.rows[index] = _refused(key, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
            return
        offset = partition.visible_high_watermark if row.offset == TO_HIGH_WATERMARK else row.offset
        refusal = _refusal(partition, row.offset, offset)
        if refusal is not None:
            waiting.rows[index] = refusal
        elif partition.low_watermark >= offset:
            waiting.rows[index] = _done(partition)
        else:
            self._rows.setdefault(key, {})[waiting, index] = offset
            # Also where the log begins there already: followers are told, and list where theirs begin.
            effects.append(MoveLogStart(key, offset, is_stored=True))

    # --- waiting -----------------------------------------------------------------------------------------

    def low_watermark_moved(self, partition: Partition) -> list[Effect]:
        """Answer the rows for which all members of the ISR begin late enough."""
        rows = self._rows.get(partition.key)
        if rows is None:
            return []
        low_watermark = partition.low_watermark
        ready = [place for place, offset in rows.items() if offset <= low_watermark]
        return self._decide(partition.key, ready, lambda: _done(partition))

    def role_changed(self, key: PartitionId) -> list[Effect]:
        """This broker does not lead the partition any more, or does so in another epoch."""
        refusal = _refused(key, ErrorCode.NOT_LEADER_OR_FOLLOWER, _NOT_LEADER)
        return self._decide(key, list(self._rows.get(key, ())), lambda: refusal)

    def _decide(
        self,
        key: PartitionId,
        places: list[tuple[_Waiting, int]],
        row: Callable[[], DeleteRecordsPartitionResponse],
    ) -> list[Effect]:
        effects: list[Effect] = []
        for waiting, index in places:
            del self._rows[key][waiting, index]
            waiting.rows[index] = row()
            if None not in waiting.rows:
                self._deadlines.remove(waiting, waiting.due_ms)
                del self._requests[waiting]
                effects.append(_answer(waiting))
        if key in self._rows and not self._rows[key]:
            del self._rows[key]
        return effects

    def expire(self, now_ms: int) -> list[Effect]:
        """Answer the requests whose time is over. Their records stay deleted where they are."""
        late = set(self._deadlines.expire(now_ms))
        effects: list[Effect] = []
        for key in list(self._rows) if late else ():
            refusal = _refused(key, ErrorCode.REQUEST_TIMED_OUT, _LATE)
            places = [place for place in self._rows[key] if place[0] in late]
            effects += self._decide(key, places, lambda refusal=refusal: refusal)  # type: ignore[misc]
        return effects

    def next_deadline_ms(self) -> int | None:
        """When to call `expire` next."""
        return self._deadlines.next_deadline_ms()


def _refusal(partition: Partition, asked: int, offset: int) -> DeleteRecordsPartitionResponse | None:
    """Why records below `offset` are not deleted; `asked` is what the request says."""
    key = partition.key
    if partition.topic_name == OFFSETS_TOPIC:
        text = "only the coordinators of groups delete records of this topic"
        return _refused(key, ErrorCode.INVALID_TOPIC_EXCEPTION, text)
    code = partition.check_leader(-1)
    if code is not ErrorCode.NONE:
        return _refused(key, code, _NOT_LEADER)
    is_above = partition.high_watermark < offset or asked == TO_HIGH_WATERMARK
    if is_above and partition.visible_high_watermark < 0:
        return _refused(key, ErrorCode.OFFSET_NOT_AVAILABLE, "the high watermark is not known yet; try again")
    if not 0 <= offset <= partition.high_watermark:
        text = f"offset {offset} is outside 0 to {partition.high_watermark}, the high watermark"
        return _refused(key, ErrorCode.OFFSET_OUT_OF_RANGE, text)
    return None


def _done(partition: Partition) -> DeleteRecordsPartitionResponse:
    key = partition.key
    return DeleteRecordsPartitionResponse(
        key.topic_id, key.partition_index, ErrorCode.NONE, None, partition.low_watermark
    )


def _refused(key: PartitionId, code: ErrorCode, text: str) -> DeleteRecordsPartitionResponse:
    return DeleteRecordsPartitionResponse(key.topic_id, key.partition_index, code, text, -1)


def _answer(waiting: _Waiting) -> Effect:
    rows = tuple(row for row in waiting.rows if row is not None)
    return Respond(waiting.reply_to, DeleteRecordsResponse(ErrorCode.NONE, None, rows))
