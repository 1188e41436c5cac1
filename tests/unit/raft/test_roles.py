from holdfast.raft.core.leadership import Leader
from holdfast.raft.core.roles import LEGAL_MOVES, Candidate, Follower, Prospective, Resigned, Unattached


def test_office_is_reached_through_elections_only() -> None:
    """K2, K3, Q-5: pre-vote before candidacy, candidacy before leadership, no way back from resignation."""

    def sources(role: type) -> set[type]:
        return {source for source, targets in LEGAL_MOVES.items() if role in targets}

    assert sources(Candidate) == {Prospective}
    assert sources(Leader) == {Candidate}
    assert sources(Resigned) == {Leader}
    assert sources(Prospective) == {Unattached, Follower, Candidate}
    assert set(LEGAL_MOVES[Resigned]) == {Unattached, Follower}
    assert set(LEGAL_MOVES) == sources(Unattached)
