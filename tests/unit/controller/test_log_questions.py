"""Who is asked for which logs, and when again."""

from dataclasses import replace

import pytest
from immutables import Map

from holdfast.controller.core.events import AskBroker, LogInfoAnswered, LogInfoArrived, LogInfoFailed
from holdfast.controller.core.partitions.log_questions import BACKOFF_DOUBLINGS_MAX, LogQuestions
from holdfast.controller.core.partitions.unclean_recovery import AnswerValidity
from holdfast.metadata.broker import BrokerRegistration
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.image import MetadataImage
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.broker_registration import ListenerEndpoint
from holdfast.protocol.messages.replica_log_info import (
    LOG_INFO_ROWS_MAX,
    GetReplicaLogInfoResponse,
    LogInfoTopicResult,
    ReplicaLogInfo,
)
from tests.unit.controller.harness import make_config

TOPIC = b"t" * 16
BACKOFF_MS = 100
ANSWER_MS = 700


def broker(broker_id: int) -> BrokerRegistration:
    listeners = (
        ListenerEndpoint("OUTSIDE", "far", 1),
        ListenerEndpoint("INSIDE", f"b{broker_id}", 9092),
    )
    return BrokerRegistration(broker_id, 7, bytes(16), listeners, None, (), (), False, False, True)


IMAGE = replace(MetadataImage(), brokers=Map({broker_id: broker(broker_id) for broker_id in (1, 2, 3)}))


def key(index: int) -> PartitionId:
    return PartitionId(TOPIC, index)


class Asking:
    """Questions, and brokers that answer as the test says."""

    def __init__(self) -> None:
        config = replace(
            make_config(),
            recovery_retry_backoff_ms=BACKOFF_MS,
            recovery_request_timeout_ms=ANSWER_MS,
            inter_broker_listener_name="INSIDE",
        )
        self.questions = LogQuestions(config)
        self.now_ms = 1_000
        self.judged: list[LogInfoArrived] = []
        self.verdicts: dict[PartitionId, AnswerValidity] = {}

    def requests(self) -> list[AskBroker]:
        return self.questions.requests(IMAGE, self.now_ms)

    def the_request(self) -> AskBroker:
        (request,) = self.requests()
        return request

    def judge(self, row: LogInfoArrived) -> AnswerValidity:
        self.judged.append(row)
        return self.verdicts.get(PartitionId(row.topic_id, row.partition_index), AnswerValidity.OK)

    def answer(self, request: AskBroker, error_code: int = 0, leave_out: tuple[int, ...] = ()) -> None:
        topics = tuple(
            LogInfoTopicResult(
                topic.topic_id,
                tuple(
                    ReplicaLogInfo(index, 4, 6, 40, 30, 25, 0, None)
                    for index in topic.partitions
                    if index not in leave_out
                ),
            )
            for topic in request.request.topic_partitions
        )
        response = GetReplicaLogInfoResponse(
            error_code, None, 77, False, () if error_code != ErrorCode.NONE else topics
        )
        event = LogInfoAnswered(request.broker_id, request.question_id, response)
        self.questions.answered(event, self.now_ms, self.judge)


@pytest.fixture
def asking() -> Asking:
    return Asking()


def named(request: AskBroker) -> list[PartitionId]:
    return [
        PartitionId(topic.topic_id, index)
        for topic in request.request.topic_partitions
        for index in topic.partitions
    ]


def test_each_broker_gets_one_request_with_all_its_partitions_at_its_inner_listener(asking: Asking) -> None:
    asking.questions.want(key(0), (2, 1))
    asking.questions.want(key(1), (1,))
    asking.questions.want(PartitionId(b"u" * 16, 0), (1,))
    first, second = asking.requests()
    assert [(one.broker_id, one.host, one.port) for one in (first, second)] == [
        (1, "b1", 9092),
        (2, "b2", 9092),
    ]
    assert first.request.broker_id == 1
    assert first.timeout_ms == ANSWER_MS
    assert named(first) == [key(0), key(1), (b"u" * 16, 0)]
    assert named(second) == [key(0)]
    assert asking.requests() == []


