"""Compares the replicas of one partition batch by batch, up to the high watermark; says which one is odd.

Owns the order and the verdict; sends nothing. Followers copy batches as they are, so two replicas are the
same when offsets, leader epochs and crcs of all batches are. A replica that differs, ends early or cannot be
read is named once and left out from then on; the others go on.
"""

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple, TypeVar

from holdfast.protocol.record_batch import BatchHeader

T = TypeVar("T")


class BatchSum(NamedTuple):
    """What tells batches apart: place, epoch, and the crc over all the rest."""

    base_offset: int
    next_offset: int
    leader_epoch: int
    crc: int

    @classmethod
    def of(cls, header: BatchHeader) -> "BatchSum":
        """Of a batch with this header."""
        return cls(header.base_offset, header.next_offset, header.leader_epoch, header.crc)


class FindingKind(Enum):
    """What is wrong with a replica."""

    DIFFERS = "differs"
    #: it does not have all that is committed
    BEHIND = "behind"
    UNREADABLE = "unreadable"


class Finding(NamedTuple):
    """One replica that is not as the others; all below `offset` was the same."""

    broker_id: int
    kind: FindingKind
    offset: int
    reason: str


class _Replica:
    """What was read of one replica and is not compared yet."""

    __slots__ = ("batches", "high_watermark", "position")

    def __init__(self) -> None:
        self.position = 0
        self.high_watermark = -1
        self.batches: deque[BatchSum] = deque()

    def skip(self, offset: int) -> None:
        while self.batches and self.batches[0].next_offset <= offset:
            self.batches.popleft()
        self.position = max(self.position, offset)


class ReplicaComparison:
    """Of one partition."""

    def __init__(self, broker_ids: Sequence[int], leader_id: int | None) -> None:
        """`leader_id`: who is compared with where no two agree; None for any."""
        self._replicas = {broker_id: _Replica() for broker_id in broker_ids}
        self._leader_id = leader_id
        self.findings: list[Finding] = []
        #: first offset that all of them keep, and the end of what was compared so far
        self.start_offset = 0
        self.compared_offset = 0
        #: end of what is to be compared: the highest high watermark that a replica knew at the beginning
        self._end_offset = -1

    @property
    def is_over(self) -> bool:
        """Nothing is left to be read."""
        return not self.wanted()

    def wanted(self) -> dict[int, int]:
        """{broker: offset to be read from}: the replicas that the comparison waits for."""
        end = self._end_offset
        return {
            broker_id: replica.position
            for broker_id, replica in self._replicas.items()
            if (replica.high_watermark < 0 if end < 0 else not replica.batches and replica.position < end)
        }

    def took(self, broker_id: int, high_watermark: int, headers: Iterable[BatchHeader]) -> bool:
        """A replica has answered with whole batches; False when there was nothing new among them."""
        replica = self._replicas[broker_id]
        is_new = replica.high_watermark < 0
        replica.high_watermark = max(replica.high_watermark, high_watermark)
        for header in headers:
            if replica.position < header.next_offset <= replica.high_watermark:
                replica.batches.append(BatchSum.of(header))
                replica.position = header.next_offset
                is_new = True
        self._compare()
        return is_new

    def begins_at(self, log_start_offset: int) -> None:
        """A replica keeps nothing below this offset: retention does not run on all at once."""
        self.start_offset = max(self.start_offset, log_start_offset)
        self.compared_offset = max(self.compared_offset, log_start_offset)
        for replica in self._replicas.values():
            replica.skip(log_start_offset)
        self._compare()

    def give_up(self, broker_id: int, kind: FindingKind, reason: str) -> None:
        """Go on without a replica."""
        replica = self._replicas.pop(broker_id)
        offset = replica.position if kind is FindingKind.BEHIND else self.compared_offset
        self.findings.append(Finding(broker_id, kind, offset, reason))
        self._compare()

    def _compare(self) -> None:
        replicas = self._replicas
        if self._end_offset < 0:
            self._end_offset = end_of([replica.high_watermark for replica in replicas.values()])
            if self._end_offset < 0:
                return
        while replicas and all(replica.batches for replica in replicas.values()):
            heads = {broker_id: replica.batches[0] for broker_id, replica in replicas.items()}
            right = agreed(heads, self._leader_id)
            for broker_id, head in heads.items():
                if head == right:
                    replicas[broker_id].batches.popleft()
                else:
                    self._differs(broker_id, head, right, heads)
            self.compared_offset = right.next_offset

    def _differs(self, broker_id: int, head: BatchSum, right: BatchSum, heads: dict[int, BatchSum]) -> None:
        others = [other for other, theirs in heads.items() if theirs == right]
        reason = f"it has {_story(head)}, {names_of(others)} {_story(right)}"
        if len(others) == 1:
            reason += "; no two agree, so which one is right is not known"
        del self._replicas[broker_id]
        self.findings.append(Finding(broker_id, FindingKind.DIFFERS, head.base_offset, reason))


def end_of(high_watermarks: Sequence[int]) -> int:
    """End of what is compared, the highest of them; -1 while a replica has not told its own."""
    if any(high_watermark < 0 for high_watermark in high_watermarks):
        return -1
    return max(high_watermarks, default=0)


def agreed(told: Mapping[int, T], leader_id: int | None) -> T:
    """What most brokers have; the leader's where no two agree more than others."""
    counts = Counter(told.values()).most_common(2)
    if len(counts) == 1 or counts[0][1] > counts[1][1]:
        return counts[0][0]
    return told[leader_id] if leader_id is not None and leader_id in told else counts[0][0]


def names_of(broker_ids: Sequence[int]) -> str:
    """For sentences."""
    return f"broker{'s' if len(broker_ids) > 1 else ''} {', '.join(map(str, broker_ids))}"


def _story(batch: BatchSum) -> str:
    return (
        f"offsets {batch.base_offset} to {batch.next_offset - 1} of epoch {batch.leader_epoch} with crc "
        f"{batch.crc:#010x}"
    )
