"""AlterPartition beyond the scenario files (R40-R43), and what the log says of each change."""

import pytest

from holdfast.controller.core.partitions.election import ElectionReason
from holdfast.metadata.partition import PartitionRegistration
from holdfast.metadata.records import TopicRecord
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.alter_partition import (
    AlterPartitionPartition,
    AlterPartitionRequest,
    IsrMember,
)
from holdfast.runtime.stats import Level
from tests.unit.controller.harness import Quorum, make_config
from tests.unit.controller.test_topics import create


@pytest.fixture
def quorum() -> Quorum:
    made = Quorum(make_config(min_insync_replicas="2", unclean_recovery_manager_enabled="false"))
    made.start_brokers(1, 2, 3)
    create(made, "t", -1, -1, (1, 2, 3), (2, 3, 1))
    return made


def test_the_answer_carries_the_state_after_the_commit_with_its_min_isr(quorum: Quorum) -> None:
    """R42, N-5."""
    row = quorum.alter("t", (2, 1)).partitions[0]
    assert (row.error_code, row.leader_id, row.leader_epoch, row.isr) == (ErrorCode.NONE, 1, 0, (1, 2))
    assert (row.partition_epoch, row.min_isr, row.leader_recovery_state) == (1, 2, 0)


def test_the_same_isr_again_is_answered_without_a_record(quorum: Quorum) -> None:
    """R43."""
    end_offset = quorum.end_offset
    row = quorum.alter("t", (3, 2, 1)).partitions[0]
    assert (row.error_code, row.partition_epoch, row.isr) == (ErrorCode.NONE, 0, (1, 2, 3))
    assert quorum.end_offset == end_offset


def test_rows_are_decided_one_by_one_in_the_order_of_the_request(quorum: Quorum) -> None:
    topic_id = quorum.topic("t").topic_id
    epoch = quorum.image.brokers[1].broker_epoch
    shrink = quorum.alter("t", (1,)).partitions[0]
    assert shrink.error_code == ErrorCode.NONE
    member = IsrMember(1, -1)
    rows = (
        AlterPartitionPartition(topic_id, 0, 0, 1, (member, IsrMember(2, -1)), 0),
        AlterPartitionPartition(topic_id, 1, 0, 0, (member,), 0),
        AlterPartitionPartition(topic_id, 0, 0, 1, (member,), 0),
    )
    answer = quorum.request(AlterPartitionRequest(1, epoch, rows))
    assert [row.error_code for row in answer.partitions] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_UPDATE_VERSION,
    ]
    assert quorum.partition("t").isr == (1, 2)


@pytest.mark.parametrize(
    ("isr", "changes", "error"),
    [
        # each row breaks two checks of R41: the earlier one must speak
        ((1, 9), {"leader_epoch": 1, "partition_epoch": -1}, ErrorCode.NOT_CONTROLLER),
        ((1, 9), {"partition_epoch": 5}, ErrorCode.NOT_CONTROLLER),
        ((1, 2), {"leader_epoch": -1, "sender": 2}, ErrorCode.FENCED_LEADER_EPOCH),
        ((1, 2), {"sender": 2, "partition_epoch": -1}, ErrorCode.INVALID_REQUEST),
        ((1, 9), {"partition_epoch": -1}, ErrorCode.INVALID_UPDATE_VERSION),
        ((1, 1), {"stale": (1,)}, ErrorCode.INVALID_REQUEST),
        ((2, 3), {"stale": (2,)}, ErrorCode.INVALID_REQUEST),
        ((1, 2), {"leader_recovery_state": 1, "stale": (2,)}, ErrorCode.INVALID_REQUEST),
        ((1,), {"leader_recovery_state": 7}, ErrorCode.INVALID_REQUEST),
        ((1, 2), {"stale": (2,)}, ErrorCode.INELIGIBLE_REPLICA),
        ((1, 2, 3), {}, ErrorCode.INELIGIBLE_REPLICA),
    ],
)
def test_the_first_failing_check_speaks(
    quorum: Quorum, isr: tuple[int, ...], changes: dict[str, int], error: ErrorCode
) -> None:
    """R41; 3 is fenced."""
    quorum.vanish(3)
    if "partition_epoch" not in changes:
        changes = changes | {"partition_epoch": 1}
    before = quorum.partition("t")
    row = quorum.alter("t", isr, **changes).partitions[0]
    assert (row.error_code, row.leader_id, row.isr) == (error, -1, ())
    assert quorum.partition("t") == before


def test_completing_a_reassignment_may_move_the_leader_and_tells_the_old_one(quorum: Quorum) -> None:
    """R42: the only error that comes with a record."""
    topic_id = quorum.random.uuid()
    value = PartitionRegistration(
        (3, 2, 1), (1, 2), 1, 0, 0, 2, adding_replicas=(3,), removing_replicas=(1,), original_replicas=(1, 2)
    )
    quorum.inject(TopicRecord("moving", topic_id), value.to_record(topic_id, 0))
    row = quorum.alter("moving", (1, 2, 3)).partitions[0]
    assert row.error_code == ErrorCode.NEW_LEADER_ELECTED
    after = quorum.partition("moving")
    assert (after.replicas, after.isr, after.leader, after.leader_epoch) == ((3, 2), (2, 3), 3, 1)


def test_every_transition_is_told_with_its_cause(quorum: Quorum) -> None:
    quorum.notes.clear()
    quorum.vanish(1)
    texts = [note.text for note in quorum.notes]
    assert texts[0].startswith("t-0: leader 1@0 -> 2@1, isr (1,2,3) -> (2,3) (broker 1 is gone")
    assert "rejected: 1 fenced; elected as isr" in texts[0]
    assert texts[0].endswith("elected as isr)")
    assert texts[1].startswith("t-1: isr (1,2,3) -> (2,3)")
    assert texts[2].startswith("broker 1 fenced")


def test_an_unclean_election_is_told_as_a_possible_loss(quorum: Quorum) -> None:
    """R10, R68: with those that it passed over."""
    for broker in (1, 2, 3):
        quorum.vanish(broker)
    for broker in (1, 2, 3):
        quorum.register(broker)
    quorum.notes.clear()
    quorum.heartbeat(3)
    told = [note for note in quorum.notes if note.text.startswith("t-0")]
    assert told[0].level is Level.WARNING
    assert told[0].text.endswith("elected as last_known_leader; records may be lost, passed over (2))")
    assert quorum.core.counts.elections[ElectionReason.LAST_KNOWN_LEADER] == 2
