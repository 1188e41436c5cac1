"""One consumer as a member of a group: Kafka's classic protocol, seen from the member.

    UNJOINED -> JOINING -> (SHARING, the leader) -> SYNCING -> JOINED -> JOINING ...

Owns the member's generation, and which partitions the application reads. What changes for the application
are *steps*: it takes them between two polls, when it has done with what it was given. An eager member lets go
of all partitions before it joins again; a cooperative one keeps reading, and lets go of what another member
gets. A member that the coordinator does not know, or knows in another generation, has lost its partitions.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from holdfast.client.core.effects import RefreshMetadata
from holdfast.client.core.errors import ClientError, CommitFailed, code_of
from holdfast.client.core.groups.consumer_protocol import (
    Subscription,
    assigned_partitions,
    encode_subscription,
)
from holdfast.client.core.groups.coordinator_search import CoordinatorSearch
from holdfast.client.core.groups.effects import (
    Coordinator,
    Effect,
    FindCoordinator,
    MemberConfig,
    Phase,
    Position,
    Send,
    Settle,
    Step,
    StepKind,
    WantTopics,
)
from holdfast.client.core.groups.offset_requests import ASK_ELSEWHERE, Ask, Identity, OffsetRequests, Verdict
from holdfast.client.core.groups.sharing import SHARE_PATIENCE_MS, Sharing
from holdfast.client.core.groups.starting_offsets import StartingOffsets
from holdfast.client.core.metadata_cache import MetadataCache
from holdfast.client.core.subscription import Subscription as WantedPartitions
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.groups import (
    GroupHeartbeatRequest,
    GroupHeartbeatResponse,
    JoinGroupProtocol,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeavingMember,
    SyncGroupAssignment,
    SyncGroupRequest,
    SyncGroupResponse,
)
from holdfast.protocol.topic_names import TopicPartition

PROTOCOL_TYPE = "consumer"
#: What a join may take longer than the others have time for.
JOIN_MARGIN_MS = 5_000
LEAVE_TIMEOUT_MS = 3_000


class _Sent(NamedTuple):
    """A request without answer."""

    coordinator: Coordinator
    #: what is done with the answer; None when none comes
    judge: Callable[[Any, int], list[Effect]]


class Membership:
    """All decisions of one member."""

    def __init__(self, config: MemberConfig, cache: MetadataCache) -> None:
        self._config = config
        self._cache = cache
        self.phase = Phase.UNJOINED
        self.member_id = ""
        self.generation_id = -1
        #: what the application reads
        self.owned: tuple[TopicPartition, ...] = ()
        self.coordinator = CoordinatorSearch(config.retry)
        #: what is subscribed to; None before that
        self._wanted: WantedPartitions | None = None
        #: the generation's assignment, until the steps to it are taken
        self._target: tuple[TopicPartition, ...] | None = None
        #: partitions that turned up after their topic was met: {partition: None}
        self._late: dict[TopicPartition, None] = {}
        #: the leader's part
        self._sharing = Sharing(cache)
        self._protocol_name = ""
        self._needs_rejoin = False
        self._is_lost = False
        self._is_fenced = False
        self._error: ClientError | None = None
        #: a subscribed topic is not there
        self._missing_topic: ClientError | None = None
        #: the application polls; since when it does or does not
        self._is_polling = False
        self._poll_ms = 0
        #: it has not polled for too long, and the member has left
        self._is_away = False
        self._is_over = False
        self._join_ms = self._heartbeat_ms = self._auto_commit_ms = 0
        self._join_failures = 0
        self._requests: dict[int, _Sent] = {}
        self._request_id = 0
        #: the join or sync that counts, and the heartbeat
        self._waits_for: int | None = None
        self._heartbeat: int | None = None
        self._asks = OffsetRequests(config.group_id, config.group_instance_id, config.retry)
        self._starts = StartingOffsets(self._asks, cache)

    # --- the application's wishes -------------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str], now_ms: int) -> list[Effect]:
        """Read these with the group from now on."""
        names = tuple(dict.fromkeys(topics))
        if self._wanted is None:
            self._poll_ms = self._auto_commit_ms = now_ms
        elif self._wanted.topics == names:
            return []
        else:
            self._needs_rejoin = True
        self._wanted = WantedPartitions(names, self._config.retry, now_ms)
        self._wanted.news(self._cache)
        return [WantTopics(names), RefreshMetadata()]

    @property
    def topics(self) -> tuple[str, ...]:
        """Topics whose metadata is needed."""
        wanted = () if self._wanted is None else self._wanted.topics
        read = (one.topic for one in (*self.owned, *(self._target or ())))
        return tuple(dict.fromkeys((*wanted, *self._sharing.shared_topics, *read)))

    @property
    def is_late(self) -> frozenset[TopicPartition]:
        """Partitions that were added while this member was there: the group reads them from their first
        record on."""
        return frozenset(self._late)

    def begin_poll(self, now_ms: int) -> None:
        """The application asks for records: it has done with those that it has."""
        self._is_polling = True
        self._is_away = False
        self._poll_ms = now_ms

    def end_poll(self, now_ms: int) -> None:
        """The application has records to work at."""
        self._is_polling = False
        self._poll_ms = now_ms

    def commit(
        self, token: object, positions: Mapping[TopicPartition, Position], deadline_ms: int
    ) -> list[Effect]:
        """Commit these in the present generation; `Settle` with None, or CommitFailed and the like."""
        if not self.member_id or self.generation_id < 0:
            text = f"group {self._config.group_id}: this consumer is no member of it now; go on polling"
            return [Settle(token, None, CommitFailed(text, ErrorCode.UNKNOWN_MEMBER_ID))]
        settled = self._asks.commit(token, positions, self._identity, self._cache, deadline_ms)
        return [] if settled is None else [settled]

    def auto_commit(self, positions: Mapping[TopicPartition, Position], now_ms: int) -> list[Effect]:
        """Commit what has moved; no one waits for it."""
        self._auto_commit_ms = now_ms + self._config.auto_commit_interval_ms
        moved = {one: at for one, at in positions.items() if self._asks.committed.get(one) != at}
        if not moved or self._asks.commits_waiting or self.generation_id < 0:
            return []
        settled = self._asks.commit(None, moved, self._identity, self._cache, self._auto_commit_ms)
        return [] if settled is None else [settled]

    def is_auto_commit_due(self, now_ms: int) -> bool:
        """The interval is over."""
        return self._config.enable_auto_commit and bool(self.owned) and now_ms >= self._auto_commit_ms

    def fetch_committed(
        self, token: object, partitions: Iterable[TopicPartition], deadline_ms: int
    ) -> list[Effect]:
        """How far the group has come; `Settle` with {partition: position or None}."""
        settled = self._asks.fetch(token, partitions, self._cache, deadline_ms)
        return [] if settled is None else [settled]

    def leave(self, token: object, now_ms: int) -> list[Effect]:
        """The end; settled when the coordinator has heard of it, or cannot. A static member only falls
        silent: its place is kept for its session."""
        self._is_over = True
        is_member = self.member_id and self._config.group_instance_id is None
        if not is_member or self.coordinator.known is None:
            return [Settle(token, None, None)]
        effects: list[Effect] = []

        def left(response: Any, now_ms: int) -> list[Effect]:
            return [Settle(token, None, None)]

        self._send(effects, self._leaving, LEAVE_TIMEOUT_MS, left)
        return effects

    @property
    def _leaving(self) -> LeaveGroupRequest:
        return LeaveGroupRequest(self._config.group_id, (LeavingMember(self.member_id, None),))

    @property
    def _identity(self) -> Identity:
        return Identity(self.member_id, self.generation_id)

    # --- steps --------------------------------------------------------------------------------------------

    def next_step(self) -> Step | None:
        """What the application has to do now; `done` says that it has."""
        if self._is_lost:
            return Step(StepKind.LOST, self.owned, {})
        if self._target is not None:
            revoked = tuple(one for one in self.owned if one not in self._target)
            if revoked:
                return Step(StepKind.REVOKED, revoked, {})
            added = self._added
            offsets = self._starts.of(added)
            if offsets is not None:
                return Step(StepKind.ASSIGNED, added, offsets)
        elif self._needs_rejoin and self.owned and not self._config.is_cooperative:
            return Step(StepKind.REVOKED, self.owned, {})
        return None

    def done(self, step: Step, now_ms: int) -> list[Effect]:
        """The application has let go of the partitions, or reads them from now on."""
        if step.kind is StepKind.ASSIGNED:
            self.owned = tuple(sorted({*self.owned, *step.partitions}))
            self._target = None
            self._auto_commit_ms = now_ms + self._config.auto_commit_interval_ms
            return []
        self.owned = tuple(one for one in self.owned if one not in step.partitions)
        for partition in step.partitions:
            self._asks.committed.pop(partition, None)
        if step.kind is StepKind.LOST:
            self._is_lost = False
        elif self._target is not None:
            self._needs_rejoin = True  # so that the others get it
        return []

    def take_error(self) -> ClientError | None:
        """What the next poll raises. Polling again tries again, unless another process took the place."""
        error = self._error or self._missing_topic
        self._missing_topic = None
        if not self._is_fenced:
            self._error = None
        return error

    def wants_attention(self, now_ms: int) -> bool:
        """The application should poll, so that something happens, or to show that it lives."""
        return (
            self._error is not None
            or self._missing_topic is not None
            or self.next_step() is not None
            or self.is_auto_commit_due(now_ms)
            or (not self._is_polling and now_ms >= self._poll_ms + self._config.heartbeat_interval_ms)
        )

    @property
    def _added(self) -> tuple[TopicPartition, ...]:
        return tuple(one for one in self._target or () if one not in self.owned)

    # --- the plan -----------------------------------------------------------------------------------------

    def plan(self, now_ms: int) -> list[Effect]:
        """Everything that is to be asked now."""
        if self._is_over and not self._asks:
            return []
        effects: list[Effect] = []
        effects += self._asks.expire(now_ms)
        self._check_poll(now_ms, effects)
        self._look_for_topics(now_ms, effects)
        self._look_for_coordinator(now_ms, effects)
        if self.phase is Phase.JOINED and self._sharing.is_outdated:
            self._needs_rejoin = True
        if self.phase is Phase.JOINED and self._needs_rejoin and self._may_join:
            self.phase = Phase.UNJOINED
        if self.phase is Phase.UNJOINED and self._may_join and now_ms >= self._join_ms:
            self._join(now_ms, effects)
        if self.phase is Phase.SHARING:
            self._share(now_ms, effects)
        if self.phase in (Phase.JOINED, Phase.SHARING):
            self._beat(now_ms, effects)
        if self._target is not None and self._error is None:
            self._starts.look_up(self._added, now_ms, effects)
        if self.coordinator.known is not None:
            for ask in self._asks.due(now_ms):
                self._send_ask(ask, now_ms, effects)
        return effects

    def next_deadline_ms(self, now_ms: int) -> int | None:
        """When `plan` should be called at the latest although nothing happened."""
        deadlines = [self.coordinator.find_ms, self._join_ms, self._sharing.until_ms, self._starts.gone_ms]
        deadlines += self._asks.deadlines()
        if self._wanted is not None:
            deadlines += [
                self._heartbeat_ms,
                self.coordinator.probe_ms,
                self._wanted.next_deadline_ms() or 0,
            ]
            if self._config.enable_auto_commit and self.owned:
                deadlines.append(self._auto_commit_ms)
            if not self._is_polling:
                deadlines.append(self._poll_ms + self._config.heartbeat_interval_ms)
                deadlines.append(self._poll_ms + self._config.max_poll_interval_ms)
        return min((moment for moment in deadlines if moment > now_ms), default=None)

    def _check_poll(self, now_ms: int, effects: list[Effect]) -> None:
        is_late = now_ms >= self._poll_ms + self._config.max_poll_interval_ms
        if self._wanted is None or self._is_polling or self._is_away or not is_late or self._is_over:
            return
        self._is_away = True
        if self.member_id and self._config.group_instance_id is None and self.coordinator.known is not None:
            self._send(effects, self._leaving, LEAVE_TIMEOUT_MS, lambda response, now_ms: [])
            self.member_id = ""
        self._leave_generation()

    def _look_for_topics(self, now_ms: int, effects: list[Effect]) -> None:
        if self._wanted is None or self._is_over:
            return
        if self._missing_topic is None:
            self._missing_topic = self._wanted.problem(self._cache, now_ms)
        if self._wanted.wants_metadata(now_ms):
            effects.append(RefreshMetadata())

    def _look_for_coordinator(self, now_ms: int, effects: list[Effect]) -> None:
        is_needed = bool(self._asks) or (self._wanted is not None and not self._is_over)
        if not is_needed or self._is_fenced:
            return
        if self.coordinator.begin(now_ms, is_waiting=self._waits_for is not None):
            effects.append(FindCoordinator())

    @property
    def _may_join(self) -> bool:
        return (
            self._wanted is not None
            and self.coordinator.known is not None
            and self._error is None
            and not (self._is_lost or self._is_away or self._is_over or self._is_fenced)
            and (self._config.is_cooperative or not self.owned)
        )

    # --- join ---------------------------------------------------------------------------------------------

    def _join(self, now_ms: int, effects: list[Effect]) -> None:
        assert self._wanted is not None
        config = self._config
        self.phase = Phase.JOINING
        self._needs_rejoin = False
        self._forget_target()
        said = encode_subscription(Subscription(self._wanted.topics, self.owned, self.generation_id))
        request = JoinGroupRequest(
            config.group_id,
            config.session_timeout_ms,
            config.max_poll_interval_ms,
            self.member_id,
            config.group_instance_id,
            PROTOCOL_TYPE,
            tuple(JoinGroupProtocol(name, said) for name in config.assignors),
            True,
            True,
        )
        self._wait_for(effects, request, self._joined, now_ms)

    def _joined(self, response: JoinGroupResponse, now_ms: int) -> list[Effect]:
        code = code_of(response.error_code)
        if code is not ErrorCode.NONE:
            return self._not_joined(code, response.member_id, response.error_message, now_ms)
        effects: list[Effect] = []
        self.coordinator.confirm()
        self.member_id, self.generation_id = response.member_id, response.generation_id
        self._protocol_name = response.protocol_name or self._config.assignors[0]
        self._heartbeat_ms = now_ms + self._config.heartbeat_interval_ms
        self._sharing.forget()
        if response.leader == self.member_id and response.members:
            self._sharing.begin(response.members, now_ms, skips_assignment=response.skip_assignment)
            self.phase = Phase.SHARING
            effects += [WantTopics(self._sharing.topics)]
        else:
            self._sync(effects, (), now_ms)
        return effects

    def _not_joined(self, code: ErrorCode, member_id: str, text: str | None, now_ms: int) -> list[Effect]:
        self.phase = Phase.UNJOINED
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = member_id
            return []
        self._refused(code, text, now_ms)
        return []

    def _share(self, now_ms: int, effects: list[Effect]) -> None:
        if self.coordinator.known is None:
            return
        rows = self._sharing.share(self._protocol_name, now_ms)
        if rows is None:
            effects.append(RefreshMetadata())
        else:
            self._sync(effects, rows, now_ms)

    def _sync(self, effects: list[Effect], rows: tuple[SyncGroupAssignment, ...], now_ms: int) -> None:
        self.phase = Phase.SYNCING
        request = SyncGroupRequest(
            self._config.group_id,
            self.generation_id,
            self.member_id,
            self._config.group_instance_id,
            PROTOCOL_TYPE,
            self._protocol_name,
            rows,
        )
        self._wait_for(effects, request, self._synced, now_ms)

    def _synced(self, response: SyncGroupResponse, now_ms: int) -> list[Effect]:
        code = code_of(response.error_code)
        if code is not ErrorCode.NONE:
            self.phase = Phase.UNJOINED
            self._refused(code, response.error_message, now_ms)
            return []
        self.phase = Phase.JOINED
        self._join_failures = 0
        self.coordinator.works()
        self._target = assigned_partitions(response.assignment)
        self._starts.begin(now_ms + SHARE_PATIENCE_MS)
        return [WantTopics(tuple(dict.fromkeys(one.topic for one in self._target)))]

    def _wait_for(
        self, effects: list[Effect], request: Any, judge: Callable[[Any, int], list[Effect]], now_ms: int
    ) -> None:
        """Send what is answered when the other members have done their part."""

        def judged(response: Any, now_ms: int) -> list[Effect]:
            if request_id != self._waits_for:
                return []  # it was given up
            self._waits_for = None
            if response is None:
                self.phase = Phase.UNJOINED
                self._join_ms = now_ms
                return []
            return judge(response, now_ms)

        timeout_ms = self._config.max_poll_interval_ms + JOIN_MARGIN_MS
        self.coordinator.wait(now_ms)
        request_id = self._waits_for = self._send(effects, request, timeout_ms, judged)

    # --- heartbeats ---------------------------------------------------------------------------------------

    def _beat(self, now_ms: int, effects: list[Effect]) -> None:
        if self._heartbeat is not None or self.coordinator.known is None or now_ms < self._heartbeat_ms:
            return
        if self._is_away or self._is_over:
            return
        config = self._config
        request = GroupHeartbeatRequest(
            config.group_id, self.generation_id, self.member_id, config.group_instance_id
        )
        identity = self._identity

        def judged(response: GroupHeartbeatResponse | None, now_ms: int) -> list[Effect]:
            self._heartbeat = None
            if response is None:
                self._heartbeat_ms = now_ms  # to the next coordinator at once
                return []
            code = code_of(response.error_code)
            if code is ErrorCode.NONE:
                self.coordinator.works()
            elif identity == self._identity and self.phase in (Phase.JOINED, Phase.SHARING):
                self._beat_refused(code, response.error_message, now_ms)
            return []

        self._heartbeat_ms = now_ms + config.heartbeat_interval_ms
        self._heartbeat = self._send(effects, request, config.request_timeout_ms, judged)

    def _beat_refused(self, code: ErrorCode, text: str | None, now_ms: int) -> None:
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            self._needs_rejoin = self.phase is Phase.JOINED or self._needs_rejoin
        elif code in ASK_ELSEWHERE:
            self.coordinator.lose(now_ms)
            self._heartbeat_ms = now_ms
        elif code is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            self._refused(code, text, now_ms)

    # --- refusals -----------------------------------------------------------------------------------------

    def _refused(self, code: ErrorCode, text: str | None, now_ms: int) -> None:
        """A join, a sync or a heartbeat was: what the member is now."""
        self._join_failures += 1
        pause_ms = self._config.retry.pause_ms(self._join_failures)
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
            self._leave_generation()
            pause_ms = 0 if self._join_failures == 1 else pause_ms
        elif code is ErrorCode.ILLEGAL_GENERATION:
            self._leave_generation()
        elif code is ErrorCode.FENCED_INSTANCE_ID:
            self._fence(text)
        elif code in ASK_ELSEWHERE:
            self.coordinator.lose(now_ms)
        elif code not in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
            self._error = ClientError(
                f"group {self._config.group_id}: {code.name}: {text or 'no reason given'}", code
            )
            self._leave_generation()
            pause_ms = self._config.retry.max_ms
        self._join_ms = now_ms + pause_ms

    def _leave_generation(self) -> None:
        """What it owned may belong to others."""
        self.generation_id = -1
        self.phase = Phase.UNJOINED
        self._waits_for = None
        self._needs_rejoin = False
        self._sharing.forget()
        self._forget_target()
        self._is_lost = bool(self.owned)

    def _forget_target(self) -> None:
        self._target = None
        self._starts.forget()

    def _fence(self, text: str | None) -> None:
        self._is_fenced = True
        self._error = ClientError(
            f"group {self._config.group_id}: another process has the group instance id "
            f"{self._config.group_instance_id}: stop one of them and make a new consumer",
            ErrorCode.FENCED_INSTANCE_ID,
        )
        self._leave_generation()

    # --- offsets ------------------------------------------------------------------------------------------

    def _send_ask(self, ask: Ask, now_ms: int, effects: list[Effect]) -> None:
        timeout_ms = max(1, min(self._config.request_timeout_ms, ask.deadline_ms - now_ms))

        def judged(response: Any, now_ms: int) -> list[Effect]:
            if response is None:
                self._asks.failed(ask, now_ms)
                return []
            owned = self.owned if self._config.is_cooperative and not self._is_lost else ()
            verdict, settled = self._asks.answered(ask, response, self._identity, owned, now_ms)
            self._judge_verdict(verdict, now_ms)
            if settled is None:
                return []
            if settled.token is not self._starts.token:
                return [settled]
            if settled.error is None:
                self._starts.found(settled.result)
            else:
                self._error = settled.error  # when it was raised they are asked for again
            return []

        ask.request_id = self._send(effects, self._asks.request(ask), timeout_ms, judged)

    def _judge_verdict(self, verdict: Verdict, now_ms: int) -> None:
        if verdict is Verdict.ELSEWHERE:
            self.coordinator.lose(now_ms)
        elif verdict is Verdict.OUT and self.phase is Phase.JOINED:
            # Which of the two it is the next join hears.
            self._leave_generation()
        elif verdict is Verdict.FENCED:
            self._fence(None)

    # --- events -------------------------------------------------------------------------------------------

    def coordinator_found(self, coordinator: Coordinator, now_ms: int) -> list[Effect]:
        """Any broker says so."""
        if self._waits_for is not None and self._requests[self._waits_for].coordinator != coordinator:
            self._waits_for = None  # its answer will not come
            self.phase = Phase.UNJOINED
        self.coordinator.found(coordinator, now_ms)
        return []

    def coordinator_not_found(self, error: ClientError, now_ms: int) -> list[Effect]:
        """Not now."""
        self.coordinator.not_found(now_ms)
        if error.code is not None and not error.code.is_retriable and self._error is None:
            self._error = error
        return []

    def answered(self, request_id: int, response: Any, now_ms: int) -> list[Effect]:
        """The coordinator has answered."""
        sent = self._requests.pop(request_id)
        self.coordinator.heard_from = sent.coordinator
        return sent.judge(response, now_ms)

    def failed(self, request_id: int, error: ClientError | None, now_ms: int) -> list[Effect]:
        """No answer will come. `error`: the request was refused as a whole, by the broker or on this side."""
        sent = self._requests.pop(request_id)
        if error is not None and error.code is not None and not error.code.is_retriable:
            self._error = self._error or error
        self.coordinator.heard_from = sent.coordinator
        self.coordinator.lose(now_ms)
        return sent.judge(None, now_ms)

    def metadata_changed(self, now_ms: int) -> list[Effect]:
        """A metadata answer was merged into the cache, or none could be had."""
        if self._wanted is None:
            return []
        for partition, is_late in self._wanted.news(self._cache):
            if is_late:
                self._late[partition] = None
        return []

    def _send(
        self, effects: list[Effect], request: Any, timeout_ms: int, judge: Callable[[Any, int], list[Effect]]
    ) -> int:
        coordinator = self.coordinator.known
        assert coordinator is not None
        self._request_id += 1
        self._requests[self._request_id] = _Sent(coordinator, judge)
        effects.append(Send(self._request_id, coordinator, request, timeout_ms))
        return self._request_id
