from holdfast.raft.core.voter_calls import VoterCalls


def test_every_voter_is_asked_once_at_a_time() -> None:
    calls = VoterCalls((3, 2), now_ms=5, retry_ms=20)
    assert calls.due(5) == [2, 3]
    calls.sent(2, request_id=7)
    assert calls.due(5) == [3]
    assert calls.answered(7) == 2
    assert calls.answered(7) is None
    assert calls.due(10_000) == [3]


def test_failed_call_is_repeated_with_a_doubling_delay() -> None:
    calls = VoterCalls((2,), now_ms=0, retry_ms=20)
    now_ms, delays = 0, []
    for request_id in range(9):
        calls.sent(2, request_id)
        calls.failed(request_id, now_ms)
        due_ms = calls.next_due_ms()
        assert due_ms is not None
        assert calls.due(due_ms - 1) == []
        delays.append(due_ms - now_ms)
        now_ms = due_ms
    assert delays == [20, 40, 80, 160, 320, 640, 640, 640, 640]


def test_outcomes_of_strangers_are_ignored() -> None:
    calls = VoterCalls((2,), now_ms=0, retry_ms=20)
    calls.failed(99, 0)
    assert calls.answered(99) is None
    assert calls.due(0) == [2]


def test_fulfilled_call_is_not_made() -> None:
    calls = VoterCalls((2, 3), now_ms=0, retry_ms=20)
    calls.done(2)
    assert calls.due(0) == [3]
    calls.done(3)
    assert calls.next_due_ms() is None
