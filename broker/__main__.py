"""Entry point of a broker: wires configuration, logs, metadata observer, core, rpc and telemetry.

A start reads and deletes the clean-shutdown files, observes the quorum, binds the listeners, registers with
the epoch of the last stop while the logs are loaded, replays its registration and is unfenced. A stop goes
through controlled shutdown, ends requests, flushes and closes the logs, and writes the clean-shutdown files
last (R29, A-19).
"""

import asyncio
import logging
import posixpath
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from holdfast.broker.core.broker import Broker
from holdfast.broker.core.config import BrokerConfig, default_log_config
from holdfast.broker.core.events import (
    CleanShutdownDisproved,
    DisksStalled,
    LogDamaged,
    LogPutAside,
    LogsLoaded,
    LogsOffline,
    ShutdownWanted,
    SpaceLow,
    Started,
    Stop,
)
from holdfast.broker.core.groups.lag import group_bodies
from holdfast.broker.core.registration.lifecycle import BrokerState, Identity
from holdfast.broker.core.registration.metadata_lineage import MetadataLineage
from holdfast.broker.core.telemetry import families, replica_body
from holdfast.broker.log_manager import LogManager, LogManagerConfig
from holdfast.broker.server import BrokerServer
from holdfast.metadata.board import Board
from holdfast.metadata.broker import SUPPORTED_FEATURES
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.status import NodeView, answer
from holdfast.protocol.messages.broker_registration import ListenerEndpoint
from holdfast.raft.core.config import RaftConfig
from holdfast.raft.core.quorum import BadQuorumState
from holdfast.raft.driver import RaftDriver
from holdfast.rpc.server import Server, ServerLimits
from holdfast.rpc.shares import NodeShares
from holdfast.runtime.api import DiskError, NetworkError, Runtime, Task
from holdfast.runtime.real import machine
from holdfast.runtime.stats import BoardWatch, MetricFamily, Steps, merged
from holdfast.runtime.tasks import fail_node
from holdfast.storage.core.cleaner_plan import CleanerPace
from holdfast.storage.core.config import LogConfig
from holdfast.storage.core.files import METADATA_FOLDER
from holdfast.storage.core.scrub_plan import ScrubPace
from holdfast.storage.log import Log
from holdfast.storage.log_dir import LogDir
from holdfast.storage.meta_properties import LogDirRefused

_log = logging.getLogger("holdfast.broker")

_HOUR_MS = 3_600_000
#: Errors that keep a broker from starting and are not bugs of Holdfast.
START_ERRORS = (DiskError, NetworkError, LogDirRefused, BadQuorumState)


def raft_config(config: BrokerConfig, folder: str) -> RaftConfig:
    """The quorum's part of the configuration: brokers are observers."""
    static = config.static
    return RaftConfig(
        node_id=config.node_id,
        cluster_id=config.cluster_id,
        voters=config.voters,
        folder=folder,
        is_voter=False,
        election_timeout_ms=static["controller.quorum.election.timeout.ms"],
        fetch_timeout_ms=static["controller.quorum.fetch.timeout.ms"],
        election_backoff_max_ms=static["controller.quorum.election.backoff.max.ms"],
        request_timeout_ms=static["controller.quorum.request.timeout.ms"],
        retry_backoff_ms=static["controller.quorum.retry.backoff.ms"],
        snapshot_bytes=static["metadata.log.max.record.bytes.between.snapshots"],
        snapshot_interval_ms=static["metadata.log.max.snapshot.interval.ms"] or None,
    )


