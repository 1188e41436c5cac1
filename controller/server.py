"""The controller's shell: hands events to the core one at a time and carries its effects out.

Owns the pump, the rpc server, the raft driver, and the exchanges that wait for an answer. Decides nothing.
After any exception the node sends nothing more and ends (A-20).
"""

import logging
from collections.abc import Callable, Iterable, Sequence

from holdfast.controller.core import metrics
from holdfast.controller.core.board import decision_bodies, next_leader_body
from holdfast.controller.core.config import ControllerConfig
from holdfast.controller.core.events import (
    AppendRecords,
    AppendVoters,
    AskBroker,
    CannotLead,
    ConnectionClosed,
    Effect,
    EntriesCommitted,
    Entry,
    Event,
    LaterSnapshot,
    LeaderChanged,
    LogInfoAnswered,
    LogInfoFailed,
    Probe,
    Probed,
    RecoveryStated,
    RequestReceived,
    Resign,
    Respond,
    SnapshotLoaded,
    Tick,
    VotersWanted,
)
from holdfast.controller.core.quorum_controller import QuorumController
from holdfast.metadata.board import Board
from holdfast.metadata.questions import QUESTION_APIS, answer_steps
from holdfast.metadata.snapshot import MetadataState, SnapshotReader, snapshot_values
from holdfast.metadata.status import NodeView, answer
from holdfast.protocol.api_keys import ApiKey
from holdfast.protocol.errors import ErrorCode
from holdfast.raft.core.config import RaftConfig
from holdfast.raft.driver import NotLeader, RaftDriver
from holdfast.raft.snapshot_files import SnapshotSource
from holdfast.rpc.channel import CallRefused, Pool
from holdfast.rpc.long_answers import LongAnswers
from holdfast.rpc.server import Exchange, Server, ServerLimits
from holdfast.rpc.shares import NodeShares
from holdfast.runtime.api import Connection, ConnectionRefused, NetworkError, Runtime
from holdfast.runtime.pump import TimedPump
from holdfast.runtime.stats import BoardWatch, Histogram, Level, LogLine, MetricFamily, Steps
from holdfast.runtime.tasks import fail_node
from holdfast.storage.log import Log

#: Requests that go to the core; the quorum's own go to raft.
CORE_APIS = (
    *QUESTION_APIS,
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.ELECT_LEADERS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.ALTER_PARTITION,
    ApiKey.UPDATE_FEATURES,
    ApiKey.BROKER_REGISTRATION,
    ApiKey.BROKER_HEARTBEAT,
    ApiKey.UNREGISTER_BROKER,
    ApiKey.ALLOCATE_PRODUCER_IDS,
)
#: Sent by nodes of the cluster alone.
MEMBER_APIS = frozenset(
    (
        ApiKey.VOTE,
        ApiKey.BEGIN_QUORUM_EPOCH,
        ApiKey.END_QUORUM_EPOCH,
        ApiKey.FETCH,
        ApiKey.FETCH_SNAPSHOT,
        ApiKey.BROKER_REGISTRATION,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.ALTER_PARTITION,
        ApiKey.ALLOCATE_PRODUCER_IDS,
    )
)
#: Questions are answered in steps, beside the events, once some broker has so many partitions.
LARGE_IMAGE_PARTITIONS = 1_000
#: A probe that gets no answer for so long is no evidence (D9).
PROBE_TIMEOUT_MS = 1000
_EVENT_BOUNDS_SECONDS = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0)

_log = logging.getLogger("holdfast.controller")
_LEVELS = {Level.INFO: logging.INFO, Level.WARNING: logging.WARNING, Level.ERROR: logging.ERROR}


