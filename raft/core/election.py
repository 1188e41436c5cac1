"""Which candidate gets a vote, and how long a voter waits before it runs (K2, K5).

Pure functions of roles and log positions; change nothing. D9 has the fast path.
"""

from collections.abc import Iterable, Sequence

from holdfast.raft.core.config import RaftConfig
from holdfast.raft.core.leadership import Leader
from holdfast.raft.core.quorum import LogPosition, QuorumState
from holdfast.raft.core.roles import Follower, Role
from holdfast.runtime.api import Random

_REST_DOUBLINGS_MAX = 3


def may_grant_pre_vote(role: Role, own: LogPosition, candidate: LogPosition) -> bool:
    """Whether this voter would support an election (K4). A leader refuses, and so does a follower with
    answers from a live leader; every other voter decides by the logs."""
    if isinstance(role, Leader):
        return False
    if isinstance(role, Follower) and role.has_fetched and not role.is_leader_gone:
        return False
    return candidate >= own


def may_grant_vote(
    state: QuorumState,
    candidate_id: int,
    directory_id: bytes | None,
    own: LogPosition,
    candidate: LogPosition,
) -> bool:
    """Whether `candidate_id`, with its directory, gets this voter's one vote in the state's epoch (K5). Two
    directories of one id are two candidates (K30)."""
    if state.leader_id is not None:
        return False
    if state.voted_for is not None:
        is_its_directory = state.voted_directory in (None, directory_id)
        return is_its_directory and state.voted_for == candidate_id
    return candidate >= own


def election_timeout_ms(config: RaftConfig, random: Random) -> int:
    """Drawn from [1x, 2x] the configured timeout (K7)."""
    return random.randint(config.election_timeout_ms, 2 * config.election_timeout_ms)


def rest_ms(config: RaftConfig, random: Random, terms: int) -> int:
    """How long a voter whose owner cannot lead lets others run before it does: longer than the election
    timeout of any other, and twice as long after each of its own terms, up to 16 timeouts (K29)."""
    return election_timeout_ms(config, random) << min(1 + terms, _REST_DOUBLINGS_MAX)


def retry_delay_ms(config: RaftConfig, random: Random, failed_elections: int) -> int:
    """The randomised, doubling pause after a lost election (K2)."""
    bound_ms = config.backoff_step_ms << min(failed_elections, 10)
    return random.randint(1, max(1, min(config.election_backoff_max_ms, bound_ms)))


def ranked_delay_ms(config: RaftConfig, random: Random, successors: Sequence[int]) -> int:
    """This voter's delay when several voters find at the same time that an election is due. It depends on the
    rank among the successors, so that they do not collide (K6, D9); the jitter covers small clock
    differences."""
    step_ms = config.backoff_step_ms
    rank = successors.index(config.node_id) if config.node_id in successors else len(successors)
    return rank * step_ms + random.randint(step_ms // 10, step_ms // 4)


def successors_of(voter_ids: Iterable[int], leader_id: int | None) -> list[int]:
    """The order of candidates, the same at every voter, when a leader is gone and has named no successors: by
    id, starting after the leader, so that the leadership moves around."""
    others = sorted(voter_id for voter_id in voter_ids if voter_id != leader_id)
    behind = [voter_id for voter_id in others if leader_id is not None and voter_id > leader_id]
    return behind + [voter_id for voter_id in others if voter_id not in behind]
