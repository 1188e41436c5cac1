from holdfast.raft.core.leadership import OBSERVERS_MAX, Leader
from holdfast.raft.core.progress import ParkedFetch
from holdfast.raft.core.voter_calls import VoterCalls


def make_leader(others: tuple[int, ...] = (2, 3), start_offset: int = 5, now_ms: int = 1_000) -> Leader:
    return Leader.elected(others, start_offset, VoterCalls((), 0, 20), now_ms)


def test_commit_is_what_a_majority_holds() -> None:
    """K12."""
    leader = make_leader()
    leader.voters[2].end_offset = 8
    assert leader.committed_end(own_flushed_offset=9) == 8
    leader.voters[3].end_offset = 9
    assert leader.committed_end(own_flushed_offset=9) == 9


def test_followers_may_commit_what_the_leaders_disk_does_not_hold_yet() -> None:
    """K13: the leader is one voter of many, its own offset counts after the fsync only."""
    leader = make_leader()
    leader.voters[2].end_offset = leader.voters[3].end_offset = 8
    assert leader.committed_end(own_flushed_offset=5) == 8


def test_nothing_commits_up_to_the_start_of_the_epoch() -> None:
    """K12: records of older epochs alone may still be replaced."""
    leader = make_leader(start_offset=5)
    leader.voters[2].end_offset = 5
    assert leader.committed_end(own_flushed_offset=6) is None
    leader.voters[2].end_offset = 6
    assert leader.committed_end(own_flushed_offset=6) == 6


def test_leader_must_see_fetches_of_a_majority() -> None:
    """K7: the own seat counts, so in five voters the second most recent of the others decides."""
    leader = make_leader((2, 3, 4, 5), now_ms=1_000)
    assert leader.check_quorum_deadline_ms(3_000) == 4_000
    leader.voters[2].heard_ms = 5_000
    assert leader.check_quorum_deadline_ms(3_000) == 4_000
    leader.voters[4].heard_ms = 3_000
    assert leader.check_quorum_deadline_ms(3_000) == 6_000


def test_sole_voter_needs_no_other() -> None:
    assert make_leader(()).check_quorum_deadline_ms(3_000) is None


def test_successors_are_listed_by_length_of_log() -> None:
    """K6."""
    leader = make_leader((2, 3, 4))
    for voter_id, end_offset in ((2, 7), (3, 9), (4, 7)):
        leader.voters[voter_id].end_offset = end_offset
    assert leader.successors() == (3, 2, 4)


def test_parked_fetch_goes_on_data_or_commit_or_deadline() -> None:
    """K10."""
    leader = make_leader()
    parked = ParkedFetch(1, fetch_offset=10, max_bytes=100, deadline_ms=500)

    def taken(log_end_offset: int, high_watermark: int, now_ms: int) -> bool:
        leader.voters[2].parked = parked
        leader.voters[2].told_high_watermark = 8
        return leader.take_parked(log_end_offset, high_watermark, now_ms) == [parked]

    assert not taken(10, 8, 499)
    assert taken(11, 8, 499)
    assert taken(10, 9, 499)
    assert taken(10, 8, 500)
    assert leader.voters[2].parked is None


def test_observers_have_a_limit_and_the_most_silent_makes_room() -> None:
    leader = make_leader()
    for number in range(OBSERVERS_MAX):
        leader.progress_of(100 + number).last_fetch_ms = 5_000 + number
    leader.progress_of(100).last_fetch_ms = 9_999
    leader.progress_of(7)
    assert len(leader.observers) == OBSERVERS_MAX
    assert 100 in leader.observers
    assert 101 not in leader.observers


def test_an_observer_that_loses_its_seat_is_answered() -> None:
    """Its fetch would never be answered, and keep its place on the connection for ever."""
    leader = make_leader()
    fetches = [ParkedFetch(number, 10, 100, deadline_ms=500) for number in range(OBSERVERS_MAX)]
    for number, parked in enumerate(fetches):
        observer = leader.progress_of(100 + number)
        observer.parked, observer.last_fetch_ms, observer.told_high_watermark = parked, number, 8
    leader.progress_of(7).last_fetch_ms = 9_000
    leader.progress_of(8).last_fetch_ms = 9_000
    assert leader.take_parked(10, 8, 499) == fetches[:2]
    leader.progress_of(9)
    assert leader.take_all_parked() == fetches[2:]
    assert leader.take_all_parked() == []


def test_a_voter_is_no_observer() -> None:
    leader = make_leader()
    assert leader.progress_of(2) is leader.voters[2]
    assert leader.observers == {}
