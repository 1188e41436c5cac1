"""The partitions of this broker and their roles, as metadata assigns them.

Owns the metadata image, the partitions, which replicas are out of use, and what follows a change of a
partition: the leader epoch in the log, fetching, ISR proposals, answers to waiting requests. Roles come from
an image that holds the broker's own registration record, never from an earlier one (N-2). Its parts:
`log_openings` (logs that are made and deleted), `ceilings`, `high_watermarks`. Handles no requests and no
calls: `broker.core.broker` does. Appends effects to the list that it shares with its owner.
"""

from collections.abc import Collection, Iterable

from holdfast.broker.core.config import BrokerConfig, log_config, max_message_bytes
from holdfast.broker.core.counts import BrokerCounts
from holdfast.broker.core.events import (
    ConfigureLog,
    DamagedReplica,
    DeleteLog,
    Effect,
    Flush,
    ForgetTopic,
    LogDamaged,
    LogOpened,
    LogPutAside,
    LogsLoaded,
    LogsOffline,
    MetadataCommitted,
    SnapshotLoaded,
    StartEpoch,
    Stop,
    StoreBrokerEpoch,
)
from holdfast.broker.core.registration.known_brokers import KnownBrokers
from holdfast.broker.core.registration.lifecycle import Lifecycle
from holdfast.broker.core.registration.metadata_lineage import MetadataLineage
from holdfast.broker.core.replicas.alter_partition import AlterPartitionQueue
from holdfast.broker.core.replicas.ceilings import Ceilings
from holdfast.broker.core.replicas.damaged_replicas import DamagedReplicas
from holdfast.broker.core.replicas.divergence import LogView
from holdfast.broker.core.replicas.fetcher import Fetchers
from holdfast.broker.core.replicas.high_watermarks import HighWatermarks
from holdfast.broker.core.replicas.leadership import Proposal
from holdfast.broker.core.replicas.log_openings import LogOpenings
from holdfast.broker.core.replicas.partition import Partition, Role, RoleChange
from holdfast.broker.core.replicas.partition_passes import PartitionPasses
from holdfast.broker.core.replicas.replication_quota import ReplicationQuotas
from holdfast.broker.core.requests.request_paths import RequestPaths
from holdfast.metadata.delta import LocalChanges, LocalPartition, MetadataDelta, local_view
from holdfast.metadata.history import MetadataHistory, committed_record
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.image import (
    CLUSTER_RESOURCE,
    RESOURCE_CLIENT,
    RESOURCE_TOPIC,
    ConfigResource,
    MetadataImage,
)
from holdfast.metadata.partition import PartitionRegistration
from holdfast.metadata.records import METADATA_VERSION, LaterRecord
from holdfast.protocol.messages.broker_registration import OfflineTopic
from holdfast.runtime.stats import Level, LogLine

#: Logs that get new settings in one event.
CONFIGURED_MAX = 100


