"""The mind of `holdfast unclean-recovery` (KIP-1275, R70-R79): whom to ask what, when to stop, whom to elect.

Event in, effects out; keeps what was heard and what became of each partition, for the view
(`unclean_recovery_text`). Which replica is best is `unclean_recovery_choice`'s.

    looking -> asking <-> checking -> (electing -> pausing -> checking <-> asking)* -> done

Every broker with a replica is asked until its answer counts or the time is over (R71). Before anything is
decided the cluster is looked at once more: what was said by an incarnation that is gone is void by then, and
as long as there is time the broker that said it is asked again, before the first election and between
attempts.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from holdfast.cli.recovery.choice import RecoveryCandidate, Worth, candidates, chosen, longest
from holdfast.cli.recovery.events import (
    AskForLogs,
    CommittedTold,
    Describe,
    Described,
    Effect,
    Elect,
    ElectionsAnswered,
    ElectionsFailed,
    Event,
    FindCommitted,
    LogsNotTold,
    LogsTold,
    NotDescribed,
    Tick,
)
from holdfast.client.core.backoff import Backoff
from holdfast.client.core.errors import RowError
from holdfast.client.core.replica_log import ReplicaLog
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.metadata import DescribeClusterBroker, DescribeClusterResponse
from holdfast.protocol.messages.replica_log_info import LOG_INFO_ROWS_MAX
from holdfast.protocol.messages.topics import DescribedPartition
from holdfast.protocol.topic_names import TopicPartition
from holdfast.runtime.stats import Level, LogLine

#: Elections of one request (R74).
ELECTIONS_MAX = 1_000
#: A question is repeated on a new connection after so long, or half of what is left if that is more: a
#: slow broker must have the time that it needs, one that was cut off must be met again.
QUESTION_MS_MIN = 5_000
_ROUNDS = Backoff(first_ms=100, max_ms=1_000)
_ATTEMPTS = Backoff(first_ms=500, max_ms=5_000)


class Goal(Enum):
    """What is done with the answers."""

    SHOW = "show"
    WRITE_FILE = "write_file"
    ELECT = "elect"


@dataclass(frozen=True, slots=True)
class RecoveryLimits:
    """How long things may take."""

    #: brokers may answer so long (KIP-1275)
    recovery_duration_ms: int
    #: repetitions of elections that failed for a while only (KIP-1275)
    election_attempts: int
    #: of any other request
    timeout_ms: int


class Ending(Enum):
    """What became of a partition."""

    OPEN = "open"
    #: the controller found a leader, or there was one all the time (R74, R79)
    ONLINE = "online"
    ELECTED = "elected"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class RecoveryResult:
    """What became of a partition, and why."""

    ending: Ending
    #: ELECTED: by this run
    leader: int | None = None
    #: ONLINE, FAILED; OPEN: why the last attempt did not succeed
    error: RowError | None = None


class _Phase(Enum):
    LOOKING = "looking"
    ASKING = "asking"
    CHECKING = "checking"
    ELECTING = "electing"
    PAUSING = "pausing"
    DONE = "done"


@dataclass(slots=True)
class _Question:
    """Under way to a broker."""

    broker_id: int
    partitions: tuple[TopicPartition, ...]


@dataclass(slots=True)
class _View:
    """The newest that is known of the cluster."""

    metadata_offset: int = -1
    brokers: dict[int, DescribeClusterBroker] = field(default_factory=dict)
    topic_ids: dict[str, bytes] = field(default_factory=dict)
    #: as long as they have no leader
    rows: dict[TopicPartition, DescribedPartition] = field(default_factory=dict)


class RecoveryPlanner:
    """One run over these partitions, or over all without a leader."""

    def __init__(self, wanted: Iterable[TopicPartition] | None, goal: Goal, limits: RecoveryLimits) -> None:
        self.goal = goal
        self.limits = limits
        #: by topic and index
        self.outcomes: dict[TopicPartition, RecoveryResult] = {}
        #: whom the last decision chose
        self.designated: dict[TopicPartition, int] = {}
        #: elections whose answer is awaited
        self.under_way: tuple[TopicPartition, ...] = ()
        #: why the whole run ended early
        self.failure: RowError | None = None
        #: what is shown may be older than what is: why
        self.doubt: str | None = None
        self._wanted = None if wanted is None else sorted(wanted)
        self._phase = _Phase.LOOKING
        self._view = _View()
        self._committed: int | None = None
        self._told: dict[TopicPartition, dict[int, ReplicaLog | RowError]] = {}
        self._questions: dict[int, _Question] = {}
        self._questions_asked = 0
        #: the description that is awaited
        self._description: int | None = None
        #: by broker, what it is asked next in this round
        self._waiting: dict[int, list[TopicPartition]] = {}
        self._rounds = 0
        self._next_ms: int | None = None
        self._deadline_ms = 0
        self._give_up_looking_ms = 0
        self._attempts = 0
        self._chunks: list[dict[TopicPartition, int]] = []
        #: elections of former requests whose outcome is not known
        self._unsure: set[TopicPartition] = set()
        #: brokers whose silence was told already
        self._complained_of: set[int] = set()

    # --- looking ---------------------------------------------------------------------------------------

    @property
    def is_done(self) -> bool:
        return self._phase is _Phase.DONE

    @property
    def has_looked(self) -> bool:
        """The cluster was seen at least once."""
        return self._view.metadata_offset >= 0

    def targets(self) -> list[TopicPartition]:
        """The partitions whose replicas are shown: those that were without a leader, by topic and index."""
        return [partition for partition in self.outcomes if self.is_target(partition)]

    def is_target(self, partition: TopicPartition) -> bool:
        """It was seen without a leader."""
        return partition in self._view.rows

    def row(self, partition: TopicPartition) -> DescribedPartition:
        """What metadata said last of a target while it had no leader."""
        return self._view.rows[partition]

    def candidates(self, partition: TopicPartition) -> tuple[RecoveryCandidate, ...]:
        """The replicas of a target, with what is known of their logs now."""
        row = self._view.rows[partition]
        return candidates(row, self._view.brokers.get, self._told.get(partition, {}))

    def best(self, partition: TopicPartition) -> int | None:
        """Whom this run designates, or would by what it knows now."""
        if partition in self.designated:
            return self.designated[partition]
        return chosen(self.row(partition), self.candidates(partition))

    def open_partitions(self) -> list[TopicPartition]:
        """Those that are still to be recovered."""
        return [one for one, outcome in self.outcomes.items() if outcome.ending is Ending.OPEN]

    def next_deadline_ms(self) -> int | None:
        """When Tick is due, None when only events go on."""
        if self._phase is _Phase.ASKING:
            if self._next_ms is None:
                return self._deadline_ms
            return min(self._next_ms, self._deadline_ms)
        return self._next_ms

    # --- events ----------------------------------------------------------------------------------------

    def start(self, now_ms: int) -> list[Effect]:
        """Begin."""
        self._give_up_looking_ms = now_ms + self.limits.timeout_ms
        return [FindCommitted(min(5_000, self.limits.timeout_ms))]

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """Go on; nothing happens any more once it is done."""
        if self.is_done:
            return []
        match event:
            case CommittedTold():
                self._committed = event.offset
                if event.offset is None:
                    self.doubt = "no active controller answered"
                return [self._describe(self.limits.timeout_ms)]
            case Described() | NotDescribed() if event.question_id == self._description:
                self._description = None
                return self._described(event, now_ms)
            case LogsTold():
                return self._logs_told(event, now_ms)
            case LogsNotTold():
                return self._logs_not_told(event, now_ms)
            case ElectionsAnswered():
                return self._elections_answered(event.outcome, now_ms)
            case ElectionsFailed():
                return self._elections_failed(event.error, now_ms)
            case Tick():
                return self._time_passed(now_ms)
        return []  # a description that is not needed any more

    def _time_passed(self, now_ms: int) -> list[Effect]:
        if self._phase is _Phase.ASKING and now_ms >= self._deadline_ms:
            return self._stop_asking()
        if self._next_ms is None or now_ms < self._next_ms:
            return []
        self._next_ms = None
        if self._phase is _Phase.ASKING:
            return [self._describe(min(self.limits.timeout_ms, self._deadline_ms - now_ms))]
        if self._phase is _Phase.PAUSING:
            self._phase = _Phase.CHECKING
        return [self._describe(self.limits.timeout_ms)]

    # --- the cluster -----------------------------------------------------------------------------------

    def _describe(self, timeout_ms: int) -> Effect:
        names: tuple[str, ...] | None = None
        if self._phase is not _Phase.LOOKING:
            names = tuple(dict.fromkeys(partition.topic for partition in self.open_partitions()))
        elif self._wanted is not None:
            names = tuple(dict.fromkeys(partition.topic for partition in self._wanted))
        self._questions_asked += 1
        self._description = self._questions_asked
        return Describe(self._description, names, max(1, timeout_ms))

    def _described(self, event: Described | NotDescribed, now_ms: int) -> list[Effect]:
        if isinstance(event, Described):
            if self._is_old(event.cluster, now_ms):
                self._next_ms = now_ms + _ROUNDS.pause_ms(self._rounds + 1)
                self._rounds += 1
                return []
            self._take_view(event)
        match self._phase:
            case _Phase.LOOKING:
                if isinstance(event, NotDescribed):
                    return self._fail(event.error)
                self._phase = _Phase.ASKING
                self._rounds = 0
                self._deadline_ms = now_ms + self.limits.recovery_duration_ms
                return self._next_round(now_ms)
            case _Phase.ASKING:
                return self._next_round(now_ms)
            case _Phase.CHECKING:
                if isinstance(event, NotDescribed):
                    return self._fail(event.error)
                if now_ms < self._deadline_ms and not self._is_settled():
                    self._phase = _Phase.ASKING
                    return self._next_round(now_ms)
                return self._decide(now_ms)
        raise AssertionError(f"no description is awaited while {self._phase.value}")

    def _is_old(self, cluster: DescribeClusterResponse, now_ms: int) -> bool:
        """Is this view no news, so that another one has to be waited for? A node may have just started."""
        if self._phase is not _Phase.LOOKING:
            return False
        if self._committed is None or cluster.metadata_offset >= self._committed:
            return False
        if now_ms < self._give_up_looking_ms:
            return True
        self.doubt = (
            f"the node that was asked knows metadata up to offset {cluster.metadata_offset} only, "
            f"{self._committed} is committed"
        )
        return False

    def _take_view(self, event: Described) -> None:
        """Take over what is new; a node that lags behind what is known already has nothing to say."""
        if event.cluster.metadata_offset < self._view.metadata_offset:
            return
        self._view.metadata_offset = event.cluster.metadata_offset
        self._view.brokers = {row.broker_id: row for row in event.cluster.brokers}
        found: dict[TopicPartition, DescribedPartition] = {}
        ids: dict[str, bytes] = {}
        for topic in event.topics:
            if topic.error_code == ErrorCode.NONE:
                ids[topic.name] = topic.topic_id
                for row in topic.partitions:
                    found[TopicPartition(topic.name, row.partition_index)] = row
        if self._phase is _Phase.LOOKING:
            if self._wanted is None:
                self._wanted = sorted(partition for partition, row in found.items() if row.leader_id < 0)
            self.outcomes = dict.fromkeys(self._wanted, RecoveryResult(Ending.OPEN))
        for partition in self.open_partitions():
            self._take_row(partition, found.get(partition), ids.get(partition.topic))
        for name, topic_id in ids.items():
            self._view.topic_ids.setdefault(name, topic_id)

    def _take_row(
        self, partition: TopicPartition, row: DescribedPartition | None, topic_id: bytes | None
    ) -> None:
        known_id = self._view.topic_ids.get(partition.topic)
        if row is None or (known_id is not None and topic_id != known_id):
            text = f"there is no partition {partition.topic}-{partition.partition}"
            if known_id is not None:
                text = f"{partition.topic}-{partition.partition} was deleted meanwhile"
            self._end(partition, Ending.FAILED, RowError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text))
        elif row.leader_id >= 0:
            self._online(partition, f"broker {row.leader_id} leads")
        else:
            self._view.rows[partition] = row

    # --- logs ------------------------------------------------------------------------------------------

    def _next_round(self, now_ms: int) -> list[Effect]:
        """Ask the brokers without an answer that counts; go on at once when none is left."""
        if not self.open_partitions() or (not self._questions and self._is_settled()):
            return self._stop_asking()
        wanting: dict[int, list[TopicPartition]] = {}
        for partition in self.open_partitions():
            for one in self.candidates(partition):
                if _is_unheard(one):
                    wanting.setdefault(one.replica, []).append(partition)
        busy = {question.broker_id for question in self._questions.values()}
        effects: list[Effect] = []
        for broker_id in sorted(wanting.keys() - busy):
            self._waiting[broker_id] = wanting[broker_id]
            effects += self._ask(broker_id, now_ms)
        self._rounds += 1
        self._next_ms = now_ms + _ROUNDS.pause_ms(self._rounds)
        return effects

    def _ask(self, broker_id: int, now_ms: int) -> list[Effect]:
        """Ask a broker for the next of those that wait."""
        waiting = self._waiting.pop(broker_id, [])
        asked, rest = tuple(waiting[:LOG_INFO_ROWS_MAX]), waiting[LOG_INFO_ROWS_MAX:]
        if not asked:
            return []
        broker = self._view.brokers.get(broker_id)
        if broker is None:
            error = RowError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker_id} is not registered")
            return self._take_silence(broker_id, (*asked, *rest), error)
        if rest:
            self._waiting[broker_id] = rest
        self._questions_asked += 1
        self._questions[self._questions_asked] = _Question(broker_id, asked)
        topic_ids = {one.topic: self._view.topic_ids[one.topic] for one in asked}
        left_ms = self._deadline_ms - now_ms
        timeout_ms = max(1, min(left_ms, max(QUESTION_MS_MIN, left_ms // 2)))
        return [
            AskForLogs(
                self._questions_asked, broker_id, (broker.host, broker.port), topic_ids, asked, timeout_ms
            )
        ]

    def _logs_told(self, event: LogsTold, now_ms: int) -> list[Effect]:
        question = self._questions.pop(event.question_id, None)
        if question is None:
            return []  # too late (KIP-1275)
        for partition in question.partitions:
            nothing = RowError(ErrorCode.UNKNOWN_SERVER_ERROR, "the answer has no row for this partition")
            told = event.logs.get(partition, nothing)
            self._told.setdefault(partition, {})[question.broker_id] = told
        effects = self._ask(question.broker_id, now_ms)
        if not self._questions and self._description is None and self._is_settled():
            return self._stop_asking()
        return effects

    def _logs_not_told(self, event: LogsNotTold, now_ms: int) -> list[Effect]:
        question = self._questions.pop(event.question_id, None)
        if question is None:
            return []
        rest = self._waiting.pop(question.broker_id, [])
        effects = self._take_silence(question.broker_id, (*question.partitions, *rest), event.error)
        if not self._questions and self._description is None and self._is_settled():
            return self._stop_asking()
        return effects

    def _take_silence(
        self, broker_id: int, partitions: Sequence[TopicPartition], error: RowError
    ) -> list[Effect]:
        for partition in partitions:
            self._told.setdefault(partition, {})[broker_id] = error
        if broker_id in self._complained_of or not error.code.is_retriable:
            return []
        self._complained_of.add(broker_id)
        seconds = self.limits.recovery_duration_ms / 1000
        return [
            LogLine(Level.INFO, f"broker {broker_id} is asked again until {seconds:g} s have passed: {error}")
        ]

    def _is_settled(self) -> bool:
        """Could no further answer change what is done? A better log that is not ready is waited for."""
        for partition in self.open_partitions():
            found = self.candidates(partition)
            if any(_is_unheard(one) for one in found):
                return False
            if self.goal is not Goal.SHOW:
                row = self._view.rows[partition]
                best = longest(row, found)
                if any(one.replica == best and not one.is_ready for one in found):
                    return False
        return True

    def _stop_asking(self) -> list[Effect]:
        """A replica without an answer is no candidate (KIP-1275). Look at the cluster once more."""
        silence = RowError(
            ErrorCode.REQUEST_TIMED_OUT, f"no answer within {self.limits.recovery_duration_ms} ms"
        )
        unheard = [(question.broker_id, question.partitions) for question in self._questions.values()]
        for broker_id, partitions in (*unheard, *self._waiting.items()):
            for partition in partitions:
                # what was heard before says more: an error, or a log told out of old metadata
                self._told.setdefault(partition, {}).setdefault(broker_id, silence)
        self._questions, self._waiting, self._next_ms = {}, {}, None
        if not self.open_partitions():
            self._phase = _Phase.DONE
            return []
        self._phase = _Phase.CHECKING
        return [self._describe(self.limits.timeout_ms)]

    # --- decisions -------------------------------------------------------------------------------------

    def _decide(self, now_ms: int) -> list[Effect]:
        leaders: dict[TopicPartition, int] = {}
        for partition in self.open_partitions():
            found = self.candidates(partition)
            best = chosen(self._view.rows[partition], found)
            if best is None:
                self.designated.pop(partition, None)
                self._end(partition, Ending.FAILED, _why_nobody(self._view.rows[partition], found))
            else:
                leaders[partition] = self.designated[partition] = best
        if self.goal is not Goal.ELECT:
            self._phase = _Phase.DONE
            return []
        rows = sorted(leaders.items())
        self._chunks = [dict(rows[i : i + ELECTIONS_MAX]) for i in range(0, len(rows), ELECTIONS_MAX)]
        self._phase = _Phase.ELECTING
        return self._elect(now_ms)

    def _elect(self, now_ms: int) -> list[Effect]:
        """The next request, the next attempt, or the end."""
        if self._chunks:
            leaders = self._chunks.pop(0)
            self.under_way = tuple(leaders)
            return [Elect(leaders, self.limits.timeout_ms)]
        left = self.open_partitions()
        if left and self._attempts < self.limits.election_attempts:
            self._attempts += 1
            self._phase = _Phase.PAUSING
            self._next_ms = now_ms + _ATTEMPTS.pause_ms(self._attempts)
            return [LogLine(Level.INFO, f"{len(left)} election(s) are tried again: {self._reason(left[0])}")]
        for partition in left:
            error = self._reason(partition)
            if partition in self._unsure:
                error = RowError(
                    error.code, f"{error.message}; whether it is elected is not known, look at it"
                )
            self._end(partition, Ending.FAILED, error)
        self._phase = _Phase.DONE
        return []

    def _reason(self, partition: TopicPartition) -> RowError:
        error = self.outcomes[partition].error
        assert error is not None, f"{partition} was tried and did not succeed"
        return error

    def _elections_answered(
        self, outcome: Mapping[TopicPartition, RowError | None], now_ms: int
    ) -> list[Effect]:
        for partition in self.under_way:
            missing = RowError(ErrorCode.UNKNOWN_SERVER_ERROR, "the answer has no row for this partition")
            error = outcome.get(partition, missing)
            if error is None:
                leader = self.designated[partition]
                self.outcomes[partition] = RecoveryResult(Ending.ELECTED, leader)
            elif error.code is ErrorCode.ELECTION_NOT_NEEDED:
                self._online(partition, error.message)
            elif _is_transient(error):
                self.outcomes[partition] = RecoveryResult(Ending.OPEN, error=error)
            else:
                self._end(partition, Ending.FAILED, error)
        self.under_way = ()
        return self._elect(now_ms)

    def _elections_failed(self, error: RowError, now_ms: int) -> list[Effect]:
        """What was not sent yet would meet the same: it waits for the next attempt, or fails as well."""
        unsent = [partition for chunk in self._chunks for partition in chunk]
        self._unsure.update(self.under_way)
        for partition in (*self.under_way, *unsent):
            if _is_transient(error):
                self.outcomes[partition] = RecoveryResult(Ending.OPEN, error=error)
            else:
                self._end(partition, Ending.FAILED, error)
        self.under_way, self._chunks = (), []
        return self._elect(now_ms)

    # --- ends ------------------------------------------------------------------------------------------

    def _online(self, partition: TopicPartition, text: str) -> None:
        """R19: a replica leads; whether this run chose it cannot be known."""
        if partition in self._unsure:
            text += "; an earlier request of this run, whose answer was lost, may have elected it"
        self._end(partition, Ending.ONLINE, RowError(ErrorCode.ELECTION_NOT_NEEDED, text))

    def _end(self, partition: TopicPartition, ending: Ending, error: RowError) -> None:
        self.outcomes[partition] = RecoveryResult(ending, error=error)

    def _fail(self, error: RowError) -> list[Effect]:
        """Nothing is decided by what may be old (R63)."""
        self.failure = error
        self._phase = _Phase.DONE
        return []


def _is_unheard(one: RecoveryCandidate) -> bool:
    """Asking again may bring an answer that counts (R71)."""
    if one.worth is Worth.NONE:
        return one.problem is None or one.problem.code.is_retriable
    if one.log is not None and one.log.broker_epoch < 0:
        return True  # it is about to register: what it is then will be another matter
    return one.worth in (Worth.VOID, Worth.AHEAD, Worth.BEHIND)


def _is_transient(error: RowError) -> bool:
    return error.code.is_retriable and error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _why_nobody(row: DescribedPartition, found: Sequence[RecoveryCandidate]) -> RowError:
    for one in found:
        if one.worth is Worth.AHEAD and one.log is not None:
            text = (
                f"broker {one.replica} knows leader epoch {one.log.leader_epoch}, the node that described "
                f"the cluster only {row.leader_epoch}; name another --bootstrap-server"
            )
            return RowError(ErrorCode.UNKNOWN_LEADER_EPOCH, text)
    reasons = "; ".join(f"broker {one.replica}: {one.problem}" for one in found)
    return RowError(
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, f"no replica told where its log ends: {reasons}"
    )
