"""The recovery manager: chooses a leader by log contents for partitions that no replica may lead without
loss.

Owns when brokers are asked for their logs, which answers count, and the choice (R60-R69, D8). All of it is
soft state of the active controller; a new one asks again. `log_questions` sends the questions,
`partition_change` makes the election. Only the replica that the answers show to be the best is elected.
"""

from dataclasses import dataclass, field
from enum import Enum

from holdfast.controller.core.config import ControllerConfig
from holdfast.controller.core.decisions import Cause, CauseKind, LogEnd
from holdfast.controller.core.draft import Draft
from holdfast.controller.core.events import (
    AskForLogs,
    LogInfoArrived,
    RecoveryCancelled,
    RecoveryElected,
    RecoveryStated,
    Statement,
    WaitForReplicas,
)
from holdfast.controller.core.partitions.election import ElectionReason
from holdfast.controller.core.partitions.partition_change import ElectionContext, RequestedChange
from holdfast.controller.core.partitions.replication_control import ReplicationControl
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.image import MetadataImage, TopicImage
from holdfast.metadata.partition import PartitionRegistration
from holdfast.metadata.records import RECOVERED
from holdfast.protocol.errors import ErrorCode

#: Partitions handled per event. One answer may decide a thousand and one timeout ten thousand; heartbeats and
#: AlterPartition must not wait for all of them.
STEPS_MAX = 250


class AnswerValidity(Enum):
    """What an answer is worth (R62)."""

    OK = "ok"
    #: the row or the whole request has an error
    ERROR = "error"
    #: another incarnation answered than is registered
    STALE_BROKER_EPOCH = "stale_broker_epoch"
    #: the broker has old metadata
    STALE_LEADER_EPOCH = "stale_leader_epoch"
    #: the broker knows a later leader epoch: this controller is no longer the active one
    SUPERSEDED = "superseded"
    #: beyond the limit of rows per request
    LATER = "later"
    #: no recovery needs it
    UNWANTED = "unwanted"


class Strategy(Enum):
    """`unclean.recovery.strategy`."""

    #: the best log among the replicas that answer
    AGGRESSIVE = "Aggressive"
    #: wait until every replica that may be complete has answered
    BALANCED = "Balanced"
    #: wait for an operator
    NONE = "None"


@dataclass(frozen=True, slots=True)
class LogReply:
    """A replica's answer about its log, and the incarnation that gave it."""

    broker_epoch: int
    last_epoch: int
    end_offset: int
    #: -1 when not known; reported with the choice, never a reason for it
    flushed_offset: int = -1


@dataclass(slots=True)
class Recovery:
    """One partition under recovery; it ends with each change of `identity` (R60)."""

    topic_name: str
    leader_epoch: int
    partition_epoch: int
    strategy: Strategy
    #: when it was triggered, or when its last condition was met (D8.10)
    started_ms: int
    #: the last statement about it
    statement: Statement | None = None
    #: the timeout has passed: the best of the answers is enough
    has_timed_out: bool = False
    #: by broker, also of brokers that are fenced now: they count again once R62 holds again
    replies: dict[int, LogReply] = field(default_factory=dict)
    #: by broker: the highest high watermark that it reported, -1 when none is known; stays true when the
    #: answer is void
    claims: dict[int, int] = field(default_factory=dict)
    #: by broker: the stored upper bound of high watermarks that counted its replica; it is on its disk, so it
    #: stays true when the answer is void
    ceilings: dict[int, int] = field(default_factory=dict)

    @property
    def identity(self) -> tuple[int, int, Strategy]:
        return self.leader_epoch, self.partition_epoch, self.strategy

    @property
    def is_timed(self) -> bool:
        """Its timeout is running."""
        return isinstance(self.statement, AskForLogs) and not self.has_timed_out


@dataclass(frozen=True, slots=True)
class _Look:
    """One pass over partitions, with what is looked up once per topic."""

    draft: Draft
    #: as of before the pass: the elections of some partitions change nothing for others
    image: MetadataImage
    now_ms: int
    #: configured strategies by topic name, while logs are compared
    strategies: dict[str, Strategy] = field(default_factory=dict)
    contexts: dict[str, ElectionContext] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Forced:
    """An operator's request to compare logs; valid until there is a leader or another strategy."""

    strategy: Strategy
    #: the strategy that was configured at the request
    configured: Strategy


