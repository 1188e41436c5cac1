"""The recovery manager's choice, and what scenario files cannot show: order, soft state, cost when off."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.controller.core.config import ControllerConfig
from holdfast.controller.core.decisions import Cause, CauseKind, Decision, LogEnd
from holdfast.controller.core.events import (
    AskBroker,
    AskForLogs,
    LogInfoAnswered,
    LogInfoArrived,
    LogInfoFailed,
    RecoveryElected,
    WaitForReplicas,
)
from holdfast.controller.core.operators.operations import AlterConfig, ElectionType, ElectLeader
from holdfast.controller.core.partitions.election import ElectionReason
from holdfast.controller.core.partitions.unclean_recovery import AnswerValidity, LogReply, best_log, most_lost
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.image import CLUSTER_RESOURCE, RESOURCE_TOPIC
from holdfast.metadata.partition import PartitionRegistration
from holdfast.metadata.records import RECOVERED, RECOVERING, PartitionChangeRecord
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.replica_log_info import (
    GetReplicaLogInfoResponse,
    LogInfoTopicResult,
    ReplicaLogInfo,
)
from holdfast.runtime.stats import Level
from tests.unit.controller.harness import Quorum, make_config
from tests.unit.controller.test_topics import create

#: a change record that changes nothing
UNCHANGED = PartitionChangeRecord(bytes(16), 0, *[None] * 11)
LOST = PartitionRegistration((3, 1, 2), (), None, 4, 9, 2, last_known_elr=(2,), last_known_leader=2)


@pytest.mark.parametrize(
    ("logs", "best"),
    [
        # the epoch in the log comes before its length: the longer one may be obsolete (B22)
        ({1: (0, 90), 2: (1, 60), 3: (0, 10)}, 2),
        ({1: (1, 90), 2: (1, 60), 3: (1, 10)}, 1),
        # equal ones: who was eligible once, then the order of assignment, not the lowest id
        ({1: (1, 60), 2: (1, 60), 3: (1, 60)}, 2),
        ({1: (1, 60), 3: (1, 60)}, 3),
    ],
)
def test_the_log_that_ends_last_is_best(logs: dict[int, tuple[int, int]], best: int) -> None:
    """R66."""
    assert best_log(LOST, {replica: LogReply(0, *end) for replica, end in logs.items()}) == best


@given(st.dictionaries(st.integers(1, 3), st.tuples(st.integers(0, 2), st.integers(0, 3)), min_size=1))
def test_no_log_ends_after_the_best_one(logs: dict[int, tuple[int, int]]) -> None:
    best = best_log(LOST, {replica: LogReply(0, *end) for replica, end in logs.items()})
    assert logs[best] == max(logs.values())


def config(**properties: str) -> ControllerConfig:
    return make_config(min_insync_replicas="2", **properties)


def power_cut(quorum: Quorum) -> None:
    """All three go one after the other and come back without a clean stop; the last two were eligible."""
    for broker_id in (1, 2, 3):
        quorum.vanish(broker_id)
    for broker_id in (1, 2, 3):
        assert quorum.register(broker_id).error_code == ErrorCode.NONE


@pytest.fixture
def quorum() -> Quorum:
    made = Quorum(config())
    made.start_brokers(1, 2, 3)
    create(made, "t", -1, -1, (1, 2, 3), (1, 2, 3))
    return made


def answer(quorum: Quorum, broker_id: int, end_offset: int, index: int = 0, **changes: int) -> None:
    fields: dict[str, Any] = {
        "broker_epoch": quorum.image.brokers[broker_id].broker_epoch,
        "leader_epoch": quorum.partition("t", index).leader_epoch,
        "error_code": ErrorCode.NONE,
        **changes,
    }
    quorum.handle(
        LogInfoArrived(
            broker_id=broker_id,
            topic_id=quorum.topic("t").topic_id,
            partition_index=index,
            last_epoch=1,
            end_offset=end_offset,
            **fields,
        )
    )


def test_partitions_recover_side_by_side_in_order_and_the_log_tells_why(quorum: Quorum) -> None:
    """R68: candidates and their logs are told as a possible loss."""
    power_cut(quorum)
    assert [one.statement for one in quorum.stated[-2:]] == [WaitForReplicas((2, 3))] * 2
    for broker_id in (1, 2, 3):
        quorum.heartbeat(broker_id)
    quorum.stated.clear()
    for index in (1, 0):
        for broker_id in (1, 2, 3):
            answer(quorum, broker_id, 10 * broker_id, index)
    assert [(one.partition_index, one.statement) for one in quorum.stated] == [
        (1, RecoveryElected(3)),
        (0, RecoveryElected(3)),
    ]
    note = quorum.notes[-1]
    assert note.level is Level.WARNING
    assert "3 ends at 30 in epoch 1" in note.text
    assert "records may be lost" in note.text
    assert quorum.core.counts.elections[ElectionReason.LONGEST_LOG] == 2


def test_an_answer_of_a_former_incarnation_is_void_at_the_decision(quorum: Quorum) -> None:
    """R63, N-3: 2 answered, rebooted and must answer again."""
    power_cut(quorum)
    for broker_id in (1, 2, 3):
        quorum.heartbeat(broker_id)
    answer(quorum, 2, 20)
    quorum.vanish(2)
    quorum.register(2)
    quorum.heartbeat(2)
    answer(quorum, 1, 10)
    answer(quorum, 3, 10)
    assert quorum.partition("t").leader is None
    answer(quorum, 2, 5)
    assert quorum.partition("t").leader == 3


def test_a_standby_knows_no_recoveries_and_a_new_leader_asks_anew(quorum: Quorum) -> None:
    """R60, R26."""
    power_cut(quorum)
    for broker_id in (1, 2, 3):
        quorum.heartbeat(broker_id)
    answer(quorum, 2, 20)
    quorum.lose(102)
    quorum.stated.clear()
    answer(quorum, 3, 20)
    quorum.elect()
    assert [one.statement for one in quorum.stated] == [AskForLogs((2, 3), (1,))] * 2


def test_with_the_manager_off_no_broker_is_asked() -> None:
    """D8.8."""
    quorum = Quorum(make_config(min_insync_replicas="2", unclean_recovery_manager_enabled="false"))
    quorum.start_brokers(1, 2, 3)
    create(quorum, "t", -1, -1, (1, 2, 3))
    power_cut(quorum)
    assert quorum.stated == []


@pytest.mark.parametrize(
    ("properties", "asks"),
    [
        ({}, "wait (2,3)"),
        ({"unclean_leader_election_enable": "true"}, "wait (1,2,3)"),
    ],
)
def test_what_is_not_configured_in_the_cluster_is_as_in_the_file(
    properties: dict[str, str], asks: str
) -> None:
    """R69."""
    quorum = Quorum(config(**properties))
    quorum.start_brokers(1, 2, 3)
    create(quorum, "t", -1, -1, (1, 2, 3))
    power_cut(quorum)
    assert str(quorum.stated[-1].statement) == asks


# --- the wire ---------------------------------------------------------------------------------------------


def reply(quorum: Quorum, question: AskBroker, end_offset: int, **changes: int) -> None:
    """What a broker with an empty epoch cache but records of epoch 1 says of all that it was asked."""
    image = quorum.image
    topics = tuple(
        LogInfoTopicResult(
            topic.topic_id,
            tuple(
                ReplicaLogInfo(
                    partition=index,
                    last_written_leader_epoch=1,
                    current_leader_epoch=changes.get(
                        "leader_epoch", image.topics[topic.topic_id].partitions[index].leader_epoch
                    ),
                    log_end_offset=end_offset,
                    flushed_offset=changes.get("flushed_offset", 0),
                    high_watermark=changes.get("high_watermark", 0),
                    error_code=changes.get("error_code", 0),
                    error_message=None,
                    ceiling=changes.get("ceiling", -1),
                )
                for index in topic.partitions
            ),
        )
        for topic in question.request.topic_partitions
    )
    broker_epoch = changes.get("broker_epoch", image.brokers[question.broker_id].broker_epoch)
    response = GetReplicaLogInfoResponse(ErrorCode.NONE, None, broker_epoch, False, topics)
    quorum.handle(LogInfoAnswered(question.broker_id, question.question_id, response))


def questions(quorum: Quorum) -> dict[int, AskBroker]:
    asked = {question.broker_id: question for question in quorum.asked}
    assert len(asked) == len(quorum.asked), "one request in flight a broker"
    quorum.asked.clear()
    return asked


def questions_after_power_cut(quorum: Quorum) -> dict[int, AskBroker]:
    """All three are back, and are asked for their logs."""
    power_cut(quorum)
    for broker_id in (1, 2, 3):
        quorum.heartbeat(broker_id)
    return questions(quorum)


def test_brokers_are_asked_together_for_all_partitions_and_the_best_log_leads(quorum: Quorum) -> None:
    """R61, R64, R66."""
    power_cut(quorum)
    assert quorum.asked == []
    for broker_id in (1, 2, 3):
        quorum.heartbeat(broker_id)
    asked = questions(quorum)
    assert sorted(asked) == [1, 2, 3]
    assert all(question.request.topic_partitions[0].partitions == (0, 1) for question in asked.values())
    for broker_id in (3, 1, 2):
        assert quorum.partition("t").leader is None
        reply(quorum, asked[broker_id], 10 * broker_id)
    assert [quorum.partition("t", index).leader for index in (0, 1)] == [3, 3]
    assert quorum.asked == []
    assert quorum.core.counts.recoveries == 2
    assert quorum.core.log_replies == {(broker_id, "ok"): 2 for broker_id in (1, 2, 3)}


def test_the_prediction_of_the_loss_is_told_and_stored(quorum: Quorum) -> None:
    """R68: 1 is no member of the last known ELR and ends before, but knows how far the high watermark was."""
    asked = questions_after_power_cut(quorum)
    reply(quorum, asked[1], 40, high_watermark=70, flushed_offset=35)
    reply(quorum, asked[2], 50, high_watermark=45, flushed_offset=50)
    reply(quorum, asked[3], 60, high_watermark=48, flushed_offset=60)
    assert "predicted loss: unknown, at least 10 records)" in quorum.notes[-1].text
    cause = list(quorum.core.decisions)[-1].decision.cause
    assert cause.logs == (LogEnd(1, 1, 40, 35, 70), LogEnd(2, 1, 50, 50, 45), LogEnd(3, 1, 60, 60, 48))
    assert cause.predicted_loss(3) == 10


def test_what_a_rebooted_broker_said_of_the_high_watermark_is_not_forgotten(quorum: Quorum) -> None:
    """R68, R63: its answer is void, and its next incarnation knows less; what was committed was committed."""
    asked = questions_after_power_cut(quorum)
    reply(quorum, asked[2], 50, high_watermark=90)
    quorum.vanish(2)
    quorum.register(2)
    quorum.heartbeat(2)
    reply(quorum, questions(quorum)[2], 50, high_watermark=50)
    reply(quorum, asked[1], 40, high_watermark=40)
    reply(quorum, asked[3], 60, high_watermark=60)
    assert quorum.partition("t").leader == 3
    assert "at least 30 records)" in quorum.notes[-1].text


def test_a_recovery_that_starts_anew_still_knows_what_was_committed(quorum: Quorum) -> None:
    """R60: with another strategy all are asked anew."""
    asked = questions_after_power_cut(quorum)
    reply(quorum, asked[2], 50, high_watermark=90)
    quorum.request(AlterConfig(CLUSTER_RESOURCE, "unclean.recovery.strategy", "Aggressive"))
    quorum.vanish(2)
    reply(quorum, asked[1], 40, high_watermark=40)
    reply(quorum, asked[3], 60, high_watermark=60)
    assert quorum.partition("t").leader == 3
    note = quorum.notes[-1].text
    assert "2 was not compared (it knew of high watermark 90)" in note
    assert "at least 30 records, not counting what (2) alone may hold" in note
    cause = list(quorum.core.decisions)[-1].decision.cause
    assert cause.logs == (LogEnd(1, 1, 40, 0, 40), LogEnd(2, -1, -1, -1, 90), LogEnd(3, 1, 60, 0, 60))


def test_a_high_watermark_of_0_is_known_and_none_is_not(quorum: Quorum) -> None:
    """R68: nothing was ever acknowledged; or no replica can say."""
    power_cut(quorum)
    for broker_id in (1, 2, 3):
        quorum.heartbeat(broker_id)
    for broker_id, question in questions(quorum).items():
        reply(quorum, question, 10, high_watermark=0 if broker_id == 2 else -1)
    cause = list(quorum.core.decisions)[-1].decision.cause
    assert [log.high_watermark for log in cause.logs] == [-1, 0, -1]
    assert cause.predicted_loss(2) == 0


def test_a_void_answer_that_knew_no_high_watermark_is_not_told(quorum: Quorum) -> None:
    quorum.request(AlterConfig(CLUSTER_RESOURCE, "unclean.recovery.strategy", "Aggressive"))
    power_cut(quorum)
    for broker_id in (1, 2):
        quorum.heartbeat(broker_id)
    answer(quorum, 1, 10)
    quorum.vanish(1)
    answer(quorum, 2, 10)
    cause = [entry.decision.cause for entry in quorum.core.decisions if entry.decision.cause.logs][-1]
    assert [log.replica for log in cause.logs] == [2]


def test_a_prediction_names_those_whose_logs_were_not_compared(quorum: Quorum) -> None:
    """R68: Aggressive asks who is there; a log that misses nothing it knows of says little of the others."""
    quorum.request(AlterConfig(CLUSTER_RESOURCE, "unclean.recovery.strategy", "Aggressive"))
    for broker_id in (2, 3, 1):
        quorum.vanish(broker_id)
    quorum.register(2)
    quorum.heartbeat(2)
    reply(quorum, questions(quorum)[2], 5, high_watermark=5, flushed_offset=5)
    assert quorum.partition("t").leader == 2
    text = "predicted loss: unknown, at least 0 records, not counting what (1,3) alone may hold"
    assert text in quorum.notes[-1].text


def test_what_may_be_lost_at_most_is_told_and_stored(quorum: Quorum) -> None:
    """R68: 2 and 3 were counted to the end; 1 was left behind, and its promise says nothing of the others."""
    power_cut(quorum)
    for broker_id in (1, 2, 3):
        quorum.heartbeat(broker_id)
    assert quorum.partition("t").last_known_elr == (2, 3)
    asked = questions(quorum)
    reply(quorum, asked[1], 40, high_watermark=70, ceiling=50)
    reply(quorum, asked[2], 50, high_watermark=45, ceiling=100)
    reply(quorum, asked[3], 60, high_watermark=48, ceiling=120)
    assert "predicted loss: 10 to 40 records)" in quorum.notes[-1].text
    decision = list(quorum.core.decisions)[-1].decision
    assert (decision.cause.loss_at_most, decision.cause.most_lost(3)) == (40, 40)
    assert Decision.from_stored(decision.stored()) == decision


def test_a_void_answer_still_tells_of_its_ceiling(quorum: Quorum) -> None:
    """R63, R68: it was on the disk of the former incarnation, and is on that of the next."""
    quorum.request(AlterConfig(CLUSTER_RESOURCE, "unclean.recovery.strategy", "Aggressive"))
    asked = questions_after_power_cut(quorum)
    reply(quorum, asked[2], 50, ceiling=90)
    quorum.vanish(2)
    reply(quorum, asked[1], 40)
    reply(quorum, asked[3], 60)
    assert "predicted loss: 0 to 30 records" in quorum.notes[-1].text


FULL = PartitionRegistration((1, 2, 3), (), None, 7, 9, 2, last_known_elr=(1, 2))
GIVEN_UP = replace(FULL, last_known_leader=2, leader_recovery_state=RECOVERING)


@pytest.mark.parametrize(
    ("partition", "logs", "ceilings", "chosen", "loss"),
    [
        # every replica that was complete once bounds it, also alone
        (FULL, {1: (5, 80)}, {1: 100, 2: 140}, 1, 20),
        (FULL, {1: (5, 80)}, {1: 140, 2: 100}, 1, 20),
        (FULL, {1: (5, 80)}, {2: 100}, 1, 20),
        # a replica that was left behind does not, nor one that has lost what it had promised
        (FULL, {1: (3, 80)}, {3: 100}, 1, None),
        (FULL, {1: (3, 80)}, {}, 1, None),
        # of a log from outside that much is the same which a seat has of the same epoch
        (FULL, {1: (3, 60), 2: (2, 70), 3: (3, 90)}, {1: 100}, 3, 40),
        (FULL, {1: (3, 95), 2: (3, 60), 3: (3, 90)}, {1: 100}, 3, 40),
        (FULL, {1: (-1, 0), 2: (-1, 0), 3: (3, 90)}, {1: 100}, 3, 100),
        # seats of a history that an unclean election gave up: only its leader knows of this one
        (GIVEN_UP, {1: (3, 80), 2: (3, 70)}, {1: 90, 2: 100}, 1, 30),
        (GIVEN_UP, {1: (3, 80)}, {1: 90}, 1, None),
        (GIVEN_UP, {1: (4, 80)}, {1: 90, 2: 100}, 1, 100),
        # with min ISR 3 two in sync end that state, and the seats from before stay
        (replace(GIVEN_UP, leader_recovery_state=RECOVERED, min_isr=3), {1: (3, 80)}, {1: 90}, 1, None),
        (replace(FULL, last_known_elr=(1, 2, 3)), {1: (3, 80)}, {1: 90, 3: 70}, 1, None),
        # what was promised and never came
        (FULL, {1: (3, 100)}, {1: 100}, 1, 0),
        (FULL, {1: (3, 120)}, {2: 100}, 1, 0),
        # Aggressive passes over a member of the ELR that is only fenced
        (replace(FULL, elr=(3,), last_known_elr=()), {1: (3, 60), 3: (3, 80)}, {1: 70, 3: 100}, 1, 100),
    ],
)
def test_the_most_that_may_be_lost_is_below_a_ceiling_and_beyond_what_is_surely_the_same(
    partition: PartitionRegistration,
    logs: dict[int, tuple[int, int]],
    ceilings: dict[int, int],
    chosen: int,
    loss: int | None,
) -> None:
    """R68."""
    replies = {replica: LogReply(0, *end) for replica, end in logs.items()}
    assert most_lost(partition, replies, ceilings, chosen) == loss


@pytest.mark.parametrize(
    ("at_most", "high_watermark", "text"),
    [
        (-1, -1, None),
        (-1, 14, "unknown, at least 4 records"),
        (30, -1, "0 to 30 records"),
        (30, 14, "4 to 30 records"),
        (4, 14, "4 records"),
        (0, 10, "0 records"),
        # a history that was given up promised less than this one has
        (2, 14, "4 records"),
    ],
)
def test_the_loss_is_told_as_far_as_it_is_known(at_most: int, high_watermark: int, text: str | None) -> None:
    cause = Cause(CauseKind.LOGS_COMPARED, None, (LogEnd(1, 0, 10, 10, high_watermark),), at_most)
    assert cause.loss_text(1) == text


@pytest.mark.parametrize(
    ("logs", "leader", "loss"),
    [
        ((LogEnd(1, 0, 10, 10, 10), LogEnd(2, 0, 8, 8, 12)), 1, 2),
        ((LogEnd(1, 0, 10, 2, 2),), 1, 0),
        # the leader knows best what it has lost
        ((LogEnd(1, 0, 10, 10, 17), LogEnd(2, 0, 8, 8, 12)), 1, 7),
        # what is durable was not therefore committed
        ((LogEnd(1, 3, 10, 10, 10), LogEnd(2, 2, 30, 30, 5)), 1, 0),
        # of an answer that was void at the choice only the high watermark is kept
        ((LogEnd(1, 0, 10, 10, 10), LogEnd(2, -1, -1, -1, 14)), 1, 4),
        # a whole log of an older epoch: of a history that was given up, and told as lost, before
        ((LogEnd(1, 3, 10, 10, 10), LogEnd(2, 2, 30, 30, 30)), 1, 0),
        # a log that was cut tells of its history nothing but the high watermark
        ((LogEnd(1, 3, 10, 10, 10), LogEnd(2, 2, 29, 29, 30)), 1, 20),
        # Aggressive may pass over a later epoch only by not hearing of it, but its claim counts
        ((LogEnd(1, 3, 10, 10, 10), LogEnd(2, 4, 30, 30, 30)), 1, 20),
        # nothing is known of what was acknowledged, or the leader was not compared
        ((LogEnd(1, 0, 10),), 1, None),
        ((LogEnd(1, 0, 10, 10, 10),), 2, None),
        ((LogEnd(1, 0, 10, 10, 10), LogEnd(2, -1, -1, -1, 9)), 2, None),
        ((), 1, None),
    ],
)
def test_the_least_loss_is_what_was_committed_beyond_the_chosen_end(
    logs: tuple[LogEnd, ...], leader: int, loss: int | None
) -> None:
    """R68."""
    assert Cause(CauseKind.LOGS_COMPARED, logs=logs).predicted_loss(leader) == loss


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, AnswerValidity.OK),
        ({"error_code": ErrorCode.REPLICA_NOT_AVAILABLE}, AnswerValidity.ERROR),
        ({"error_code": ErrorCode.REQUEST_LIMIT_REACHED}, AnswerValidity.LATER),
        ({"broker_epoch": -1}, AnswerValidity.STALE_BROKER_EPOCH),
        ({"leader_epoch": 0}, AnswerValidity.STALE_LEADER_EPOCH),
        ({"leader_epoch": 99}, AnswerValidity.SUPERSEDED),
        ({"partition_index": 9}, AnswerValidity.UNWANTED),
        ({"broker_id": 4}, AnswerValidity.UNWANTED),
    ],
)
def test_answers_are_judged_one_by_one(
    quorum: Quorum, changes: dict[str, int], verdict: AnswerValidity
) -> None:
    """R62, F44."""
    power_cut(quorum)
    for broker_id in (1, 2, 3):
        quorum.heartbeat(broker_id)
    fields: dict[str, Any] = {
        "broker_id": 2,
        "broker_epoch": quorum.image.brokers[2].broker_epoch,
        "partition_index": 0,
        "leader_epoch": quorum.partition("t").leader_epoch,
        "last_epoch": 1,
        "end_offset": 5,
        "error_code": 0,
        **changes,
    }
    event = LogInfoArrived(topic_id=quorum.topic("t").topic_id, **fields)
    recovery = quorum.core.recovery
    assert recovery.take_log_info(quorum.image, event) is verdict
    key = PartitionId(quorum.topic("t").topic_id, 0)
    assert (2 in recovery.unanswered(quorum.image, key)) is (verdict is not AnswerValidity.OK)


def test_an_answer_with_a_later_leader_epoch_elects_no_replica_and_is_told(quorum: Quorum) -> None:
    """R62: only a deposed controller can be behind a broker; it asks no more and goes on leading nothing."""
    asked = questions_after_power_cut(quorum)
    for broker_id in (1, 3):
        reply(quorum, asked[broker_id], 10)
    reply(quorum, asked[2], 90, leader_epoch=99)
    assert quorum.partition("t").leader is None
    note = quorum.notes[-1]
    assert note.level is Level.WARNING
    assert "broker 2 has later leader epochs of 2 partitions" in note.text
    assert quorum.resignations == []
    quorum.fire_timer(quorum.now_ms + 60_000)
    assert not any(question.broker_id == 2 for question in quorum.asked)


def test_a_broker_that_is_still_making_its_log_is_asked_until_it_tells(quorum: Quorum) -> None:
    """R62: meanwhile no replica leads, also when the others have answered."""
    asked = questions_after_power_cut(quorum)
    reply(quorum, asked[1], 10)
    reply(quorum, asked[3], 10)
    for _ in range(3):
        reply(quorum, asked[2], -1, error_code=ErrorCode.REPLICA_NOT_AVAILABLE)
        assert quorum.partition("t").leader is None
        quorum.fire_timer(quorum.core.next_deadline_ms() or 0)
        asked = questions(quorum)
        assert sorted(asked) == [2]
    reply(quorum, asked[2], 20)
    assert quorum.partition("t").leader == 2


def test_a_rebooted_broker_is_asked_anew_and_those_that_answered_are_not(quorum: Quorum) -> None:
    """R63, N-3."""
    asked = questions_after_power_cut(quorum)
    reply(quorum, asked[2], 20)
    reply(quorum, asked[3], 10)
    quorum.vanish(2)
    quorum.register(2)
    quorum.heartbeat(2)
    assert sorted(questions(quorum)) == [2]
    reply(quorum, asked[1], 5)
    assert quorum.partition("t").leader is None


def test_a_failed_question_is_asked_again_after_the_pause_by_a_timer(quorum: Quorum) -> None:
    power_cut(quorum)
    for broker_id in (1, 2, 3):
        quorum.heartbeat(broker_id)
    question = questions(quorum)[2]
    quorum.handle(LogInfoFailed(2, question.question_id, "no answer"))
    due_ms = quorum.core.next_deadline_ms()
    assert due_ms == quorum.now_ms + quorum.config.recovery_retry_backoff_ms
    quorum.fire_timer(due_ms)
    assert sorted(questions(quorum)) == [2]


def test_answers_to_a_former_tenure_are_dropped(quorum: Quorum) -> None:
    """R60: a new leader asks all replicas anew."""
    power_cut(quorum)
    for broker_id in (1, 2, 3):
        quorum.heartbeat(broker_id)
    former = questions(quorum)
    quorum.lose(102)
    quorum.elect()
    assert sorted(questions(quorum)) == [1, 2, 3]
    for broker_id in (1, 2, 3):
        reply(quorum, former[broker_id], 10)
    assert quorum.partition("t").leader is None


def test_the_strategy_of_a_topic_comes_before_that_of_the_cluster(quorum: Quorum) -> None:
    """R69."""
    quorum.request(AlterConfig((RESOURCE_TOPIC, "t"), "unclean.recovery.strategy", "None"))
    power_cut(quorum)
    assert quorum.core.recovery.count == 0


def test_what_an_operator_asked_for_ends_with_the_leader_that_it_gives(quorum: Quorum) -> None:
    """R17, R60: the next time the partition has no leader its strategy decides again."""
    quorum.request(AlterConfig(CLUSTER_RESOURCE, "unclean.recovery.strategy", "None"))
    power_cut(quorum)
    quorum.request(ElectLeader(ElectionType.LONGEST_LOG_AGGRESSIVE, "t", 0))
    assert quorum.core.recovery.count == 1
    for broker_id in (1, 2, 3):
        quorum.heartbeat(broker_id)
        answer(quorum, broker_id, 10)
    assert quorum.partition("t").leader is not None
    power_cut(quorum)
    assert quorum.partition("t").leader is None
    assert quorum.core.recovery.count == 0


# --- what operators see -----------------------------------------------------------------------------------


def test_a_topic_with_its_own_key_waits_for_no_replica(quorum: Quorum) -> None:
    """F38, R69: with the manager off, and no replica left to trust, the key of the topic decides."""
    power_cut(quorum)
    quorum.request(AlterConfig(CLUSTER_RESOURCE, "unclean.recovery.manager.enabled", "false"))
    topic_id = quorum.topic("t").topic_id
    quorum.put(replace(UNCHANGED, topic_id=topic_id, last_known_leader=-1))
    assert quorum.core.recovery.count_for_operators(quorum.image) == 1
    quorum.request(AlterConfig((RESOURCE_TOPIC, "t"), "unclean.leader.election.enable", "true"))
    assert quorum.core.recovery.count_for_operators(quorum.image) == 0


@pytest.mark.parametrize(
    ("switches", "recovering", "by_hand"),
    [
        ({}, 2, 0),
        ({"unclean.recovery.strategy": "None"}, 0, 2),
        # the last known leader is awaited, or anybody (D8.8)
        ({"unclean.recovery.manager.enabled": "false"}, 0, 0),
    ],
)
def test_partitions_that_recover_and_those_that_wait_for_an_operator_are_counted(
    quorum: Quorum, switches: dict[str, str], recovering: int, by_hand: int
) -> None:
    power_cut(quorum)
    for name, value in switches.items():
        quorum.request(AlterConfig(CLUSTER_RESOURCE, name, value))
    recovery = quorum.core.recovery
    assert (recovery.count, recovery.count_for_operators(quorum.image)) == (recovering, by_hand)
