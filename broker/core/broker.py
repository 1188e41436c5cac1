"""The broker's core: `handle` takes an event and returns effects; all decisions of a broker are behind it.

Owns the order in which its parts see an event: requests and their answers, time, the controller's answers.
The parts: `replica_manager` (metadata, partitions, roles), `partition`, `high_watermarks`, `ceilings`,
`produce_path`, `fetch_path`, `delete_path`, `fetcher`, `alter_partition`, `lifecycle`, `producer_ids`,
`groups`.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from holdfast.broker.core.config import BrokerConfig
from holdfast.broker.core.counts import BrokerCounts
from holdfast.broker.core.events import (
    Appended,
    CallAnswered,
    CallFailed,
    CeilingsStored,
    CleanShutdownDisproved,
    ControllerChanged,
    DisksStalled,
    Effect,
    EpochStarted,
    Event,
    FetchAnswered,
    FetchedAppended,
    FetchFailed,
    Flush,
    Flushed,
    GroupLogRead,
    GroupRequestReceived,
    LaterSnapshot,
    LogDamaged,
    LogOpened,
    LogPutAside,
    LogsLoaded,
    LogsOffline,
    LogStartStored,
    MetadataCommitted,
    OffsetsTopicCreated,
    QueueEmpty,
    RequestReceived,
    Respond,
    RowsOmitted,
    ShutdownWanted,
    SnapshotLoaded,
    SpaceLow,
    Started,
    Stop,
    ThrottledSent,
    Tick,
    Truncated,
)
from holdfast.broker.core.groups.shard import GroupWrite
from holdfast.broker.core.registration.controller_link import ControllerLink
from holdfast.broker.core.registration.lifecycle import (
    RETRY_MS_MIN,
    BrokerState,
    Identity,
    Lifecycle,
    StopReason,
)
from holdfast.broker.core.registration.metadata_lineage import MetadataLineage
from holdfast.broker.core.replicas.leadership import AlterVerdict
from holdfast.broker.core.replicas.partition import Partition, RoleChange
from holdfast.broker.core.replicas.replica_manager import ReplicaManager, by_topic, name_of
from holdfast.broker.core.replicas.silent_followers import Silence, SilentFollowers
from holdfast.broker.core.requests.log_info import Replica, UsableLog, answer_log_info
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.image import MetadataImage
from holdfast.metadata.questions import Asked
from holdfast.metadata.snapshot import MetadataState
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.alter_partition import AlterPartitionResponse
from holdfast.protocol.messages.broker_registration import BrokerHeartbeatResponse, BrokerRegistrationResponse
from holdfast.protocol.messages.delete_records import DeleteRecordsRequest
from holdfast.protocol.messages.fetch import FetchRequest, FetchResponse
from holdfast.protocol.messages.list_offsets import ListOffsetsRequest
from holdfast.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from holdfast.protocol.messages.produce import ProduceRequest
from holdfast.protocol.messages.producer_ids import (
    AllocateProducerIdsResponse,
    InitProducerIdRequest,
)
from holdfast.protocol.messages.replica_log_info import GetReplicaLogInfoRequest, GetReplicaLogInfoResponse
from holdfast.runtime.stats import Level, LogLine

#: Most produce requests that wait for replication, and most consumers' fetches that wait for data.
PURGATORY_MAX = 20_000


class Broker:
    """One broker. Only `handle` changes it."""

    #: both as of the look that the visits of silent followers' partitions go by
    _silence: Silence
    _quiet_since_ms: dict[int, int | None]

    def __init__(
        self, config: BrokerConfig, identity: Identity, now_ms: int, lineage: MetadataLineage | None = None
    ) -> None:
        self.config = config
        self.broker_id = config.node_id
        self.lifecycle = Lifecycle(
            identity,
            heartbeat_ms=config.heartbeat_ms,
            registration_timeout_ms=config.registration_timeout_ms,
            controlled_shutdown=config.controlled_shutdown,
            shutdown_timeout_ms=config.controlled_shutdown_timeout_ms,
            now_ms=now_ms,
        )
        self.counts = BrokerCounts()
        self._link = ControllerLink(config.node_id, self.lifecycle, config.request_timeout_ms)
        self._alter = self._link.alter
        self._effects: list[Effect] = []
        self._replica_manager = replica_manager = ReplicaManager(
            config,
            self.lifecycle,
            self._alter,
            self.counts,
            lineage=lineage or MetadataLineage(config.node_id),
            purgatory_max=PURGATORY_MAX,
            outbox=self._effects,
        )
        self.partitions = replica_manager.partitions
        self.produce_path = replica_manager.paths.produce_path
        self.fetch_path = replica_manager.paths.fetch_path
        self.delete_path = replica_manager.paths.delete_path
        self.client_quotas = replica_manager.paths.client_quotas
        self.fetchers = replica_manager.fetchers
        self.groups = replica_manager.paths.groups
        self._shrink_ms = now_ms
        self._silent_followers = SilentFollowers(config.replica_silent_ms, config.replica_lag_ms_max, now_ms)
        self._silence, self._quiet_since_ms = Silence(frozenset(), frozenset()), {}
        self._passes = replica_manager.passes
        self._ceilings = replica_manager.ceilings
        self._high_watermarks = replica_manager.high_watermarks
        self._handlers = self._handlers_of_events()
        self._requests: dict[type, Callable[[Any, Any, int], None]] = {
            ProduceRequest: self._on_produce,
            FetchRequest: self._on_fetch,
            ListOffsetsRequest: self._on_list_offsets,
            DeleteRecordsRequest: self._on_delete_records,
            OffsetForLeaderEpochRequest: self._on_offset_for_leader_epoch,
            InitProducerIdRequest: self._on_init_producer_id,
        }

    def _handlers_of_events(self) -> dict[type, Callable[[Any, int], None]]:
        manager = self._replica_manager
        return {
            RequestReceived: self._on_request,
            GroupRequestReceived: self.groups.request,
            GroupLogRead: self.groups.log_read,
            OffsetsTopicCreated: self.groups.topic_created,
            Appended: self._on_appended,
            FetchAnswered: self._on_fetch_answered,
            RowsOmitted: self._on_rows_omitted,
            ThrottledSent: self._on_throttled_sent,
            FetchedAppended: self._on_fetched_appended,
            QueueEmpty: self._on_queue_empty,
            Tick: self._on_tick,
            Flushed: self._on_flushed,
            LogStartStored: self._on_log_start_stored,
            Truncated: self._on_truncated,
            EpochStarted: self._on_epoch_started,
            CeilingsStored: self._high_watermarks.ceilings_stored,
            FetchFailed: self._on_fetch_failed,
            MetadataCommitted: self._on_metadata,
            SnapshotLoaded: self._on_snapshot,
            LaterSnapshot: self._on_later_snapshot,
            ControllerChanged: self._on_controller,
            CallAnswered: self._on_call_answered,
            CallFailed: self._on_call_failed,
            LogsLoaded: manager.logs_loaded,
            LogsOffline: manager.logs_offline,
            LogDamaged: manager.log_damaged,
            LogPutAside: manager.log_put_aside,
            CleanShutdownDisproved: self._on_proof_belied,
            DisksStalled: self._on_disks_stalled,
            SpaceLow: self._on_space_low,
            LogOpened: manager.log_opened,
            Started: self._on_started,
            ShutdownWanted: self._on_shutdown_wanted,
        }

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """Handle one event; returns what to do about it, in order."""
        self._handlers[type(event)](event, now_ms)
        effects = self._effects.copy()
        self._effects.clear()
        return effects

    def next_deadline_ms(self) -> int:
        """When the next Tick is due at the latest."""
        parts = (
            self.produce_path.next_deadline_ms(),
            self.fetch_path.next_deadline_ms(),
            self.delete_path.next_deadline_ms(),
            self.fetchers.next_deadline_ms(),
            self.groups.next_deadline_ms(),
            self._silent_followers.next_deadline_ms(),
            self._ceilings.next_deadline_ms(),
        )
        if self._passes.is_due:
            return 0
        deadline_ms = min(self._link.next_deadline_ms(), self._shrink_ms)
        for part in parts:
            if part is not None and part < deadline_ms:
                deadline_ms = part
        return deadline_ms

    @property
    def controller_id(self) -> int | None:
        """The quorum's leader as this broker's observer knows it."""
        return self._link.controller_id

    @property
    def controller_epoch(self) -> int:
        """Raft epoch of that leader."""
        return self._link.controller_epoch

    def leads(self, key: PartitionId, leader_epoch: int) -> bool:
        """True while this broker leads the partition in that leader epoch."""
        partition = self.partitions.get(key)
        return partition is not None and partition.leads_in(leader_epoch)

    # --- questions -----------------------------------------------------------------------------------------

    def asked_through(self, listener_name: str) -> Asked:
        """What answers to questions that come through a listener need besides the image."""
        return Asked(
            listener_name=listener_name,
            cluster_id=self.config.cluster_id,
            controller_id=self.controller_id,
            controller_epoch=self.controller_epoch,
            partition_limit=self.config.partition_limit,
            static=self.config.static,
        )

    def log_info(
        self, request: GetReplicaLogInfoRequest, log_of: Callable[[PartitionId], UsableLog | None]
    ) -> GetReplicaLogInfoResponse:
        """What this broker tells of its logs; without roles too (R76), the epoch says which registration this
        process holds."""

        def replica_of(key: PartitionId) -> Replica | None:
            found = log_of(key)
            if found is None:
                return None
            leader_epoch = high_watermark = -1
            partition = self.partitions.get(key)
            if partition is not None:
                leader_epoch, high_watermark = partition.leader_epoch, partition.claimed_high_watermark
            return Replica(found.log, found.is_settled, leader_epoch, high_watermark, found.ceiling)

        epoch, damage_of = self.lifecycle.broker_epoch, self.damaged_replicas.get
        return answer_log_info(request, self.image, self.broker_id, epoch, replica_of, damage_of)

    def lag_of(self, key: PartitionId, log_end_offset: int) -> int:
        """Records below the high watermark that a replica of ours with this log end does not have."""
        partition = self.partitions.get(key)
        return 0 if partition is None else max(0, partition.high_watermark - log_end_offset)

    # --- requests ------------------------------------------------------------------------------------------

    def _on_request(self, event: RequestReceived, now_ms: int) -> None:
        self._requests[type(event.message)](event.reply_to, event.message, now_ms)

    def _on_produce(self, reply_to: object, request: ProduceRequest, now_ms: int) -> None:
        self._effects += self.produce_path.request(reply_to, request, now_ms)

    def _on_fetch(self, reply_to: object, request: FetchRequest, now_ms: int) -> None:
        if request.replica_id < 0:
            self._effects += self.fetch_path.consumer_request(reply_to, request, now_ms)
            return
        registered_epoch = self._replica_manager.brokers.epochs.get(request.replica_id)
        if registered_epoch is None or request.broker_epoch > registered_epoch:
            # Sessions are kept for registered brokers only, so there are never more of them than brokers; and
            # an epoch that never comes would void the sessions of all registrations from then on.
            text = (
                f"broker {request.replica_id} is not registered with epoch {request.broker_epoch} as far as "
                "this broker knows; try again"
            )
            self._effects.append(
                Respond(reply_to, FetchResponse(ErrorCode.BROKER_ID_NOT_REGISTERED, text, ()))
            )
            return
        effects, moved, proposals = self.fetch_path.follower_request(reply_to, request, now_ms)
        self._effects += effects
        for key, proposal in proposals:
            self._replica_manager.submit(key, proposal)
        for partition in moved:
            self._high_watermarks.advance(partition, now_ms)

    def _on_list_offsets(self, reply_to: object, request: ListOffsetsRequest, now_ms: int) -> None:
        self._effects.append(self.fetch_path.list_offsets(reply_to, request))

    def _on_delete_records(self, reply_to: object, request: DeleteRecordsRequest, now_ms: int) -> None:
        self._effects += self.delete_path.request(reply_to, request, now_ms)

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
            self._high_watermarks.advance(partition, now_ms)
        if isinstance(event.context, GroupWrite):
            self.groups.appended(event, now_ms)
        else:
            self._effects += self.produce_path.appended(event, now_ms)

    def _on_flushed(self, event: Flushed, now_ms: int) -> None:
        self.fetchers.flushed(event.key)
        partition = self.partitions.get(event.key)
        if partition is not None:
            self._effects += self.produce_path.flushed(partition, now_ms)
            self._high_watermarks.advance(partition, now_ms)

    def _on_epoch_started(self, event: EpochStarted, now_ms: int) -> None:
        partition = self.partitions.get(event.key)
        if partition is not None and partition.epoch_started(event.leader_epoch, event.start_offset):
            self._effects += self.fetch_path.role_changed(event.key)
            self._high_watermarks.advance(partition, now_ms)

    def _on_log_start_stored(self, event: LogStartStored, now_ms: int) -> None:
        self.fetchers.start_stored(event.key)
        partition = self.partitions.get(event.key)
        if partition is not None:
            self.fetch_path.log_start_moved(event.key)
            self._effects += self.delete_path.low_watermark_moved(partition)

    def _on_truncated(self, event: Truncated, now_ms: int) -> None:
        partition = self.partitions.get(event.key)
        if partition is not None:
            partition.log_was_cut()
        self.fetchers.cut(event.key)

    def _on_rows_omitted(self, event: RowsOmitted, now_ms: int) -> None:
        self.fetch_path.rows_omitted(event)

    def _on_throttled_sent(self, event: ThrottledSent, now_ms: int) -> None:
        self.fetch_path.throttled_sent(event.size_bytes, now_ms)

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
        count = len(self.fetchers.unreachable)
        self._effects += self.fetchers.failed(event, now_ms)
        if len(self.fetchers.unreachable) > count:
            self.lifecycle.hurry(now_ms)  # writes may wait for another leader

    # --- time ----------------------------------------------------------------------------------------------

    def _on_queue_empty(self, event: QueueEmpty, now_ms: int) -> None:
        self._effects += self.fetch_path.settle(now_ms)
        self._effects += self.fetchers.requests(now_ms)
        self._ceilings.store(now_ms)
        manager = self._replica_manager
        self._effects += self._link.requests(
            self.image.offset,
            now_ms,
            manager.offline_to_report(),
            self.fetchers.unreachable,
            manager.online_to_report(),
        )

    def _on_tick(self, event: Tick, now_ms: int) -> None:
        self._stop_for(self.lifecycle.check_times(now_ms))
        if now_ms >= self._shrink_ms:
            self._shrink_ms = now_ms + max(1, self.config.replica_lag_ms_max // 2)
            # finds followers which fell behind, or may join
            self._passes.begin(self._look_at_followers, self.partitions, now_ms, then=self._ceilings.lower)
        else:
            self._forget_heard()
            self._passes.go_on(now_ms)
        self._drop_silent(now_ms)
        self.groups.tick(now_ms)
        # last: what the high watermark has passed in this very tick is not late
        self._effects += self.produce_path.expire(now_ms)
        self._effects += self.fetch_path.expire(now_ms)
        self._effects += self.delete_path.expire(now_ms)

    def _drop_silent(self, now_ms: int) -> None:
        quiet_since_ms = self.fetch_path.followers_quiet_since_ms()
        silence = self._silent_followers.look(quiet_since_ms, now_ms)
        if silence is None or not any(map(self.image.is_active, silence.silent)):
            return  # one that is fenced is in no ISR any more
        self._silence, self._quiet_since_ms = silence, quiet_since_ms
        self._passes.begin(self._drop_silent_from, self.partitions, now_ms)

    def _forget_heard(self) -> None:
        """Who has asked since the look that began the pass is not silent for the rest of it."""
        if not self._passes.is_under_way(self._drop_silent_from):
            return
        now_quiet, then_quiet = self.fetch_path.followers_quiet_since_ms(), self._quiet_since_ms
        silent = frozenset(r for r in self._silence.silent if now_quiet.get(r) == then_quiet[r])
        self._silence = replace(self._silence, silent=silent)
        if not silent:
            self._passes.end(self._drop_silent_from)

    def _drop_silent_from(self, partition: Partition, now_ms: int) -> None:
        proposal = partition.maybe_drop_silent(self._silence)
        if proposal is None:
            return
        assert partition.registration is not None
        for replica_id in set(partition.registration.isr).difference(proposal.isr):
            self._silent_followers.dropped(replica_id, self._quiet_since_ms[replica_id], now_ms)
        self._replica_manager.submit(partition.key, proposal)

    def _look_at_followers(self, partition: Partition, now_ms: int) -> None:
        proposal = partition.maybe_shrink(now_ms) or partition.retry_expand(now_ms)
        if proposal is not None:
            self._replica_manager.submit(partition.key, proposal)
        # a follower that fell behind no longer holds back the high watermark (F3)
        self._high_watermarks.advance(partition, now_ms)

    # --- controller ----------------------------------------------------------------------------------------

    def _on_started(self, event: Started, now_ms: int) -> None:
        self._link.is_started = True

    def _on_proof_belied(self, event: CleanShutdownDisproved, now_ms: int) -> None:
        assert not self.has_roles, "logs are compared with their mark before anybody is served from them"
        self._note(Level.WARNING, "logs differ from what the last stop left: registering as after a crash")
        self._link.clean_shutdown_disproved(event.incarnation_id, now_ms)

    def _on_disks_stalled(self, event: DisksStalled, now_ms: int) -> None:
        how = "fenced until it does" if event.is_stalled else "to be unfenced"
        self._note(Level.WARNING if event.is_stalled else Level.INFO, f"{event.text}: this broker asks {how}")
        self.lifecycle.disks_stalled(event.is_stalled, now_ms)

    def _on_space_low(self, event: SpaceLow, now_ms: int) -> None:
        self.lifecycle.space_low(by_topic(sorted(event.keys)), now_ms)

    def _on_shutdown_wanted(self, event: ShutdownWanted, now_ms: int) -> None:
        self._stop_for(self.lifecycle.shutdown_wanted(now_ms))

    def _on_metadata(self, event: MetadataCommitted, now_ms: int) -> None:
        """Replay it. A broker that reads that it was unregistered has no role from there on (N-2); its next
        heartbeat would tell it so too, but not before it has been answered."""
        self._replica_manager.metadata_committed(event, now_ms)
        self._after_metadata(now_ms)

    def _on_snapshot(self, event: SnapshotLoaded, now_ms: int) -> None:
        self._replica_manager.snapshot_loaded(event, now_ms)
        self._after_metadata(now_ms)

    def _on_later_snapshot(self, event: LaterSnapshot, now_ms: int) -> None:
        self._replica_manager.left_behind(event.reason)
        self._after_metadata(now_ms)

    def _after_metadata(self, now_ms: int) -> None:
        if self.later_record is not None and self.lifecycle.applies_metadata:
            self.lifecycle.left_behind(now_ms)
            self._link.drop_proposals()
            self._replica_manager.drop_roles()
        if self.has_roles and not self._replica_manager.is_registered_here():
            self._stop_for(self.lifecycle.registration_over(now_ms))
            self._drop_roles("the cluster does not know it any more")

    def _drop_roles(self, why: str) -> None:
        self._note(Level.WARNING, f"registration is over, roles dropped: {why}")
        self._link.drop_proposals()
        self._replica_manager.drop_roles()

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
                self._effects += self._link.producer_ids_answered(response, now_ms)
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
            self._replica_manager.maybe_take_roles(now_ms)
        else:
            self._note(Level.WARNING, f"registration refused: {response.error_message}")

    def _heartbeat_answered(self, response: BrokerHeartbeatResponse, now_ms: int) -> None:
        before = (self.lifecycle.state, self.lifecycle.is_fenced)
        self._stop_for(self.lifecycle.heartbeat_answered(response, now_ms))
        if not self.lifecycle.is_registered and self.has_roles:
            self._drop_roles(response.error_message or "the controller says so")
        manager = self._replica_manager
        if manager.offline_to_report() or manager.online_to_report():
            # told of behind this heartbeat, or not applied here yet
            self.lifecycle.hurry(now_ms + RETRY_MS_MIN)
        after = (self.lifecycle.state, self.lifecycle.is_fenced)
        if after != before:
            self._note(Level.INFO, f"{after[0].value}, {'fenced' if after[1] else 'unfenced'}")

    def _alter_answered(self, response: AlterPartitionResponse, now_ms: int) -> None:
        if response.error_code != ErrorCode.NONE:
            self.counts.failed_isr_updates += 1
            self._alter.heard(response.last_request_number)
            self._alter.failed(now_ms)
            if response.error_code == ErrorCode.STALE_BROKER_EPOCH:
                self.lifecycle.hurry(now_ms)  # the next heartbeat shows whether the registration is over
            return
        asked = self._alter.take_in_flight()
        for row in response.partitions:
            key = PartitionId(row.topic_id, row.partition_index)
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
                    Level.WARNING, f"{name_of(partition)}: ISR {proposal.isr} refused with {row.error_code}"
                )
            self._replica_manager.state_changed(partition, change, before, now_ms)
            if change is RoleChange.IGNORED:
                # a proposal that was dropped holds it up no more
                self._high_watermarks.advance(partition, now_ms)

    # --- inside --------------------------------------------------------------------------------------------

    def _count(self, totals: dict[str, int], partition: Partition, number: int) -> None:
        totals[partition.topic_name] = totals.get(partition.topic_name, 0) + number

    def _stop_for(self, reason: StopReason | None) -> None:
        if reason is not None:
            self._effects.append(Stop(reason.text, reason.is_failure))

    def _note(self, level: Level, text: str) -> None:
        self._effects.append(LogLine(level, text))

    @property
    def image(self) -> MetadataImage:
        """Metadata as far as it was applied."""
        return self._replica_manager.image

    @property
    def metadata_state(self) -> MetadataState:
        """The same, and what led to it: what a snapshot holds."""
        return MetadataState(self._replica_manager.image, self._replica_manager.history)

    @property
    def later_record(self) -> str | None:
        """Why no more metadata is applied: a later build wrote some. None while it is applied."""
        return self._replica_manager.later_record

    @property
    def has_roles(self) -> bool:
        """Metadata has caught up with our registration: requests can be answered (N-2)."""
        return self._replica_manager.has_roles

    @property
    def offline_replicas(self) -> Collection[PartitionId]:
        """Partitions whose logs are damaged or lie in failed dirs of ours (R27)."""
        return self._replica_manager.offline

    @property
    def damaged_replicas(self) -> Mapping[PartitionId, str]:
        """Replicas of ours that are out of use because their log is damaged, and what is."""
        return self._replica_manager.damaged.reasons

    @property
    def state(self) -> BrokerState:
        """This broker's state."""
        return self.lifecycle.state
