"""The broker's core: one door for events, effects come out; everything that a broker decides is behind it.

Owns the image, the partitions of this broker and the order in which its parts hear of things. Metadata
comes in as committed values and changes roles only after our own registration record (D-2). Parts:
`partition`, `produce_path`, `fetch_path`, `fetcher`, `alter_partition`, `lifecycle`, `producer_ids`.
"""

from collections.abc import Callable
from typing import Any

from broker.config import BrokerConfig, log_config, max_message_bytes
from broker.controller_link import ControllerLink
from broker.events import (
    Appended,
    CallAnswered,
    CallFailed,
    ConfigureLog,
    ControllerChanged,
    DeleteLog,
    Effect,
    EpochStarted,
    Event,
    FetchAnswered,
    FetchedAppended,
    FetchFailed,
    Flush,
    Flushed,
    Level,
    LogOpened,
    LogsLoaded,
    MetadataCommitted,
    Note,
    OpenLog,
    QueueEmpty,
    Requested,
    Respond,
    ShutdownWanted,
    Started,
    StartEpoch,
    Stop,
    Tick,
    Truncated,
)
from broker.fetch_path import FetchPath
from broker.fetcher import Fetchers
from broker.lifecycle import BrokerState, Identity, Lifecycle, StopReason
from broker.partition import (
    AlterVerdict,
    KnownBrokers,
    LogView,
    Partition,
    Proposal,
    Role,
    RoleChange,
    TopicPartition,
)
from broker.produce_path import ProducePath
from metadata.delta import LocalPartition, MetadataDelta, local_view
from metadata.image import RESOURCE_TOPIC, MetadataImage
from metadata.partition import PartitionRegistration
from metadata.records import decode_record
from protocol.errors import ErrorCode
from protocol.messages.alter_partition import AlterPartitionResponse
from protocol.messages.broker_registration import BrokerHeartbeatResponse, BrokerRegistrationResponse
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.list_offsets import ListOffsetsRequest
from protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from protocol.messages.produce import ProduceRequest
from protocol.messages.producer_ids import (
    AllocateProducerIdsResponse,
    InitProducerIdRequest,
)

#: Produce requests that may wait for replication, and consumers' fetches that may wait for data.
PURGATORY_MAX = 20_000


class Counts:
    """Running totals since the start; {topic name: n} where a topic is known."""

    __slots__ = (
        "bytes_in",
        "failed_isr_updates",
        "isr_expands",
        "isr_shrinks",
        "messages_in",
        "metadata_violations",
        "replication_bytes_in",
    )

    def __init__(self) -> None:
        self.messages_in: dict[str, int] = {}
        self.bytes_in: dict[str, int] = {}
        self.replication_bytes_in: dict[str, int] = {}
        self.isr_expands = 0
        self.isr_shrinks = 0
        self.failed_isr_updates = 0
        self.metadata_violations = 0


