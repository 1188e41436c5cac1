import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.raft.core.log_shape import NO_EPOCH, LogShape
from holdfast.raft.core.quorum import LogPosition
from holdfast.scenario.raft import shape_of

#: A log as the epoch of each record, never falling.
LOGS = st.lists(st.integers(1, 6), max_size=12).map(sorted)


def shape_from(epochs: list[int]) -> LogShape:
    shape = LogShape([], 0)
    for offset, epoch in enumerate(epochs):
        shape.append(epoch, offset, offset + 1)
    shape.flushed_offset = shape.log_end_offset
    return shape


def common_prefix(a: list[int], b: list[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


#: A history: who leads the next epoch, how many records it writes, who then copies how many of its log.
HISTORIES = st.lists(
    st.tuples(st.integers(0, 2), st.integers(1, 3), st.integers(0, 2), st.integers(0, 6)), max_size=8
)


@given(HISTORIES, st.integers(0, 2))
def test_cutting_by_diverging_epochs_ends_at_a_common_prefix(
    history: list[tuple[int, int, int, int]], follower_id: int
) -> None:
    """R80, R81, compared with a look at every record; at most one round for each epoch."""
    logs: list[list[int]] = [[], [], []]
    leader_id = 0
    for epoch, (leader_id, written, copier_id, copied) in enumerate(history, start=1):
        leader = logs[leader_id]
        leader += [epoch] * written
        if copier_id != leader_id:
            common = common_prefix(leader, logs[copier_id])
            logs[copier_id] = leader[: common + copied]
    leader, follower = logs[leader_id], logs[follower_id]
    ours, theirs = shape_from(leader), shape_from(follower)
    for _ in range(len(history) + 1):
        point = ours.diverging_point(theirs.last_epoch, theirs.log_end_offset)
        if point is None:
            break
        before = theirs.log_end_offset
        theirs.truncate_to(theirs.truncation_point(*point))
        assert theirs.log_end_offset < before
    kept = theirs.log_end_offset
    assert ours.diverging_point(theirs.last_epoch, kept) is None
    assert follower[:kept] == leader[:kept]
    assert kept == common_prefix(leader, follower)


@given(LOGS, st.integers(0, 8))
def test_end_of_an_epoch_is_where_a_later_one_begins(epochs: list[int], epoch: int) -> None:
    known = [e for e in epochs if e <= epoch]
    expected = (known[-1], len(known)) if known else (NO_EPOCH, 0)
    assert shape_from(epochs).end_offset_for_epoch(epoch) == expected


def test_a_prefix_does_not_diverge() -> None:
    shape = shape_of("1:3,4:2")
    assert shape.diverging_point(1, 2) is None
    assert shape.diverging_point(4, 5) is None
    assert shape.diverging_point(NO_EPOCH, 0) is None


def test_position_is_that_of_the_last_batch() -> None:
    assert shape_of("1:3,4:2").position == LogPosition(4, 5)
    assert shape_of("").position == LogPosition(NO_EPOCH, 0)


def test_recovered_log_is_durable_and_appends_are_not() -> None:
    """A-21."""
    shape = shape_of("1:3")
    shape.append(2, 3, 5)
    assert (shape.flushed_offset, shape.log_end_offset) == (3, 5)


def test_epochs_in_a_log_never_fall() -> None:
    """I-18."""
    with pytest.raises(AssertionError):
        shape_of("4:1").append(3, 1, 2)


def test_appends_leave_no_gap() -> None:
    with pytest.raises(AssertionError):
        shape_of("4:1").append(4, 2, 3)


def test_a_cut_forgets_epochs_and_durable_offsets_above_it() -> None:
    shape = shape_of("1:3,4:2")
    shape.truncate_to(3)
    assert (shape.last_epoch, shape.flushed_offset, shape.log_end_offset) == (1, 3, 3)