class ControllerServer:
    """One controller node, running. Also the raft driver's listener and what telemetry reads."""

    def __init__(self, runtime: Runtime, config: ControllerConfig, raft_config: RaftConfig, log: Log) -> None:
        """`log` is the open metadata log; it belongs to the caller, who closes it after `stop`."""
        self._runtime = runtime
        self._long_answers = LongAnswers(runtime.tasks, lambda: self.pump.is_ended)
        self._config = config
        self._core = QuorumController(config, runtime.random)
        self._driver = RaftDriver(runtime, raft_config, log, self, self._fail)
        self._shares = NodeShares(
            runtime.clock, config.request_memory_bytes, config.connection_max, config.connection_max_per_ip
        )
        self._server = Server(
            runtime,
            config.node_id,
            config.listener.name,
            {
                **self._driver.handlers(),
                **dict.fromkeys(CORE_APIS, self._receive),
                **dict.fromkeys(QUESTION_APIS, self._question),
            },
            ServerLimits(frame_max_bytes=config.request_max_bytes),
            self._shares,
            MEMBER_APIS,
        )
        self._server.on_disconnect = lambda connection_id: self.pump.post(ConnectionClosed(connection_id))
        #: brokers that are asked for their logs
        self._brokers = Pool(runtime, f"controller-{config.node_id}")
        self._board = Board(self._view)
        #: requests without an answer, by the number that the core knows them by
        self._exchanges: dict[int, Exchange] = {}
        self._requests_taken = 0
        self._queue_seconds = Histogram(_EVENT_BOUNDS_SECONDS)
        self._processing_seconds = Histogram(_EVENT_BOUNDS_SECONDS)
        #: what has ended this node's work, also while it stops: a bug or a DiskError; None for nothing
        self.failure: Exception | None = None
        self.pump: TimedPump[Event, Effect] = TimedPump(
            runtime.clock,
            self._core.handle,
            self._core.next_deadline_ms,
            self._fail,
            tick=Tick(),
            queue_seconds=self._queue_seconds,
            processing_seconds=self._processing_seconds,
        )
        self.pump.carry_out |= {
            Respond: self._respond,
            AppendRecords: self._append,
            AppendVoters: self._append_voters,
            LogLine: self._log_line,
            Probe: self._start_probe,
            AskBroker: self._start_question,
            RecoveryStated: self._log_recovery,
            Resign: lambda effect: self._driver.resign(effect.reason),
            CannotLead: lambda effect: self._driver.cannot_lead(effect.reason),
        }

    async def start(self) -> int:
        """Join the quorum and listen; returns the bound port.

        Raises: NetworkError, DiskError, raft's BadQuorumState.
        """
        port = await self._server.start(self._config.listener.host, self._config.listener.port)
        await self._driver.start()
        _log.info("controller %d listens on port %d", self._config.node_id, port)
        return port

    async def stop(self) -> None:
        """Hand the leadership over, stop listening. Requests without an answer are dropped."""
        await self._driver.stop()
        self.pump.end()
        self._brokers.close()
        await self._server.close()

    def _fail(self, error: Exception) -> None:
        """A bug, or an error of the metadata log's disk: send nothing more, and end the node (A-20)."""
        if self.failure is not None:
            return
        self.failure = error
        self.pump.end()
        self._driver.end()
        self._server.fall_silent()
        fail_node(self._runtime.tasks, "controller", error)

    # --- telemetry ---------------------------------------------------------------------------------------

    @property
    def core(self) -> QuorumController:
        """For checkers and tests, which only look; events come in by the server."""
        return self._core

    @property
    def driver(self) -> RaftDriver:
        """For checkers and tests that look."""
        return self._driver

    def is_ready(self) -> tuple[bool, str]:
        """Ready once the quorum's leader is known, and the log is applied up to where it is committed."""
        if self._core.later_record is not None:
            return False, f"upgrade this controller: {self._core.later_record}"
        leader_id = self._driver.leader_id
        if leader_id is None:
            return False, "no leader of the quorum is known"
        if leader_id != self._config.node_id:
            story = f"standby, controller {leader_id} is active"
            is_ready = self._driver.has_caught_up
            return is_ready, story if is_ready else f"{story}, still applying the log"
        return self._core.is_active, "active" if self._core.is_active else "elected, still applying the log"

    def inspect(self, path: str, query: Sequence[tuple[str, str]]) -> Steps:
        """Answer GET `path` below /v1/, from what is committed."""
        return answer(self._view(), path, query)

    def watch(self, last_offset: int | None) -> BoardWatch:
        """Follow the state of the cluster, from what is committed."""
        return self._board.watch(last_offset)

    def _view(self) -> NodeView:
        core = self._core
        is_ready, state = self.is_ready()
        return NodeView(
            image=core.committed,
            cluster_id=self._config.cluster_id,
            node_id=self._config.node_id,
            role="controller",
            is_ready=is_ready,
            state=state,
            controller_id=core.leader_id,
            controller_epoch=core.raft_epoch,
            voters=self._driver.voter_ids,
            next_leader_of=lambda topic, key, partition: next_leader_body(core, topic, key, partition),
            decisions=lambda limit: decision_bodies(core, limit),
        )

    def metrics(self) -> Iterable[MetricFamily]:
        """All series of this node."""
        yield from metrics.families(self._core)
        yield from metrics.event_families(self._queue_seconds, self._processing_seconds)
        yield from self._driver.stats()
        yield from self._server.stats()
        yield from self._shares.stats()

    # --- events ------------------------------------------------------------------------------------------

    def on_committed(self, entries: Sequence[Entry], committed_offset: int) -> None:
        """See `raft.driver.RaftListener`."""
        self.pump.post(EntriesCommitted(entries, committed_offset))

    def snapshot_source(self) -> SnapshotSource | None:
        """See `raft.snapshotter.SnapshotOwner`."""
        state = self._core.state
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

    def on_leader_change(
        self, leader_id: int | None, raft_epoch: int, epoch_start_offset: int | None
    ) -> None:
        """See `raft.driver.RaftListener`."""
        self.pump.post(LeaderChanged(leader_id, raft_epoch, self._driver.log_end_offset))

    def on_voters_wanted(self, raft_epoch: int) -> None:
        """See `raft.driver.RaftListener`."""
        self.pump.post(VotersWanted(raft_epoch))

    def _question(self, exchange: Exchange) -> None:
        """Not from an image that was never whole: it would say that there is no such topic (R113); nor from
        one that is applied no more (K29)."""
        if self._core.later_record is not None:
            exchange.fail(ErrorCode.BROKER_NOT_AVAILABLE, f"ask another node: {self._core.later_record}")
            return
        if self._driver.has_caught_up:
            image = self._core.committed
            if max(map(len, image.assigned.values()), default=0) < LARGE_IMAGE_PARTITIONS:
                self._receive(exchange)
            else:
                steps = answer_steps(
                    image, exchange.message, self._core.asked_through(exchange.listener_name)
                )
                self._long_answers.begin(exchange, steps)
            return
        text = "this controller does not know yet what is committed; ask another node, or try again"
        exchange.fail(ErrorCode.BROKER_NOT_AVAILABLE, text)

    def _receive(self, exchange: Exchange) -> None:
        self._requests_taken += 1
        self._exchanges[self._requests_taken] = exchange
        self.pump.post(
            RequestReceived(
                self._requests_taken,
                exchange.connection_id,
                exchange.listener_name,
                exchange.message,
                self._driver.voter_ids,
                self._driver.earlier_voters,
            )
        )

    # --- effects -----------------------------------------------------------------------------------------

    def _respond(self, effect: Respond) -> None:
        self._exchanges.pop(effect.request_id).respond(effect.message)

    def _log_line(self, effect: LogLine) -> None:
        _log.log(_LEVELS[effect.level], "%s", effect.text)

    def _log_recovery(self, effect: RecoveryStated) -> None:
        _log.info("%s", effect)

    def _start_probe(self, effect: Probe) -> None:
        self._runtime.tasks.start(f"probe of broker {effect.broker_id}", self._probe(effect))

    def _start_question(self, effect: AskBroker) -> None:
        self._runtime.tasks.start(f"logs of broker {effect.broker_id}", self._ask(effect))

    def _append(self, effect: AppendRecords) -> None:
        self._place(effect, lambda: self._driver.append(effect.values, effect.raft_epoch))

    def _append_voters(self, effect: AppendVoters) -> None:
        self._place(effect, lambda: self._driver.append_voters(effect.raft_epoch))

    def _place(self, effect: AppendRecords | AppendVoters, append: Callable[[], int]) -> None:
        try:
            base_offset = append()
        except NotLeader as error:
            # the news of it is on its way to the core, which refuses everything that waits then
            _log.info("records of epoch %d not appended: %s", effect.raft_epoch, error)
            return
        assert base_offset == effect.base_offset, f"appended at {base_offset}, expected {effect.base_offset}"

    async def _ask(self, question: AskBroker) -> None:
        try:
            response = await self._brokers.call(
                question.host, question.port, question.request, question.timeout_ms
            )
        except (NetworkError, CallRefused) as error:
            self.pump.post(LogInfoFailed(question.broker_id, question.question_id, str(error)))
        else:
            self.pump.post(LogInfoAnswered(question.broker_id, question.question_id, response))

    async def _probe(self, probe: Probe) -> None:
        if probe.delay_ms:
            await self._runtime.clock.sleep(probe.delay_ms)
        is_refused = False
        try:
            connection = await self._runtime.network.connect(
                probe.host, probe.port, _Silent(), PROBE_TIMEOUT_MS
            )
            connection.abort()
        except ConnectionRefused:
            is_refused = True
        except NetworkError as error:
            _log.debug("probe of broker %d says nothing: %s", probe.broker_id, error)
        self.pump.post(Probed(probe.broker_id, probe.broker_epoch, probe.attempt, is_refused))


class _Silent:
    """Handler of a connection that nothing is said on."""

    def connection_made(self, connection: Connection) -> None:
        pass

    def bytes_received(self, data: bytes) -> None:
        pass

    def pause_writing(self) -> None:
        pass

    def resume_writing(self) -> None:
        pass

    def connection_lost(self, error: NetworkError | None) -> None:
        pass
