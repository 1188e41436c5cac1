"""`holdfast validate --follow`: the rules that can be sure early, while producers and faults go on.

A Structured Streaming query reads the ledgers as they grow together with the served logs; what is made of a
micro-batch is `durability.micro_batches`' business. What only a look at everything can tell is
`durability.validate`'s.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException

from holdfast.client.core.errors import ClientError
from holdfast.durability.core.retries import Retries
from holdfast.durability.follow_query import FollowOptions, begin_query
from holdfast.durability.followed_polls import EARLY_RULES as POLL_RULES
from holdfast.durability.followed_topics import FollowedTopics
from holdfast.durability.java import NoJava
from holdfast.durability.ledger import topics_named
from holdfast.durability.ledger_files import UnreadableLedger, doubts_of_files, ledger_files
from holdfast.durability.micro_batches import EARLY_RULES, EXPIRED, FollowState, Step, runs_named
from holdfast.durability.session import start_session, stop_session
from holdfast.durability.spark_errors import SPARK_ERRORS, reason_of
from holdfast.durability.state_files import UnreadableState
from holdfast.durability.verdict import (
    SAMPLES_MAX,
    Verdict,
    inconclusive,
    of_a_part_of_the_ledger,
)

_POLL_S = 0.2
#: So long the micro-batch under way may take once the end has come. Spark waits for it anyhow, so that to
#: give up sooner costs the verdict and saves no time.
_LAST_STEP_S = 600.0
#: The cluster is asked so often whether its topics are what they were.
_LOOK_S = 10.0
_LOOK_TIMEOUT_MS = 2_000
#: So long it may take in the end, when nothing else is asked any more.
_LAST_LOOK_TIMEOUT_MS = 30_000
#: Lines that are none of a ledger, and are named in the verdict.
_LINES_MAX = 5
#: Before a stream that has failed is begun again.
_PAUSE_S = 1.0


def run(
    options: FollowOptions,
    on_step: Callable[[Step, Verdict], None] = lambda step, verdict: None,
    is_over: Callable[[], bool] = lambda: False,
    on_phase: Callable[[str], None] = lambda text: None,
) -> Verdict:
    """Start Spark, follow until the time or `is_over` says so, stop Spark. `on_step` hears of each
    micro-batch with the verdict so far."""
    on_phase("Spark starts")
    try:
        spark = start_session(
            options.master, "holdfast validate --follow", is_short=True, memory=options.memory
        )
    except NoJava as error:
        return inconclusive(str(error))
    except SPARK_ERRORS as error:
        return inconclusive(f"Spark does not start on {options.master}: {reason_of(error)}")
    try:
        on_phase("Following: waiting for the first line of a ledger")
        return follow(spark, options, on_step, is_over, on_phase)
    finally:
        stop_session(spark)


def follow(
    spark: Any,
    options: FollowOptions,
    on_step: Callable[[Step, Verdict], None] = lambda step, verdict: None,
    is_over: Callable[[], bool] = lambda: False,
    on_phase: Callable[[str], None] = lambda text: None,
) -> Verdict:
    """Follow in a session that stands already."""
    deadline = None if options.seconds is None else time.monotonic() + options.seconds

    def is_time() -> bool:
        return is_over() or (deadline is not None and time.monotonic() >= deadline)

    try:
        topics = FollowedTopics(Path(options.state), options.bootstrap_servers, options.timeout_ms)
        state = FollowState(Path(options.state), topics)
        state.steps()
    except UnreadableState as error:
        return inconclusive(f"state folder {options.state}: {error}")

    def verdict(*doubts: str) -> Verdict:
        steps, of_files = state.steps(), doubts_of_files(options.ledger)
        others = (*topics.doubts, *doubts, *of_files)
        found = verdict_of(steps, topics.named, options.acked_min, others)
        is_of_a_part = of_files or any(step.doubts for step in steps)
        return of_a_part_of_the_ledger(found, _never_sent(steps)) if is_of_a_part else found

    stream = _Stream(spark, options, state, topics, lambda step: on_step(step, verdict()), on_phase)
    try:
        problem = _followed(stream, is_time, on_phase)
    except SPARK_ERRORS as error:
        problem = f"reading failed: {reason_of(error)}"
    except OSError as error:
        problem = f"following failed: {error}"
    if problem is None:
        return verdict() if topics.named else inconclusive(f"ledger: {options.ledger} names no topic")
    return verdict(problem) if state.steps() else inconclusive(problem)


def _followed(stream: "_Stream", is_time: Callable[[], bool], on_phase: Callable[[str], None]) -> str | None:
    """Until it is time; what speaks against a verdict then, None for nothing.

    Raises: OSError, SPARK_ERRORS.
    """
    options, topics, retries = stream.options, stream.topics, stream.retries
    was_begun = False
    while not is_time():
        failure = _wait_for_topics(options, topics, is_time)
        if failure is None:
            if not topics.read or is_time():
                break
            was_begun = True
            failure = stream.run(is_time)
            if stream.untold is not None:
                return f"what was found could not be told: {stream.untold}"
            if failure is None:
                continue
        elif not was_begun:
            return failure
        if retries.failed(failure, _now_ms()):
            if not is_time():
                on_phase(f"Following: {failure}; it is tried again")
                stream.wait(is_time)
        elif topics.withdraw_missing():
            retries.allow_all(_now_ms())
        else:
            break
    if retries.problem is None:
        # what was read is only worth something if the topics are what they were
        try:
            topics.look(_LAST_LOOK_TIMEOUT_MS)
        except ClientError as error:
            return f"cluster: {error}"
    return retries.problem


class _Stream:
    """The query over ledgers and logs, begun again when there are more topics."""

    def __init__(
        self,
        spark: Any,
        options: FollowOptions,
        state: FollowState,
        topics: FollowedTopics,
        on_step: Callable[[Step], None],
        on_phase: Callable[[str], None],
    ) -> None:
        self.options = options
        self.topics = topics
        self.retries = Retries(options.timeout_ms, _now_ms())
        #: why `on_step` has failed: no read did, and another attempt would tell the same again
        self.untold: OSError | None = None
        self._spark = spark
        self._state = state
        self._on_step = on_step
        self._on_phase = on_phase
        self._checkpoint = Path(options.state) / "checkpoint"
        #: topics of the query, and the last micro-batch that was planned before it began, -1 for none
        self._read: tuple[str, ...] = ()
        self._planned = -1

    def run(self, is_time: Callable[[], bool]) -> str | None:
        """Until it is time, or there are more topics to read; why it has ended before, if it has."""
        read = self._read = self.topics.begin()
        self._planned = self._highest("offsets")
        query = begin_query(self._spark, self.options, read, self._checkpoint, self._step)
        failure = None
        try:
            self._attend(query, lambda: is_time() or not set(self.topics.read) <= set(read))
            if not self._finish_step(query):
                failure = f"the micro-batch under way was not finished within {_LAST_STEP_S:.0f} s"
            if not query.isActive:
                failure = _why_ended(query.exception())
        except StreamingQueryException as error:
            failure = _why_ended(error)
        finally:
            query.stop()
            # what was completed before the failure does not speak against it later
            self._hear_of_commits()
        return failure

    def wait(self, is_time: Callable[[], bool]) -> None:
        """Before it is begun again. What there is now may be less than there was."""
        until = time.monotonic() + _PAUSE_S
        while not is_time() and time.monotonic() < until:
            time.sleep(_POLL_S)
        self._look()

    def _step(self, frame: Any, batch: int) -> None:
        step = self._state.take(frame, batch)
        if batch > self._planned:
            self.topics.were_judged(self._read)
        try:
            self._on_step(step)
        except OSError as error:
            self.untold = error
            raise

    def _attend(self, query: Any, is_enough: Callable[[], bool]) -> None:
        """While the query runs. Raises: StreamingQueryException."""
        was_triggered = False
        # what was planned before is repeated first, and reads no topic that is new
        is_ahead = self._committed() >= self._planned
        looked = time.monotonic()
        while query.isActive and not is_enough():
            query.awaitTermination(_POLL_S)
            self._hear_of_commits()
            committed = self._committed()
            is_triggered = query.status["isTriggerActive"]
            if was_triggered and not is_triggered and query.isActive:
                self.retries.went_on(_now_ms())
                if is_ahead:
                    self.topics.were_judged(self._read)
            was_triggered = is_triggered
            is_ahead = is_ahead or (not is_triggered and committed >= self._planned)
            if time.monotonic() - looked >= (_POLL_S if self.topics.are_awaited else _LOOK_S):
                self._look()
                looked = time.monotonic()

    def _finish_step(self, query: Any) -> bool:
        """What the micro-batch under way has read counts: the first of a cold Spark takes longest, and
        without it nothing would be proved. False when it takes too long. Raises: StreamingQueryException."""
        before, until = self._committed(), time.monotonic() + _LAST_STEP_S
        if query.isActive and _is_at_work(query.status):
            self._on_phase("Following: the micro-batch under way is finished first")
        while query.isActive and _is_at_work(query.status) and self._committed() == before:
            if time.monotonic() >= until:
                return False
            query.awaitTermination(_POLL_S)
        return True

    def _look(self) -> None:
        # no answer is none of the stream's problems: before anything is told the cluster is asked again
        with suppress(ClientError):
            self.topics.look(_LOOK_TIMEOUT_MS)

    def _hear_of_commits(self) -> None:
        self.retries.completed(self._committed(), _now_ms())

    def _committed(self) -> int:
        """The last micro-batch that Spark does not repeat, -1 for none."""
        return self._highest("commits")

    def _highest(self, name: str) -> int:
        there = (self._checkpoint / name).glob("[0-9]*")
        return max((int(path.name) for path in there if path.name.isdecimal()), default=-1)


def _is_at_work(status: Mapping[str, Any]) -> bool:
    """A micro-batch is under way, or the query has not come to its first one yet."""
    return bool(status["isTriggerActive"]) or status["message"].startswith("Initializing")


def _why_ended(error: Exception | None) -> str:
    return f"reading failed: {'the stream was stopped' if error is None else reason_of(error)}"


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def _never_sent(steps: Sequence[Step]) -> Mapping[str, int]:
    """How many of each class were never sent, as far as it is known; all that an earlier build found."""
    found: Counter[str] = Counter()
    for step in steps:
        found.update(step.counts if step.never_sent is None else step.never_sent)
    return found


def verdict_of(
    steps: Sequence[Step], topics: Sequence[str], acked_min: int, others: Sequence[str] = ()
) -> Verdict:
    """All micro-batches together, and doubts from elsewhere. Good says that none of the early rules was
    broken so far."""
    counts: Counter[str] = Counter(dict.fromkeys(EARLY_RULES, 0))
    if any("polled" in step.facts for step in steps):
        counts.update(dict.fromkeys(POLL_RULES, 0))
    facts: Counter[str] = Counter(dict.fromkeys(("sent", "acked", "ok", "served"), 0))
    samples: dict[str, list[Mapping[str, Any]]] = {}
    doubts = list(others)
    for step in steps:
        counts.update(step.counts)
        facts.update(step.facts)
        for name, rows in step.samples.items():
            kept = samples.setdefault(name, [])
            kept += rows[: SAMPLES_MAX - len(kept)]
    doubts += _doubts_of_ledgers(steps) + _doubts_of_polls(steps)
    if facts[EXPIRED]:
        doubts.append(
            f"{facts[EXPIRED]} answered sends lie before the beginning of their logs (retention): not judged"
        )
    notes = ["followed: only rules that can be sure early were asked; judge the whole afterwards"]
    if facts["acked"] > facts["ok"]:
        notes.append(f"{facts['acked'] - facts['ok']} acknowledged sends were not seen in their place so far")
    if facts["ok"] < max(1, acked_min):
        doubts.append(
            f"{facts['ok']} acknowledged sends (acks=all) were seen in their place: too few to prove anything"
        )
    if "polled" in facts:
        facts["consumers"] = len({tuple(session[1:3]) for step in steps for session in step.sessions})
    return Verdict(
        counts=dict(counts),
        samples=samples,
        facts={**facts, "topics": list(topics)},
        doubts=tuple(doubts),
        notes=tuple(notes),
    )


def _doubts_of_ledgers(steps: Sequence[Step]) -> list[str]:
    """No more, however long it is followed."""
    lines = (doubt for step in steps for doubt in step.doubts)
    doubts = _first_few(lines, "ledger: {} more lines that are none of a ledger")
    sends: Counter[str] = Counter()
    examples: dict[str, str] = {}
    for step in steps:
        for words, (count, example) in step.defects.items():
            sends[words] += count
            examples.setdefault(words, example)
    return doubts + [f"ledger: {count} {words}, such as {examples[words]}" for words, count in sends.items()]


def _doubts_of_polls(steps: Sequence[Step]) -> list[str]:
    """Files of polls of which not all was judged: they cost no verdict on the ledger."""
    doubts = [doubt for step in steps for doubt in step.poll_doubts]
    named, spoiled = runs_named(steps), {file for step in steps for file in step.spoiled}
    if named is not None:
        doubts += [
            f"polls: {file}: polls of run {run}, of which there is no send so far"
            for step in steps
            for file, run, *_ in step.sessions
            if run not in named and file not in spoiled
        ]
    return _first_few(doubts, "polls: {} more of these")


def _first_few(lines: Iterable[str], more: str) -> list[str]:
    """Each once; and how many more there are."""
    once = list(dict.fromkeys(lines))
    rest = len(once) - _LINES_MAX
    return [*once[:_LINES_MAX], *([more.format(rest)] if rest > 0 else [])]


def _wait_for_topics(
    options: FollowOptions, topics: FollowedTopics, is_time: Callable[[], bool]
) -> str | None:
    """Until there is a topic to read, or none to wait for; why it is not known whether there is one."""
    while True:
        named: set[str] = set()
        with suppress(UnreadableLedger, OSError):  # the stream reads them, and says what is wrong
            named = topics_named(ledger_files(options.ledger))
        topics.heard(dict.fromkeys(named, ()))
        if topics.named:
            try:
                topics.look()
            except ClientError as error:
                return f"cluster: {error}"
        if topics.read or (topics.named and not topics.are_awaited) or is_time():
            return None
        time.sleep(_POLL_S)
