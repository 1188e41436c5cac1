"""Where two logs part: broker.core.replicas.divergence, by tables. The logs have offsets 10 to 30 of epochs 3
(from 10) and 5 (from 20), unless a test says else."""

import pytest

from holdfast.broker.core.replicas.divergence import Refusal, check_copy, check_read, truncation_offset
from holdfast.protocol.errors import ErrorCode
from holdfast.scenario.partition import MemoryLog

OUT_OF_RANGE = Refusal(ErrorCode.OFFSET_OUT_OF_RANGE)


def diverging(epoch: int, end_offset: int) -> Refusal:
    return Refusal(ErrorCode.NONE, (epoch, end_offset))


def a_log() -> MemoryLog:
    log = MemoryLog(20, 3, 10)
    log.append(10, 5)
    return log


@pytest.mark.parametrize(
    ("fetch_offset", "last_epoch", "answer"),
    [
        (30, 5, None),
        (25, 5, None),
        (20, 3, None),
        (10, -1, None),
        (9, -1, OUT_OF_RANGE),
        (31, -1, OUT_OF_RANGE),
        (31, 5, diverging(5, 30)),
        (21, 3, diverging(3, 20)),
        (18, 4, diverging(3, 20)),
        (22, 4, diverging(3, 20)),
        (30, 6, diverging(5, 30)),
    ],
)
def test_a_reader_and_a_follower_are_told_alike_where_their_log_parts(
    fetch_offset: int, last_epoch: int, answer: Refusal | None
) -> None:
    """R80, R88: by the last epoch that they have read and how far."""
    assert check_read(a_log(), fetch_offset, last_epoch) == answer
    assert check_copy(a_log(), fetch_offset, last_epoch, is_isr_or_elr_member=True) == answer
    assert check_copy(a_log(), fetch_offset, last_epoch, is_isr_or_elr_member=False) == answer


@pytest.mark.parametrize(
    ("fetch_offset", "is_isr_or_elr_member", "answer"),
    [(10, True, None), (10, False, OUT_OF_RANGE), (11, True, OUT_OF_RANGE), (9, True, OUT_OF_RANGE)],
)
def test_a_follower_of_lower_epochs_than_the_leader_knows_goes_on_at_its_start_when_it_is_seated(
    fetch_offset: int, is_isr_or_elr_member: bool, answer: Refusal | None
) -> None:
    """R80: what both had up to there, retention has taken. That is unknown of one outside ISR and ELR."""
    assert check_copy(a_log(), fetch_offset, 2, is_isr_or_elr_member=is_isr_or_elr_member) == answer


@pytest.mark.parametrize(
    ("fetch_offset", "answer"),
    [
        (10, None),
        (11, diverging(2, 10)),
        (25, diverging(2, 10)),
        (30, diverging(2, 10)),
        (31, OUT_OF_RANGE),
        (9, OUT_OF_RANGE),
    ],
)
def test_a_consumer_that_has_read_lower_epochs_than_the_leader_knows_goes_on_at_its_start_only(
    fetch_offset: int, answer: Refusal | None
) -> None:
    """R88: what it has read up to there may have been deleted, like the leader's own knowledge of it. Of each
    record behind it the leader knows that it is of a later epoch than what was read there."""
    assert check_read(a_log(), fetch_offset, 2) == answer


def test_a_consumer_of_a_log_that_was_lost_whole_is_told_so_when_another_history_is_as_long() -> None:
    """R88: the leader was elected uncleanly with an empty log; found by the simulator."""
    log = MemoryLog(30, 3, 0)
    assert check_read(log, 29, 0) == diverging(0, 0)


@pytest.mark.parametrize(
    ("epoch", "leader_end", "offset"),
    [(5, 25, 25), (5, 40, 30), (4, 15, 20), (3, 15, 15), (3, 5, 5), (9, 22, 30)],
)
def test_a_follower_cuts_to_the_common_end_of_the_leaders_epoch_or_of_its_own_next_lower_one(
    epoch: int, leader_end: int, offset: int
) -> None:
    """R81, A-16. The leader's end of an epoch that we do not have says nothing about ours: that is kept for
    the next answer, which is about that one. Where both were equal it may lie below our start."""
    for is_isr_or_elr_member in (True, False):
        assert (
            truncation_offset(a_log(), epoch, leader_end, is_isr_or_elr_member=is_isr_or_elr_member) == offset
        )


@pytest.mark.parametrize("leader_end", [5, 15])
@pytest.mark.parametrize(("log", "offset"), [(MemoryLog(20, 3), 0), (MemoryLog(20, 3, 10), None)])
def test_a_log_of_later_epochs_only_is_dropped(log: MemoryLog, offset: int | None, leader_end: int) -> None:
    """D8: where its beginning is deleted, it begins where the leader's does."""
    assert truncation_offset(log, 2, leader_end, is_isr_or_elr_member=False) == offset


@pytest.mark.parametrize(
    ("end", "leader_end", "offset"), [(20, 5, None), (20, 10, 10), (20, 15, 10), (10, 10, None)]
)
def test_who_is_seated_keeps_its_start_while_there_is_something_above_it(
    end: int, leader_end: int, offset: int | None
) -> None:
    """I-8: below it was all that is committed. Once nothing is left above it, that was not so."""
    assert truncation_offset(MemoryLog(end, 3, 10), 2, leader_end, is_isr_or_elr_member=True) == offset
