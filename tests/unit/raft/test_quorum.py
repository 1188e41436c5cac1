from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.raft.core.quorum import (
    BadQuorumState,
    DamagedQuorumState,
    LogPosition,
    QuorumState,
    Votes,
    majority_count,
    majority_offset,
)


def offset_by_counting(offsets: Iterable[int]) -> int:
    """The slow, obvious second version."""
    held = list(offsets)
    return max(o for o in held if sum(other >= o for other in held) * 2 > len(held))


@given(st.lists(st.integers(-1, 20), min_size=1, max_size=7))
def test_majority_offset_is_the_largest_that_a_majority_holds(offsets: list[int]) -> None:
    assert majority_offset(offsets) == offset_by_counting(offsets)


@pytest.mark.parametrize(("voters", "majority"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_two_majorities_always_share_a_voter(voters: int, majority: int) -> None:
    assert majority_count(voters) == majority
    assert 2 * majority > voters


def test_logs_compare_by_last_epoch_and_then_by_end() -> None:
    """K5."""
    assert LogPosition(3, 1) > LogPosition(2, 100)
    assert LogPosition(3, 2) > LogPosition(3, 1)


def test_an_election_is_won_or_lost_by_majority_and_may_stay_open() -> None:
    votes = Votes(5, own_id=1)
    votes.record(2, granted=True)
    votes.record(3, granted=False)
    votes.record(4, granted=False)
    assert (votes.is_won, votes.is_lost) == (False, False)
    votes.record(5, granted=True)
    assert (votes.is_won, votes.is_lost) == (True, False)
    assert votes.granting_voters == (1, 2, 5)


def test_an_election_is_lost_once_a_majority_is_out_of_reach() -> None:
    votes = Votes(3, own_id=1)
    votes.record(2, granted=False)
    assert not votes.is_lost
    votes.record(3, granted=False)
    assert votes.is_lost


def test_within_an_epoch_vote_and_leader_are_set_once() -> None:
    """Q-6: what was promised is not forgotten before the epoch is over."""
    voted = QuorumState(4, voted_for=2)
    assert QuorumState(4).allows(voted)
    assert voted.allows(QuorumState(4, voted_for=2, leader_id=3))
    assert not voted.allows(QuorumState(4, voted_for=3))
    assert not voted.allows(QuorumState(4))
    assert not QuorumState(4, leader_id=3).allows(QuorumState(4, leader_id=1))
    assert voted.allows(QuorumState(5))
    assert not voted.allows(QuorumState(3, voted_for=2))
    new = QuorumState(0, None, None, b"d", is_admitted=False)
    assert new.allows(new.of_epoch(1).with_vote(2, None).admitted())
    assert not new.admitted().allows(new)
    assert not new.allows(QuorumState(5, None, None, b"other", is_admitted=False))
    assert not QuorumState(4).with_vote(2, b"X").allows(QuorumState(4).with_vote(2, b"Y"))
    assert QuorumState(4).with_vote(2, None).allows(QuorumState(4).with_vote(2, b"Y"))


def test_an_observer_may_name_another_leader_of_the_epoch() -> None:
    """Its state promises nothing, and may come from a damaged file."""
    assert QuorumState(4, leader_id=3).allows(QuorumState(4, leader_id=1), is_observer=True)
    assert not QuorumState(4, voted_for=3).allows(QuorumState(4, voted_for=1), is_observer=True)


@pytest.mark.parametrize(
    "state",
    [
        QuorumState(),
        QuorumState(7, 2),
        QuorumState(7, 2, 3),
        QuorumState(7, None, 0),
        QuorumState(7, 2, 3, bytes(range(16))),
        QuorumState(0, None, None, bytes(range(16)), is_admitted=False),
        QuorumState(7, 2, 3, bytes(range(16)), kraft_version=1, voted_directory=b"X" * 16),
        QuorumState(7, 2, 3, bytes(range(16)), voted_directory=b"X" * 16),
    ],
)
def test_stored_state_comes_back(state: QuorumState) -> None:
    assert QuorumState.from_json(state.to_json("c"), "c") == state


@pytest.mark.parametrize("kraft_version", [0, 1])
def test_no_flipped_bit_of_the_file_is_taken_for_a_state(kraft_version: int) -> None:
    """Most of them leave a file that can be read, with another vote, leader or epoch."""
    state = QuorumState(5, 3, 103, bytes(range(16)), True, kraft_version, b"X" * 16)
    stored = state.to_json("c").encode()
    for bit in range(8 * len(stored)):
        damaged = bytearray(stored)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            found = QuorumState.from_json(damaged.decode(), "c")
        except (DamagedQuorumState, UnicodeDecodeError):
            continue
        assert found == state, damaged


def test_files_of_earlier_builds_have_no_checksum_and_open() -> None:
    without = '{"clusterId": "c", "leaderId": 3, "leaderEpoch": 7, "votedId": 2, "data_version": 0'
    assert QuorumState.from_json(without + "}", "c") == QuorumState(7, 2, 3)
    named = f'{without}, "directoryId": "{"00" * 16}", "admitted": true}}'
    assert QuorumState.from_json(named, "c") == QuorumState(7, 2, 3, bytes(16))


def unsealed(state: QuorumState) -> str:
    """As an earlier build writes it, so that no checksum tells what the rest of the file is worth."""
    text, seal = state.to_json("c").split(', "crc32c"')
    assert seal
    return f"{text}}}"


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", unsealed(QuorumState(3)).replace('"data_version": 0', '"data_version": 9')]
    + [
        unsealed(QuorumState(3)).replace('"leaderEpoch": 3', f'"leaderEpoch": {epoch}')
        for epoch in (-1, '"x"', '"7"', "null", "true", 2.7, 3.0, "1e400", "NaN", 2**31 - 1, 2**31)
    ]
    + [
        unsealed(QuorumState(3)).replace(f'"{name}": -1', f'"{name}": {id}')
        for name in ("votedId", "leaderId")
        for id in (-2, '"1"', "false", "1e400", 2**31)
    ]
    + [
        unsealed(QuorumState(3, None, None, bytes(16))).replace(*change)
        for change in ((f'"{"00" * 16}"', '"00"'), (f'"{"00" * 16}"', "7"), ("true", "1"))
    ]
    + ["[" * 100_000],
)
def test_damaged_state_is_refused(text: str) -> None:
    """K5: what is no whole number, or none that can be, is no vote to go by."""
    with pytest.raises(BadQuorumState, match=r"put it back|this software reads"):
        QuorumState.from_json(text, "c")


def test_the_largest_epoch_that_has_a_next_one_is_accepted() -> None:
    last = QuorumState(2**31 - 2, voted_for=2**31 - 1)
    assert QuorumState.from_json(last.to_json("c"), "c") == last


def test_state_of_another_cluster_is_refused() -> None:
    with pytest.raises(BadQuorumState, match="correct cluster.id"):
        QuorumState.from_json(QuorumState(3).to_json("a"), "b")
