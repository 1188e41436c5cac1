"""When a stream that fails is begun again, and when what failed is good again."""

import pytest

from holdfast.durability.core.retries import ATTEMPTS, Retries

TIMEOUT_MS = 60_000
LATE_MS = TIMEOUT_MS * ATTEMPTS


def failures(retries: Retries, *times_ms: int) -> list[bool]:
    """Of each: whether it is tried again."""
    return [retries.failed(f"failed at {now_ms}", now_ms) for now_ms in times_ms]


def test_a_stream_that_never_failed_has_no_problem() -> None:
    assert Retries(TIMEOUT_MS, 0).problem is None


def test_it_is_given_up_when_it_has_failed_often_and_for_long() -> None:
    early = list(range(ATTEMPTS + 5))
    assert failures(Retries(TIMEOUT_MS, 0), *early) == [True] * len(early), "often, not for long"
    late = [LATE_MS] * ATTEMPTS
    assert failures(Retries(TIMEOUT_MS, 0), *late) == [*[True] * (ATTEMPTS - 1), False], "for long, not often"


def test_the_newest_problem_stands_until_the_stream_has_gone_on() -> None:
    retries = Retries(TIMEOUT_MS, 0)
    failures(retries, 1, 2)
    assert retries.problem == "failed at 2"
    retries.completed(0, 3)
    assert retries.problem is None
    failures(retries, 4)
    retries.went_on(5)
    assert retries.problem is None


def test_after_progress_all_attempts_are_there_again() -> None:
    retries = Retries(TIMEOUT_MS, 0)
    failures(retries, *range(ATTEMPTS - 1))
    retries.completed(0, LATE_MS)
    assert failures(retries, *[LATE_MS + 1] * ATTEMPTS) == [True] * ATTEMPTS


def test_other_attempts_are_allowed_and_the_problem_stands() -> None:
    retries = Retries(TIMEOUT_MS, 0)
    failures(retries, *[LATE_MS] * ATTEMPTS)
    retries.allow_all(LATE_MS)
    assert retries.problem == f"failed at {LATE_MS}"
    assert failures(retries, *[LATE_MS] * ATTEMPTS) == [True] * ATTEMPTS


@pytest.mark.parametrize("again", [7, 6])
def test_a_micro_batch_that_is_repeated_is_no_progress(again: int) -> None:
    retries = Retries(TIMEOUT_MS, 0)
    retries.completed(7, 0)
    for _ in range(ATTEMPTS - 1):
        assert retries.failed("its commit", LATE_MS)
        retries.completed(again, LATE_MS)
        assert retries.problem == "its commit"
    assert not retries.failed("its commit", LATE_MS)
