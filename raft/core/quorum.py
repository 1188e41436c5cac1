"""Arithmetic of the quorum: majorities, votes, log comparison, and the state that must survive (K1, K5).

Knows neither nodes nor roles.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import google_crc32c

#: Epoch before the first election; no batch carries it.
FIRST_EPOCH = 0
#: The file is of version 1 once the log may name the voters (K30): builds that do not know of that refuse it.
_STATE_VERSION_MAX = 1
#: Of all other fields of the file. One of version 0 may lack it: earlier builds write none, and pass it over.
_CRC = "crc32c"
_FIELDS_OF_EARLIER = frozenset(
    ("clusterId", "leaderId", "leaderEpoch", "votedId", "data_version", "directoryId", "admitted")
)
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

    __slots__ = ("_granted", "_needed", "_rejected", "_voter_count", "directories")

    def __init__(
        self, voter_count: int, own_id: int, *, needs_all: bool = False, counts_own: bool = True
    ) -> None:
        """`needs_all`: all voters must grant, not only a majority; `counts_own`: the candidate is one of
        them."""
        self._voter_count = voter_count
        self._needed = voter_count if needs_all else majority_count(voter_count)
        self._granted = {own_id} if counts_own else set()
        self._rejected: set[int] = set()
        #: {voter: directory id} of those that granted it, as far as they named one
        self.directories: dict[int, bytes] = {}

    def record(self, voter_id: int, granted: bool, directory_id: bytes | None = None) -> None:
        """Count the answer of one voter, which its directory gave."""
        (self._granted if granted else self._rejected).add(voter_id)
        assert not self._granted & self._rejected, "a voter answers an election once"
        if granted and directory_id is not None:
            self.directories[voter_id] = directory_id

    @property
    def is_won(self) -> bool:
        return len(self._granted) >= self._needed

    @property
    def is_lost(self) -> bool:
        """So many voters refused that the grants it needs are out of reach."""
        return len(self._rejected) > self._voter_count - self._needed

    @property
    def granting_voters(self) -> tuple[int, ...]:
        """Ascending."""
        return tuple(sorted(self._granted))


#: What an operator does with a voter whose files are lost or damaged, in messages.
START_ANEW = (
    "only if the other voters hold a majority with everything that was committed, remove that folder, start "
    "this voter, and take it in with `holdfast metadata-quorum readmit`; where the metadata log names the "
    "voters, with `remove-controller` and `add-controller`"
)


class BadQuorumState(ValueError):
    """The quorum-state file is not usable. The text says what to do."""


class DamagedQuorumState(BadQuorumState):
    """What the file holds was never written there. `what` is the text without what to do."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}: put it back as it was at the last stop; or {START_ANEW}")
        self.what = what


