from dataclasses import replace

import pytest

from holdfast.raft.core import election
from holdfast.raft.core.leadership import Leader
from holdfast.raft.core.quorum import LogPosition, QuorumState, Votes
from holdfast.raft.core.roles import Candidate, Follower, Prospective, Resigned, Role, Unattached
from holdfast.raft.core.voter_calls import VoterCalls
from holdfast.runtime.memory.machine import SeededRandom
from holdfast.scenario.raft import make_config

OWN = LogPosition(3, 10)
CALLS = VoterCalls((), 0, 20)
VOTES = Votes(3, 1)
WILLING: list[Role] = [
    Unattached(100),
    Follower(2, 100),
    Follower(2, 100, has_fetched=True, is_leader_gone=True),
    Prospective(None, False, VOTES, CALLS, 100),
    Candidate(VOTES, CALLS, 100),
    Resigned(CALLS, 100),
]
CONFIG = make_config(2, (1, 2, 3))


@pytest.mark.parametrize("role", WILLING, ids=lambda role: type(role).__name__)
def test_pre_vote_goes_by_log_where_no_leader_is_heard(role: Role) -> None:
    """K4."""
    assert election.may_grant_pre_vote(role, OWN, LogPosition(3, 10))
    assert election.may_grant_pre_vote(role, OWN, LogPosition(4, 1))
    assert not election.may_grant_pre_vote(role, OWN, LogPosition(3, 9))
    assert not election.may_grant_pre_vote(role, OWN, LogPosition(2, 99))


@pytest.mark.parametrize("role", [Leader.elected((2, 3), 0, CALLS, 0), Follower(2, 100, has_fetched=True)])
def test_pre_vote_is_refused_where_a_leader_lives(role: Role) -> None:
    """K4: a leader refuses, and so does a follower that heard a fetch answer."""
    assert not election.may_grant_pre_vote(role, OWN, LogPosition(9, 99))


def test_one_vote_an_epoch_and_only_for_a_log_that_is_long_enough() -> None:
    """K5."""
    fresh = QuorumState(4)
    assert election.may_grant_vote(fresh, 1, None, OWN, OWN)
    assert not election.may_grant_vote(fresh, 1, None, OWN, LogPosition(3, 9))
    voted = QuorumState(4, voted_for=1)
    assert election.may_grant_vote(voted, 1, None, OWN, OWN)
    assert not election.may_grant_vote(voted, 3, None, OWN, LogPosition(3, 99))


@pytest.mark.parametrize(
    ("voted", "asks", "granted"),
    [(b"X", b"X", True), (b"X", b"Y", False), (b"X", None, False), (None, b"X", True)],
    ids=["again", "another disk", "names none", "noted by an earlier build"],
)
def test_two_directories_of_one_id_are_two_candidates(
    voted: bytes | None, asks: bytes | None, granted: bool
) -> None:
    """K30: both have the id of a voter that was replaced, and each could win with this vote."""
    state = QuorumState(4).with_vote(3, voted)
    assert election.may_grant_vote(state, 3, asks, OWN, OWN) is granted


def test_no_vote_in_an_epoch_that_has_a_leader() -> None:
    """Q-1 does not hang on it, but such a vote could only disturb."""
    assert not election.may_grant_vote(QuorumState(4, None, 3), 1, None, OWN, LogPosition(3, 99))


def test_election_timeout_is_drawn_from_one_to_two_times_the_setting() -> None:
    """K7."""
    draws = [election.election_timeout_ms(CONFIG, SeededRandom(seed)) for seed in range(200)]
    assert 1_000 <= min(draws) < 1_100
    assert 1_900 < max(draws) <= 2_000


def test_back_off_after_a_lost_election_doubles_up_to_the_setting() -> None:
    """K2, K7."""

    def largest(failed: int) -> int:
        return max(election.retry_delay_ms(CONFIG, SeededRandom(seed), failed) for seed in range(200))

    assert largest(1) <= 100 < largest(2) <= 200 < largest(3)
    assert largest(50) <= CONFIG.election_backoff_max_ms


def test_voters_that_learn_together_do_not_run_together() -> None:
    """D9, K6: by rank, also against the random part."""
    configs = [replace(CONFIG, node_id=id) for id in (1, 2, 3)]
    for seed in range(50):
        first, second, third = (
            election.ranked_delay_ms(config, SeededRandom(seed + 7 * config.node_id), [3, 1, 2])
            for config in (configs[2], configs[0], configs[1])
        )
        assert first + 30 < second
        assert second + 30 < third


def test_successors_begin_behind_the_leader_that_vanished() -> None:
    assert election.successors_of(CONFIG.voters, 2) == [3, 1]
    assert election.successors_of(CONFIG.voters, 3) == [1, 2]
    assert election.successors_of(CONFIG.voters, None) == [1, 2, 3]
