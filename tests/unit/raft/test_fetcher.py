import pytest

from holdfast.raft.core.fetcher import Batches, Diverged, Fetcher, Unbelievable, judge
from holdfast.scenario.raft import batches, fetch_response, shape_of


def test_voter_stays_with_its_leader() -> None:
    fetcher = Fetcher((1, 3), 20)
    for _ in range(3):
        assert fetcher.choose(3, is_voter=True) == 3
        fetcher.failed(0)


def test_without_a_leader_the_others_are_asked_in_turn() -> None:
    fetcher = Fetcher((1, 2, 3), 20)
    assert sorted(fetcher.choose(None, is_voter=True) or 0 for _ in range(3)) == [1, 2, 3]


def test_observer_asks_others_when_the_leader_fails() -> None:
    fetcher = Fetcher((1, 2, 3), 20)
    assert fetcher.choose(2, is_voter=False) == 2
    fetcher.failed(0)
    assert fetcher.choose(2, is_voter=False) in (1, 3)
    fetcher.failed(0)
    assert fetcher.choose(2, is_voter=False) == 2


def test_first_failure_costs_no_time_and_more_do() -> None:
    """D9."""
    fetcher, ready = Fetcher((1, 2), 20), []
    for _ in range(6):
        fetcher.failed(1_000)
        ready.append(fetcher.ready_at_ms - 1_000)
    assert ready == [0, 20, 40, 80, 80, 80]
    fetcher.succeeded()
    assert fetcher.ready_at_ms == 0


def test_a_node_whose_id_another_uses_makes_pauses_though_its_fetches_succeed_in_between() -> None:
    fetcher = Fetcher((1, 2), 20)
    assert not fetcher.displaced(1_000), "once: an earlier fetch of its own that came late"
    assert fetcher.ready_at_ms == 1_000
    fetcher.succeeded()
    assert fetcher.displaced(1_100)
    assert fetcher.ready_at_ms == 2_100
    fetcher.succeeded()
    assert not fetcher.displaced(60_000)


def test_one_fetch_is_outstanding() -> None:
    """N-4."""
    fetcher = Fetcher((1, 2), 20)
    fetcher.sent(5, 1)
    with pytest.raises(AssertionError):
        fetcher.sent(6, 1)


def judgement(records: bytes = b"", diverging: tuple[int, int] | None = None) -> object:
    """What an answer of leader 2 in epoch 6 means for a log of epochs 3 and 4 that ends at 5."""
    row = fetch_response(2, 6, records=records, diverging=diverging).partitions[0]
    return judge(row, shape_of("3:2,4:3"), 6)


def test_batches_that_continue_the_log_are_taken() -> None:
    assert judgement(batches(5, "4:1,6:1")) == Batches(((4, 5, 6), (6, 6, 7)))
    assert judgement() == Batches(())


@pytest.mark.parametrize(
    "records",
    [
        batches(6, "4:1"),  # a gap
        batches(4, "4:1"),  # what is there already
        batches(5, "3:1"),  # an epoch that falls (I-18)
        batches(5, "7:1"),  # an epoch above that of the fetch (R84)
        batches(5, "4:1")[:-1],  # cut short
        batches(5, "4:1")[:-1] + b"!",  # damaged
    ],
)
def test_damaged_or_foreign_batches_are_refused(records: bytes) -> None:
    """R84."""
    assert isinstance(judgement(records), Unbelievable)


def test_divergence_cuts_where_both_logs_agree() -> None:
    """R81."""
    assert judgement(diverging=(4, 4)) == Diverged(4)
    assert judgement(diverging=(3, 1)) == Diverged(1)
    assert judgement(diverging=(-1, 0)) == Diverged(0)


def test_divergence_that_cuts_nothing_is_refused() -> None:
    """Else the follower would ask the same for ever."""
    assert isinstance(judgement(diverging=(4, 9)), Unbelievable)
