"""Members of one group against the coordinator's own core: both sides decide as they do in earnest.

Requests are answered at once, unless a member is `cut_off`; the clock moves only by `pass_ms`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from holdfast.client.core.backoff import Backoff
from holdfast.client.core.effects import RefreshMetadata
from holdfast.client.core.errors import ClientError
from holdfast.client.core.groups.effects import (
    Coordinator,
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
from holdfast.client.core.metadata_cache import MetadataCache
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.metadata import MetadataPartition, MetadataResponse, MetadataTopic
from holdfast.protocol.topic_names import TopicPartition
from tests.unit.broker.groups.play import Play as Broker
from tests.unit.broker.groups.play import T

STEP_MS = 250
HERE = Coordinator(1, "broker", 1)


def config(**given: Any) -> MemberConfig:
    """A member's settings; short times, so that few ticks are enough."""
    values: dict[str, Any] = {
        "group_id": "g",
        "group_instance_id": None,
        "session_timeout_ms": 10_000,
        "heartbeat_interval_ms": 1_000,
        "max_poll_interval_ms": 30_000,
        "assignors": ("range",),
        "enable_auto_commit": False,
        "auto_commit_interval_ms": 2_000,
        "request_timeout_ms": 5_000,
        "retry": Backoff(20, 500),
    }
    return MemberConfig(**(values | given))


def metadata(offset: int, partitions: int, **more: int) -> MetadataResponse:
    """Topic t, and more of them, each with so many partitions."""
    topics = tuple(
        MetadataTopic(
            ErrorCode.NONE,
            name,
            T if name == "t" else name.encode().ljust(16, b"\0"),
            tuple(MetadataPartition(0, index, 1, 1, (1,), (1,), ()) for index in range(count)),
        )
        for name, count in {"t": partitions, **more}.items()
        if count
    )
    return MetadataResponse("c", -1, offset, (), topics)


class Member:
    """One member, and an application that polls all the time unless it `is_busy`."""

    def __init__(self, group: "Group", **given: Any) -> None:
        self.group = group
        self.cache = MetadataCache()
        self.core = Membership(config(**given), self.cache)
        self.is_busy = self.is_cut_off = self.is_gone = False
        #: {partition: next offset to read}, of those that it reads
        self.reads: dict[int, int] = {}
        self.steps: list[tuple[str, list[int]]] = []
        self.errors: list[ClientError] = []
        self.settled: dict[object, Any] = {}
        self.sent: list[Any] = []
        self._unanswered: list[Send] = []
        self._waiting: dict[str, Send] = {}

    # --- the shell ----------------------------------------------------------------------------------------

    def post(self, call: Callable[[int], Any]) -> None:
        self._carry_out(call(self.group.now_ms))
        self._carry_out(self.core.plan(self.group.now_ms))

    def _carry_out(self, effects: list[Any]) -> None:
        for effect in effects:
            match effect:
                case FindCoordinator():
                    self.group.later(self, self._find)
                case Send():
                    self.sent.append(effect.request)
                    self._send(effect)
                case Settle(token, result, error):
                    self.settled[token] = error or result
                case WantTopics() | RefreshMetadata():
                    pass

    def _find(self, now_ms: int) -> Any:
        found = self.group.where
        if self.is_cut_off or found is None:
            error = ClientError("no broker answers", ErrorCode.NETWORK_EXCEPTION)
            return self.core.coordinator_not_found(error, now_ms)
        return self.core.coordinator_found(found, now_ms)

    def _send(self, effect: Send) -> None:
        if self.is_cut_off or effect.coordinator != self.group.where:
            self.group.later(self, lambda now: self.core.failed(effect.request_id, None, now))
        else:
            self.group.later(self, lambda now: self._ask(effect))

    def _ask(self, effect: Send) -> list[Any]:
        self._waiting[self.group.broker.request(effect.request)] = effect
        return []

    def hear(self) -> bool:
        """Take the answers that are there; False without any."""
        answers = self.group.broker.answers
        names = [name for name in self._waiting if name in answers]
        for name in names:
            request_id = self._waiting.pop(name).request_id
            self.group.later(self, partial(self.core.answered, request_id, answers[name]))
        return bool(names)

    def forget_waiting(self) -> None:
        """The coordinator is gone without a word."""
        for effect in self._waiting.values():
            self.group.later(self, partial(self.core.failed, effect.request_id, None))
        self._waiting.clear()

    # --- the application ----------------------------------------------------------------------------------

    def poll(self) -> None:
        now = self.group.now_ms
        self.core.begin_poll(now)
        self.post(lambda now: [])
        while (step := self.core.next_step()) is not None:
            self._take(step)
        error = self.core.take_error()
        if error is not None:
            self.errors.append(error)
        self.core.end_poll(now)

    def _take(self, step: Step) -> None:
        indexes = [one.partition for one in step.partitions]
        self.steps.append((step.kind.value, indexes))
        if step.kind is StepKind.ASSIGNED:
            for one in step.partitions:
                at = step.offsets[one]
                self.reads[one.partition] = 0 if at is None else at.offset
        else:
            for index in indexes:
                del self.reads[index]
        self.post(lambda now: self.core.done(step, now))

    def commit(self, offset: int, *partitions: int) -> object:
        """Commit this offset of these, all when none is named; the result is in `settled`."""
        token = object()
        positions = {TopicPartition("t", index): Position(offset) for index in partitions or self.reads}
        self.post(lambda now: self.core.commit(token, positions, now + 5_000))
        return token

    def leave(self) -> None:
        self.is_gone = True
        self.post(lambda now: self.core.leave("left", now))


