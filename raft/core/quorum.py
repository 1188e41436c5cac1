"""Arithmetic of the quorum: majorities, votes, log comparison, and the state that must survive (K1, K5).

Knows neither nodes nor roles.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass

#: Epoch before the first election; no batch carries it.
FIRST_EPOCH = 0
_STATE_VERSION = 0
#: epochs and ids are int32 on the wire
_INT32_MAX = (1 << 31) - 1


def majority_count(voter_count: int) -> int:
    """How many voters make a majority."""
    return voter_count // 2 + 1


def majority_offset(offsets: Iterable[int]) -> int:
    """The largest offset that a majority holds, given one end offset per voter (K12)."""
    descending = sorted(offsets, reverse=True)
    return descending[majority_count(len(descending)) - 1]


@dataclass(frozen=True, slots=True, order=True)
class LogPosition:
    """The end of a log. Logs compare by the epoch of the last batch, then by end offset (K5)."""

    last_epoch: int
    end_offset: int


class Votes:
    """Answers of one election, real or pre-vote. Each voter counts once."""

    __slots__ = ("_granted", "_rejected", "_voter_count")

    def __init__(self, voter_count: int, own_id: int) -> None:
        self._voter_count = voter_count
        self._granted = {own_id}
        self._rejected: set[int] = set()

    def record(self, voter_id: int, granted: bool) -> None:
        """Count the answer of one voter."""
        (self._granted if granted else self._rejected).add(voter_id)
        assert not self._granted & self._rejected, "a voter answers an election once"

    @property
    def is_won(self) -> bool:
        return len(self._granted) >= majority_count(self._voter_count)

    @property
    def is_lost(self) -> bool:
        """So many voters refused that a majority is out of reach."""
        return len(self._rejected) > self._voter_count - majority_count(self._voter_count)

    @property
    def granting_voters(self) -> tuple[int, ...]:
        """Ascending."""
        return tuple(sorted(self._granted))


class BadQuorumState(ValueError):
    """The quorum-state file is not usable. The text says what to do."""


@dataclass(frozen=True, slots=True)
class QuorumState:
    """A member's durable state. Within an epoch, vote and leader are set once (K1, Q-9)."""

    raft_epoch: int = FIRST_EPOCH
    voted_for: int | None = None
    leader_id: int | None = None

    def allows(self, later: "QuorumState") -> bool:
        """True when `later` may follow this state: it keeps the vote and the leader of the epoch (Q-6)."""
        if later.raft_epoch != self.raft_epoch:
            return later.raft_epoch > self.raft_epoch
        return self.voted_for in (None, later.voted_for) and self.leader_id in (None, later.leader_id)

    def to_json(self, cluster_id: str) -> str:
        """The text of the quorum-state file. Field names are Kafka's."""
        return json.dumps(
            {
                "clusterId": cluster_id,
                "leaderId": -1 if self.leader_id is None else self.leader_id,
                "leaderEpoch": self.raft_epoch,
                "votedId": -1 if self.voted_for is None else self.voted_for,
                "data_version": _STATE_VERSION,
            }
        )

    @staticmethod
    def from_json(text: str, cluster_id: str) -> "QuorumState":
        """Raises: BadQuorumState."""
        hint = "restore it from a backup, or remove this voter's folder only if the others hold a majority"
        try:
            fields = json.loads(text)
            version, stored_id = fields["data_version"], fields["clusterId"]
            numbers = [fields[name] for name in ("leaderEpoch", "votedId", "leaderId")]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise BadQuorumState(f"quorum-state cannot be read ({error!r}): {hint}") from None
        if version != _STATE_VERSION:
            raise BadQuorumState(f"quorum-state has version {version}, this software reads {_STATE_VERSION}")
        if stored_id != cluster_id:
            raise BadQuorumState(
                f"quorum-state belongs to cluster {stored_id}, this node is set up for {cluster_id}: "
                "correct cluster.id or metadata.log.dir"
            )
        # bool is an int in Python, and a float may be rounded: this software writes neither.
        if not all(type(number) is int and -1 <= number <= _INT32_MAX for number in numbers):
            raise BadQuorumState(f"quorum-state holds a bad epoch or id ({text.strip()}): {hint}")
        epoch, voted, leader = numbers
        # The largest number is not valid either: there must be a next epoch.
        if not FIRST_EPOCH <= epoch < _INT32_MAX:
            raise BadQuorumState(f"quorum-state holds an impossible epoch ({text.strip()}): {hint}")
        return QuorumState(epoch, None if voted == -1 else voted, None if leader == -1 else leader)