class Broker:
    """One broker. `handle` is the only way to change it."""

    def __init__(self, config: BrokerConfig, identity: Identity, now_ms: int) -> None:
        self.config = config
        self.broker_id = config.node_id
        #: metadata as far as it was applied
        self.image = MetadataImage()
        self.lifecycle = Lifecycle(
            identity,
            heartbeat_ms=config.heartbeat_ms,
            registration_timeout_ms=config.registration_timeout_ms,
            controlled_shutdown=config.controlled_shutdown,
            shutdown_timeout_ms=config.controlled_shutdown_timeout_ms,
            now_ms=now_ms,
        )
        self.partitions: dict[TopicPartition, Partition] = {}
        self.counts = Counts()
        self._max_message_bytes: dict[TopicPartition, int] = {}
        self._brokers = KnownBrokers()
        self.produce_path = ProducePath(self.partitions, self._max_message_bytes, PURGATORY_MAX)
        self.fetch_path = FetchPath(self.partitions, PURGATORY_MAX, config.fetch_max_bytes)
        self.fetchers = Fetchers(
            config.node_id,
            wait_ms=config.replica_fetch_wait_ms,
            max_bytes=config.replica_fetch_max_bytes,
            response_max_bytes=config.replica_fetch_response_max_bytes,
            backoff_ms=config.replica_fetch_backoff_ms,
            timeout_ms=config.replica_socket_timeout_ms,
        )
        self._link = ControllerLink(config.node_id, self.lifecycle, config.request_timeout_ms)
        self._alter = self._link.alter
        #: open logs without a role yet; None until all are loaded
        self._logs: dict[TopicPartition, LogView] | None = None
        self._high_watermarks: dict[TopicPartition, int] = {}
        self._opening: dict[TopicPartition, None] = {}
        #: roles are taken from metadata: the image holds our own registration (D-2)
        self._has_roles = False
        self._shrink_ms = now_ms
        self._effects: list[Effect] = []
        self._handlers: dict[type, Callable[[Any, int], None]] = {
            Requested: self._on_request,
            Appended: self._on_appended,
            FetchAnswered: self._on_fetch_answered,
            FetchedAppended: self._on_fetched_appended,
            QueueEmpty: self._on_queue_empty,
            Tick: self._on_tick,
            Flushed: self._on_flushed,
            Truncated: self._on_truncated,
            EpochStarted: self._on_epoch_started,
            FetchFailed: self._on_fetch_failed,
            MetadataCommitted: self._on_metadata,
            ControllerChanged: self._on_controller,
            CallAnswered: self._on_call_answered,
            CallFailed: self._on_call_failed,
            LogsLoaded: self._on_logs_loaded,
            LogOpened: self._on_log_opened,
            Started: self._on_started,
            ShutdownWanted: self._on_shutdown_wanted,
        }
        self._requests: dict[type, Callable[[Any, Any, int], None]] = {
            ProduceRequest: self._on_produce,
            FetchRequest: self._on_fetch,
            ListOffsetsRequest: self._on_list_offsets,
            OffsetForLeaderEpochRequest: self._on_offset_for_leader_epoch,
            InitProducerIdRequest: self._on_init_producer_id,
        }

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """Take one event in; what is to be done about it, in order."""
        self._handlers[type(event)](event, now_ms)
        effects, self._effects = self._effects, []
        return effects

    def next_deadline_ms(self) -> int:
        """When a Tick is due at the latest."""
        parts = (
            self.produce_path.next_deadline_ms(),
            self.fetch_path.next_deadline_ms(),
            self.fetchers.next_deadline_ms(),
        )
        deadline_ms = min(self._link.next_deadline_ms(), self._shrink_ms)
        for part in parts:
            if part is not None and part < deadline_ms:
                deadline_ms = part
        return deadline_ms

    @property
    def controller_id(self) -> int | None:
        """The quorum's leader as our observer knows it."""
        return self._link.controller_id

    @property
    def controller_epoch(self) -> int:
        """Raft epoch of that leader."""
        return self._link.controller_epoch

    # --- requests ------------------------------------------------------------------------------------------

    def _on_request(self, event: Requested, now_ms: int) -> None:
        self._requests[type(event.message)](event.reply_to, event.message, now_ms)

    def _on_produce(self, reply_to: object, request: ProduceRequest, now_ms: int) -> None:
        self._effects += self.produce_path.request(reply_to, request, now_ms)

    def _on_fetch(self, reply_to: object, request: FetchRequest, now_ms: int) -> None:
        if request.replica_id < 0:
            self._effects += self.fetch_path.consumer_request(reply_to, request, now_ms)
            return
        if request.replica_id not in self._brokers.epochs:
            # Sessions are kept for registered brokers only, so there are never more of them than brokers.
            text = f"broker {request.replica_id} is not registered as far as this broker knows; try again"
            self._effects.append(
                Respond(reply_to, FetchResponse(ErrorCode.BROKER_ID_NOT_REGISTERED, text, ()))
            )
            return
        effects, moved, proposals = self.fetch_path.follower_request(reply_to, request, now_ms)
        self._effects += effects
        for key, proposal in proposals:
            self._submit(key, proposal)
        for partition in moved:
            self._advance(partition, now_ms)

    def _on_list_offsets(self, reply_to: object, request: ListOffsetsRequest, now_ms: int) -> None:
        self._effects.append(self.fetch_path.list_offsets(reply_to, request))

    def _on_offset_for_leader_epoch(
        self, reply_to: object, request: OffsetForLeaderEpochRequest, now_ms: int
    ) -> None:
        self._effects.append(self.fetch_path.offset_for_leader_epoch(reply_to, request))

    def _on_init_producer_id(self, reply_to: object, request: InitProducerIdRequest, now_ms: int) -> None:
        self._effects += self._link.init_producer_id(reply_to, request)

    # --- logs ----------------------------------------------------------------------------------------------

    def _on_appended(self, event: Appended, now_ms: int) -> None:
        for result in event.results:
            partition = self.partitions.get(result.key)
            if partition is None or result.error_code is not ErrorCode.NONE or result.is_duplicate:
                continue
            self.fetch_path.log_grew(result.key, result.base_offset, result.end_offset, result.size_bytes)
            self._count(self.counts.messages_in, partition, result.end_offset - result.base_offset)
            self._count(self.counts.bytes_in, partition, result.size_bytes)
            if result.must_flush:
                self._effects.append(Flush(result.key))
            self._advance(partition, now_ms)
        self._effects += self.produce_path.appended(event, now_ms)

    def _on_flushed(self, event: Flushed, now_ms: int) -> None:
        self.fetchers.flushed(event.key)
        partition = self.partitions.get(event.key)
        if partition is not None:
            self._effects += self.produce_path.flushed(partition)
            self._advance(partition, now_ms)

    def _advance(self, partition: Partition, now_ms: int) -> None:
        if partition.advance_high_watermark(now_ms):
            self._effects += self.produce_path.high_watermark_moved(partition)
            self._effects += self.fetch_path.high_watermark_moved(partition, now_ms)

    def _on_epoch_started(self, event: EpochStarted, now_ms: int) -> None:
        partition = self.partitions.get(event.key)
        if partition is not None and partition.epoch_started(event.leader_epoch, event.start_offset):
            self._effects += self.fetch_path.role_changed(event.key)
            self._advance(partition, now_ms)

    def _on_truncated(self, event: Truncated, now_ms: int) -> None:
        partition = self.partitions.get(event.key)
        if partition is not None:
            partition.log_was_cut()
        self.fetchers.cut(event.key)

    def _on_logs_loaded(self, event: LogsLoaded, now_ms: int) -> None:
        self._logs = dict(event.logs)
        self._high_watermarks = dict(event.high_watermarks)
        self._maybe_take_roles(now_ms)

    def _on_log_opened(self, event: LogOpened, now_ms: int) -> None:
        assert self._logs is not None
        self._logs[event.key] = event.log
        self._opening.pop(event.key, None)
        topic = self.image.topics.get(event.key.topic_id)
        registration = None if topic is None else topic.partitions.get(event.key.partition_index)
        if topic is None or registration is None or self.broker_id not in registration.replicas:
            self._delete_log(event.key)
        elif self._has_roles:
            local = LocalPartition(topic.name, event.key.partition_index, topic.topic_id, registration)
            self._apply_local(local, now_ms)

    # --- follower ------------------------------------------------------------------------------------------

    def _on_fetch_answered(self, event: FetchAnswered, now_ms: int) -> None:
        self._effects += self.fetchers.answered(event, now_ms)

    def _on_fetched_appended(self, event: FetchedAppended, now_ms: int) -> None:
        for key, error_message, size_bytes, must_flush in event.results:
            partition = self.partitions.get(key)
            if partition is not None and error_message is None:
                self._count(self.counts.replication_bytes_in, partition, size_bytes)
            self._effects += self.fetchers.appended(key, error_message, must_flush, now_ms)

    def _on_fetch_failed(self, event: FetchFailed, now_ms: int) -> None:
        self._effects += self.fetchers.failed(event, now_ms)

    # --- time ----------------------------------------------------------------------------------------------

    def _on_queue_empty(self, event: QueueEmpty, now_ms: int) -> None:
        self._effects += self.fetch_path.settle(now_ms)
        self._effects += self.fetchers.requests(now_ms)
        self._effects += self._link.requests(self.image.offset, now_ms)

    def _on_tick(self, event: Tick, now_ms: int) -> None:
        self._effects += self.produce_path.expire(now_ms)
        self._effects += self.fetch_path.expire(now_ms)
        self._stop_for(self.lifecycle.check_times(now_ms))
        if now_ms >= self._shrink_ms:
            self._shrink_ms = now_ms + max(1, self.config.replica_lag_ms_max // 2)
            for key, partition in self.partitions.items():
                proposal = partition.maybe_shrink(now_ms) or partition.retry_expand(now_ms)
                if proposal is not None:
                    self._submit(key, proposal)
                self._advance(partition, now_ms)  # whoever is caught up no more holds it up no more (F3)

    # --- metadata ------------------------------------------------------------------------------------------

    def _on_metadata(self, event: MetadataCommitted, now_ms: int) -> None:
        delta = MetadataDelta(self.image)
        for offset, raft_epoch, value in event.entries:
            delta.replay(decode_record(value), offset, raft_epoch)
        self.image = delta.apply(event.end_offset)
        for sentence in delta.violations:
            self.counts.metadata_violations += 1
            self._note(Level.ERROR, sentence)
        if delta.changed_brokers:
            self._brokers_changed(delta.changed_brokers, now_ms)
        if not self._has_roles:
            self._maybe_take_roles(now_ms)
            return
        changes = delta.local_changes(self.broker_id)
        for local in changes.deleted:
            self._delete(TopicPartition(local.topic_id, local.partition_index), now_ms)
        for local in (*changes.leaders, *changes.followers):
            self._apply_local(local, now_ms)
        if delta.changed_brokers:  # who may not join any more holds the high watermark up no more (F3)
            for partition in self.partitions.values():
                self._advance(partition, now_ms)
        for resource_type, name in delta.changed_configs:
            self._configs_changed(name if resource_type == RESOURCE_TOPIC else None)

    def _maybe_take_roles(self, now_ms: int) -> None:
        # D-2: the image at or behind our own registration record gives the roles, and nothing before it.
        epoch = self.lifecycle.broker_epoch
        own = self.image.brokers.get(self.broker_id)
        if (
            self._has_roles
            or self._logs is None
            or not self.lifecycle.is_registered
            or own is None
            or own.broker_epoch != epoch
        ):
            return
        self._has_roles = True
        self._note(Level.INFO, f"replayed own registration {epoch}, metadata offset {self.image.offset}")
        self._effects += self.fetchers.restart(epoch)
        for key in [key for key in self._logs if key.topic_id not in self.image.topics]:
            self._delete(key, now_ms)
        view = local_view(self.image, self.broker_id)
        for local in (*view.leaders, *view.followers):
            self._apply_local(local, now_ms)
        self.lifecycle.caught_up(now_ms)

    def _drop_roles(self) -> None:
        self._has_roles = False
        self._link.drop_proposals()
        self._effects += self.fetchers.restart(-1)
        for key, partition in self.partitions.items():
            partition.drop_role()
            self.fetchers.unfollow(key)
            self._effects += self.produce_path.state_changed(key)
            self._effects += self.fetch_path.role_changed(key)

    def _brokers_changed(self, broker_ids: tuple[int, ...], now_ms: int) -> None:
        known = self._brokers
        joined = False
        for broker_id in broker_ids:
            broker = self.image.brokers.get(broker_id)
            before = known.acceptable.pop(broker_id, None)
            known.epochs.pop(broker_id, None)
            if broker is None:
                continue
            known.epochs[broker_id] = broker.broker_epoch
            if broker.in_controlled_shutdown and not broker.is_fenced:
                self.lifecycle.hurry(now_ms)  # it may go once the controller knows how far we have come (R23)
            if broker.is_acceptable_leader:
                known.acceptable[broker_id] = broker.broker_epoch
                joined = joined or before != broker.broker_epoch
            endpoint = broker.endpoint(self.config.inter_broker_listener_name)
            if endpoint is not None:
                self.fetchers.move_source(broker_id, endpoint.host, endpoint.port)
        if joined:  # a caught-up follower does not list its row again just because it was unfenced
            for key, partition in self.partitions.items():
                proposal = partition.retry_expand(now_ms)
                if proposal is not None:
                    self._submit(key, proposal)

    def _apply_local(self, local: LocalPartition, now_ms: int) -> None:
        key = TopicPartition(local.topic_id, local.partition_index)
        partition = self.partitions.get(key)
        if partition is None:
            assert self._logs is not None
            log = self._logs.get(key)
            if log is None:
                if key not in self._opening:
                    self._opening[key] = None
                    self._open_log(key)
                return
            partition = self._make_partition(key, local.topic_name, log)
        before = partition.registration
        change = partition.apply_registration(local.registration, now_ms)
        self._registered(partition, change, before, now_ms)

    def _registered(
        self, partition: Partition, change: RoleChange, before: PartitionRegistration | None, now_ms: int
    ) -> None:
        key, registration = partition.key, partition.registration
        if change is RoleChange.IGNORED or registration is None:
            return
        if change is RoleChange.UPDATED:
            if partition.role is Role.LEADER:
                if before is not None:
                    self._note(Level.INFO, f"{_name(partition)}: {registration.diff(before)}")
                self._leader_updated(partition, now_ms)
            return
        self._alter.withdraw(key)
        self.fetchers.unfollow(key)
        if change is RoleChange.BECAME_LEADER:
            story = "" if before is None else f", {registration.diff(before)}"
            self._note(Level.INFO, f"{_name(partition)}: leads in epoch {registration.leader_epoch}{story}")
            self._effects.append(StartEpoch(key, registration.leader_epoch))
        else:
            self._follow(partition)
        self._effects += self.produce_path.state_changed(key)
        self._effects += self.fetch_path.role_changed(key)

    def _leader_updated(self, partition: Partition, now_ms: int) -> None:
        key = partition.key
        if partition.leadership is not None and partition.leadership.proposal is None:
            self._alter.withdraw(key)
        self._effects += self.produce_path.state_changed(key)
        self._advance(partition, now_ms)
        proposal = partition.retry_expand(now_ms)
        if proposal is not None:
            self._submit(key, proposal)

    def _follow(self, partition: Partition) -> None:
        registration = partition.registration
        leader = None if registration is None else registration.leader
        broker = None if leader is None else self.image.brokers.get(leader)
        endpoint = None if broker is None else broker.endpoint(self.config.inter_broker_listener_name)
        if leader is not None and endpoint is not None:
            self._note(Level.INFO, f"{_name(partition)}: follows {leader} in epoch {partition.leader_epoch}")
            self.fetchers.follow(partition, leader, endpoint.host, endpoint.port)

    def _make_partition(self, key: TopicPartition, topic_name: str, log: LogView) -> Partition:
        config = log_config(self.image, topic_name, self.config.static)
        partition = Partition(
            self.broker_id,
            key,
            topic_name,
            log,
            high_watermark=self._high_watermarks.pop(key, 0),
            brokers=self._brokers,
            lag_ms_max=self.config.replica_lag_ms_max,
            counts_flushed=config.flush_messages == 1,
        )
        self.partitions[key] = partition
        self._max_message_bytes[key] = max_message_bytes(self.image, topic_name, self.config.static)
        self._effects.append(ConfigureLog(key, config))
        return partition

    def _configs_changed(self, topic_name: str | None) -> None:
        for key, partition in self.partitions.items():
            if topic_name is None or partition.topic_name == topic_name:
                config = log_config(self.image, partition.topic_name, self.config.static)
                partition.counts_flushed = config.flush_messages == 1
                if partition.counts_flushed:
                    self._effects.append(Flush(key))  # from now on only durable records count (D6)
                self._max_message_bytes[key] = max_message_bytes(
                    self.image, partition.topic_name, self.config.static
                )
                self._effects.append(ConfigureLog(key, config))

    def _open_log(self, key: TopicPartition) -> None:
        topic = self.image.topics[key.topic_id]
        self._effects.append(OpenLog(key, topic.name, log_config(self.image, topic.name, self.config.static)))

    def _delete(self, key: TopicPartition, now_ms: int) -> None:
        self._opening.pop(key, None)
        partition = self.partitions.pop(key, None)
        if partition is None:
            self._delete_log(key)
            return
        self._note(Level.INFO, f"{_name(partition)}: deleted")
        partition.drop_role()
        self.fetchers.unfollow(key)
        self._alter.withdraw(key)
        self._effects += self.produce_path.state_changed(key)
        self._effects += self.fetch_path.role_changed(key)
        del self._max_message_bytes[key]
        self._delete_log(key)

    def _delete_log(self, key: TopicPartition) -> None:
        assert self._logs is not None
        if self._logs.pop(key, None) is not None:
            self._effects.append(DeleteLog(key))

    # --- controller ----------------------------------------------------------------------------------------

    def _on_started(self, event: Started, now_ms: int) -> None:
        self._link.is_started = True

    def _on_shutdown_wanted(self, event: ShutdownWanted, now_ms: int) -> None:
        self._stop_for(self.lifecycle.shutdown_wanted(now_ms))

    def _on_controller(self, event: ControllerChanged, now_ms: int) -> None:
        self._effects += self._link.changed(event.controller_id, event.raft_epoch, now_ms)

    def _on_call_answered(self, event: CallAnswered, now_ms: int) -> None:
        if not self._link.is_awaited(event):
            return
        response = event.response
        match response:
            case AlterPartitionResponse():
                self._alter_answered(response, now_ms)
            case AllocateProducerIdsResponse():
                self._effects += self._link.producer_ids_answered(response)
            case BrokerRegistrationResponse():
                self._registration_answered(response, now_ms)
            case BrokerHeartbeatResponse():
                self._heartbeat_answered(response, now_ms)
            case _:
                raise AssertionError(f"unexpected answer {type(response).__name__}")

    def _on_call_failed(self, event: CallFailed, now_ms: int) -> None:
        self._effects += self._link.failed(event, now_ms)

    def _registration_answered(self, response: BrokerRegistrationResponse, now_ms: int) -> None:
        self._stop_for(self.lifecycle.registered(response, now_ms))
        if self.lifecycle.is_registered:
            how = "clean" if response.clean_shutdown else "unclean"
            self._note(
                Level.INFO, f"registered with broker epoch {response.broker_epoch}, previous stop was {how}"
            )
            self._maybe_take_roles(now_ms)
        else:
            self._note(Level.WARNING, f"registration refused: {response.error_message}")

    def _heartbeat_answered(self, response: BrokerHeartbeatResponse, now_ms: int) -> None:
        before = (self.lifecycle.state, self.lifecycle.is_fenced)
        self._stop_for(self.lifecycle.heartbeat_answered(response, now_ms))
        if not self.lifecycle.is_registered and self._has_roles:
            self._note(Level.WARNING, f"registration is over, roles dropped: {response.error_message}")
            self._drop_roles()
        after = (self.lifecycle.state, self.lifecycle.is_fenced)
        if after != before:
            self._note(Level.INFO, f"{after[0].value}, {'fenced' if after[1] else 'unfenced'}")

    def _alter_answered(self, response: AlterPartitionResponse, now_ms: int) -> None:
        if response.error_code != ErrorCode.NONE:
            self.counts.failed_isr_updates += 1
            self._alter.failed(now_ms)
            if response.error_code == ErrorCode.STALE_BROKER_EPOCH:
                self.lifecycle.hurry(now_ms)  # the heartbeat will tell what has become of our registration
            return
        asked = self._alter.take_in_flight()
        for row in response.partitions:
            key = TopicPartition(row.topic_id, row.partition_index)
            proposal = asked.get(key)
            partition = self.partitions.get(key)
            if proposal is None or partition is None:
                continue
            before = partition.registration
            verdict, change = partition.alter_answered(proposal, row, now_ms)
            if verdict is AlterVerdict.RESEND:
                self._alter.retry([(key, proposal)], now_ms)
            if row.error_code != ErrorCode.NONE:
                self.counts.failed_isr_updates += 1
                self._note(
                    Level.WARNING, f"{_name(partition)}: ISR {proposal.isr} refused with {row.error_code}"
                )
            self._registered(partition, change, before, now_ms)
            if change is RoleChange.IGNORED:
                self._advance(partition, now_ms)  # a proposal that was dropped holds it up no more

    # --- inside --------------------------------------------------------------------------------------------

    def _submit(self, key: TopicPartition, proposal: Proposal) -> None:
        registration = self.partitions[key].registration
        assert registration is not None
        if len(proposal.isr) > len(registration.isr):
            self.counts.isr_expands += 1
        else:
            self.counts.isr_shrinks += 1
        self._alter.submit(key, proposal)

    def _count(self, totals: dict[str, int], partition: Partition, number: int) -> None:
        totals[partition.topic_name] = totals.get(partition.topic_name, 0) + number

    def _stop_for(self, reason: StopReason | None) -> None:
        if reason is not None:
            self._effects.append(Stop(reason.text, reason.is_failure))

    def _note(self, level: Level, text: str) -> None:
        self._effects.append(Note(level, text))

    @property
    def has_roles(self) -> bool:
        """Metadata has caught up with our registration: requests can be answered (D-2)."""
        return self._has_roles

    @property
    def state(self) -> BrokerState:
        """Where this broker stands in its life."""
        return self.lifecycle.state


def _name(partition: Partition) -> str:
    return f"{partition.topic_name}-{partition.key.partition_index}"