class BrokerNode:
    """One broker. `start`, then `stop` for a clean end; an object that is just dropped is a killed broker."""

    def __init__(self, config: BrokerConfig, runtime: Runtime) -> None:
        self.config = config
        self._runtime = runtime
        static = config.static
        self.log_manager = LogManager(
            runtime,
            LogManagerConfig(
                log_dirs=config.log_dirs,
                recovery_concurrency=static["num.recovery.threads.per.data.dir"],
                checkpoint_interval_ms=static["log.flush.offset.checkpoint.interval.ms"],
                high_watermark_checkpoint_interval_ms=static["replica.high.watermark.checkpoint.interval.ms"],
                retention_check_interval_ms=static["log.retention.check.interval.ms"],
                min_free_bytes=static["holdfast.log.dirs.min.free.bytes"],
                stall_ms=static["holdfast.log.dir.stall.ms"],
                scrub=ScrubPace(
                    static["holdfast.log.scrub.interval.hours"] * _HOUR_MS,
                    static["holdfast.log.scrub.bytes.per.second"],
                ),
                cleaner=CleanerPace(
                    static["log.cleaner.enable"],
                    static["log.cleaner.backoff.ms"],
                    static["log.cleaner.io.max.bytes.per.second"],
                    static["log.cleaner.dedupe.buffer.size"],
                ),
            ),
            config.cluster_id,
            config.node_id,
        )
        self._board = Board(self._view)
        self.core: Broker
        self.server: BrokerServer
        self._metadata_log: Log
        self._raft: RaftDriver
        self._listeners: list[Server] = []
        #: what all listeners share
        self._shares: NodeShares
        #: {listener name: bound port}
        self.ports: dict[str, int] = {}
        #: set when the core ends the node
        self.stopped: asyncio.Future[Stop] = asyncio.get_running_loop().create_future()
        self._loading: Task | None = None
        self._has_failed = False

    async def start(self) -> None:
        """Start everything; logs are loaded in the background. Raises: START_ERRORS."""
        await self.log_manager.open_dirs()
        previous_epoch = await self.log_manager.take_clean_shutdown()
        try:
            await self._start(previous_epoch)
        except Exception:  # bugs too: this process has not registered
            if previous_epoch >= 0:  # R36: no log was changed, so the clean shutdown still holds
                await self.log_manager.close(previous_epoch)  # writes nothing when a dir failed
            raise

    async def _start(self, previous_epoch: int) -> None:
        config, runtime = self.config, self._runtime
        folder = await self._metadata_folder()
        self._metadata_log = await Log.open(
            runtime, folder, LogConfig(segment_ms=None, retention_ms=None), clean=False, may_begin_later=True
        )
        identity = Identity(
            broker_id=config.node_id,
            cluster_id=config.cluster_id,
            incarnation_id=runtime.random.uuid(),
            listeners=config.advertised_listeners,
            rack=config.rack,
            features=SUPPORTED_FEATURES,
            log_dirs=tuple(self.log_manager.online_directory_ids),
            previous_broker_epoch=previous_epoch,
        )
        lineage = MetadataLineage(config.node_id, *self.log_manager.last_registration)
        self.core = Broker(config, identity, runtime.clock.now_ms(), lineage)
        self.server = BrokerServer(runtime, self.core, self.log_manager, self._on_stop, self._failed)
        self.log_manager.on_dir_offline(self._dir_offline)
        self.log_manager.on_stall(
            lambda is_stalled, text: self.server.pump.post(DisksStalled(is_stalled, text))
        )
        self.log_manager.on_space(lambda keys: self.server.pump.post(SpaceLow(keys)))
        self.log_manager.on_damage(self._log_damaged, self._log_put_aside)
        self._raft = RaftDriver(
            runtime, raft_config(config, folder), self._metadata_log, self.server, self._failed
        )
        self.server.peers.address_of = self._raft.address_of
        self.server.peers.address_missed = self._raft.address_missed
        await self._listen()
        await self._raft.start()
        self.server.pump.post(Started())
        self._loading = runtime.tasks.start("load logs", self._load())

    async def _metadata_folder(self) -> str:
        path = self.config.metadata_log_dir
        # `/d1/` is `/d1`, which is a log dir already: opened a second time it would be locked twice.
        if posixpath.normpath(path) in map(posixpath.normpath, self.config.log_dirs):
            return posixpath.join(path, METADATA_FOLDER)
        log_dir = await LogDir.open(self._runtime, path, self.config.cluster_id, self.config.node_id)
        return log_dir.file(METADATA_FOLDER)

    async def _listen(self) -> None:
        limits = ServerLimits(
            frame_max_bytes=self.config.frame_max_bytes, listeners=len(self.config.listeners)
        )
        config = self.config
        self._shares = NodeShares(
            self._runtime.clock,
            config.request_memory_bytes,
            config.connection_max,
            config.connection_max_per_ip,
        )
        told: list[ListenerEndpoint] = []
        for listener, advertised in zip(self.config.listeners, self.config.advertised_listeners, strict=True):
            server = self._server(listener.name, limits)
            port = await server.start(listener.host, listener.port)
            self._listeners.append(server)
            self.ports[listener.name] = port
            told.append(replace(advertised, port=port) if advertised.port == 0 else advertised)
        lifecycle = self.core.lifecycle
        lifecycle.identity = replace(lifecycle.identity, listeners=tuple(told))

    def _server(self, listener_name: str, limits: ServerLimits) -> Server:
        handlers = self.server.handlers()
        if listener_name not in self.config.kafka_listeners:
            return Server(self._runtime, self.config.node_id, listener_name, handlers, limits, self._shares)
        # loaded here: a broker without Kafka clients does without the library of their schemas
        from holdfast.broker.kafka_clients import kafka_server

        return kafka_server(
            self._runtime, self.core, self.log_manager, handlers, listener_name, limits, self._shares
        )

    async def _load(self) -> None:
        static = self.config.static
        high_watermarks = await self.log_manager.load(lambda topic: default_log_config(static))
        self.log_manager.start(self._high_watermark)
        if self.log_manager.is_clean_shutdown_disproved:
            self.server.pump.post(CleanShutdownDisproved(self._runtime.random.uuid()))
        self.server.pump.post(
            LogsLoaded(
                dict(self.log_manager.logs),
                high_watermarks,
                self.log_manager.ceilings(),
                self.log_manager.is_whole,
                tuple(self.log_manager.damaged_replicas()),
            )
        )

    def _high_watermark(self, key: PartitionId) -> int | None:
        partition = self.core.partitions.get(key)
        return None if partition is None else partition.high_watermark

    def _dir_offline(self, directory_id: bytes, keys: Sequence[PartitionId]) -> None:
        # at once, also when a background flush failed: later follower fetches must not acknowledge
        # anything in that dir.
        if self.log_manager.online_directory_ids:
            self.server.pump.post_first(LogsOffline(tuple(keys)))
        else:
            self.server.end()  # and the log manager ends the node with the error

    def _log_damaged(self, key: PartitionId, reason: str) -> None:
        # At once, for the same reason.
        self.server.pump.post_first(LogDamaged(key, reason))

    def _log_put_aside(self, key: PartitionId) -> None:
        self.server.pump.post(LogPutAside(key))

    def _failed(self, error: Exception) -> None:
        """A bug, or an error of the metadata log's disk: send nothing more, and end the node (A-20)."""
        if self._has_failed:
            return
        self._has_failed = True
        self.server.pump.end()
        self._raft.end()
        for listener in self._listeners:
            listener.fall_silent()
        fail_node(self._runtime.tasks, "broker", error)

    def _on_stop(self, stop: Stop) -> None:
        if not self.stopped.done():
            self.stopped.set_result(stop)

    # --- stop ----------------------------------------------------------------------------------------------

    def want_shutdown(self) -> None:
        """Begin a controlled shutdown; `stopped` is set when it is over."""
        self.server.pump.post(ShutdownWanted())

    async def stop(self) -> None:
        """End in order: requests, metadata, logs flushed and closed, clean-shutdown files (A-19)."""
        self.server.end()
        for listener in self._listeners:
            await listener.close()
        if self._loading is not None:
            self._loading.cancel()
            await self._loading.wait()
        await self._raft.stop()
        await self.log_manager.close(self._epoch_to_prove())
        await self._runtime.tasks.cancel_all()
        await self._metadata_log.close(flush=True)

    def _epoch_to_prove(self) -> int | None:
        """The epoch for the clean-shutdown files: the registered one, or the one found when there is none
        (R36)."""
        lifecycle = self.core.lifecycle
        if self.log_manager.is_clean_shutdown_disproved and lifecycle.identity.previous_broker_epoch >= 0:
            return None  # the core has not heard of it, and the controller has believed the proof
        if lifecycle.is_registered:
            return lifecycle.broker_epoch
        if lifecycle.was_clean is None and lifecycle.identity.previous_broker_epoch >= 0:
            return lifecycle.identity.previous_broker_epoch
        return None

    # --- telemetry -----------------------------------------------------------------------------------------

    def is_ready(self) -> tuple[bool, str]:
        """Ready while unfenced and running."""
        if self.core.later_record is not None:
            return False, f"upgrade this broker: {self.core.later_record}"
        state = self.core.lifecycle.state
        is_ready = state is BrokerState.RUNNING and not self.core.lifecycle.is_fenced
        return is_ready, f"{state.value}{' fenced' if self.core.lifecycle.is_fenced else ''}"

    def inspect(self, path: str, query: Sequence[tuple[str, str]]) -> Steps:
        """Answer GET `path` below /v1/."""
        return answer(self._view(), path, query)

    def watch(self, last_offset: int | None) -> BoardWatch:
        """Follow the state of the cluster."""
        return self._board.watch(last_offset)

    def _view(self) -> NodeView:
        core = self.core
        is_ready, state = self.is_ready()
        return NodeView(
            image=core.image,
            cluster_id=self.config.cluster_id,
            node_id=self.config.node_id,
            role="broker",
            is_ready=is_ready,
            state=state,
            controller_id=core.controller_id,
            controller_epoch=core.controller_epoch,
            voters=self._raft.voter_ids,
            replica_of=self._replica_of,
            groups=lambda limit: group_bodies(core.groups.known(), core.image, self._end_of, limit),
        )

    def _replica_of(self, key: PartitionId) -> dict[str, Any] | None:
        partition = self.core.partitions.get(key)
        return None if partition is None else replica_body(partition)

    def _end_of(self, key: PartitionId) -> int | None:
        """Where consumers' records of a partition end, as its replica here knows it."""
        partition = self.core.partitions.get(key)
        return None if partition is None else partition.known_end

    def metrics(self) -> Iterable[MetricFamily]:
        """All families of this node."""
        reading = self.server.fetch_reading
        yield from families(self.core, reading.bytes_out, reading.replication_bytes_out)
        yield from self.log_manager.stats()
        yield from merged(family for listener in self._listeners for family in listener.stats())
        yield from self._raft.stats()
        yield from self._shares.stats()


