"""The broker's shell: requests and results become events, the core's effects are carried out in order.

Owns the pump and the exchanges in flight; decides nothing. When no event is left, QueueEmpty lets the core
send what has piled up. After any exception the node sends nothing more and ends (A-20).
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any

from holdfast.broker.core.broker import Broker
from holdfast.broker.core.events import (
    AnswerFetch,
    AnswerOffsets,
    Append,
    AppendFetched,
    CallController,
    CloseSource,
    ConfigureLog,
    ControllerChanged,
    CreateOffsetsTopic,
    DeleteLog,
    Effect,
    EndWithoutAnswer,
    Event,
    Flush,
    ForgetTopic,
    GroupClient,
    GroupLogRead,
    GroupRequestReceived,
    LaterSnapshot,
    MetadataCommitted,
    MoveLogStart,
    OffsetRow,
    OffsetsTopicCreated,
    OpenLog,
    QueueEmpty,
    ReadGroupLog,
    RequestReceived,
    Reset,
    Respond,
    RespondInSteps,
    RowsOmitted,
    SendFetch,
    SnapshotLoaded,
    StartEpoch,
    Stop,
    StoreBrokerEpoch,
    StoreCeilings,
    ThrottledSent,
    Tick,
    Truncate,
)
from holdfast.broker.core.groups.coordinator import creation_problem
from holdfast.broker.core.requests.client_quotas import ByteRateQuota
from holdfast.broker.core.requests.fetch_fill import FetchFill
from holdfast.broker.core.requests.forwarding import Ask, ForwardedRequest, GiveUp, Pause
from holdfast.broker.core.requests.log_info import UsableLog
from holdfast.broker.core.requests.produce_path import ProduceContext
from holdfast.broker.described_log_dirs import log_dirs_steps
from holdfast.broker.fetch_reading import FetchReading
from holdfast.broker.log_effects import LogEffects
from holdfast.broker.log_manager import LogManager
from holdfast.broker.managed_log import ManagedLog
from holdfast.broker.peers import Peers
from holdfast.broker.time_lookup import find_newest, find_record
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.questions import QUESTION_APIS, answer_steps
from holdfast.metadata.shown_changes import shows_changes
from holdfast.metadata.snapshot import MetadataState, SnapshotReader, snapshot_values
from holdfast.protocol.api_keys import ApiKey
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.fetch import (
    METADATA_TOPIC_ID,
    FetchRequest,
    FetchResponse,
)
from holdfast.protocol.messages.list_offsets import (
    MAX_TIMESTAMP,
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
)
from holdfast.protocol.messages.produce import ProduceRequest
from holdfast.protocol.messages.topics import CreateTopicsRequest, CreateTopicsResponse
from holdfast.raft.snapshot_files import SnapshotSource
from holdfast.rpc.channel import CallRefused, was_surely_not_done
from holdfast.rpc.long_answers import LongAnswers
from holdfast.rpc.server import Exchange
from holdfast.runtime.api import DiskError, NetworkError, Runtime
from holdfast.runtime.pump import Pump
from holdfast.runtime.stats import Level, LogLine
from holdfast.storage.log import OffsetOutOfRange

#: What only the active controller, or the quorum's leader, can answer.
FORWARDED_APIS = (
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.ELECT_LEADERS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.UPDATE_FEATURES,
    ApiKey.UNREGISTER_BROKER,
    ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER,
    ApiKey.UPGRADE_QUORUM,
    ApiKey.FETCH_SNAPSHOT,
    ApiKey.RESIGN_QUORUM_LEADER,
)
#: What the coordinator of a group answers, or in one case any broker.
GROUP_APIS = (
    ApiKey.FIND_COORDINATOR,
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.GROUP_HEARTBEAT,
    ApiKey.LEAVE_GROUP,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.OFFSET_DELETE,
    ApiKey.LIST_GROUPS,
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.DELETE_GROUPS,
)
#: Those of them whose answer may wait long for other members.
WAITING_APIS = (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP)
#: Forwarded requests under way; further ones are refused.
FORWARDED_MAX = 1000
#: How long a forwarded change that is done is waited for in the broker's own image, and how often it looks.
CHANGE_SHOWN_MAX_MS = 1_000
CHANGE_SHOWN_POLL_MS = 5

_LEVELS = {Level.INFO: logging.INFO, Level.WARNING: logging.WARNING, Level.ERROR: logging.ERROR}
_STOPPING = "this broker is stopping; ask it again later"

_log = logging.getLogger("holdfast.broker")


class BrokerServer:
    """Runs one core. A `raft.driver.RaftListener`."""

    def __init__(
        self,
        runtime: Runtime,
        core: Broker,
        log_manager: LogManager,
        stopped: Callable[[Stop], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """`stopped` is called when the core wants to stop, `failed` once with the error that has ended the
        pump: the caller silences the rest of the node."""
        self.core = core
        self._runtime = runtime
        self._long_answers = LongAnswers(runtime.tasks, lambda: self.pump.is_ended)
        self._clock = runtime.clock
        self._log_manager = log_manager
        self._stopped = stopped
        # A deadline may stay in the past while an answer is on its way: at most one tick a millisecond.
        self.pump: Pump[Event, Effect] = Pump(
            runtime.clock,
            core.handle,
            core.next_deadline_ms,
            failed,
            tick=Tick(),
            queue_empty=QueueEmpty(),
            delay_ms_min=1,
            # Followers' fetches wait for the records of many requests, not for the first one's alone.
            settles_in_next_turn=True,
        )
        self.peers = Peers(runtime, core.broker_id, dict(core.config.voters), self.pump.post)
        self._logs = LogEffects(runtime, log_manager, self.pump.post, core.leads)
        self._forwarded = 0
        self.fetch_reading = FetchReading(log_manager)
        self.pump.carry_out |= {
            Respond: self._respond,
            RespondInSteps: lambda effect: self._long_answers.begin(effect.reply_to, effect.steps),
            AnswerFetch: self._answer_fetch,
            Append: self._append,
            ReadGroupLog: self._read_group_log,
            CreateOffsetsTopic: self._create_offsets_topic,
            AppendFetched: self._logs.append_fetched,
            SendFetch: self.peers.send_fetch,
            Flush: self._logs.flush,
            EndWithoutAnswer: self._end_without_answer,
            AnswerOffsets: self._answer_offsets,
            CallController: self.peers.call_controller,
            CloseSource: self.peers.close_source,
            StartEpoch: self._logs.start_epoch,
            StoreCeilings: self._logs.store_ceilings,
            Truncate: self._logs.truncate,
            Reset: self._logs.reset,
            MoveLogStart: self._logs.move_start,
            ConfigureLog: self._logs.configure,
            StoreBrokerEpoch: self._store_broker_epoch,
            OpenLog: self._logs.open,
            DeleteLog: self._logs.delete,
            ForgetTopic: self._forget_topic,
            LogLine: self._note,
            Stop: self._stop,
        }

    def end(self) -> None:
        """Take no more events and end all connections; logs are the log manager's."""
        self.pump.end()
        self.peers.close()

    # --- RaftListener --------------------------------------------------------------------------------------

    def on_committed(self, entries: Sequence[tuple[int, int, bytes, int]], committed_offset: int) -> None:
        """Metadata has been committed."""
        self.pump.post(MetadataCommitted(tuple(entries), committed_offset))

    def snapshot_source(self) -> SnapshotSource | None:
        """See `raft.snapshotter.SnapshotOwner`."""
        state = self.core.metadata_state
        return SnapshotSource(state.image.offset, snapshot_values(state)) if state.image.offset else None

    def snapshot_sink(self) -> SnapshotReader:
        """See `raft.snapshotter.SnapshotOwner`."""
        return SnapshotReader()

    def on_snapshot(self, state: MetadataState, offset: int) -> None:
        """See `raft.snapshotter.SnapshotOwner`."""
        self.pump.post(SnapshotLoaded(state))

    def on_later_snapshot(self, reason: str) -> None:
        """See `raft.snapshotter.SnapshotOwner`."""
        self.pump.post(LaterSnapshot(reason))

    def on_voters_wanted(self, raft_epoch: int) -> None:
        """See `raft.driver.RaftListener`."""
        raise AssertionError("a broker observes the quorum, and never leads it")

    def on_leader_change(
        self, leader_id: int | None, raft_epoch: int, epoch_start_offset: int | None
    ) -> None:
        """The quorum has another leader, or none."""
        self.pump.post(ControllerChanged(leader_id, raft_epoch))

    # --- requests ------------------------------------------------------------------------------------------

    def handlers(self) -> dict[ApiKey, Callable[[Exchange], None]]:
        """For the rpc servers of all listeners."""
        handlers: dict[ApiKey, Callable[[Exchange], None]] = dict.fromkeys(QUESTION_APIS, self._question)
        for key in (
            ApiKey.PRODUCE,
            ApiKey.FETCH,
            ApiKey.LIST_OFFSETS,
            ApiKey.DELETE_RECORDS,
            ApiKey.INIT_PRODUCER_ID,
            ApiKey.OFFSET_FOR_LEADER_EPOCH,
        ):
            handlers[key] = self._request
        handlers[ApiKey.GET_REPLICA_LOG_INFO] = self._log_info
        handlers[ApiKey.DESCRIBE_LOG_DIRS] = self._log_dirs
        for key in FORWARDED_APIS:
            handlers[key] = self._forward
        for key in GROUP_APIS:
            handlers[key] = self._group_request
        return handlers

    def _is_refused(self, exchange: Exchange) -> bool:
        if self.core.has_roles and not self.pump.is_ended:
            return False
        text = "this broker is starting or stopping; ask another one, or try again"
        if isinstance(exchange.message, ProduceRequest) and exchange.message.required_acks == 0:
            exchange.hang_up(f"a write with acks 0 was refused: {text}")  # the client reads no answer
        else:
            exchange.fail(ErrorCode.BROKER_NOT_AVAILABLE, text)
        return True

    def _request(self, exchange: Exchange) -> None:
        if exchange.api_key is ApiKey.FETCH and _reads_metadata(exchange.message):
            self._forward(exchange)
        elif not self._is_refused(exchange):
            quota = self.core.client_quotas.produce
            if quota.is_on and exchange.api_key is ApiKey.PRODUCE:
                size_bytes = sum(len(row.records) for row in exchange.message.partitions)
                self._count(quota, exchange, size_bytes)
            self.pump.post(RequestReceived(exchange, exchange.message))

    def _count(self, quota: ByteRateQuota, exchange: Any, size_bytes: int) -> None:
        rest_ms = quota.count(exchange.client_id, size_bytes, self._clock.now_ms())
        if rest_ms:
            exchange.throttle(rest_ms)

    def _group_request(self, exchange: Exchange) -> None:
        if self._is_refused(exchange):
            return
        message = exchange.message
        is_join = exchange.api_key is ApiKey.JOIN_GROUP
        suffix = self._runtime.random.uuid().hex() if is_join else ""
        host = exchange.peer.rpartition(":")[0]
        client = GroupClient(exchange.client_id, host, exchange.listener_name, suffix)
        if exchange.api_key in WAITING_APIS:  # the group has what it needs of the request
            exchange.let_go()
        self.pump.post(GroupRequestReceived(exchange, message, client, self._clock.wall_ms()))

    def _question(self, exchange: Exchange) -> None:
        if not self._is_refused(exchange):
            asked = self.core.asked_through(exchange.listener_name)
            self._long_answers.begin(exchange, answer_steps(self.core.image, exchange.message, asked))

    def _log_dirs(self, exchange: Exchange) -> None:
        if self.pump.is_ended:
            exchange.fail(ErrorCode.BROKER_NOT_AVAILABLE, _STOPPING)
            return
        steps = log_dirs_steps(self._log_manager.dirs(), exchange.message.topics, self._lag_of)
        self._long_answers.begin(exchange, steps)

    def _lag_of(self, managed: ManagedLog) -> int:
        return self.core.lag_of(managed.key, managed.log.log_end_offset)

    def _log_info(self, exchange: Exchange) -> None:
        if self.pump.is_ended:
            exchange.fail(ErrorCode.BROKER_NOT_AVAILABLE, _STOPPING)
            return
        exchange.respond(self.core.log_info(exchange.message, self._log_of))

    def _log_of(self, key: PartitionId) -> UsableLog | None:
        managed = self._log_manager.managed(key)
        if managed is None or managed.log.failure is not None:
            return None
        return UsableLog(managed.log, self._logs.is_settled(key, managed), managed.ceiling)

    # --- forwarding to the active controller ---------------------------------------------------------------

    def _forward(self, exchange: Exchange) -> None:
        if self._is_refused(exchange):
            return
        if self._forwarded >= FORWARDED_MAX:
            text = f"{FORWARDED_MAX} requests wait for the active controller; try again"
            exchange.fail(ErrorCode.REQUEST_LIMIT_REACHED, text)
            return
        self._forwarded += 1
        self._runtime.tasks.start(f"forward {exchange.api_key.name}", self._ask_controller(exchange))

    async def _ask_controller(self, exchange: "Exchange | _OwnQuestion") -> None:
        """Forward to the active controller."""
        request_timeout_ms = self.core.config.request_timeout_ms
        forwarded = ForwardedRequest(exchange.message, request_timeout_ms, self._clock.now_ms())
        while exchange.is_open:
            step: Ask | Pause | GiveUp | None
            step = forwarded.next_step(self.core.controller_id, self._clock.now_ms())
            if isinstance(step, Ask):
                try:
                    response = await self.peers.ask_controller(
                        step.controller_id, exchange.message, step.timeout_ms
                    )
                except (NetworkError, CallRefused) as error:
                    is_safe = was_surely_not_done(error)
                    step = forwarded.failed(str(error), was_surely_not_done=is_safe)
                else:
                    step = forwarded.answered(response.error_code, response.error_message)
                    if step is None:
                        await self._show_change(exchange.message, response)
                        exchange.respond(response)
                        break
            if isinstance(step, GiveUp):
                if exchange.is_open:
                    exchange.fail(step.code, step.text)
                break
            await self._clock.sleep(step.duration_ms)
        self._forwarded -= 1

    async def _show_change(self, request: Any, response: Any) -> None:
        """Wait until the image shows what was changed: the next question may come to this broker.

        Not for ever: another change may have undone it, or this broker may hear nothing of it for now.
        """
        deadline_ms = self._clock.now_ms() + CHANGE_SHOWN_MAX_MS
        while not self.pump.is_ended and not shows_changes(self.core.image, request, response):
            if self._clock.now_ms() >= deadline_ms:
                return
            await self._clock.sleep(CHANGE_SHOWN_POLL_MS)

    # --- effects -------------------------------------------------------------------------------------------

    def _respond(self, effect: Respond) -> None:
        exchange: Any = effect.reply_to
        exchange.respond(effect.message)

    def _end_without_answer(self, effect: EndWithoutAnswer) -> None:
        exchange: Any = effect.reply_to
        if effect.refusal is None:
            exchange.drop()
        else:
            exchange.hang_up(effect.refusal)

    def _append(self, effect: Append) -> None:
        if self._logs.append(effect) and isinstance(effect.context, ProduceContext):
            # Answers may wait long for replication: by then the records are needed no more.
            reply_to: Any = effect.context.reply_to
            reply_to.let_go()

    def _read_group_log(self, effect: ReadGroupLog) -> None:
        records, problem = b"", None
        managed = self._log_manager.managed(effect.key)
        if managed is None:
            problem = "the log is not available"
        else:
            try:
                records = managed.log.read(effect.start_offset, effect.max_bytes, effect.end_offset)
            except (OffsetOutOfRange, DiskError) as error:
                problem = str(error)
        wall_ms = self._clock.wall_ms()
        self.pump.post(
            GroupLogRead(effect.key, effect.leader_epoch, effect.start_offset, records, problem, wall_ms)
        )

    def _create_offsets_topic(self, effect: CreateOffsetsTopic) -> None:
        self._forwarded += 1
        question = _OwnQuestion(effect.request, lambda problem: self.pump.post(OffsetsTopicCreated(problem)))
        self._runtime.tasks.start("create the topic of the offsets", self._ask_controller(question))

    def _answer_fetch(self, effect: AnswerFetch) -> None:
        exchange: Any = effect.reply_to
        room_bytes = None
        is_follower = effect.session is not None
        if is_follower:
            exchange.vouch()
        else:
            room_bytes = exchange.room_for_answer
        max_bytes = effect.max_bytes
        quota = self.core.client_quotas.fetch
        is_counted = quota.is_on and not is_follower
        if is_counted and (most_bytes := quota.answer_bytes_max(exchange.client_id)) is not None:
            max_bytes = min(max_bytes, most_bytes)
        fill = FetchFill(self.fetch_reading, max_bytes, room_bytes)
        response = FetchResponse(0, None, fill.fill(effect.rows))
        if is_counted:
            self._count(quota, exchange, sum(len(row.records) for row in response.partitions))
        self.pump.sending(effect, response)
        exchange.respond(response)
        if fill.omitted:
            self.pump.post(RowsOmitted(effect.session, tuple(fill.omitted)))
        if fill.throttled_bytes:
            self.pump.post(ThrottledSent(fill.throttled_bytes))

    def _answer_offsets(self, effect: AnswerOffsets) -> None:
        if any(row.lookup is not None for row in effect.rows):
            self._runtime.tasks.start("look up times", self._look_up_times(effect))
            return
        exchange: Any = effect.reply_to
        rows = tuple(_offset_row(row, row.error_code, -1, row.offset) for row in effect.rows)
        exchange.respond(ListOffsetsResponse(0, None, rows))

    async def _look_up_times(self, effect: AnswerOffsets) -> None:
        exchange: Any = effect.reply_to
        rows: list[ListOffsetsPartitionResponse] = []
        for row in effect.rows:
            timestamp, offset, error_code = -1, row.offset, row.error_code
            key = PartitionId(row.topic_id, row.partition_index)
            managed = self._log_manager.managed(key)
            if row.lookup is not None and managed is None:
                error_code = ErrorCode.KAFKA_STORAGE_ERROR  # gone since it was asked for
            elif row.lookup is not None and managed is not None:
                is_newest = row.lookup == MAX_TIMESTAMP
                try:
                    if is_newest:
                        found = await find_newest(managed.log, self._clock)
                    else:
                        found = await find_record(managed.log, row.lookup, self._clock)
                except DiskError:
                    found, error_code = None, ErrorCode.KAFKA_STORAGE_ERROR
                if found is not None and found.offset < row.end_offset:
                    timestamp, offset = found
                elif found is not None and is_newest:
                    error_code = ErrorCode.OFFSET_NOT_AVAILABLE  # not committed yet
                if not self.core.leads(key, row.leader_epoch):
                    # What a later leader has cut away was not found: that is no answer about its log.
                    timestamp, offset, error_code = -1, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER
                await self._clock.sleep(0)  # each partition is a turn of its own
            rows.append(_offset_row(row, error_code, timestamp, offset))
        if self.pump.is_ended or not exchange.is_open:
            exchange.drop()
            return
        exchange.respond(ListOffsetsResponse(0, None, tuple(rows)))

    def _forget_topic(self, effect: ForgetTopic) -> None:
        self.fetch_reading.forget(effect.name)

    def _store_broker_epoch(self, effect: StoreBrokerEpoch) -> None:
        work = self._log_manager.note_registration(effect.broker_epoch, effect.incarnation_id)
        self._runtime.tasks.start("note registration", work)

    def _note(self, effect: LogLine) -> None:
        _log.log(_LEVELS[effect.level], "%s", effect.text)

    def _stop(self, effect: Stop) -> None:
        self._stopped(effect)


class _OwnQuestion:
    """A request to the active controller that no client has made; like an exchange, for `_ask_controller`."""

    is_open = True

    def __init__(self, message: CreateTopicsRequest, answered: Callable[[str | None], None]) -> None:
        self.message = message
        self._answered = answered

    def respond(self, response: CreateTopicsResponse) -> None:
        problem = creation_problem(response)
        if problem is not None:
            _log.warning("the topic of the offsets is not created: %s", problem)
        self._answered(problem)

    def fail(self, error_code: ErrorCode, text: str) -> None:
        _log.warning("the topic of the offsets is not created: %s", text)
        self._answered(text)


def _offset_row(row: OffsetRow, error_code: int, timestamp: int, offset: int) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        row.topic_id, row.partition_index, error_code, timestamp, offset, row.leader_epoch
    )


def _reads_metadata(request: FetchRequest) -> bool:
    """A tool reads the metadata log: what the quorum's leader has is committed, the copy here may lag."""
    return bool(request.partitions) and request.partitions[0].topic_id == METADATA_TOPIC_ID
