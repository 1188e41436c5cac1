"""A consumer's place in its group. Carries out what `client.core.groups.membership` decides.

Owns the requests to the coordinator, the pattern of topics and the calls of the application's listener. What
changes for the application changes in `settle`, which a poll calls before it gives records.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeAlias

from holdfast.client.cluster_client import ClusterClient
from holdfast.client.core.effects import Call, RefreshMetadata, take
from holdfast.client.core.errors import ClientError, code_of
from holdfast.client.core.groups.effects import (
    Coordinator,
    Effect,
    FindCoordinator,
    MemberConfig,
    Position,
    Send,
    Settle,
    Step,
    StepKind,
    WantTopics,
)
from holdfast.client.core.groups.membership import Membership
from holdfast.client.core.next_turn import NEXT_TURN
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse
from holdfast.protocol.topic_names import TopicPartition
from holdfast.rpc.channel import CallRefused
from holdfast.runtime.api import NetworkError, Runtime
from holdfast.runtime.pump import Pump

_FIND_TIMEOUT_MS = 5_000
#: How the names of the cluster's own topics begin; no pattern takes them.
_INTERNAL = "__"

_log = logging.getLogger("holdfast.consumer")


class RebalanceListener:
    """What an application wants to hear of its partitions; override what is of use.

    Each call is made in a poll, or while `async for` asks for the next record, and is waited for: nothing
    else is read meanwhile. One that raises ends the poll with that error, and is called again by the next.
    """

    async def assigned(self, partitions: tuple[TopicPartition, ...]) -> None:
        """These are read from now on, after each rebalance; perhaps none. `seek` may move them."""

    async def revoked(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Others get these. Offsets can still be committed."""

    async def lost(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Others may have these already: nothing can be committed any more. Without an own one: `revoked`."""
        await self.revoked(partitions)


#: Reads exactly these partitions from now on; the mapping has where new ones begin, None: as the reset policy
#: says.
Place: TypeAlias = Callable[[tuple[TopicPartition, ...], Mapping[TopicPartition, Position | None]], None]


class GroupSession:
    """Of one consumer."""

    def __init__(
        self,
        runtime: Runtime,
        cluster: ClusterClient,
        config: MemberConfig,
        place: Place,
        positions: Callable[[], dict[TopicPartition, Position]],
        wake: Callable[[], None],
        break_down: Callable[[Exception], None],
    ) -> None:
        """`positions`: how far each partition was handed out. `wake`: a poll that waits should call
        `settle`."""
        self.config = config
        self.core = Membership(config, cluster.cache)
        self._runtime = runtime
        self._clock = runtime.clock
        self._cluster = cluster
        self._place = place
        self._positions = positions
        self._wake = wake
        self._listener = RebalanceListener()
        self._pattern: re.Pattern[str] | None = None
        #: a call of the listener that is to be made before anything else is done
        self._call: tuple[StepKind, tuple[TopicPartition, ...]] | None = None
        self._is_closed = False
        #: answers that calls wait for
        self._waiting: dict[asyncio.Future[Any], None] = {}
        self._pump: Pump[Call[Effect], Effect] = Pump(
            runtime.clock,
            take,
            lambda: self.core.next_deadline_ms(self._clock.now_ms()),
            break_down,
            queue_empty=self.core.plan,
            idle=self._wake_if_wanted,
        )
        self._pump.carry_out |= {
            FindCoordinator: self._start_finding,
            Send: self._start_sending,
            Settle: self._settle,
            WantTopics: self._want,
            RefreshMetadata: lambda _: cluster.refresh(),
        }

    # --- what to read ---------------------------------------------------------------------------------

    def subscribe(
        self, topics: str | Iterable[str] | re.Pattern[str], listener: RebalanceListener | None
    ) -> None:
        """Share these with the group from now on. Raises: ClientError when no topic can be called so."""
        if listener is not None:
            self._listener = listener
        if isinstance(topics, re.Pattern):
            self._pattern = topics
            self._cluster.wanted.all_topics = True
            self._cluster.refresh()
            self._follow_pattern()
            return
        self._pattern = None
        names = (topics,) if isinstance(topics, str) else tuple(topics)
        for topic in names:
            self._cluster.wanted.use(topic, self._clock.now_ms())
        self._pump.post(partial(self.core.subscribe, names))

    def metadata_changed(self) -> None:
        """A metadata answer came, or none could be had."""
        self._follow_pattern()
        self._pump.post(self.core.metadata_changed)

    def _follow_pattern(self) -> None:
        if self._pattern is not None:
            names = self._cluster.cache.topic_names
            matching = tuple(
                name for name in names if self._pattern.fullmatch(name) and not name.startswith(_INTERNAL)
            )
            self._pump.post(partial(self.core.subscribe, matching))

    def _want(self, effect: WantTopics) -> None:
        for topic in effect.topics:
            try:
                self._cluster.wanted.use(topic, self._clock.now_ms())
            except ClientError as error:  # of another member: no broker has it
                _log.warning("group %s: %s", self.config.group_id, error)

    # --- between two polls ----------------------------------------------------------------------------

    def end_poll(self) -> None:
        """The application gets something to work at."""
        self.core.end_poll(self._clock.now_ms())

    @property
    def wants_attention(self) -> bool:
        """A poll has something to settle."""
        return self._call is not None or self.core.wants_attention(self._clock.now_ms())

    async def settle(self) -> None:
        """The application has done with what it was given: do what is due, which is commits, changes of the
        assignment, calls of the listener.

        Raises: ClientError of the membership, what the listener raises.
        """
        now_ms = self._clock.now_ms()
        self.core.begin_poll(now_ms)
        self._pump.run()
        if self.core.is_auto_commit_due(now_ms):
            positions = self._positions()
            self._pump.post(lambda now_ms: self.core.auto_commit(positions, now_ms))
        while True:
            if self._call is not None:
                await self._tell(*self._call)
                self._call = None
            step = self.core.next_step()
            if step is None:
                break
            await self._take(step)
        error = self.core.take_error()
        if error is not None:
            await NEXT_TURN  # an application that polls on in a loop must not keep others from running
            raise error

    async def _take(self, step: Step) -> None:
        if step.kind is StepKind.REVOKED:
            await self._commit_before_end(step.partitions)
            await self._tell(step.kind, step.partitions)
        else:
            self._call = step.kind, step.partitions
        gone = set(step.partitions)
        if step.kind is StepKind.ASSIGNED:
            self._place(tuple(sorted({*self.core.owned, *gone})), self._starts(step))
        else:
            self._place(tuple(one for one in self.core.owned if one not in gone), {})
        self._pump.post(partial(self.core.done, step))

    def _starts(self, step: Step) -> dict[TopicPartition, Position | None]:
        # All that a partition holds which was added lately is younger than the subscription.
        late = self.core.is_late
        first = {one: Position(0) for one in step.partitions if one in late}
        return {one: at or first.get(one) for one, at in step.offsets.items()}

    async def _tell(self, kind: StepKind, partitions: tuple[TopicPartition, ...]) -> None:
        calls = {
            StepKind.ASSIGNED: self._listener.assigned,
            StepKind.REVOKED: self._listener.revoked,
            StepKind.LOST: self._listener.lost,
        }
        await calls[kind](partitions)

    # --- offsets --------------------------------------------------------------------------------------

    async def commit(self, positions: Mapping[TopicPartition, Position], timeout_ms: float) -> None:
        """Commit, and wait until it is acknowledged. Raises: CommitFailed, ClientError, TimedOut."""
        for topic in dict.fromkeys(topic for topic, _ in positions):
            await self._cluster.topic(topic, timeout_ms)
        if positions:
            await self._ask(lambda token, deadline: self.core.commit(token, positions, deadline), timeout_ms)

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: float
    ) -> dict[TopicPartition, Position | None]:
        """How far the group has come. Raises: ClientError, TimedOut."""
        asked = tuple(partitions)
        for topic in dict.fromkeys(topic for topic, _ in asked):
            await self._cluster.topic(topic, timeout_ms)
        if not asked:
            return {}
        found: dict[TopicPartition, Position | None] = await self._ask(
            lambda token, deadline: self.core.fetch_committed(token, asked, deadline), timeout_ms
        )
        return found

    async def _ask(self, begin: Callable[[Any, int], list[Effect]], timeout_ms: float) -> Any:
        if self._pump.is_ended:
            raise ClientError("the consumer is closed")
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[answer] = None
        deadline_ms = self._clock.now_ms() + int(timeout_ms)
        self._pump.post(lambda now_ms: begin(answer, deadline_ms))
        try:
            return await answer
        finally:
            del self._waiting[answer]

    async def _commit_before_end(self, partitions: Iterable[TopicPartition]) -> None:
        """What is handed over is committed first, when this consumer commits by itself."""
        ending = set(partitions)
        positions = {one: at for one, at in self._positions().items() if one in ending}
        if not self.config.enable_auto_commit or not positions:
            return
        try:
            await self.commit(positions, self.config.request_timeout_ms)
        except ClientError as error:  # some records are read again
            _log.warning("group %s: %s", self.config.group_id, error)

    # --- the end --------------------------------------------------------------------------------------

    async def close(self, positions: Mapping[TopicPartition, Position]) -> None:
        """Commit these, when this consumer commits by itself, and leave. A static one only falls silent."""
        owned = self.core.owned
        if self._pump.is_ended or self._is_closed:
            return
        self._is_closed = True
        if owned and positions and self.config.enable_auto_commit:
            try:
                await self.commit(positions, self.config.request_timeout_ms)
            except ClientError as error:
                _log.warning("group %s: %s", self.config.group_id, error)
        try:
            if owned:
                await self._tell(StepKind.REVOKED, owned)
        except BaseException:
            self._pump.post(partial(self.core.leave, None))
            raise
        await self._ask(lambda token, _: self.core.leave(token, self._clock.now_ms()), 0)

    # --- effects --------------------------------------------------------------------------------------

    def _start_finding(self, _: FindCoordinator) -> None:
        self._runtime.tasks.start("find coordinator", self._find())

    async def _find(self) -> None:
        def code(response: FindCoordinatorResponse) -> ErrorCode:
            return code_of(response.error_code or response.coordinators[0].error_code)

        group_id = self.config.group_id
        what = f"looking for the coordinator of group {group_id}"
        try:
            answer, _ = await self._cluster.ask(
                FindCoordinatorRequest((group_id,)), _FIND_TIMEOUT_MS, code_of_answer=code, what=what
            )
            row = answer.coordinators[0]
            refusal = code(answer)
            if refusal is not ErrorCode.NONE:
                raise ClientError(f"{what}: {refusal.name}: {row.error_message}", refusal)
        except ClientError as error:
            self._pump.post(partial(self.core.coordinator_not_found, error))
        else:
            found = Coordinator(row.node_id, row.host, row.port)
            self._pump.post(partial(self.core.coordinator_found, found))

    def _start_sending(self, effect: Send) -> None:
        self._runtime.tasks.start("group request", self._send(effect))

    async def _send(self, effect: Send) -> None:
        _, host, port = effect.coordinator
        try:
            answer = await self._cluster.call((host, port), effect.request, effect.timeout_ms)
        except NetworkError:
            self._cluster.suspect(effect.coordinator.node_id)
            self._pump.post(partial(self.core.failed, effect.request_id, None))
        except CallRefused as error:
            refusal = ClientError(f"group {self.config.group_id}: {error}", error.error_code)
            self._pump.post(partial(self.core.failed, effect.request_id, refusal))
        else:
            self._pump.post(partial(self.core.answered, effect.request_id, answer))

    def _settle(self, effect: Settle) -> None:
        token, error = effect.token, effect.error
        if token is None and error is not None:
            _log.warning("group %s: what was read is not committed: %s", self.config.group_id, error)
        if token is None or token.done():
            return
        if error is not None:
            token.set_exception(error)
        else:
            token.set_result(effect.result)

    def _wake_if_wanted(self) -> None:
        if self.wants_attention:
            self._wake()

    def end(self) -> None:
        """Do nothing more; calls that wait get an error."""
        self._pump.end()
        for answer in self._waiting:
            if not answer.done():
                answer.set_exception(ClientError("the consumer is closed"))
