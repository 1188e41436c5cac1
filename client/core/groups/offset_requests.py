"""The commits and questions about offsets of one member: each is repeated until it has an answer that counts.

A commit carries the generation in which it was made: a later one must not make it good. Commits go one after
the other, since a repetition that comes behind a later one would set the group back.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from typing import Any

from holdfast.client.core.backoff import Backoff
from holdfast.client.core.errors import ClientError, CommitFailed, TimedOut, code_of
from holdfast.client.core.groups.effects import Position, Settle
from holdfast.client.core.metadata_cache import MetadataCache
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.committed_offsets import (
    NO_OFFSET,
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetPartition,
)
from holdfast.protocol.messages.groups import NO_GENERATION
from holdfast.protocol.topic_names import TopicPartition

#: Partitions of one request: brokers refuse a request that names too much at once.
ROWS_MAX = 2_000
#: The coordinator says so when it is another broker by now, or cannot write.
ASK_ELSEWHERE = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
#: The member is no member, or not of this generation.
_OUT = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
_RACING = _OUT | {ErrorCode.REBALANCE_IN_PROGRESS}


@dataclass(frozen=True, slots=True)
class Identity:
    """Who commits, in which generation."""

    member_id: str = ""
    generation_id: int = NO_GENERATION


class Verdict(Enum):
    """What an answer means for the membership."""

    FINE = 0
    #: the coordinator is to be looked for
    ELSEWHERE = 1
    #: the identity of the commit does not count any more
    OUT = 2
    FENCED = 3


@dataclass(slots=True, eq=False)
class Ask:
    """One commit or question. `token`: who waits for it, None for no one."""

    token: object
    #: by topic id and index; those of the answers that have come are gone
    partitions: dict[tuple[bytes, int], TopicPartition]
    #: {partition: position} to commit; None for a question
    positions: Mapping[TopicPartition, Position] | None
    deadline_ms: int
    identity: Identity = Identity()
    failures: int = 0
    retry_ms: int = 0
    request_id: int | None = None
    problem: str = "no coordinator was found"
    #: what the answers to a question have said so far
    found: dict[TopicPartition, Position | None] = field(default_factory=dict)

    @property
    def portion(self) -> dict[tuple[bytes, int], TopicPartition]:
        """The partitions of the request that is sent next, or has no answer yet."""
        return dict(islice(self.partitions.items(), ROWS_MAX))


class OffsetRequests:
    """Of one member."""

    def __init__(self, group_id: str, group_instance_id: str | None, retry: Backoff) -> None:
        self._group_id = group_id
        self._group_instance_id = group_instance_id
        self._retry = retry
        self._asks: list[Ask] = []
        #: {partition: position} as last acknowledged
        self.committed: dict[TopicPartition, Position] = {}

    @property
    def all(self) -> tuple[Ask, ...]:
        """Those without answer."""
        return tuple(self._asks)

    def __bool__(self) -> bool:
        return bool(self._asks)

    @property
    def commits_waiting(self) -> bool:
        """A commit has no answer yet."""
        return any(ask.positions is not None for ask in self._asks)

    # --- wishes -------------------------------------------------------------------------------------------

    def commit(
        self,
        token: object,
        positions: Mapping[TopicPartition, Position],
        identity: Identity,
        cache: MetadataCache,
        deadline_ms: int,
    ) -> Settle | None:
        """Commit; settled at once when a topic is not known."""
        rows: dict[tuple[bytes, int], TopicPartition] = {}
        for partition, position in positions.items():
            view = cache.topic(partition.topic)
            topic_id = position.topic_id or (None if view is None else view.topic_id)
            if topic_id is None:
                return _unknown(token, partition)
            rows[topic_id, partition.partition] = partition
        self._asks.append(Ask(token, rows, dict(positions), deadline_ms, identity))
        return None

    def fetch(
        self, token: object, partitions: Iterable[TopicPartition], cache: MetadataCache, deadline_ms: int
    ) -> Settle | None:
        """Ask how far the group has come; settled at once when a topic is not known."""
        rows: dict[tuple[bytes, int], TopicPartition] = {}
        for partition in partitions:
            view = cache.topic(partition.topic)
            if view is None:
                return _unknown(token, partition)
            rows[view.topic_id, partition.partition] = partition
        self._asks.append(Ask(token, rows, None, deadline_ms))
        return None

    def forget(self, token: object) -> None:
        """The answer is of no use any more."""
        self._asks = [ask for ask in self._asks if ask.token is not token]

    # --- time ---------------------------------------------------------------------------------------------

    def expire(self, now_ms: int) -> list[Settle]:
        """Those whose time is over."""
        late = [ask for ask in self._asks if now_ms >= ask.deadline_ms]
        self._asks = [ask for ask in self._asks if now_ms < ask.deadline_ms]
        text = f"the coordinator of group {self._group_id} gave no answer in time"
        return [
            Settle(ask.token, None, TimedOut(f"{text}: {ask.problem}", ErrorCode.REQUEST_TIMED_OUT))
            for ask in late
            if ask.token is not None
        ]

    def due(self, now_ms: int) -> list[Ask]:
        """Those to be sent now; of the commits the first alone."""
        found: list[Ask] = []
        has_commit = False
        for ask in self._asks:
            if ask.positions is not None and has_commit:
                continue
            has_commit = has_commit or ask.positions is not None
            if ask.request_id is None and ask.retry_ms <= now_ms:
                found.append(ask)
        return found

    def deadlines(self) -> list[int]:
        """When `expire` or `due` may have something although nothing happened."""
        return [moment for ask in self._asks for moment in (ask.deadline_ms, ask.retry_ms)]

    def request(self, ask: Ask) -> Any:
        """What to send."""
        if ask.positions is None:
            rows = tuple(OffsetPartition(*key) for key in ask.portion)
            return OffsetFetchRequest(self._group_id, rows)
        positions = ask.positions
        return OffsetCommitRequest(
            self._group_id,
            ask.identity.generation_id,
            ask.identity.member_id,
            self._group_instance_id if ask.identity.member_id else None,
            tuple(
                OffsetCommitPartition(
                    topic_id, index, positions[partition].offset, positions[partition].leader_epoch, None
                )
                for (topic_id, index), partition in ask.portion.items()
            ),
        )

    # --- answers ------------------------------------------------------------------------------------------

    def failed(self, ask: Ask, now_ms: int, problem: str = "the connection to it failed") -> None:
        """No answer, or one that says to try again."""
        ask.request_id = None
        ask.failures += 1
        ask.problem = problem
        ask.retry_ms = now_ms + self._retry.pause_ms(ask.failures)

    def answered(
        self,
        ask: Ask,
        response: OffsetCommitResponse | OffsetFetchResponse,
        identity: Identity,
        owned: Iterable[TopicPartition],
        now_ms: int,
    ) -> tuple[Verdict, Settle | None]:
        """`identity`: the member's now; `owned`: what it may go on with in a later generation, too."""
        if ask not in self._asks:
            return Verdict.FINE, None  # its time was over
        code = code_of(response.error_code)
        if isinstance(response, OffsetFetchResponse):
            if code is ErrorCode.NONE:
                ask.found |= _found(ask.portion, response)
                return Verdict.FINE, self._portion_answered(ask, ask.found)
        else:
            code = self._worst(ask, response)
            if code is ErrorCode.NONE:
                assert ask.positions is not None
                self.committed.update((one, ask.positions[one]) for one in ask.portion.values())
                return Verdict.FINE, self._portion_answered(ask, None)
        text = response.error_message or code.name
        if code in _RACING:
            return self._raced(ask, code, text, identity, owned, now_ms)
        if code.is_retriable:
            self.failed(ask, now_ms, text)
            return (Verdict.ELSEWHERE if code in ASK_ELSEWHERE else Verdict.FINE), None
        is_fenced = code is ErrorCode.FENCED_INSTANCE_ID
        error = CommitFailed if ask.positions is not None else ClientError
        settled = self._settle(ask, None, error(f"group {self._group_id}: {text}", code))
        return (Verdict.FENCED if is_fenced else Verdict.FINE), settled

    def _raced(
        self,
        ask: Ask,
        code: ErrorCode,
        text: str,
        identity: Identity,
        owned: Iterable[TopicPartition],
        now_ms: int,
    ) -> tuple[Verdict, Settle | None]:
        verdict = Verdict.FINE
        if ask.identity == identity and code in _OUT:
            verdict = Verdict.OUT
        elif set(ask.partitions.values()) <= set(owned):
            # The group rebalances and the member keeps these: they are its own in the next generation, too.
            self.failed(ask, now_ms, text)
            ask.identity = identity
            return verdict, None
        what = f"group {self._group_id} has rebalanced, and others may have the partitions"
        why = f"{what}; go on polling: {text}"
        return verdict, self._settle(ask, None, CommitFailed(why, code))

    def _worst(self, ask: Ask, response: OffsetCommitResponse) -> ErrorCode:
        codes = [code_of(response.error_code), *(code_of(row.error_code) for row in response.partitions)]
        if ask.token is None:  # a topic that is gone needs no offset
            codes = [code for code in codes if code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        return next((code for code in codes if code is not ErrorCode.NONE), ErrorCode.NONE)

    def _portion_answered(self, ask: Ask, result: Any) -> Settle | None:
        """Settled with its last portion; else the next one is sent at once."""
        for key in ask.portion:
            del ask.partitions[key]
        if not ask.partitions:
            return self._settle(ask, result)
        ask.request_id, ask.failures, ask.retry_ms = None, 0, 0
        return None

    def _settle(self, ask: Ask, result: Any, error: ClientError | None = None) -> Settle:
        self._asks.remove(ask)
        return Settle(ask.token, result, error)


def _found(
    asked: Mapping[tuple[bytes, int], TopicPartition], response: OffsetFetchResponse
) -> dict[TopicPartition, Position | None]:
    found: dict[TopicPartition, Position | None] = dict.fromkeys(asked.values())
    for row in response.partitions:
        partition = asked.get((row.topic_id, row.partition_index))
        if partition is not None and row.offset != NO_OFFSET:
            found[partition] = Position(row.offset, row.leader_epoch, row.topic_id)
    return found


def _unknown(token: object, partition: TopicPartition) -> Settle:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return Settle(token, None, ClientError(f"topic {partition.topic} is not known", code))
