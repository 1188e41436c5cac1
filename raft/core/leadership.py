"""A leader's view of the quorum in its epoch: progress of the others, the commit rule, check-quorum (K12,
K7).

Owns the progress of voters and observers, and the fetches parked for them. Decides nothing about roles and
answers no request: the node does.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

from holdfast.protocol.messages.quorum import QuorumReplica
from holdfast.raft.core.control_records import Voter
from holdfast.raft.core.progress import NEVER_MS, UNKNOWN_OFFSET, ParkedFetch, Progress
from holdfast.raft.core.quorum import majority_count, majority_offset
from holdfast.raft.core.voter_calls import VoterCalls
from holdfast.raft.core.voter_directories import VoterDirectories

#: Observers that a leader remembers; the one silent for longest is dropped first.
OBSERVERS_MAX = 1000


class ChangeKind(Enum):
    """What an operator asked for (K30)."""

    #: the log shall name the voters
    UPGRADE = "upgrade"
    ADD = "add"
    REMOVE = "remove"


@dataclass(slots=True)
class VoterChange:
    """A change of the voters that is under way (K30): one at a time."""

    token: int
    kind: ChangeKind
    #: the set that is wanted; None until all voters have noted that the log may name them
    voters: tuple[Voter, ...] | None
    #: the directory of the voter that comes
    directory_id: bytes | None = None
    #: where its record lies, None while that has no place yet
    offset: int | None = None
    #: when it is given up if `voters` is still None
    deadline_ms: int | None = None


@dataclass(slots=True)
class Leader:
    """State of a leader in one epoch."""

    #: log end at its election, where its LeaderChange record lies; only ends above commit (K12)
    epoch_start_offset: int
    elected_at_ms: int
    #: the other voters by id, ascending
    voters: dict[int, Progress]
    #: BeginQuorumEpoch requests to the others
    calls: VoterCalls
    observers: dict[int, Progress]
    #: parked fetches of dropped observers, to be answered at once
    evicted: list[ParkedFetch] = field(default_factory=list)
    #: {voter: directory id} that the owner is asked to give a place in the log (K8)
    wanted: dict[int, bytes] = field(default_factory=dict)
    #: requests to replace a directory, answered when that is committed: (token, voter, directory id)
    additions: list[tuple[int, int, bytes]] = field(default_factory=list)
    #: False once the log's voters lack this leader: its log makes no majority, and it resigns when that is
    #: committed (K30)
    is_counted: bool = True
    #: the change of the voters that is under way, None for none
    change: "VoterChange | None" = None

    @staticmethod
    def elected(
        other_voters: Sequence[int], epoch_start_offset: int, calls: VoterCalls, now_ms: int
    ) -> "Leader":
        """The state of a new leader, before any fetch."""
        voters = {voter_id: Progress() for voter_id in other_voters}
        return Leader(epoch_start_offset, now_ms, voters, calls, {})

    @property
    def earlier_voters(self) -> tuple[int, ...]:
        """Voters, ascending, whose last fetch was that of a build which goes by its configuration (K30), and
        those that have not fetched yet."""
        return tuple(sorted(id for id, voter in self.voters.items() if voter.kraft_version < 0))

    def progress_of(self, replica_id: int) -> Progress:
        """The progress of a replica; a new observer may replace the one silent for longest."""
        progress = self.voters.get(replica_id) or self.observers.get(replica_id)
        if progress is not None:
            return progress
        if len(self.observers) >= OBSERVERS_MAX:
            silent_id = min(sorted(self.observers), key=lambda id: self.observers[id].last_fetch_ms)
            parked = self.observers.pop(silent_id).parked
            if parked is not None:
                self.evicted.append(parked)
        progress = self.observers[replica_id] = Progress()
        return progress

    def committed_end(self, own_flushed_offset: int) -> int | None:
        """The end that a majority holds durably; the own log counts only as far as it is flushed (K13). None
        while that is not above the start of the epoch (K12)."""
        ends = [own_flushed_offset] if self.is_counted else []
        ends += [voter.end_offset if voter.counts else UNKNOWN_OFFSET for voter in self.voters.values()]
        end_offset = majority_offset(ends)
        return end_offset if end_offset > self.epoch_start_offset else None

    def check_quorum_deadline_ms(self, timeout_ms: int) -> int | None:
        """When this leader must resign unless a majority fetches before (K7); None for the only voter."""
        needed = majority_count(len(self.voters) + self.is_counted) - self.is_counted
        if needed == 0:
            return None
        seen_ms = sorted(
            (
                max(self.elected_at_ms, voter.heard_ms if voter.counts else NEVER_MS)
                for voter in self.voters.values()
            ),
            reverse=True,
        )
        return seen_ms[needed - 1] + timeout_ms

    def take_voters(self, other_voters: Sequence[int], is_counted: bool, now_ms: int) -> None:
        """The log names other voters from here on (K30). What one that was none has counts from its next
        fetch on, which acknowledges it."""
        known = self.voters | self.observers
        self.is_counted = is_counted
        for voter_id, progress in self.voters.items():
            if voter_id not in other_voters:
                self.observers[voter_id] = progress
                # What it said came from the disk that is taken out: a later fetch tells of the next one.
                progress.directory_id, progress.last_caught_up_ms = None, NEVER_MS
                self.calls.drop(voter_id)
        for voter_id in other_voters:
            if voter_id in self.voters:
                continue
            self.observers.pop(voter_id, None)
            known.setdefault(voter_id, Progress()).end_offset = UNKNOWN_OFFSET
            self.calls.add(voter_id, now_ms)
        self.voters = {voter_id: known[voter_id] for voter_id in other_voters}

    def living_voters(self, voter_ids: Iterable[int], since_ms: int) -> set[int]:
        """Those of these voters, of which this leader may be one, that it has heard of since then."""
        known = self.voters | self.observers
        return {id for id in voter_ids if id not in known or known[id].heard_ms >= since_ms}

    def successors(self) -> tuple[int, ...]:
        """The other voters, longest log first, then by id (K6)."""
        return tuple(sorted(self.voters, key=lambda id: (-self.voters[id].end_offset, id)))

    def replicas(self) -> Iterator[Progress]:
        """Voters by id, then observers in order of arrival."""
        yield from self.voters.values()
        yield from self.observers.values()

    def take_parked(self, log_end_offset: int, high_watermark: int, now_ms: int) -> list[ParkedFetch]:
        """Remove and return the parked fetches that can be answered: with news, past their deadline, or of a
        dropped observer (K10)."""
        taken, self.evicted = self.evicted, []
        for progress in self.replicas():
            parked = progress.parked
            if parked is not None and (
                parked.fetch_offset < log_end_offset
                or progress.told_high_watermark < high_watermark
                or parked.deadline_ms <= now_ms
            ):
                progress.parked = None
                progress.told_high_watermark = high_watermark
                taken.append(parked)
        return taken

    def take_all_parked(self) -> list[ParkedFetch]:
        """Remove and return every parked fetch, because this node no longer leads."""
        taken, self.evicted = self.evicted, []
        taken += [progress.parked for progress in self.replicas() if progress.parked is not None]
        for progress in self.replicas():
            progress.parked = None
        return taken

    def take_added(self, directories: VoterDirectories, high_watermark: int) -> Iterator[tuple[int, bytes]]:
        """Remove and return the requests whose change is committed: (token, directory id)."""
        for addition in list(self.additions):
            token, voter_id, directory_id = addition
            if directories.is_named_below(high_watermark, voter_id, directory_id):
                self.additions.remove(addition)
                yield token, directory_id

    def next_parked_deadline_ms(self) -> int | None:
        return min((p.parked.deadline_ms for p in self.replicas() if p.parked is not None), default=None)

    def describe_voters(self, own: QuorumReplica, to_wall_ms: int) -> tuple[QuorumReplica, ...]:
        """Rows of DescribeQuorum by id (K16). `to_wall_ms` converts monotonic times to wall-clock times."""
        rows = [*([own] if self.is_counted else []), *_rows(self.voters, to_wall_ms)]
        return tuple(sorted(rows, key=lambda row: row.replica_id))

    def describe_observers(self, to_wall_ms: int) -> tuple[QuorumReplica, ...]:
        """Like `describe_voters`, for observers."""
        return tuple(_rows(dict(sorted(self.observers.items())), to_wall_ms))


def _rows(replicas: dict[int, Progress], to_wall_ms: int) -> list[QuorumReplica]:
    def wall_ms(time_ms: int) -> int:
        return -1 if time_ms == NEVER_MS else time_ms + to_wall_ms

    return [
        QuorumReplica(
            replica_id,
            progress.end_offset,
            wall_ms(progress.last_fetch_ms),
            wall_ms(progress.last_caught_up_ms),
        )
        for replica_id, progress in replicas.items()
    ]


assert UNKNOWN_OFFSET < 0, "a replica that never fetched holds nothing"
