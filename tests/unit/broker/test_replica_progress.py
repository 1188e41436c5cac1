"""What a leader knows of one follower."""

from holdfast.broker.core.replicas.replica_progress import ReplicaProgress


def test_what_was_never_fetched_counts_for_nothing() -> None:
    """A-5, R54: an ISR member has the lag time to begin, another replica is not caught up."""
    assert ReplicaProgress(2, 1000).may_stay(5, 1500, 500)
    assert not ReplicaProgress(2, 1000).may_stay(5, 1501, 500)
    assert not ReplicaProgress(2, 1000).is_caught_up(5, 1500, 500)
    assert not ReplicaProgress(2, None).may_stay(5, 0, 500)
    assert ReplicaProgress(2, None).broker_epoch == -1


def test_follower_that_keeps_reaching_the_previous_end_is_caught_up() -> None:
    """R51 under steady load: it never has all, but always what there was at its last fetch."""
    progress = ReplicaProgress(2, None)
    progress.fetched(0, 20, 0, 1000)
    progress.fetched(5, 20, 10, 1100)
    progress.fetched(10, 20, 20, 1200)
    assert progress.last_caught_up_ms == 1100
    progress.fetched(15, 20, 30, 1300)
    assert progress.last_caught_up_ms == 1100


def test_being_caught_up_ends_with_the_leaders_next_append() -> None:
    progress = ReplicaProgress(2, None)
    progress.fetched(10, 20, 10, 1000)
    assert progress.last_caught_up_ms == 1000
    progress.leader_moved(10, 9000)
    assert progress.last_caught_up_ms == 9000
    progress.leader_moved(15, 9500)
    assert progress.last_caught_up_ms == 9000


def test_what_the_former_incarnation_had_does_not_make_the_next_one_caught_up() -> None:
    """KAFKA-15221: the restart may have cost the tail. Else it would hold the high watermark up (F3) all the
    while it fetches what it lacks."""
    progress = ReplicaProgress(2, None)
    progress.fetched(10, 20, 10, 1000)
    progress.fetched(4, 30, 12, 1100)
    assert not progress.is_caught_up(12, 1100, 500)
    progress.fetched(10, 30, 14, 1200)
    assert not progress.is_caught_up(14, 1200, 500)
    progress.fetched(14, 30, 16, 1300)
    assert progress.last_caught_up_ms == 1200