class Group:
    """A coordinator and its members; topic t has three partitions."""

    def __init__(self) -> None:
        self.broker = Broker()
        self.where: Coordinator | None = HERE
        self.members: list[Member] = []
        self.partitions = 3
        self.more: dict[str, int] = {}
        self._metadata_offset = 1
        self._later: list[tuple[Member, Callable[[int], Any]]] = []

    @property
    def now_ms(self) -> int:
        return self.broker.now_ms

    def later(self, member: Member, call: Callable[[int], Any]) -> None:
        """The member's event loop makes the call when it comes to it."""
        self._later.append((member, call))

    def join(self, *topics: str, **given: Any) -> Member:
        member = Member(self, **given)
        member.cache.update(metadata(self._metadata_offset, self.partitions, **self.more))
        self.members.append(member)
        member.post(lambda now: member.core.subscribe(topics or ("t",), now))
        return member

    def stable(self, count: int, **given: Any) -> list[Member]:
        """A group with so many members, which read what they should."""
        members = [self.join(**given) for _ in range(count)]
        self.pass_ms(5_000)
        assert sorted(index for one in members for index in one.reads) == list(range(self.partitions))
        return members

    def change_topics(self, partitions: int, **more: int) -> None:
        self.partitions, self.more = partitions, more
        self._metadata_offset += 1
        for member in self.members:
            member.cache.update_all(metadata(self._metadata_offset, partitions, **more))
            member.post(member.core.metadata_changed)

    def succeed(self, node_id: int = 2) -> None:
        """The coordinator dies; another one replays its log."""
        former, self.broker = self.broker, self.broker.successor()
        self.broker.now_ms, self.broker.joins = (
            former.now_ms,
            former.joins,
        )  # ids of members are never given twice
        self.where = Coordinator(node_id, "broker", node_id)
        for member in self.members:
            member.forget_waiting()

    def settle(self) -> None:
        """Until nothing is left to do at this moment."""
        for _ in range(10_000):
            work, self._later = self._later, []
            for member, call in work:
                member.post(call)
            heard = [member.hear() for member in self.members]
            if not work and not any(heard):
                return
        raise AssertionError("the members never come to rest")

    def pass_ms(self, duration_ms: int) -> None:
        """Let time pass, a few steps a second."""
        for _ in range(max(1, duration_ms // STEP_MS)):
            self.broker.pass_ms(STEP_MS)
            self.settle()
            for member in self.members:
                if not member.is_gone:
                    if member.is_busy:
                        member.post(lambda now: [])
                    else:
                        member.poll()
            self.settle()
