from holdfast.raft.core.progress import NEVER_MS, UNKNOWN_OFFSET, Progress


def test_replica_is_caught_up_when_it_has_all_at_its_fetch() -> None:
    """K16."""
    progress = Progress()
    assert (progress.end_offset, progress.last_caught_up_ms) == (UNKNOWN_OFFSET, NEVER_MS)
    progress.on_fetch(10, log_end_offset=10, now_ms=100)
    assert (progress.end_offset, progress.last_fetch_ms, progress.last_caught_up_ms) == (10, 100, 100)


def test_replica_under_steady_load_was_caught_up_at_the_fetch_before() -> None:
    progress = Progress()
    progress.on_fetch(5, log_end_offset=10, now_ms=100)
    assert progress.last_caught_up_ms == NEVER_MS
    progress.on_fetch(10, log_end_offset=15, now_ms=200)
    assert progress.last_caught_up_ms == 100
    progress.on_fetch(12, log_end_offset=20, now_ms=300)
    assert progress.last_caught_up_ms == 100


def test_last_word_of_a_replica_counts_even_if_it_is_lower() -> None:
    """A replaced disk holds less than the one before."""
    progress = Progress()
    progress.on_fetch(10, log_end_offset=10, now_ms=100)
    progress.on_fetch(0, log_end_offset=10, now_ms=200)
    assert progress.end_offset == 0