class UncleanRecovery:
    """All recoveries of one active controller."""

    def __init__(self, config: ControllerConfig, replication: ReplicationControl) -> None:
        self._config = config
        self._replication = replication
        self._recoveries: dict[PartitionId, Recovery] = {}
        self._forced: dict[PartitionId, _Forced] = {}
        #: partitions that `run` must check, and whether it must check all
        self._dirty: dict[PartitionId, None] = {}
        self._is_all_dirty = False
        #: when the next timeout ends, or when more partitions are to be checked
        self._deadline_ms: int | None = None
        #: leaders elected by a comparison of logs since the process started
        self.elections: dict[Strategy, int] = {Strategy.BALANCED: 0, Strategy.AGGRESSIVE: 0}

    # --- looking -----------------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """Partitions under recovery, including those that wait for fenced replicas."""
        return len(self._recoveries)

    def unanswered(self, image: MetadataImage, key: PartitionId) -> tuple[int, ...]:
        """The replicas that are asked for their logs and have no valid answer yet."""
        recovery = self._recoveries.get(key)
        if recovery is None or not isinstance(recovery.statement, AskForLogs):
            return ()
        asked = recovery.statement
        valid = _valid_replies(image, recovery, asked)
        return tuple(replica for replica in asked.must + asked.others if replica not in valid)

    def count_for_operators(self, image: MetadataImage) -> int:
        """Partitions without a leader that get one only by an operator's election."""
        return sum(
            (topic.topic_id, index) not in self._recoveries
            and self._replication.waits_for_operator(image, topic.name, partition)
            for topic, index, partition in image.leaderless_partitions()
        )

    # --- what happens ------------------------------------------------------------------------------------

    def start(self, image: MetadataImage) -> None:
        """Begin as the active controller: find the partitions without a leader."""
        self.stop()
        self._is_all_dirty = bool(image.leaderless)

    def stop(self) -> None:
        """Drop everything (R60)."""
        self._recoveries = {}
        self._forced = {}
        self._dirty = {}
        self._is_all_dirty = False
        self._deadline_ms = None

    def observe(self, before: MetadataImage, after: MetadataImage, changed: tuple[PartitionId, ...]) -> None:
        """Records that touched the partitions `changed` led from one image to the other."""
        for key in changed:
            if key not in after.leaderless:
                self._forced.pop(key, None)
            if key in after.leaderless or key in self._recoveries:
                self._dirty[key] = None
        if after.leaderless and (
            before.brokers is not after.brokers
            or before.configs is not after.configs
            or before.features is not after.features
        ):
            self._is_all_dirty = True

    def force(self, image: MetadataImage, topic: TopicImage, index: int, strategy: Strategy) -> None:
        """An operator wants the logs of a leaderless partition compared, with any strategy."""
        self._forced[PartitionId(topic.topic_id, index)] = _Forced(
            strategy, self._configured(image, topic.name)
        )
        self._dirty[PartitionId(topic.topic_id, index)] = None

    def is_forced(self, image: MetadataImage, topic: TopicImage, index: int, strategy: Strategy) -> bool:
        """To force it again would change nothing."""
        forced = self._forced.get(PartitionId(topic.topic_id, index))
        return forced == _Forced(strategy, self._configured(image, topic.name))

    def take_log_info(self, image: MetadataImage, event: LogInfoArrived) -> AnswerValidity:
        """Keep an answer that counts (R62); the others are asked for again by the sender of the questions."""
        key = PartitionId(event.topic_id, event.partition_index)
        recovery = self._recoveries.get(key)
        broker = image.brokers.get(event.broker_id)
        partition = image.partition(*key)
        if (
            recovery is None
            # it will be cancelled by the next `run`
            or partition is None
            or partition.leader_epoch != recovery.leader_epoch
            or not isinstance(recovery.statement, AskForLogs)
            or event.broker_id not in recovery.statement.must + recovery.statement.others
        ):
            return AnswerValidity.UNWANTED
        if event.error_code != ErrorCode.NONE:
            is_later = event.error_code == ErrorCode.REQUEST_LIMIT_REACHED
            return AnswerValidity.LATER if is_later else AnswerValidity.ERROR
        if broker is None or event.broker_epoch != broker.broker_epoch:
            return AnswerValidity.STALE_BROKER_EPOCH
        if event.leader_epoch < recovery.leader_epoch:
            return AnswerValidity.STALE_LEADER_EPOCH
        if event.leader_epoch > recovery.leader_epoch:
            return AnswerValidity.SUPERSEDED
        recovery.replies[event.broker_id] = LogReply(
            event.broker_epoch, event.last_epoch, event.end_offset, event.flushed_offset
        )
        known = recovery.claims.get(event.broker_id, event.high_watermark)
        recovery.claims[event.broker_id] = max(event.high_watermark, known)
        if event.ceiling >= 0:
            recovery.ceilings[event.broker_id] = event.ceiling
        self._dirty[key] = None
        return AnswerValidity.OK

    def next_deadline_ms(self) -> int | None:
        """When the next timeout ends."""
        return self._deadline_ms

    def is_due(self, now_ms: int) -> bool:
        """True when `run` has something to check."""
        return self._is_all_dirty or bool(self._dirty) or self._is_deadline_over(now_ms)

    def _is_deadline_over(self, now_ms: int) -> bool:
        return self._deadline_ms is not None and self._deadline_ms <= now_ms

    # --- what follows ------------------------------------------------------------------------------------

    def run(self, draft: Draft, now_ms: int) -> list[RecoveryStated]:
        """Begin, continue and end recoveries, STEPS_MAX at most; returns new statements, by topic and index.

        The rest is handled after the next event; `next_deadline_ms` asks for one at once.
        """
        self._find_dirty(draft.image, now_ms)
        if not self._replication.compares_logs(draft.image):
            self._forced = {}  # switching the manager off cancels the operators' requests
            if not self._recoveries:
                self._dirty = {}
                self._deadline_ms = None
                return []
        rows = self._dirty_rows(draft.image)
        self._dirty = {key: None for _, _, key in rows[STEPS_MAX:]}
        look = _Look(draft, draft.image, now_ms)
        stated: list[RecoveryStated] = []
        for name, _, key in rows[:STEPS_MAX]:
            stated += [RecoveryStated(name, *key, what) for what in self._step(look, key)]
        if self._dirty:
            self._deadline_ms = now_ms
            return stated
        self._deadline_ms = min(
            (
                recovery.started_ms + self._config.recovery_timeout_ms
                for recovery in self._recoveries.values()
                if recovery.is_timed
            ),
            default=None,
        )
        return stated

    def _find_dirty(self, image: MetadataImage, now_ms: int) -> None:
        """Mark the partitions that a change of the cluster, or the time, concerns."""
        if self._is_all_dirty:
            self._is_all_dirty = False
            self._dirty.update(dict.fromkeys(image.leaderless))
            self._dirty.update(dict.fromkeys(self._recoveries))
        elif self._is_deadline_over(now_ms):
            since_ms = now_ms - self._config.recovery_timeout_ms
            for key, recovery in self._recoveries.items():
                if recovery.is_timed and recovery.started_ms <= since_ms:
                    self._dirty[key] = None

    def _dirty_rows(self, image: MetadataImage) -> list[tuple[str, int, PartitionId]]:
        rows: list[tuple[str, int, PartitionId]] = []
        for key in self._dirty:
            topic = image.topics.get(key[0])
            recovery = self._recoveries.get(key)
            if topic is not None:
                rows.append((topic.name, key[1], key))
            elif recovery is not None:
                rows.append((recovery.topic_name, key[1], key))
        return sorted(rows)

    def _step(self, look: _Look, key: PartitionId) -> list[Statement]:
        image, now_ms = look.image, look.now_ms
        topic = image.topics.get(key[0])
        partition = None if topic is None else topic.partitions.get(key[1])
        strategy = Strategy.NONE
        if topic is not None and partition is not None and partition.leader is None:
            strategy = self._strategy(look, topic.name, key, partition)
        recovery = self._recoveries.get(key)
        stated: list[Statement] = []
        claims: dict[int, int] = {}
        if recovery is not None:
            epochs = None if partition is None else (partition.leader_epoch, partition.partition_epoch)
            if epochs is None or (*epochs, strategy) != recovery.identity:
                claims = recovery.claims
                del self._recoveries[key]
                recovery = None
                stated.append(RecoveryCancelled())
        if strategy is Strategy.NONE:
            return stated
        assert topic is not None and partition is not None
        if recovery is None:
            recovery = Recovery(
                topic.name, partition.leader_epoch, partition.partition_epoch, strategy, now_ms, claims=claims
            )
            self._recoveries[key] = recovery
        statement = _statement(image, key, partition, strategy)
        if isinstance(statement, AskForLogs):
            if _waits_for_all_known(partition, strategy) and not isinstance(recovery.statement, AskForLogs):
                recovery.started_ms, recovery.has_timed_out = now_ms, False
            recovery.has_timed_out = now_ms >= recovery.started_ms + self._config.recovery_timeout_ms
            valid = _valid_replies(image, recovery, statement)
            if _is_decided(partition, recovery, statement, valid):
                del self._recoveries[key]
                self.elections[strategy] += 1
                chosen = best_log(partition, _provable(partition, valid))
                # R68: the election reports the candidates, their logs and what it may lose
                most = most_lost(partition, valid, recovery.ceilings, chosen)
                logs = _log_ends(valid, recovery.claims)
                cause = Cause(CauseKind.LOGS_COMPARED, logs=logs, loss_at_most=-1 if most is None else most)
                return [*stated, self._elect(look, topic, key[1], partition, cause, chosen)]
        # a broker may have been away and back between two slices: then it is asked again
        lost = _drop_void_replies(image, recovery, statement)
        if statement != recovery.statement or lost:
            recovery.statement = statement
            stated.append(statement)
        return stated

    def _elect(
        self,
        look: _Look,
        topic: TopicImage,
        index: int,
        partition: PartitionRegistration,
        cause: Cause,
        chosen: int,
    ) -> RecoveryElected:
        context = look.contexts.get(topic.name)
        if context is None:
            context = self._replication.context(look.image, topic.name, look.image.is_active)
            look.contexts[topic.name] = context
        requested = RequestedChange(designated=chosen, designation=ElectionReason.LONGEST_LOG)
        change = self._replication.change(look.draft, topic, index, partition, requested, context, cause)
        assert change is not None and change.after.leader == chosen, f"{chosen} is active and assigned"
        return RecoveryElected(chosen)

    def _strategy(
        self, look: _Look, topic_name: str, key: PartitionId, partition: PartitionRegistration
    ) -> Strategy:
        """The strategy now; NONE also while a complete replica is awaited, or the manager is off (R14)."""
        strategy = look.strategies.get(topic_name)
        if strategy is None:
            if not self._replication.compares_logs(look.image):
                return Strategy.NONE
            strategy = look.strategies[topic_name] = self._configured(look.image, topic_name)
        forced = self._forced.get(key)
        if forced is not None and forced.configured is strategy:
            strategy = forced.strategy
        elif forced is not None:
            del self._forced[key]
        if strategy is Strategy.BALANCED and partition.electable:
            return Strategy.NONE
        return strategy

    def _configured(self, image: MetadataImage, topic_name: str) -> Strategy:
        """The topic's strategy, else the cluster's, else what the older key stands for (R69, D8)."""
        static = self._config.static
        name = image.topic_config(topic_name, "unclean.recovery.strategy", static)
        if name is not None:
            return Strategy(name)
        unclean = image.topic_config(topic_name, "unclean.leader.election.enable", static)
        return Strategy.AGGRESSIVE if unclean else Strategy.BALANCED