def test_answers_reach_the_judge_as_they_are(asking: Asking) -> None:
    asking.questions.want(key(3), (1,))
    asking.answer(asking.the_request())
    assert asking.judged == [LogInfoArrived(1, 77, TOPIC, 3, 6, 4, 40, 0, 30, 25)]
    assert asking.requests() == []
    assert asking.questions.next_deadline_ms() is None
    assert asking.questions.replies == {(1, "ok"): 1}


@pytest.mark.parametrize(
    ("verdict", "waits_ms", "result"),
    [
        (AnswerValidity.ERROR, BACKOFF_MS, "error"),
        (AnswerValidity.STALE_BROKER_EPOCH, BACKOFF_MS, "stale_broker_epoch"),
        (AnswerValidity.STALE_LEADER_EPOCH, BACKOFF_MS, "stale_leader_epoch"),
        # beyond the limit: it was not looked up at all
        (AnswerValidity.LATER, 0, None),
        # R62: we are not the active controller any more
        (AnswerValidity.SUPERSEDED, None, "stale_leader_epoch"),
    ],
)
def test_what_does_not_count_is_asked_again(
    asking: Asking, verdict: AnswerValidity, waits_ms: int | None, result: str | None
) -> None:
    """R61, R62: and only that, the lesson of a manager that hung on dropped answers."""
    asking.questions.want(key(0), (1,))
    asking.questions.want(key(1), (1,))
    asking.verdicts[key(0)] = verdict
    asking.answer(asking.the_request())
    assert asking.questions.replies == {(1, "ok"): 1} | ({(1, result): 1} if result else {})
    if waits_ms is None:
        assert asking.questions.next_deadline_ms() is None
        asking.now_ms += 1_000_000
        assert asking.requests() == []
        return
    if waits_ms:
        assert asking.requests() == []
        assert asking.questions.next_deadline_ms() == asking.now_ms + waits_ms
        asking.now_ms += waits_ms
    assert named(asking.the_request()) == [key(0)]


def test_a_failed_request_a_refused_one_and_a_missing_row_are_asked_again(asking: Asking) -> None:
    """B23."""
    asking.questions.want(key(0), (1,))
    request = asking.the_request()
    asking.questions.failed(LogInfoFailed(1, request.question_id, "no answer"), asking.now_ms)
    asking.now_ms += BACKOFF_MS
    request = asking.the_request()
    assert named(request) == [key(0)]
    asking.answer(request, ErrorCode.BROKER_NOT_AVAILABLE)
    asking.now_ms += 2 * BACKOFF_MS
    request = asking.the_request()
    asking.answer(request, leave_out=(0,))
    asking.now_ms += 4 * BACKOFF_MS
    assert named(asking.the_request()) == [key(0)]
    assert asking.questions.replies == {(1, "timeout"): 1, (1, "error"): 2}


def test_the_pause_doubles_while_nothing_comes_and_starts_anew_with_an_answer(asking: Asking) -> None:
    asking.questions.want(key(0), (1,))
    asking.questions.want(key(1), (1,))
    asking.verdicts = {key(0): AnswerValidity.ERROR, key(1): AnswerValidity.ERROR}

    def pause() -> int:
        asking.answer(asking.the_request())
        deadline_ms = asking.questions.next_deadline_ms()
        assert deadline_ms is not None
        waited_ms, asking.now_ms = deadline_ms - asking.now_ms, deadline_ms
        return waited_ms

    pauses = [pause() for _ in range(BACKOFF_DOUBLINGS_MAX + 2)]
    longest_ms = BACKOFF_MS << BACKOFF_DOUBLINGS_MAX
    assert pauses == [*(BACKOFF_MS << n for n in range(BACKOFF_DOUBLINGS_MAX)), longest_ms, longest_ms]
    asking.verdicts = {key(0): AnswerValidity.ERROR}
    assert pause() == BACKOFF_MS


@pytest.mark.parametrize("fruitful", [0, 1])
def test_one_row_that_counts_is_enough_for_a_short_pause(asking: Asking, fruitful: int) -> None:
    for index in (0, 1):
        asking.questions.want(key(index), (1,))
    asking.verdicts = {key(0): AnswerValidity.ERROR, key(1): AnswerValidity.ERROR}
    asking.answer(asking.the_request())
    asking.now_ms += BACKOFF_MS
    del asking.verdicts[key(fruitful)]
    asking.answer(asking.the_request())
    assert asking.questions.next_deadline_ms() == asking.now_ms + BACKOFF_MS


