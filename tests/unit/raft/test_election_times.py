"""When a member runs (K2, K7), and when one whose owner cannot lead leaves that to others (K29)."""

from dataclasses import replace

from holdfast.raft.core.election_times import ElectionTimes
from holdfast.raft.core.voter_directories import VoterDirectories
from holdfast.raft.core.voter_sets import VoterSets
from holdfast.raft.core.voters import Voters
from holdfast.runtime.memory.machine import SeededRandom
from tests.unit.raft.test_election import CONFIG
from tests.unit.raft.test_leadership import make_leader

TIMEOUT_MS = CONFIG.election_timeout_ms


def times_of(*voter_ids: int) -> ElectionTimes:
    config = replace(CONFIG, node_id=1, voters={id: ("h", id) for id in voter_ids})
    voters = Voters(config, VoterDirectories(), VoterSets())
    voters.read(b"d" * 16, 0)
    return ElectionTimes(config, SeededRandom(1), voters)


def test_a_sole_voter_waits_for_no_one() -> None:
    times = times_of(1)
    times.owner_cannot_lead("newer records", 0)
    assert times.timeout_ms(50) == times.run_ms(50) == 50


def test_who_cannot_lead_lets_others_run_first_and_longer_after_each_term() -> None:
    times = times_of(1, 2, 3)
    assert times.run_ms(0) <= 2 * TIMEOUT_MS
    times.owner_cannot_lead("newer records", 0)
    assert times.run_ms(0) >= 2 * TIMEOUT_MS
    times.resigned()
    times.resigned()
    assert times.run_ms(0) >= 8 * TIMEOUT_MS
    times.owner_cannot_lead(None, 0)
    assert times.run_ms(0) <= 2 * TIMEOUT_MS


def test_terms_of_an_owner_that_can_lead_are_not_counted() -> None:
    times = times_of(1, 2, 3)
    times.resigned()
    times.owner_cannot_lead("newer records", 0)
    assert times.run_ms(0) <= 4 * TIMEOUT_MS


def test_a_leader_that_cannot_lead_hands_over_once_a_majority_has_its_log() -> None:
    times, leader = times_of(1, 2, 3), make_leader(start_offset=5, now_ms=1_000)
    assert times.hand_over_ms(leader, 6) is None, "its owner can lead"
    times.owner_cannot_lead("newer records", 4_000)
    assert times.hand_over_ms(leader, 5) is None, "it would win again"
    assert times.hand_over_ms(leader, 6) == 4_000 + CONFIG.fetch_timeout_ms
    assert times.hand_over_ms(make_leader((), start_offset=5), 6) is None, "there is no other"