async def run(config: BrokerConfig, runtime: Runtime, signals: machine.StopSignals) -> int:
    """Run a broker until a signal and its controlled shutdown (0) or a failure (1)."""
    node = BrokerNode(config, runtime)
    admin = None
    try:
        raft_config(config, config.metadata_log_dir).validate()
    except ValueError as error:
        _log.error("%s", error)
        return 1
    try:
        await node.start()
    except START_ERRORS as error:
        _log.error("broker %d cannot start: %s", config.node_id, error)
        return 1
    if config.http_listener is not None:
        from holdfast.runtime.http.telemetry import AdminServer

        admin = AdminServer(*config.http_listener, node, host_names=config.host_names)
        try:
            await admin.start()
        except NetworkError as error:
            _log.error("broker %d cannot start: %s", config.node_id, error)
            await _stop(node)
            return 1
    runtime.tasks.start("signals", _stop_on_signal(node, signals))
    ended = asyncio.get_running_loop().create_future()
    runtime.tasks.start("stop", _wait_for_stop(node, ended))
    runtime.tasks.start("failure", _wait_for_failure(runtime, ended))
    outcome: Stop | BaseException = await ended
    if isinstance(outcome, BaseException):
        _log.error("broker %d failed: %s", config.node_id, outcome)
        return 1
    _log.log(logging.ERROR if outcome.is_failure else logging.INFO, "%s", outcome.text)
    if admin is not None:
        await admin.close()
    # Also when it gives up: a broker that never registered passes on the clean shutdown that it found (R36).
    has_stopped = await _stop(node)
    return 0 if has_stopped and not outcome.is_failure else 1


async def _stop(node: BrokerNode) -> bool:
    """Stop the node; False when it failed."""
    node_id = node.config.node_id
    try:
        await node.stop()
    except DiskError as error:  # of the metadata log's copy: closed last, and fetched again if damaged
        _log.error("broker %d stopped, but %s", node_id, error)
        return False
    _log.info("broker %d stopped", node_id)
    return True


async def _stop_on_signal(node: BrokerNode, signals: machine.StopSignals) -> None:
    await signals.wait()
    node.want_shutdown()


async def _wait_for_stop(node: BrokerNode, ended: "asyncio.Future[Stop | BaseException]") -> None:
    stop = await node.stopped
    if not ended.done():
        ended.set_result(stop)


async def _wait_for_failure(runtime: Runtime, ended: "asyncio.Future[Stop | BaseException]") -> None:
    failure = await runtime.tasks.failure()
    if not ended.done():
        ended.set_result(failure)


if __name__ == "__main__":
    sys.exit("start a broker with: holdfast broker --config FILE")