def test_what_was_answered_is_asked_again_when_it_is_wanted_again(asking: Asking) -> None:
    """R63: the answer has become void, of another incarnation."""
    asking.questions.want(key(0), (1, 2))
    for request in asking.requests():
        asking.answer(request)
    asking.questions.want(key(0), (1,))
    assert named(asking.the_request()) == [key(0)]


def test_a_broker_that_is_silent_keeps_no_other_one_waiting(asking: Asking) -> None:
    asking.questions.want(key(0), (1, 2))
    silent, quick = asking.requests()
    asking.answer(quick)
    asking.questions.want(key(1), (1, 2))
    assert [one.broker_id for one in asking.requests()] == [2]
    asking.answer(silent)
    assert named(asking.the_request()) == [key(1)]


def test_what_is_not_wanted_any_more_before_it_was_asked_for_never_is(asking: Asking) -> None:
    asking.questions.want(key(0), (1, 2))
    asking.questions.want(key(1), (1,))
    asking.questions.want(key(0), (2,))
    assert {one.broker_id: named(one) for one in asking.requests()} == {1: [key(1)], 2: [key(0)]}


def test_no_broker_is_asked_for_what_is_not_wanted_any_more(asking: Asking) -> None:
    for index in range(3):
        asking.questions.want(key(index), (1,))
    asking.verdicts = {key(index): AnswerValidity.ERROR for index in range(3)}
    request = asking.the_request()
    asking.questions.want(key(0), ())
    asking.answer(request)
    asking.questions.want(key(1), (2,))
    asking.now_ms += BACKOFF_MS
    assert {one.broker_id: named(one) for one in asking.requests()} == {1: [key(2)], 2: [key(1)]}


def test_what_is_wanted_anew_while_the_answer_is_on_its_way_is_judged_by_that_answer(asking: Asking) -> None:
    """The leader epoch has changed meanwhile: stale, so it is asked again, but never twice at a time."""
    asking.questions.want(key(0), (1,))
    request = asking.the_request()
    asking.questions.want(key(0), ())
    asking.questions.want(key(0), (1,))
    assert asking.requests() == []
    asking.verdicts[key(0)] = AnswerValidity.STALE_LEADER_EPOCH
    asking.answer(request)
    asking.now_ms += BACKOFF_MS
    assert named(asking.the_request()) == [key(0)]


def test_rows_that_were_not_asked_for_and_late_answers_are_no_answers(asking: Asking) -> None:
    asking.questions.want(key(0), (1,))
    former = asking.the_request()
    asking.questions.stop()
    asking.questions.want(key(0), (1,))
    request = asking.the_request()
    asking.answer(former)
    asking.questions.failed(LogInfoFailed(1, former.question_id, "late"), asking.now_ms)
    asking.questions.failed(LogInfoFailed(3, 1, "never asked"), asking.now_ms)
    assert asking.judged == []
    row = ReplicaLogInfo(9, 4, 6, 40, 30, 25, 0, None)
    response = GetReplicaLogInfoResponse(0, None, 77, False, (LogInfoTopicResult(TOPIC, (row,)),))
    asking.questions.answered(LogInfoAnswered(1, request.question_id, response), asking.now_ms, asking.judge)
    assert asking.judged == []


def test_ten_thousand_partitions_are_ten_requests_a_broker(asking: Asking) -> None:
    """R61: 1000 a request, one at a time, and no partition twice."""
    for index in range(10_000):
        asking.questions.want(key(index), (1, 2, 3))
    seen: dict[int, list[PartitionId]] = {1: [], 2: [], 3: []}
    rounds = 0
    while requests := asking.requests():
        rounds += 1
        assert [one.broker_id for one in requests] == [1, 2, 3]
        for request in requests:
            assert len(named(request)) == LOG_INFO_ROWS_MAX
            seen[request.broker_id] += named(request)
            asking.answer(request)
    assert rounds == 10
    assert all(sorted(keys) == [key(index) for index in range(10_000)] for keys in seen.values())
