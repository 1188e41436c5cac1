"""Who gets a vote, and how long to wait before asking for one.

Pure functions of roles and positions; changes nothing. Rules K2, K4-K6; D9 for the fast path.
"""

from collections.abc import Sequence

from holdfast.raft.core.config import RaftConfig
from holdfast.raft.core.leadership import Leader
from holdfast.raft.core.quorum import LogPosition, QuorumState
from holdfast.raft.core.roles import Follower, Role
from holdfast.runtime.api import Random


def may_grant_pre_vote(role: Role, own: LogPosition, candidate: LogPosition) -> bool:
    """Whether an election would have this voter's support (K4). A leader refuses, and so does a follower that
    hears from a live leader; everyone else decides by log."""
    if isinstance(role, Leader):
        return False
    if isinstance(role, Follower) and role.has_fetched and not role.is_leader_gone:
        return False
    return candidate >= own


def may_grant_vote(state: QuorumState, candidate_id: int, own: LogPosition, candidate: LogPosition) -> bool:
    """Whether `candidate_id` gets this voter's one vote in the state's epoch (K5)."""
    if state.leader_id is not None:
        return False
    if state.voted_for is not None:
        return state.voted_for == candidate_id
    return candidate >= own


def election_timeout_ms(config: RaftConfig, random: Random) -> int:
    """Drawn from [1x, 2x] the configured timeout (K7)."""
    return random.randint(config.election_timeout_ms, 2 * config.election_timeout_ms)


def retry_delay_ms(config: RaftConfig, random: Random, failed_elections: int) -> int:
    """Randomised and doubling, for one who just lost an election (K2)."""
    bound_ms = config.backoff_step_ms << min(failed_elections, 10)
    return random.randint(1, max(1, min(config.election_backoff_max_ms, bound_ms)))


def ranked_delay_ms(config: RaftConfig, random: Random, successors: Sequence[int]) -> int:
    """Delay of this voter when several learn at the same time that an election is due: by its place among the
    successors, so that they do not collide (K6, D9). The jitter covers small differences of their clocks."""
    step_ms = config.backoff_step_ms
    rank = successors.index(config.node_id) if config.node_id in successors else len(successors)
    return rank * step_ms + random.randint(step_ms // 10, step_ms // 4)


def successors_of(config: RaftConfig, leader_id: int | None) -> list[int]:
    """Everyone's common order of candidates when a leader vanishes without naming successors: by id,
    beginning behind the leader, so that the burden moves around."""
    others = sorted(voter_id for voter_id in config.voters if voter_id != leader_id)
    behind = [voter_id for voter_id in others if leader_id is not None and voter_id > leader_id]
    return behind + [voter_id for voter_id in others if voter_id not in behind]