@dataclass(frozen=True, slots=True)
class QuorumState:
    """A member's durable state. Within an epoch, vote and leader are set once (K1, Q-9)."""

    raft_epoch: int = FIRST_EPOCH
    voted_for: int | None = None
    leader_id: int | None = None
    #: 16 bytes, chosen at random when a voter's quorum-state file is made; None for an observer
    directory_id: bytes | None = None
    #: this directory votes and counts (K8). False for a new one: the voter may have lost another, with votes
    #: and records that the others rely on
    is_admitted: bool = True
    #: 1: the log may name the voters (K30); never falls; told where it matters
    kraft_version: int = field(default=0, repr=False)
    #: of the candidate that has the vote; None for one that named none, or of an earlier build's file
    voted_directory: bytes | None = field(default=None, repr=False)

    def of_epoch(self, raft_epoch: int, leader_id: int | None = None) -> "QuorumState":
        """The state of the same directory with this epoch and leader: with its vote, if this is its epoch."""
        if raft_epoch == self.raft_epoch:
            return replace(self, leader_id=leader_id)
        return replace(self, raft_epoch=raft_epoch, voted_for=None, voted_directory=None, leader_id=leader_id)

    def with_vote(self, candidate_id: int, directory_id: bytes | None) -> "QuorumState":
        """This state, and the epoch's vote is that candidate's, with that directory."""
        return replace(self, voted_for=candidate_id, voted_directory=directory_id)

    def admitted(self) -> "QuorumState":
        """This state, and the directory counts."""
        return replace(self, is_admitted=True)

    def of_version(self, kraft_version: int) -> "QuorumState":
        """This state under these rules, or under later ones that it has."""
        return replace(self, kraft_version=max(self.kraft_version, kraft_version))

    def allows(self, later: "QuorumState", *, is_observer: bool = False) -> bool:
        """True when `later` may follow this state: it keeps the vote and the leader of the epoch (Q-6), and
        the directory. An observer promises nothing by the leader that it names."""
        if self.directory_id != later.directory_id or self.is_admitted > later.is_admitted:
            return False
        if self.kraft_version > later.kraft_version:
            return False
        if later.raft_epoch != self.raft_epoch:
            return later.raft_epoch > self.raft_epoch
        keeps_vote = self.voted_for is None or (
            self.voted_for == later.voted_for and self.voted_directory in (None, later.voted_directory)
        )
        return keeps_vote and (is_observer or self.leader_id in (None, later.leader_id))

    def to_json(self, cluster_id: str) -> str:
        """The text of the quorum-state file. Field names are Kafka's."""
        fields: dict[str, object] = {
            "clusterId": cluster_id,
            "leaderId": -1 if self.leader_id is None else self.leader_id,
            "leaderEpoch": self.raft_epoch,
            "votedId": -1 if self.voted_for is None else self.voted_for,
            "data_version": self.kraft_version,
        }
        if self.directory_id is not None:
            fields |= {"directoryId": self.directory_id.hex(), "admitted": self.is_admitted}
        if self.voted_directory is not None:
            fields["votedDirectoryId"] = self.voted_directory.hex()
        return json.dumps(fields | {_CRC: _crc(fields)})

    @staticmethod
    def from_json(text: str, cluster_id: str) -> "QuorumState":
        """The state in a file. One of an earlier build has no directory id, and its voter votes on; or no
        checksum, and none of the fields that came later.

        Raises: DamagedQuorumState; BadQuorumState when it is of another cluster or a later build.
        """
        try:
            fields = json.loads(text)
            stored_crc = fields.pop(_CRC, None)
            is_whole = stored_crc in (None, _crc(fields))
            version, stored_id = fields["data_version"], fields["clusterId"]
            numbers = [fields[name] for name in ("leaderEpoch", "votedId", "leaderId")]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise DamagedQuorumState(f"quorum-state cannot be read ({error!r})") from None
        if not is_whole:
            raise DamagedQuorumState(f"quorum-state does not match its checksum ({text.strip()})")
        if type(version) is not int or not 0 <= version <= _STATE_VERSION_MAX:
            raise BadQuorumState(
                f"quorum-state has version {version}, this software reads 0 to {_STATE_VERSION_MAX}"
            )
        if stored_crc is None and (version or not fields.keys() <= _FIELDS_OF_EARLIER):
            raise DamagedQuorumState(f"quorum-state has lost its checksum ({text.strip()})")
        if stored_id != cluster_id:
            raise BadQuorumState(
                f"quorum-state belongs to cluster {stored_id}, this node is set up for {cluster_id}: "
                "correct cluster.id or metadata.log.dir"
            )
        # bool is an int in Python, and a float may be rounded: this software writes neither.
        if not all(type(number) is int and -1 <= number <= _INT32_MAX for number in numbers):
            raise DamagedQuorumState(f"quorum-state holds a bad epoch or id ({text.strip()})")
        directory, is_admitted = fields.get("directoryId"), fields.get("admitted", True)
        voted_directory = fields.get("votedDirectoryId")
        ids = [id for id in (directory, voted_directory) if id is not None]
        if not all(map(_is_id, ids)) or type(is_admitted) is not bool:
            raise DamagedQuorumState(f"quorum-state holds a bad directory id ({text.strip()})")
        epoch, voted, leader = numbers
        # The largest number is not valid either: there must be a next epoch.
        if not FIRST_EPOCH <= epoch < _INT32_MAX:
            raise DamagedQuorumState(f"quorum-state holds an impossible epoch ({text.strip()})")
        return QuorumState(
            epoch,
            None if voted == -1 else voted,
            None if leader == -1 else leader,
            None if directory is None else bytes.fromhex(directory),
            is_admitted,
            version,
            None if voted_directory is None else bytes.fromhex(voted_directory),
        )


def _crc(fields: Mapping[str, object]) -> int:
    return int(google_crc32c.value(json.dumps(fields).encode()))


def _is_id(text: object) -> bool:
    return isinstance(text, str) and re.fullmatch("[0-9a-f]{32}", text) is not None
