"""When a member asks who its coordinator is, and which failures count against the one it has."""

from holdfast.client.core.backoff import Backoff
from holdfast.client.core.groups.coordinator_search import PROBE_MS, CoordinatorSearch
from holdfast.client.core.groups.effects import Coordinator

HERE, THERE = Coordinator(1, "here", 1), Coordinator(2, "there", 1)


def found(coordinator: Coordinator = HERE, now_ms: int = 100) -> CoordinatorSearch:
    search = CoordinatorSearch(Backoff(20, 500))
    assert search.begin(now_ms, is_waiting=False)
    search.found(coordinator, now_ms)
    return search


def test_one_question_at_a_time_is_asked_until_there_is_an_answer() -> None:
    search = CoordinatorSearch(Backoff(20, 500))
    assert search.begin(100, is_waiting=False)
    assert not search.begin(900, is_waiting=True)
    search.found(HERE, 900)
    assert search.known == HERE
    assert not search.begin(901, is_waiting=False)


def test_after_each_failure_the_next_question_waits_longer() -> None:
    search = CoordinatorSearch(Backoff(20, 500))
    for pause_ms in (20, 40, 80):
        assert search.begin(1_000, is_waiting=False)
        search.not_found(1_000)
        assert search.find_ms == 1_000 + pause_ms
        assert not search.begin(999 + pause_ms, is_waiting=False)
        search.find_ms = 0


def test_one_that_owes_a_long_answer_is_doubted_now_and_then() -> None:
    search = found(now_ms=100)
    assert not search.begin(99 + PROBE_MS, is_waiting=True)
    assert not search.begin(100 + PROBE_MS, is_waiting=False)
    search.wait(200)
    assert not search.begin(100 + PROBE_MS, is_waiting=True)
    assert search.begin(200 + PROBE_MS, is_waiting=True)


def test_a_failure_of_another_one_costs_nothing() -> None:
    search = found(HERE)
    search.heard_from = THERE
    search.lose(100)
    assert search.known == HERE
    search.heard_from = HERE
    search.lose(100)
    assert search.known is None


def test_who_answers_a_join_is_the_coordinator_though_another_request_has_failed() -> None:
    search = found(HERE)
    search.heard_from = HERE
    search.lose(100)
    search.confirm()
    assert search.known == HERE


def test_work_that_is_done_ends_the_longer_pauses() -> None:
    search = found(HERE)
    search.heard_from = HERE
    for _ in range(3):
        search.lose(100)
        search.known = HERE
    assert search.find_ms == 140
    search.works()
    search.lose(1_000)
    assert search.find_ms == 1_000, "the first loss after that is followed at once"
