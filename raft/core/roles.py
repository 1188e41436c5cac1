"""The roles of a member as values, and which role may follow which (K1, K3).

                 timeout              majority of pre-votes          majority
  Unattached  ------------> Prospective -------------> Candidate ------------> Leader
      ^  ^   <--- lost ------'  |   ^  <---- lost -------'                        |
      |  |                      |   '-- timeout -- Follower                       | shutdown, too few fetches
      |  '------ higher epoch --+------------------- any                          v
      '----------------------------- timeout, epoch + 1 ---------------------- Resigned

A message that names a leader makes a Follower. Observers are Unattached or Follower and have no deadlines.
"""

from dataclasses import dataclass, field
from typing import TypeAlias

from holdfast.raft.core.leadership import Leader
from holdfast.raft.core.quorum import Votes
from holdfast.raft.core.voter_calls import VoterCalls


@dataclass(slots=True)
class Unattached:
    """Knows no leader of this epoch; fetches from other voters to find it."""

    #: start of an election; None for an observer
    deadline_ms: int | None


@dataclass(slots=True)
class Follower:
    """Fetches from the leader of this epoch."""

    leader_id: int
    #: when to ask for pre-votes: the fetch timeout, or earlier on evidence; None for an observer
    deadline_ms: int | None
    #: this leader has answered a fetch: a reason to refuse pre-votes (K4)
    has_fetched: bool = False
    #: strong evidence that it no longer leads (D9); overrides `has_fetched` until the next answer
    is_leader_gone: bool = False


@dataclass(slots=True)
class Prospective:
    """Asks whether an election would be won, without disturbing the other voters (K4)."""

    #: leader of this epoch that no longer answers
    leader_id: int | None
    is_leader_gone: bool
    votes: Votes
    calls: VoterCalls
    deadline_ms: int


@dataclass(slots=True)
class Candidate:
    """Voted for itself in a new epoch."""

    votes: Votes
    calls: VoterCalls
    #: end of the election, or of the back-off after it was lost
    deadline_ms: int
    is_backing_off: bool = False
    #: it runs in the first election of a new cluster: new directories vote for it (K8)
    bootstraps: bool = False


@dataclass(slots=True)
class Resigned:
    """Was the leader of this epoch and has resigned; never leads it again (K3)."""

    calls: VoterCalls
    deadline_ms: int
    #: longest log first (K6)
    preferred_successors: tuple[int, ...] = field(default=())


Role: TypeAlias = Unattached | Follower | Prospective | Candidate | Leader | Resigned

#: role -> roles that may follow (Q-5). The same role again means a new epoch or a new vote.
LEGAL_MOVES: dict[type, tuple[type, ...]] = {
    Unattached: (Unattached, Prospective, Follower),
    Follower: (Unattached, Prospective, Follower),
    Prospective: (Unattached, Candidate, Follower),
    Candidate: (Unattached, Prospective, Leader, Follower),
    Leader: (Unattached, Follower, Resigned),
    Resigned: (Unattached, Follower),
}
