"""Answers are matched by identity, deadlines are kept, late answers are dropped (N-4)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.rpc.core.correlation import CORRELATION_ID_MAX, InFlight, UnknownCorrelation


def test_each_request_gets_its_own_answer_once() -> None:
    in_flight: InFlight[str] = InFlight()
    first, second = in_flight.add("a", 0, 10), in_flight.add("b", 0, 10)
    assert in_flight.answer(second) == "b"
    assert in_flight.answer(second) is None
    assert in_flight.answer(first) == "a"
    assert len(in_flight) == 0


def test_an_expired_request_takes_no_answer_but_its_id_stays_known() -> None:
    in_flight: InFlight[str] = InFlight()
    late = in_flight.add("a", 5, 10)
    assert in_flight.expire(9) == []
    assert [(one.item, one.sent_ms) for one in in_flight.expire(10)] == [("a", 5)]
    assert in_flight.answer(late) is None


@pytest.mark.parametrize("correlation_id", [0, 3, -1])
def test_an_answer_to_a_question_never_asked_is_told_apart(correlation_id: int) -> None:
    in_flight: InFlight[str] = InFlight()
    in_flight.add("a", 0, 10)
    in_flight.take_id()
    with pytest.raises(UnknownCorrelation, match=str(correlation_id)):
        in_flight.answer(correlation_id)


def test_ids_start_again_and_pass_over_those_still_waiting() -> None:
    in_flight: InFlight[str] = InFlight(last_id=CORRELATION_ID_MAX - 1)
    assert in_flight.add("last", 0, 10) == CORRELATION_ID_MAX
    assert in_flight.add("first", 0, 10) == 1
    assert in_flight.answer(CORRELATION_ID_MAX) == "last"
    assert in_flight.answer(CORRELATION_ID_MAX - 5) is None  # after a wrap any id may be a late one


def test_drain_gives_all_in_the_order_of_sending() -> None:
    in_flight: InFlight[int] = InFlight()
    for number in range(5):
        in_flight.add(number, 0, 100 - number)
    assert in_flight.drain() == [0, 1, 2, 3, 4]
    assert in_flight.next_deadline_ms() is None


@given(
    events=st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.integers(1, 50)),
            st.tuples(st.just("answer"), st.integers(0, 20)),
            st.tuples(st.just("wait"), st.integers(0, 30)),
        )
    )
)
def test_nothing_waits_past_its_deadline_and_nothing_expires_early(events: list[tuple[str, int]]) -> None:
    in_flight: InFlight[int] = InFlight()
    waiting: dict[int, int] = {}
    now_ms = 0
    for what, number in events:
        if what == "add":
            deadline_ms = now_ms + number
            waiting[in_flight.add(deadline_ms, now_ms, deadline_ms)] = deadline_ms
        elif what == "answer" and waiting:
            correlation_id = sorted(waiting)[number % len(waiting)]
            assert in_flight.answer(correlation_id) == waiting.pop(correlation_id)
        elif what == "wait":
            now_ms += number
            expired = [one.item for one in in_flight.expire(now_ms)]
            assert expired == [deadline for deadline in waiting.values() if deadline <= now_ms]
            waiting = {key: deadline for key, deadline in waiting.items() if deadline > now_ms}
        assert len(in_flight) == len(waiting)
        next_ms = in_flight.next_deadline_ms()
        if waiting:
            assert next_ms is not None
            assert next_ms <= min(waiting.values())
        else:
            assert next_ms is None
