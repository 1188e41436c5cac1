"""Which voter to fetch from, when, and whether an answer may be believed (R84, D9).

Owns the one fetch under way and its back-off (N-4). Changes neither log nor roles: it says what an answer
means, and the node acts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from holdfast.protocol.messages.fetch import FetchPartitionResponse
from holdfast.protocol.record_batch import CorruptBatch, check_batch
from holdfast.raft.core.control_records import NO_NEWS, VoterNews, voter_news_in
from holdfast.raft.core.log_shape import LogShape
from holdfast.raft.core.snapshot_format import SnapshotId

#: Most doublings of the delay between fetches that fail.
_DOUBLINGS_MAX = 2
#: Pause of a node whose fetch was displaced twice within `_TWIN_WINDOW_MS` by one with the same id, whose
#: directory is not known, or that cannot use the leader's snapshot.
_TWIN_PAUSE_MS = 1_000
_TWIN_WINDOW_MS = 10_000


class Fetcher:
    """Pace and target of fetches. Reset whenever the leader or the epoch changes."""

    __slots__ = (
        "_displaced_ms",
        "_failures",
        "_retry_ms",
        "_turn",
        "others",
        "ready_at_ms",
        "request_id",
        "target_id",
    )

    def __init__(self, other_voters: Sequence[int], retry_ms: int) -> None:
        #: whom to ask when there is no leader
        self.others = other_voters
        self._retry_ms = retry_ms
        #: index of the next voter to ask when there is no leader
        self._turn = 0
        self._failures = 0
        #: when a fetch with this node's id last displaced its own; kept after successes, because two nodes
        #: with one id displace each other in turn
        self._displaced_ms: int | None = None
        #: the fetch under way, None when there is none
        self.request_id: int | None = None
        self.target_id: int | None = None
        #: no fetch before this time
        self.ready_at_ms = 0

    def reset(self) -> None:
        """Drop the fetch under way, whose answer is void now, and allow the next one at once."""
        self.request_id = self.target_id = None
        self._failures = 0
        self.ready_at_ms = 0

    @property
    def is_retry(self) -> bool:
        """The previous fetch failed: an answer with news may have been lost."""
        return self._failures > 0

    def choose(self, leader_id: int | None, is_voter: bool) -> int | None:
        """The voter to fetch from next. A voter stays with its leader. An observer whose leader does not
        answer also asks the others in turn, because it learns of a new leader in no other way."""
        if leader_id is not None and (is_voter or self._failures % 2 == 0):
            return leader_id
        candidates = [voter_id for voter_id in self.others if voter_id != leader_id]
        if not candidates:
            return leader_id
        self._turn += 1
        return candidates[self._turn % len(candidates)]

    def sent(self, request_id: int, target_id: int) -> None:
        assert self.request_id is None, "one outstanding fetch (N-4)"
        self.request_id, self.target_id = request_id, target_id

    def succeeded(self) -> None:
        """The leader answered: fetch again at once."""
        self.reset()

    def failed(self, now_ms: int) -> None:
        """No answer, or no useful one: fetch again at once the first time, then with a doubling delay
        (D9)."""
        self.request_id = self.target_id = None
        delay_ms = self._retry_ms << min(self._failures - 1, _DOUBLINGS_MAX) if self._failures else 0
        self._failures += 1
        self.ready_at_ms = now_ms + delay_ms

    def refused(self, now_ms: int) -> None:
        """The leader does not know this node's directory: ask now and then whether an operator has taken it
        in (K8). Or its snapshot is damaged: ask now and then whether it has made another (K15)."""
        self.request_id = self.target_id = None
        self.ready_at_ms = now_ms + _TWIN_PAUSE_MS

    def displaced(self, now_ms: int) -> bool:
        """A fetch with this node's id displaced the one under way. The first may be a late one of this node's
        own: fetch again at once. True when it must be another node's: fetch again after a pause."""
        before_ms, self._displaced_ms = self._displaced_ms, now_ms
        is_twin = before_ms is not None and now_ms - before_ms < _TWIN_WINDOW_MS
        self.request_id = self.target_id = None
        self.ready_at_ms = now_ms + (_TWIN_PAUSE_MS if is_twin else 0)
        return is_twin


@dataclass(frozen=True, slots=True)
class Diverged:
    """The log must be truncated before anything else, the high watermark included (R82)."""

    truncate_to: int


@dataclass(frozen=True, slots=True)
class SnapshotFirst:
    """The leader's log begins behind this one: its snapshot takes the place of this log (K14)."""

    id: SnapshotId


@dataclass(frozen=True, slots=True)
class Batches:
    """Whole, valid batches that continue the log, each as `(epoch, base offset, end offset)`."""

    batches: tuple[tuple[int, int, int], ...]
    #: (base offset, what it says) of the control batches that tell of the voters (K8, K30)
    news: tuple[tuple[int, VoterNews], ...] = ()


@dataclass(frozen=True, slots=True)
class Unbelievable:
    """The answer breaks the protocol; `why` says how."""

    why: str


Judgement: TypeAlias = Diverged | SnapshotFirst | Batches | Unbelievable


def judge(row: FetchPartitionResponse, shape: LogShape, raft_epoch: int) -> Judgement:
    """What a leader's answer without an error means for the log. Damaged or wrong batches are the peer's
    fault and are refused here, before they reach the log (R84)."""
    if row.snapshot_id is not None:
        id = SnapshotId(row.snapshot_id.end_offset, row.snapshot_id.epoch)
        if id.position <= shape.position or not 0 < id.offset or not 0 <= id.epoch <= raft_epoch:
            return Unbelievable(f"{id} brings a log that ends at {shape.position} no further")
        return SnapshotFirst(id)
    if row.diverging_epoch is not None:
        point = shape.truncation_point(row.diverging_epoch.epoch, max(0, row.diverging_epoch.end_offset))
        if point >= shape.log_end_offset:
            return Unbelievable(
                f"{row.diverging_epoch} cuts nothing off a log that ends at {shape.log_end_offset}"
            )
        return Diverged(point)
    batches: list[tuple[int, int, int]] = []
    told: list[tuple[int, VoterNews]] = []
    position, end_offset, epoch = 0, shape.log_end_offset, shape.last_epoch
    while position < len(row.records):
        try:
            header = check_batch(row.records, position)
        except CorruptBatch as error:
            return Unbelievable(str(error))
        if header.base_offset != end_offset:
            return Unbelievable(f"batch at offset {header.base_offset}, expected {end_offset}")
        if not epoch <= header.leader_epoch <= raft_epoch:
            return Unbelievable(f"batch of epoch {header.leader_epoch}, expected {epoch} to {raft_epoch}")
        if header.is_control:
            try:
                news = voter_news_in(row.records[position : position + header.size_bytes])
            except ValueError as error:
                return Unbelievable(f"control batch at offset {header.base_offset}: {error}")
            if news != NO_NEWS:
                told.append((header.base_offset, news))
        position, end_offset, epoch = position + header.size_bytes, header.next_offset, header.leader_epoch
        batches.append((epoch, header.base_offset, end_offset))
    return Batches(tuple(batches), tuple(told))
