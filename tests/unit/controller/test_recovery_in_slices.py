"""Ten thousand recoveries at once: heartbeats and AlterPartition are answered in between."""

from dataclasses import replace

import pytest

from holdfast.controller.core.events import LogInfoArrived
from holdfast.controller.core.operators.operations import AlterConfig
from holdfast.controller.core.partitions import unclean_recovery
from holdfast.controller.core.partitions.unclean_recovery import AnswerValidity
from holdfast.metadata.image import CLUSTER_RESOURCE
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.broker_registration import BrokerHeartbeatRequest
from tests.unit.controller.harness import Quorum
from tests.unit.controller.test_topics import create
from tests.unit.controller.test_unclean_recovery import config, power_cut, reply

PARTITIONS, SLICE = 10, 4


@pytest.fixture
def quorum(monkeypatch: pytest.MonkeyPatch) -> Quorum:
    """Ten partitions of which no replica is known to be complete; an event looks at four."""
    monkeypatch.setattr(unclean_recovery, "STEPS_MAX", SLICE)
    made = Quorum(config(unclean_recovery_timeout_ms="60000", broker_session_timeout_ms="600000"))
    made.start_brokers(1, 2, 3)
    create(made, "t", -1, -1, *[(1, 2, 3)] * PARTITIONS)
    power_cut(made)
    for broker_id in (1, 2, 3):
        made.heartbeat(broker_id)
    go_on(made)
    return made


def go_on(quorum: Quorum) -> int:
    """Fire the timer while it is wanted at once; how often that was."""
    for fired in range(100):
        due_ms = quorum.core.next_deadline_ms()
        if due_ms is None or due_ms > quorum.now_ms:
            return fired
        quorum.fire_timer(quorum.now_ms)
    raise AssertionError("the timer is wanted for ever")


def led(quorum: Quorum) -> list[int]:
    partitions = quorum.core.latest.topics[quorum.topic("t").topic_id].partitions
    return [index for index in range(PARTITIONS) if partitions[index].leader is not None]


def answer_all(quorum: Quorum, *broker_ids: int) -> None:
    """These answer for all partitions, in as many requests as it takes; the others say nothing."""
    silent = 0
    while silent < len(broker_ids):
        silent = 0
        for broker_id in broker_ids:
            mine = [question for question in quorum.asked if question.broker_id == broker_id]
            silent += not mine
            for question in mine:
                quorum.asked.remove(question)
                reply(quorum, question, 10 * broker_id)


def test_recoveries_that_are_over_together_are_decided_a_slice_an_event(quorum: Quorum) -> None:
    """R64: at the timeout, in order of topic and index; a heartbeat in between is answered."""
    answer_all(quorum, 2, 3)
    go_on(quorum)
    assert led(quorum) == []
    quorum.is_held = True  # a commit is an event of its own
    due_ms = quorum.core.next_deadline_ms()
    while led(quorum) == [] and due_ms is not None:
        quorum.fire_timer(due_ms)
        due_ms = quorum.core.next_deadline_ms()
    assert led(quorum) == list(range(SLICE))
    heartbeat = quorum.image.brokers[1].broker_epoch
    request = quorum.start_request(BrokerHeartbeatRequest(1, heartbeat, 0, False, False), 1)
    assert led(quorum) == list(range(2 * SLICE))
    quorum.is_held = False
    quorum.fire_timer(quorum.now_ms)
    assert led(quorum) == list(range(PARTITIONS))
    assert go_on(quorum) == 0
    assert quorum.answers[request].error_code == ErrorCode.NONE
    assert {partition.leader for partition in quorum.topic("t").partitions.values()} == {3}


def test_a_change_of_the_cluster_is_looked_at_a_slice_an_event(quorum: Quorum) -> None:
    """R61: a member is fenced, then all ten wait for it, those that were looked at first."""
    quorum.stated.clear()
    quorum.is_held = True
    quorum.vanish(2)
    assert [one.partition_index for one in quorum.stated] == list(range(SLICE))
    go_on(quorum)
    assert [one.partition_index for one in quorum.stated] == list(range(PARTITIONS))
    assert {str(one.statement) for one in quorum.stated} == {"wait (2)"}


@pytest.mark.parametrize("looks_between", [0, 1])
def test_a_broker_that_came_back_before_it_was_missed_is_asked_again(
    quorum: Quorum, looks_between: int
) -> None:
    """R62: its answers are void, and no event looked at most of the partitions while it was fenced."""
    answer_all(quorum, 2)
    go_on(quorum)
    quorum.is_held = True  # commits are events of their own: each looks at a slice
    quorum.vanish(2)
    for _ in range(looks_between):
        quorum.fire_timer(quorum.now_ms)
    quorum.is_held = False
    quorum.register(2)
    quorum.heartbeat(2)
    go_on(quorum)
    answer_all(quorum, 1, 2, 3)
    go_on(quorum)
    assert led(quorum) == list(range(PARTITIONS))


def test_what_a_lost_leadership_leaves_to_be_looked_at_is_the_next_ones(quorum: Quorum) -> None:
    """R60, K23."""
    quorum.vanish(2)
    quorum.lose(102)
    assert quorum.core.next_deadline_ms() is None
    quorum.stated.clear()
    quorum.elect()
    go_on(quorum)
    assert [one.partition_index for one in quorum.stated] == list(range(PARTITIONS))


def test_an_answer_for_what_has_changed_and_was_not_looked_at_since_does_not_count(quorum: Quorum) -> None:
    """R62: a later leader epoch than the recovery's is no proof that another controller is active."""
    topic, image = quorum.topic("t"), quorum.image
    before = topic.partitions[0]
    changed = replace(before, leader_epoch=before.leader_epoch + 1)
    partitions = topic.partitions.set(0, changed)
    later = replace(image, topics=image.topics.set(topic.topic_id, replace(topic, partitions=partitions)))
    broker_epoch = image.brokers[2].broker_epoch
    event = LogInfoArrived(2, broker_epoch, topic.topic_id, 0, changed.leader_epoch, 1, 20, ErrorCode.NONE)
    assert quorum.core.recovery.take_log_info(later, event) is AnswerValidity.UNWANTED
    assert quorum.core.recovery.take_log_info(image, event) is AnswerValidity.SUPERSEDED


def test_a_manager_that_is_switched_off_has_nothing_more_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """More partitions than one event looks at wait for a member of their last ISR, one is under recovery."""
    monkeypatch.setattr(unclean_recovery, "STEPS_MAX", SLICE)
    quorum = Quorum(config(broker_session_timeout_ms="600000"))
    quorum.start_brokers(1, 2, 3, 4, 5, 6)
    create(quorum, "a", -1, -1, (1, 2, 3))
    create(quorum, "b", -1, -1, *[(4, 5, 6)] * PARTITIONS)
    for broker_id in (4, 5, 6):
        quorum.vanish(broker_id)
    power_cut(quorum)
    go_on(quorum)
    assert quorum.core.recovery.count == 1
    quorum.request(AlterConfig(CLUSTER_RESOURCE, "unclean.recovery.manager.enabled", "false"))
    go_on(quorum)
    assert quorum.core.recovery.count == 0