def best_log(partition: PartitionRegistration, replies: dict[int, LogReply]) -> int:
    """The replica whose log ends last (R66); among equals last known ELR, then the order of assignment."""
    return max(
        replies,
        key=lambda replica: (
            replies[replica].last_epoch,
            replies[replica].end_offset,
            replica in partition.last_known_elr,
            -partition.replicas.index(replica),
        ),
    )


def most_lost(
    partition: PartitionRegistration, replies: dict[int, LogReply], ceilings: dict[int, int], chosen: int
) -> int | None:
    """Most committed records that the chosen log may lack; None when unknown (R68).

    The ceiling of a replica that was counted whenever the high watermark advanced bounds what was committed.
    The chosen log surely equals the committed history as far as such a replica's log that ends in the same
    epoch.
    """
    counted = _counted(partition)
    known = [ceilings[replica] for replica in counted if replica in ceilings]
    if not known:
        return None
    own, same_end = replies[chosen], 0
    for replica in counted:
        reply = replies.get(replica)
        if reply is not None and reply.last_epoch == own.last_epoch and reply.end_offset <= own.end_offset:
            same_end = max(same_end, reply.end_offset)
    return max(0, min(known) - same_end)


def _counted(partition: PartitionRegistration) -> tuple[int, ...]:
    """The replicas that were in sync whenever the high watermark advanced since the last unclean election.

    Those are ISR, ELR and last known ELR, unless members come from a history that an unclean election gave
    up: they stay until min ISR is reached again (R10). Then it is the last known leader alone, which led this
    one.
    """
    complete = (*partition.isr, *partition.elr, *partition.last_known_elr)
    if (
        partition.leader_recovery_state == RECOVERED
        # with a larger min ISR, recovery ends with two in sync while members from before it are among these
        and partition.min_isr <= 2
        and len(complete) <= partition.min_isr
    ):
        return complete
    return () if partition.last_known_leader is None else (partition.last_known_leader,)


