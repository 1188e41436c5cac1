"""K30: who votes, by a member's log or, while that names no one, by its configuration."""

from dataclasses import replace

from holdfast.raft.core.control_records import Voter
from holdfast.raft.core.voter_directories import VoterDirectories
from holdfast.raft.core.voter_sets import VoterSets
from holdfast.raft.core.voters import Voters
from tests.unit.raft.test_election import CONFIG

OWN, OTHER = b"o" * 16, b"x" * 16
OTHERS = tuple(Voter(id, bytes((id,)) * 16, f"c{id}", 9000 + id) for id in (2, 3, 4))
ALL = (Voter(1, OWN, "c1", 9001), *OTHERS)


def voters_of(*sets: tuple[int, tuple[Voter, ...]]) -> Voters:
    """Of node 1; the configuration names 1 to 3."""
    return Voters(replace(CONFIG, node_id=1), VoterDirectories(), VoterSets(sets))


def test_the_configuration_counts_until_the_log_names_voters() -> None:
    voters = voters_of()
    voters.read(OWN, 0)
    assert (voters.ids, voters.others, voters.are_named) == ((1, 2, 3), (2, 3), False)
    assert voters.is_counted
    assert voters.is_voter
    voters.sets.append(5, ALL)
    voters.read(OWN, 0)
    assert (voters.ids, voters.others, voters.are_named) == ((1, 2, 3, 4), (2, 3, 4), True)


def test_another_directory_of_this_node_is_no_voter() -> None:
    voters = voters_of((5, ALL))
    voters.read(OTHER, 6)
    assert not voters.is_counted
    assert not voters.is_voter


def test_who_takes_itself_out_runs_until_that_is_committed() -> None:
    voters = voters_of((5, ALL), (8, OTHERS))
    voters.read(OWN, 8)
    assert (voters.is_counted, voters.is_voter) == (False, True)
    voters.read(OWN, 9)
    assert (voters.is_counted, voters.is_voter) == (False, False)


def test_a_log_that_is_cut_names_the_voters_before() -> None:
    voters = voters_of((5, ALL), (8, OTHERS))
    voters.truncate_to(8)
    voters.read(OWN, 0)
    assert list(voters.ids) == [1, 2, 3, 4]
    voters.forget()
    voters.read(OWN, 0)
    assert list(voters.ids) == [1, 2, 3]


def test_those_of_the_configuration_are_asked_too() -> None:
    voters = voters_of((5, OTHERS[1:]))
    voters.read(OWN, 6)
    assert voters.others == (3, 4)
    assert voters.to_ask == (2, 3, 4)


def test_a_leader_is_followed_when_it_is_a_voter_or_where_it_is_was_told() -> None:
    voters = voters_of((5, ALL))
    voters.read(OWN, 6)
    assert voters.may_lead(4)
    assert not voters.may_lead(7)
    voters.addresses.told_of(7, "c7:9007")
    assert voters.may_lead(7)


def test_where_a_leader_is_stays_known_when_the_log_names_it_no_more() -> None:
    voters = voters_of((5, ALL))
    voters.read(OWN, 6)
    voters.keep_address_of(4)
    voters.forget()
    voters.read(OWN, 0)
    assert voters.address_of(4) == ("c4", 9004)
