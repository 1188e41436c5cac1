"""The path of a ProduceRequest: check, append, wait, answer (F5).

acks=all waits for the high watermark, acks=1 for the leader's own flush where every write is flushed. A
broker whose session with the controller is over may have been replaced: it acknowledges nothing alone. Owns
the waiting requests and the rows of their answers. Checks each crc and header once; the records are read
right before the append (`broker.log_effects`).
`broker.core.replicas.partition` owns leadership and the high watermark; the caller reports their changes
here.
"""

from collections.abc import Callable, Mapping

from holdfast.broker.core.events import (
    Append,
    Appended,
    AppendResult,
    BatchToAppend,
    Effect,
    EndWithoutAnswer,
    Respond,
)
from holdfast.broker.core.replicas.partition import Partition
from holdfast.broker.core.requests.purgatory import (
    DelayedProduce,
    ProducePurgatory,
    WaitingRow,
    earliest_ms,
)
from holdfast.metadata.ids import PartitionId
from holdfast.protocol.batch_validation import header_fault
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.produce import (
    NAMED_TWICE,
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
)
from holdfast.protocol.record_batch import BatchHeader, CorruptBatch, check_batch
from holdfast.protocol.topic_names import OFFSETS_TOPIC

#: Longest wait that a client may ask for, in ms.
TIMEOUT_MS_MAX = 600_000

_NO_ANSWER, _LEADER, _ALL = 0, 1, -1

_CUT_OFF = (
    "no controller has answered this broker for a session, so another may lead; refresh the metadata, or use "
    "acks=all"
)


class ProduceContext:
    """A request whose batches are being appended. It travels with Append and comes back with Appended."""

    __slots__ = ("acks", "deadline_ms", "index_of", "outstanding", "reply_to", "results", "rows")

    def __init__(self, reply_to: object, acks: int, deadline_ms: int, row_count: int) -> None:
        self.reply_to = reply_to
        self.acks = acks
        self.deadline_ms = deadline_ms
        #: answers in the order of the request; None while undecided
        self.rows: list[ProducePartitionResponse | None] = [None] * row_count
        self.index_of: dict[PartitionId, int] = {}
        self.results: list[AppendResult] = []
        #: batches without a result yet
        self.outstanding = 0