def _log_ends(replies: dict[int, LogReply], claims: dict[int, int]) -> tuple[LogEnd, ...]:
    """The compared logs, and the high watermarks that other replicas have reported (R68)."""
    logs: list[LogEnd] = []
    for replica in sorted(claims):
        reply, claim = replies.get(replica), claims[replica]
        if reply is not None:
            logs.append(LogEnd(replica, reply.last_epoch, reply.end_offset, reply.flushed_offset, claim))
        elif claim >= 0:
            logs.append(LogEnd(replica, -1, -1, -1, claim))
    return tuple(logs)


def _provable(partition: PartitionRegistration, replies: dict[int, LogReply]) -> dict[int, LogReply]:
    """The answers that the choice may rest on; all of them where nothing can be proved.

    R66 alone would let any higher epoch win. But a leader may commit records of earlier epochs and write none
    of its own, while a replica outside the last known ELR ends in an epoch between, which was never committed
    (Raft's figure 8). If the last known ELR held everything and all of it has answered, the best of its logs
    has it all. A log that ends in the same epoch was written by the same leader, so a longer one holds all of
    that and more. If all of their logs are empty, nothing was ever committed, or all that was is lost: then
    any replica with records may lead (R66).
    """
    if not _known_held_everything(partition) or any(r not in replies for r in partition.last_known_elr):
        return replies
    known = {replica: reply for replica, reply in replies.items() if replica in partition.last_known_elr}
    best = known[best_log(partition, known)]
    if best.end_offset == 0:
        return replies
    return {replica: reply for replica, reply in replies.items() if reply.last_epoch == best.last_epoch}