class ReplicaManager:
    """The partitions of one broker."""

    def __init__(
        self,
        config: BrokerConfig,
        lifecycle: Lifecycle,
        alter: AlterPartitionQueue,
        counts: BrokerCounts,
        *,
        lineage: MetadataLineage,
        purgatory_max: int,
        outbox: list[Effect],
    ) -> None:
        self.config = config
        self.broker_id = config.node_id
        #: metadata as applied so far
        self.image = MetadataImage()
        #: what led to it
        self.history = MetadataHistory()
        self.partitions: dict[PartitionId, Partition] = {}
        self.passes = PartitionPasses(self.partitions)
        #: the brokers registered in the image
        self.brokers = KnownBrokers()
        self._quotas = quotas = ReplicationQuotas(config.node_id, config.static)
        self.paths = RequestPaths(
            config,
            self.partitions,
            quotas.leader,
            purgatory_max=purgatory_max,
            image=lambda: self.image,
            is_session_over=lambda now_ms: config.fences_itself and lifecycle.is_session_over(now_ms),
            outbox=outbox,
        )
        self.fetchers = Fetchers(
            config.node_id,
            wait_ms=config.replica_fetch_wait_ms,
            max_bytes=config.replica_fetch_max_bytes,
            response_max_bytes=config.replica_fetch_response_max_bytes,
            backoff_ms=config.replica_fetch_backoff_ms,
            timeout_ms=config.replica_socket_timeout_ms,
            quota=quotas.follower,
            silence_ms=config.leader_silence_ms,
        )
        self.ceilings = Ceilings(config.ceiling_records, self.partitions, self.passes, self.fetchers, outbox)
        self.high_watermarks = HighWatermarks(
            self.partitions, self.paths, self.ceilings, self.fetchers, outbox
        )
        #: roles are taken: the image holds the broker's own registration (N-2)
        self.has_roles = False
        #: why committed records from some offset on are not applied; None while they are
        self.later_record: str | None = None
        #: a snapshot was of other metadata: nothing of that is applied while the process ends
        self._is_abandoned = False
        self._lifecycle = lifecycle
        self._lineage = lineage
        self._alter = alter
        self._counts = counts
        self._logs = LogOpenings(outbox)
        #: logs in failed dirs: out of use until the process ends (R27); and those in `damaged`
        self.offline: dict[PartitionId, None] = {}
        self.damaged = DamagedReplicas(config.node_id)
        #: what the start found damaged, until roles are taken
        self._found_damaged: tuple[DamagedReplica, ...] = ()
        #: True: a log that was not found never existed here; False: it may lie in a failed dir
        self._is_whole = True
        self._effects = outbox

    # --- metadata ------------------------------------------------------------------------------------------

    def metadata_committed(self, event: MetadataCommitted, now_ms: int) -> None:
        """Replay committed records; once roles are taken, apply what they change for this broker. From a
        record of a later build on nothing is applied (K29)."""
        if self._is_abandoned or self.later_record is not None:
            return
        try:
            records = [committed_record(offset, ms, value) for offset, _, value, ms in event.entries]
        except LaterRecord as later:
            self.left_behind(str(later))
            return
        delta = MetadataDelta(self.image)
        for (offset, raft_epoch, _, _), committed in zip(event.entries, records, strict=True):
            self._lineage.replayed(offset, committed.record)
            delta.replay(committed.record, offset, raft_epoch, committed.version)
        self.history.note(self.image, records)
        self.image = delta.apply(event.end_offset)
        self._metadata_changed(delta, now_ms)

    def left_behind(self, reason: str) -> None:
        """A later build wrote what is committed: nothing from here on is applied (K29)."""
        self.later_record = reason
        self._note(Level.ERROR, f"{reason}: this broker takes no part until it is upgraded")

    def snapshot_loaded(self, event: SnapshotLoaded, now_ms: int) -> None:
        """Take the state of a snapshot; once roles are taken, apply what is different for this broker. When
        it is of other metadata, this broker ends before it deletes what that does not name."""
        if self.has_roles and self._logs.are_loaded:
            problem = self._lineage.problem_with_snapshot(event.state, self._logs)
            if problem is not None and not self._is_abandoned:
                self._is_abandoned = True
                reason = self._lifecycle.abandon(problem)
                self._effects.append(Stop(reason.text, reason.is_failure))
        if self._is_abandoned:
            return
        delta = MetadataDelta.between(self.image, event.state.image)
        self.image, self.history = event.state.image, event.state.history
        self.later_record = None  # all of the state was read, also what was left out before
        self._lineage.loaded(event.state)
        self._metadata_changed(delta, now_ms)

    def _metadata_changed(self, delta: MetadataDelta, now_ms: int) -> None:
        for sentence in delta.violations:
            self._counts.metadata_violations += 1
            self._note(Level.ERROR, sentence)
        if delta.changed_brokers:
            self._brokers_changed(delta.changed_brokers, now_ms)
        if delta.changed_configs:
            self._configs_changed(delta.changed_configs, now_ms)
        if not self.has_roles:
            self.maybe_take_roles(now_ms)
            return
        changes = delta.local_changes(self.broker_id)
        for local in changes.deleted:
            self._delete(PartitionId(local.topic_id, local.partition_index))
        for local in (*changes.leaders, *changes.followers):
            self._apply_local(local, now_ms)
        self._mend(now_ms)
        if delta.changed_brokers:  # a replica that may not join no longer holds back the high watermark (F3)
            self.passes.begin(self.high_watermarks.advance, self.partitions, now_ms)

    def maybe_take_roles(self, now_ms: int) -> None:
        """Take the roles of the image once it holds the broker's own registration record; earlier images do
        not count (N-2)."""
        epoch = self._lifecycle.broker_epoch
        if self.has_roles or not self._logs.are_loaded or not self.is_registered_here():
            return
        if self.later_record is not None:
            return
        if not self._is_own_metadata(self._logs):
            return
        self.has_roles = True
        self._note(Level.INFO, f"replayed own registration {epoch}, metadata offset {self.image.offset}")
        self._effects += self.fetchers.restart(epoch)
        for key in [key for key in self._logs if not self._is_assigned(key)]:
            self._delete(key)  # its topic was deleted or it was reassigned while this broker was away
        self._place_damaged()
        view = local_view(self.image, self.broker_id)
        if not self._is_whole:
            self._logs_missing(view)
        for local in (*view.leaders, *view.followers):
            self._apply_local(local, now_ms)
        self._mend(now_ms)
        self._lifecycle.caught_up(now_ms)

    def _is_own_metadata(self, logs: Collection[PartitionId]) -> bool:
        """The image, which holds our registration, comes from the log that this broker has always followed.
        Else this broker ends before it deletes what that image does not name."""
        lineage, lifecycle = self._lineage, self._lifecycle
        own = (lifecycle.broker_epoch, lifecycle.identity.incarnation_id)
        problem = lineage.problem_with(*own) or lineage.problem_with_logs(logs)
        if problem is not None:
            reason = lifecycle.give_up(problem)
            self._effects.append(Stop(reason.text, reason.is_failure))
            return False
        # Not before: with the true metadata back, this broker must not look for a registration in the other.
        if lineage.followed(*own):
            self._effects.append(StoreBrokerEpoch(*own))
        return True

    def _logs_missing(self, view: LocalChanges) -> None:
        """Treat an assigned log that was not found as lying in a failed dir. Created anew in another dir it
        would look like a replica that has lost everything."""
        for local in (*view.leaders, *view.followers):
            key = PartitionId(local.topic_id, local.partition_index)
            if key not in self._logs:
                self.offline[key] = None
        self._is_whole = True  # later assignments are created in another dir

    def _place_damaged(self) -> None:
        """What the start found damaged is out of use before this broker is unfenced. A folder of no readable
        topic is taken for the one that has the name now."""
        found, self._found_damaged = self._found_damaged, ()
        for replica in found:
            topic = self.image.topic(replica.topic_name)
            topic_id = replica.topic_id or (None if topic is None else topic.topic_id)
            if topic_id is None:
                continue
            key = PartitionId(topic_id, replica.partition_index)
            if key in self._logs:
                continue
            if not self._is_assigned(key):
                self._effects.append(DeleteLog(key))
                continue
            name = f"{replica.topic_name}-{replica.partition_index}"
            self._note(Level.ERROR, f"{name}: its log is damaged: {replica.reason}")
            self.offline[key] = None
            self.damaged.found(key, replica.reason, is_aside=True)

    def is_registered_here(self) -> bool:
        """The image holds the registration of this process, not of another one."""
        own = self.image.brokers.get(self.broker_id)
        return (
            self._lifecycle.is_registered
            and own is not None
            and own.broker_epoch == self._lifecycle.broker_epoch
        )

    def drop_roles(self) -> None:
        """The registration is over: no roles until the image holds the next one (N-2)."""
        self.has_roles = False
        self._effects += self.fetchers.restart(-1)
        for key, partition in self.partitions.items():
            partition.drop_role()
            self.fetchers.unfollow(key)
            self.paths.role_changed(partition)

    def _brokers_changed(self, broker_ids: tuple[int, ...], now_ms: int) -> None:
        joined = False
        for broker_id in broker_ids:
            broker = self.image.brokers.get(broker_id)
            joined |= self.brokers.changed(broker_id, broker)
            if broker is None:
                continue
            if broker.in_controlled_shutdown and not broker.is_fenced:
                # It may stop once the controller knows this broker's metadata offset (R23).
                self._lifecycle.hurry(now_ms)
            endpoint = broker.endpoint(self.config.inter_broker_listener_name)
            if endpoint is not None:
                self.fetchers.move_source(broker_id, endpoint.host, endpoint.port)
        if joined:  # a caught-up follower does not list its row again when it is unfenced
            self.passes.begin(self._expand_again, self.partitions, now_ms)

    def _expand_again(self, partition: Partition, now_ms: int) -> None:
        proposal = partition.retry_expand(now_ms)
        if proposal is not None:
            self.submit(partition.key, proposal)

    def _configs_changed(self, changed: tuple[ConfigResource, ...], now_ms: int) -> None:
        """Apply new settings to the logs, in the order of the changes; walks the partitions once."""
        if any(resource_type == RESOURCE_CLIENT for resource_type, _ in changed):
            self.paths.client_quotas.configure(self.image.client_quotas())
        self._quotas.configure(self.image, changed, now_ms)
        self.paths.fetch_path.throttle_changed()
        self.fetchers.throttle_changed()
        changed = tuple(one for one in changed if one[0] == RESOURCE_TOPIC or one == CLUSTER_RESOURCE)
        by_topic: dict[str, list[PartitionId]] = {
            name: [] for resource_type, name in changed if resource_type == RESOURCE_TOPIC
        }
        for partition in self.partitions.values():
            if partition.topic_name in by_topic:
                by_topic[partition.topic_name].append(partition.key)
        concerned: dict[PartitionId, None] = {}
        for resource_type, name in changed:
            concerned |= dict.fromkeys(by_topic[name] if resource_type == RESOURCE_TOPIC else self.partitions)
        self.passes.begin(self._configure, concerned, now_ms, slice_max=CONFIGURED_MAX)

    def _configure(self, partition: Partition, now_ms: int) -> None:
        key = partition.key
        config = log_config(self.image, partition.topic_name, self.config.static)
        partition.counts_flushed = config.flush_messages == 1
        if partition.counts_flushed:
            self._effects.append(Flush(key))  # from now on only durable records count (D6)
            self.fetchers.show_durable(key)
        self.paths.max_message_bytes[key] = max_message_bytes(
            self.image, partition.topic_name, self.config.static
        )
        self._effects.append(ConfigureLog(key, config))
        self.high_watermarks.advance(partition, now_ms)

    # --- one partition -------------------------------------------------------------------------------------

    def _apply_local(self, local: LocalPartition, now_ms: int) -> None:
        key = PartitionId(local.topic_id, local.partition_index)
        if key in self.offline:
            return
        partition = self.partitions.get(key)
        if partition is None:
            log = self._logs.get(key)
            if log is None:
                config = log_config(self.image, local.topic_name, self.config.static)
                self._logs.open(key, (local.topic_name, key.partition_index), config)
                return
            partition = self._make_partition(key, local.topic_name, log)
        before = partition.registration
        change = partition.apply_registration(local.registration, now_ms)
        self.state_changed(partition, change, before, now_ms)

    def _make_partition(self, key: PartitionId, topic_name: str, log: LogView) -> Partition:
        config = log_config(self.image, topic_name, self.config.static)
        partition = Partition(
            self.broker_id,
            key,
            topic_name,
            log,
            high_watermark=self.high_watermarks.take_stored(key),
            brokers=self.brokers,
            lag_ms_max=self.config.replica_lag_ms_max,
            ceiling=self.ceilings.take_stored(key),
            counts_flushed=config.flush_messages == 1,
        )
        self.partitions[key] = partition
        self.paths.max_message_bytes[key] = max_message_bytes(self.image, topic_name, self.config.static)
        self._effects.append(ConfigureLog(key, config))
        return partition

    def state_changed(
        self, partition: Partition, change: RoleChange, before: PartitionRegistration | None, now_ms: int
    ) -> None:
        """Act upon a registration that a partition has applied, from metadata or an AlterPartition answer."""
        key, registration = partition.key, partition.registration
        if change is RoleChange.IGNORED or registration is None:
            return
        if change is RoleChange.UPDATED:
            if partition.role is Role.LEADER:
                if before is not None:
                    self._note(Level.INFO, f"{name_of(partition)}: {registration.diff(before)}")
                self._leader_updated(partition, now_ms)
            else:
                self.fetchers.registration_changed(key)
            return
        self._alter.withdraw(key)
        self.fetchers.unfollow(key)
        if change is RoleChange.BECAME_LEADER:
            story = "" if before is None else f", {registration.diff(before)}"
            self._note(Level.INFO, f"{name_of(partition)}: leads in epoch {registration.leader_epoch}{story}")
            self._effects.append(StartEpoch(key, registration.leader_epoch))
        else:
            self._follow(partition)
        self.paths.role_changed(partition)

    def _leader_updated(self, partition: Partition, now_ms: int) -> None:
        key = partition.key
        if partition.leadership is not None and partition.leadership.proposal is None:
            self._alter.withdraw(key)
        self._effects += self.paths.produce_path.state_changed(key)
        self.paths.fetch_path.in_sync_changed(key)
        self.high_watermarks.advance(partition, now_ms)
        proposal = partition.retry_expand(now_ms)
        if proposal is not None:
            self.submit(key, proposal)

    def _follow(self, partition: Partition) -> None:
        registration = partition.registration
        leader = None if registration is None else registration.leader
        broker = None if leader is None else self.image.brokers.get(leader)
        endpoint = None if broker is None else broker.endpoint(self.config.inter_broker_listener_name)
        if leader is not None and endpoint is not None:
            story = f"follows {leader} in epoch {partition.leader_epoch}"
            self._note(Level.INFO, f"{name_of(partition)}: {story}")
            self.fetchers.follow(partition, leader, endpoint.host, endpoint.port)

    # --- proposals -----------------------------------------------------------------------------------------

    def submit(self, key: PartitionId, proposal: Proposal) -> None:
        """Queue an ISR proposal for the controller."""
        registration = self.partitions[key].registration
        assert registration is not None
        if len(proposal.isr) > len(registration.isr):
            self._counts.isr_expands += 1
            self.paths.fetch_path.in_sync_changed(key)
        else:
            self._counts.isr_shrinks += 1
        self._alter.submit(key, proposal)

    # --- logs ----------------------------------------------------------------------------------------------

    def logs_loaded(self, event: LogsLoaded, now_ms: int) -> None:
        """All logs found at the start are open, except those that went offline meanwhile."""
        self._logs.loaded({key: log for key, log in event.logs.items() if key not in self.offline})
        self.high_watermarks.loaded(event.high_watermarks)
        self.ceilings.loaded(event.ceilings)
        self._is_whole = event.is_whole
        self._found_damaged = event.damaged
        self.maybe_take_roles(now_ms)

    def log_opened(self, event: LogOpened, now_ms: int) -> None:
        """A requested log is open; the partition may have changed or been deleted meanwhile."""
        if event.key not in self.offline:
            self._logs.opened(event.key, event.log)
            if not self._is_assigned(event.key):
                self._delete_log(event.key)
        self._opening_over(event.key, now_ms)
        if self.online_to_report():
            self._lifecycle.hurry(now_ms)

    def logs_offline(self, event: LogsOffline, now_ms: int) -> None:
        """A log dir has failed: drop its partitions and report them to the controller at once."""
        for key in event.keys:
            self._go_offline(key, "its log dir has failed")
        for key in event.keys:
            self._opening_over(key, now_ms)
        self._lifecycle.hurry(now_ms)

    def log_damaged(self, event: LogDamaged, now_ms: int) -> None:
        """A log is damaged: as if its log dir had failed, until it may begin anew."""
        self.damaged.found(event.key, event.reason, is_aside=False)
        self._go_offline(event.key, f"its log is damaged: {event.reason}")
        self._opening_over(event.key, now_ms)
        self._lifecycle.hurry(now_ms)

    def log_put_aside(self, event: LogPutAside, now_ms: int) -> None:
        """The folder of a damaged log is out of the way."""
        self.damaged.put_aside(event.key)
        if not self._is_assigned(event.key):  # deleted or moved away meanwhile
            self._forget_damaged(event.key)
        self._mend(now_ms)

    def _go_offline(self, key: PartitionId, why: str) -> None:
        self.offline[key] = None
        self._logs.lost(key)
        partition = self.partitions.pop(key, None)
        if partition is not None:
            self._note(Level.ERROR, f"{name_of(partition)}: {why}")
            self._retire(partition)

    def _mend(self, now_ms: int) -> None:
        """Begin damaged replicas anew, empty, where a leader has what they had: it is fetched again."""
        if not self.has_roles:
            return
        for key in self.damaged.take_mendable(self.image, self._lifecycle.broker_epoch):
            del self.offline[key]
            topic = self.image.topics[key.topic_id]
            registration = topic.partitions[key.partition_index]
            place = f"{topic.name}-{key.partition_index}"
            text = f"{place}: begins anew, leader {registration.leader} has what was damaged"
            if not self.image.metadata_version:
                text += f"; it joins the ISR after a restart, or at {METADATA_VERSION} 1"
            self._note(Level.INFO, text)
            self._apply_local(
                LocalPartition(topic.name, key.partition_index, key.topic_id, registration), now_ms
            )

    def _forget_damaged(self, key: PartitionId) -> None:
        """It is no longer this broker's: what was put aside goes."""
        if key in self.damaged:
            self.damaged.forget(key)
            self.offline.pop(key, None)
            self._effects.append(DeleteLog(key))

    def offline_to_report(self) -> tuple[OfflineTopic, ...]:
        """Replicas in failed dirs and damaged ones that the image's registration does not name yet, by
        topic."""
        own = self.image.brokers.get(self.broker_id)
        if not self.offline or own is None or own.broker_epoch != self._lifecycle.broker_epoch:
            return ()
        named = own.offline_replicas
        return by_topic(sorted(key for key in self.offline if key not in named and self._is_assigned(key)))

    def online_to_report(self) -> tuple[OfflineTopic, ...]:
        """Replicas that have begun anew and that the image's registration still names as offline. None at
        metadata.version 0: no controller could record it (K31)."""
        own = self.image.brokers.get(self.broker_id)
        if own is None or not own.offline_replicas or own.broker_epoch != self._lifecycle.broker_epoch:
            return ()
        if not self.image.metadata_version:
            return ()
        return by_topic(sorted(key for key in own.offline_replicas if key in self.partitions))

    def _is_assigned(self, key: PartitionId) -> bool:
        """Metadata assigns a replica of the partition to this broker."""
        registration = self.image.partition(*key)
        return registration is not None and self.broker_id in registration.replicas

    def _opening_over(self, key: PartitionId, now_ms: int) -> None:
        """The folder is free or holds the log of its owner: open the log of the topic that has the name
        now."""
        place = self._logs.opening_over(key)
        if place is None:
            return
        name, index = place
        topic = self.image.topic(name)
        if not self.has_roles or topic is None:
            return
        key = PartitionId(topic.topic_id, index)
        if self._is_assigned(key):
            self._apply_local(LocalPartition(name, index, topic.topic_id, topic.partitions[index]), now_ms)

    def _delete(self, key: PartitionId) -> None:
        # An opening under way goes on: a second one after it could find the log that is being deleted.
        self._forget_damaged(key)
        partition = self.partitions.pop(key, None)
        if partition is None:
            self._delete_log(key)
            return
        self._note(Level.INFO, f"{name_of(partition)}: deleted")
        self._retire(partition)
        self._delete_log(key)
        if self.image.topic(partition.topic_name) is None:
            self._counts.forget_topic(partition.topic_name)
            self._effects.append(ForgetTopic(partition.topic_name))

    def _retire(self, partition: Partition) -> None:
        """Fail the requests that wait for a partition that this broker no longer hosts."""
        key = partition.key
        partition.drop_role()
        self.fetchers.unfollow(key)
        self._alter.withdraw(key)
        self.paths.role_changed(partition)
        del self.paths.max_message_bytes[key]

    def _delete_log(self, key: PartitionId) -> None:
        self.high_watermarks.forget_stored(key)
        self.ceilings.forget_stored(key)
        self._logs.delete(key)

    def _note(self, level: Level, text: str) -> None:
        self._effects.append(LogLine(level, text))


def by_topic(keys: Iterable[PartitionId]) -> tuple[OfflineTopic, ...]:
    """Partitions as a heartbeat names them; `keys` are ascending."""
    topics: dict[bytes, list[int]] = {}
    for key in keys:
        topics.setdefault(key.topic_id, []).append(key.partition_index)
    return tuple(OfflineTopic(topic_id, tuple(indexes)) for topic_id, indexes in topics.items())


def name_of(partition: Partition) -> str:
    """`topic-index`, as operators write it."""
    return f"{partition.topic_name}-{partition.key.partition_index}"