class ProducePath:
    """All produce requests of a broker. `max_message_bytes`: {partition: limit}, updated by its owner."""

    def __init__(
        self,
        partitions: Mapping[PartitionId, Partition],
        max_message_bytes: Mapping[PartitionId, int],
        purgatory_limit: int,
        is_session_over: Callable[[int], bool] = lambda now_ms: False,
    ) -> None:
        """`is_session_over(now_ms)`: another broker may lead by now, so writes that wait for no follower are
        refused."""
        self._partitions = partitions
        self._max_message_bytes = max_message_bytes
        self._is_session_over = is_session_over
        #: acks=all, by high watermark
        self._replicating: ProducePurgatory[PartitionId] = ProducePurgatory(purgatory_limit)
        #: acks=1, by flushed offset
        self._flushing: ProducePurgatory[PartitionId] = ProducePurgatory(purgatory_limit)

    @property
    def waiting_count(self) -> int:
        """Requests that wait for the high watermark or for a flush."""
        return self._replicating.size + self._flushing.size

    # --- request -----------------------------------------------------------------------------------------

    def request(self, reply_to: object, request: ProduceRequest, now_ms: int) -> list[Effect]:
        """Check every row and append the valid ones; the request is answered when all rows are decided."""
        acks = request.required_acks
        deadline_ms = now_ms + max(0, min(request.timeout_ms, TIMEOUT_MS_MAX))
        context = ProduceContext(reply_to, acks, deadline_ms, len(request.partitions))
        batches: list[BatchToAppend] = []
        refusal: tuple[ErrorCode, str]
        is_full = acks != _NO_ANSWER and self._purgatory_for(acks).is_full
        is_cut_off = acks != _ALL and self._is_session_over(now_ms)
        for index, row in enumerate(request.partitions):
            key = PartitionId(row.topic_id, row.partition_index)
            partition = self._partitions.get(key)
            if is_full:
                refusal = (
                    ErrorCode.REQUEST_LIMIT_REACHED,
                    "too many produce requests wait on this broker; try again",
                )
            elif acks not in (_NO_ANSWER, _LEADER, _ALL):
                refusal = (ErrorCode.INVALID_REQUIRED_ACKS, f"required_acks {acks}: use 0, 1 or -1 for all")
            elif partition is None:
                refusal = (
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    "this broker has no replica of the partition; refresh the metadata",
                )
            elif is_cut_off:
                refusal = ErrorCode.NOT_LEADER_OR_FOLLOWER, _CUT_OFF
            elif key in context.index_of:
                refusal = ErrorCode.INVALID_REQUEST, NAMED_TWICE
            else:
                context.index_of[key] = index
                checked = self._check(partition, row, acks)
                if isinstance(checked, BatchHeader):
                    batches.append(BatchToAppend(key, partition.leader_epoch, checked, row.records))
                    continue
                refusal = checked
            context.rows[index] = self._refused(key, *refusal)
        if batches:
            context.outstanding = len(batches)
            return [Append(context, tuple(batches))]
        return [_unanswered(context) if acks == _NO_ANSWER else self._answer(reply_to, context.rows)]

    def _check(
        self, partition: Partition, row: ProducePartition, acks: int
    ) -> BatchHeader | tuple[ErrorCode, str]:
        if partition.topic_name == OFFSETS_TOPIC:
            return ErrorCode.INVALID_TOPIC_EXCEPTION, "only the coordinators of groups write to this topic"
        code = partition.check_produce(acks)
        if code is not ErrorCode.NONE:
            return code, _advice(partition, code)
        limit = self._max_message_bytes[partition.key]
        size_bytes = len(row.records)
        if size_bytes > limit:
            return (
                ErrorCode.MESSAGE_TOO_LARGE,
                f"a batch of {size_bytes} bytes exceeds max.message.bytes {limit}; send smaller ones",
            )
        try:
            header = check_batch(row.records)
        except CorruptBatch as error:
            return ErrorCode.CORRUPT_MESSAGE, str(error)
        return header_fault(header, size_bytes) or header

    # --- appended ----------------------------------------------------------------------------------------

    def appended(self, event: Appended, now_ms: int) -> list[Effect]:
        """Take results of an Append; with the last one the request is answered or begins to wait."""
        context = event.context
        assert isinstance(context, ProduceContext)
        context.results.extend(event.results)
        context.outstanding -= len(event.results)
        assert context.outstanding >= 0
        if context.outstanding:
            return []
        if context.acks == _NO_ANSWER:
            return [_unanswered(context)]
        delayed: DelayedProduce[PartitionId] | None = None
        is_cut_off = context.acks != _ALL and self._is_session_over(now_ms)
        for result in context.results:
            index = context.index_of[result.key]
            partition = self._partitions.get(result.key)
            if result.error_code is not ErrorCode.NONE or partition is None:
                code = result.error_code
                if code is ErrorCode.NONE:
                    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                context.rows[index] = self._refused(
                    result.key, code, result.error_message or "the topic was deleted"
                )
                continue
            code = partition.check_waiting(result.leader_epoch, context.acks)
            if code is not ErrorCode.NONE:
                context.rows[index] = self._refused(result.key, code, _advice(partition, code))
            elif is_cut_off:
                context.rows[index] = self._refused(result.key, ErrorCode.NOT_LEADER_OR_FOLLOWER, _CUT_OFF)
            elif _reached(partition, context.acks) >= result.end_offset:
                context.rows[index] = self._done(partition, result.base_offset, result.batch_epoch)
            else:
                if delayed is None:
                    delayed = DelayedProduce(context.reply_to, context.rows)
                delayed.wait_for(
                    WaitingRow(
                        delayed,
                        index,
                        result.key,
                        result.base_offset,
                        result.end_offset,
                        result.leader_epoch,
                        result.batch_epoch,
                    )
                )
        if delayed is None:
            return [self._answer(context.reply_to, context.rows)]
        self._purgatory_for(context.acks).add(delayed, context.deadline_ms)
        return []

    def _purgatory_for(self, acks: int) -> ProducePurgatory[PartitionId]:
        return self._replicating if acks == _ALL else self._flushing

    # --- waiting -----------------------------------------------------------------------------------------

    def high_watermark_moved(self, partition: Partition) -> list[Effect]:
        """Answer the rows that the high watermark has passed. It advances only while the ISR has min ISR
        members (I-16)."""
        return self._release(partition, _ALL)

    def flushed(self, partition: Partition, now_ms: int) -> list[Effect]:
        """Answer the rows that are durable on the leader."""
        return self._release(partition, _LEADER, is_cut_off=self._is_session_over(now_ms))

    def _release(self, partition: Partition, acks: int, *, is_cut_off: bool = False) -> list[Effect]:
        effects: list[Effect] = []
        purgatory = self._purgatory_for(acks)
        for row in purgatory.release(partition.key, _reached(partition, acks)):
            code = partition.check_waiting(row.leader_epoch, acks)
            if code is not ErrorCode.NONE:
                row.delayed.rows[row.index] = self._refused(row.key, code, _advice(partition, code))
            elif is_cut_off:
                row.delayed.rows[row.index] = self._refused(
                    row.key, ErrorCode.NOT_LEADER_OR_FOLLOWER, _CUT_OFF
                )
            else:
                row.delayed.rows[row.index] = self._done(partition, row.base_offset, row.batch_epoch)
            self._decided(purgatory, row, effects)
        return effects

    def state_changed(self, key: PartitionId) -> list[Effect]:
        """After a new registration: fail the rows that cannot be acknowledged any more (A-18,
        KAFKA-15021)."""
        partition = self._partitions.get(key)
        if partition is None or partition.leadership is None:
            return self._give_up(key, _LEADER) + self._give_up(key, _ALL)
        # a replica may lead twice in a row without following between: one commit can carry both epochs
        effects = self._give_up(key, _LEADER, only_former=True)
        return effects + self._give_up(key, _ALL, only_former=not partition.is_under_min_isr)

    def _give_up(self, key: PartitionId, acks: int, *, only_former: bool = False) -> list[Effect]:
        """Fail the waiting rows of a partition; with `only_former` those appended in another leader epoch."""
        effects: list[Effect] = []
        partition = self._partitions.get(key)
        purgatory = self._purgatory_for(acks)
        rows = (
            purgatory.release_former(key, partition.leader_epoch)
            if only_former and partition is not None
            else purgatory.release_all(key)
        )
        for row in rows:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            if partition is not None and partition.leadership is not None:
                code = partition.check_waiting(row.leader_epoch, acks)
            row.delayed.rows[row.index] = self._refused(key, code, _advice(partition, code))
            self._decided(purgatory, row, effects)
        return effects

    def expire(self, now_ms: int) -> list[Effect]:
        """Fail the requests whose time is over. Their batches are in the log and may still commit."""
        effects: list[Effect] = []
        for purgatory in (self._replicating, self._flushing):
            for row in purgatory.expire(now_ms):
                row.delayed.rows[row.index] = self._refused(
                    row.key,
                    ErrorCode.REQUEST_TIMED_OUT,
                    "not replicated or flushed in time; the batch is in the log and may still be committed",
                )
                self._decided(purgatory, row, effects)
        return effects

    def next_deadline_ms(self) -> int | None:
        """When to call `expire` next."""
        return earliest_ms(self._replicating.next_deadline_ms(), self._flushing.next_deadline_ms())

    # --- answers -----------------------------------------------------------------------------------------

    def _decided(
        self,
        purgatory: ProducePurgatory[PartitionId],
        row: WaitingRow[PartitionId],
        effects: list[Effect],
    ) -> None:
        if row.decide():
            purgatory.finish(row.delayed)
            effects.append(self._answer(row.delayed.reply_to, row.delayed.rows))

    def _answer(self, reply_to: object, rows: list[ProducePartitionResponse | None]) -> Effect:
        assert None not in rows
        return Respond(reply_to, ProduceResponse(tuple(rows)))  # type: ignore[arg-type]  # checked above

    def _done(self, partition: Partition, base_offset: int, leader_epoch: int) -> ProducePartitionResponse:
        return ProducePartitionResponse(
            partition.key.topic_id,
            partition.key.partition_index,
            0,
            None,
            base_offset,
            partition.log.log_start_offset,
            partition.broker_id,
            leader_epoch,
        )

    def _refused(self, key: PartitionId, code: ErrorCode, text: str) -> ProducePartitionResponse:
        partition = self._partitions.get(key)
        leader_id, leader_epoch = (
            (-1, -1) if partition is None else (partition.leader_id, partition.leader_epoch)
        )
        return ProducePartitionResponse(
            key.topic_id, key.partition_index, code, text, -1, -1, leader_id, leader_epoch
        )


def _unanswered(context: ProduceContext) -> EndWithoutAnswer:
    """The end of a request without an answer (acks=0). What was refused, at once or behind the wait for its
    log, ends the connection."""
    for row in (*context.rows, *context.results):
        if row is not None and row.error_code != ErrorCode.NONE:
            code = ErrorCode(row.error_code).name
            return EndWithoutAnswer(
                context.reply_to, f"a write with acks 0 was refused with {code}: {row.error_message}"
            )
    return EndWithoutAnswer(context.reply_to)


def _reached(partition: Partition, acks: int) -> int:
    """Offset below which writes with these acks may be acknowledged."""
    if acks == _ALL:
        return partition.high_watermark
    return partition.position


def _advice(partition: Partition | None, code: ErrorCode) -> str:
    registration = None if partition is None else partition.registration
    if code is ErrorCode.NOT_LEADER_OR_FOLLOWER or registration is None:
        return "this broker does not lead the partition; refresh the metadata and send to its leader"
    state = f"ISR {registration.isr} is smaller than min ISR {registration.min_isr}"
    if code is ErrorCode.NOT_ENOUGH_REPLICAS:
        return f"{state}; nothing was appended, try again when brokers are back"
    return f"{state}; the batch is in the leader's log and may still be committed"
