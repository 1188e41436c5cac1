"""Pauses: none at first, then doubling to a limit (D9)."""

from holdfast.client.core.backoff import Backoff


def test_the_first_repetition_is_immediate_and_later_ones_wait_longer_up_to_the_limit() -> None:
    backoff = Backoff(first_ms=20, max_ms=100)
    assert [backoff.pause_ms(n) for n in (0, 1, 2, 3, 4, 1_000)] == [0, 20, 40, 80, 100, 100]
