"""The four flush policies (D6)."""

from holdfast.storage.core.flush_policy import FlushPolicy


def test_every_write_flushes_at_each_append() -> None:
    policy = FlushPolicy(flush_messages=1)
    assert policy.is_every_write
    assert policy.appended(1, 0)
    policy.flush_started()
    assert policy.appended(5, 0)


def test_every_n_records_counts_since_the_last_flush_started() -> None:
    policy = FlushPolicy(flush_messages=10)
    assert not policy.is_every_write
    assert not policy.appended(9, 0)
    assert policy.appended(1, 0)
    assert policy.appended(1, 0), "due until a flush starts"
    policy.flush_started()
    assert not policy.appended(9, 0)


def test_every_n_ms_counts_from_the_oldest_unflushed_append() -> None:
    policy = FlushPolicy(flush_ms=100)
    assert policy.deadline_ms is None
    assert not policy.appended(1, 1000)
    assert not policy.appended(1, 1050)
    assert policy.deadline_ms == 1100
    assert not policy.is_due(1099)
    assert policy.is_due(1100)
    policy.flush_started()
    assert not policy.is_due(5000)


def test_on_roll_only_never_asks() -> None:
    policy = FlushPolicy()
    assert not policy.appended(1 << 40, 1 << 40)
    assert policy.deadline_ms is None