def _known_held_everything(partition: PartitionRegistration) -> bool:
    """Fewer than min ISR members may all have lost their tails within the fault budget. So few are known
    when ELR was switched on with a partition that had no leader, or when members were unregistered."""
    return len(partition.last_known_elr) >= max(1, partition.min_isr)


def _waits_for_all_known(partition: PartitionRegistration, strategy: Strategy) -> bool:
    return strategy is Strategy.BALANCED and bool(partition.last_known_elr)


def _statement(
    image: MetadataImage, key: PartitionId, partition: PartitionRegistration, strategy: Strategy
) -> WaitForReplicas | AskForLogs:
    """Which replicas to wait for, or which to ask (R61, R64)."""
    active = tuple(replica for replica in sorted(partition.replicas) if image.is_active_replica(replica, key))
    if _waits_for_all_known(partition, strategy):
        known = partition.last_known_elr
        fenced = tuple(replica for replica in known if replica not in active)
        if fenced:
            return WaitForReplicas(fenced)
        return AskForLogs(known, tuple(replica for replica in active if replica not in known))
    if not active:
        return WaitForReplicas(tuple(sorted(partition.replicas)))
    return AskForLogs(active, ()) if strategy is Strategy.BALANCED else AskForLogs((), active)


def _valid_replies(image: MetadataImage, recovery: Recovery, asked: AskForLogs) -> dict[int, LogReply]:
    """Answers that count at this moment: of the registered incarnations, and active (R63, N-3)."""
    return {
        replica: recovery.replies[replica]
        for replica in asked.must + asked.others
        if replica in recovery.replies
        and recovery.replies[replica].broker_epoch == image.brokers[replica].broker_epoch
    }


def _drop_void_replies(
    image: MetadataImage, recovery: Recovery, statement: WaitForReplicas | AskForLogs
) -> bool:
    """Drop the answers of earlier incarnations of the asked replicas; True when there were any."""
    if not isinstance(statement, AskForLogs):
        return False
    valid = _valid_replies(image, recovery, statement)
    void = [r for r in statement.must + statement.others if r in recovery.replies and r not in valid]
    for replica in void:
        del recovery.replies[replica]
    return bool(void)


def _is_decided(
    partition: PartitionRegistration, recovery: Recovery, asked: AskForLogs, valid: dict[int, LogReply]
) -> bool:
    """True when the answers suffice for an election (R64, R65, D8.3)."""
    waits = _waits_for_all_known(partition, recovery.strategy)
    if waits and any(replica not in valid for replica in asked.must):
        return False
    if recovery.has_timed_out and valid:
        return True
    if recovery.strategy is not Strategy.BALANCED or (waits and _known_held_everything(partition)):
        return len(valid) == len(asked.must + asked.others)
    # too few are known to have been complete: Balanced waits for all logs of the partition
    return len(valid) == len(partition.replicas)
