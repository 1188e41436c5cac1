"""The recovery manager's choice, and what scenario files cannot show: order, soft state, cost when off."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.config import ControllerConfig
from controller.election import ElectionReason
from controller.events import AskForLogs, LogInfoArrived, RecoveryElected, Severity, WaitForReplicas
from controller.unclean_recovery import LogReply, best_log
from metadata.partition import PartitionRegistration
from protocol.errors import ErrorCode
from tests.unit.controller.harness import Quorum, make_config
from tests.unit.controller.test_topics import create

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
    return replace(make_config(min_insync_replicas="2", **properties), recovery_manager_enabled=True)


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
    fields = {
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
    assert note.severity is Severity.WARNING
    assert "3 ends at 30 in epoch 1" in note.text
    assert "records may be lost" in note.text
    assert quorum.core.counts.elections[ElectionReason.LONGEST_LOG] == 2


def test_an_answer_of_a_former_incarnation_is_void_at_the_decision(quorum: Quorum) -> None:
    """R63, D-3: 2 answered, rebooted and must answer again."""
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


def test_with_the_manager_off_nobody_is_asked() -> None:
    """D8 Q8."""
    quorum = Quorum(make_config(min_insync_replicas="2"))
    quorum.start_brokers(1, 2, 3)
    create(quorum, "t", -1, -1, (1, 2, 3))
    power_cut(quorum)
    assert quorum.stated == []
