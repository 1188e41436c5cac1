"""The broker's partition object alone: a log in memory, a clock that only `tick` moves.

`LonePartition` drives the real `broker.core.replicas.partition.Partition` of broker 1, for scenario files and
for tests. No rule of the partition is repeated here.
"""

from holdfast.broker.core.registration.known_brokers import KnownBrokers
from holdfast.broker.core.replicas.ceiling import Ceiling, Urgency
from holdfast.broker.core.replicas.leadership import AlterVerdict, Proposal
from holdfast.broker.core.replicas.partition import Partition
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.partition import PartitionRegistration
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.alter_partition import AlterPartitionPartitionResponse
from holdfast.storage.core.leader_epoch_cache import LeaderEpochCache

TOPIC_ID = b"t" * 16
KEY = PartitionId(TOPIC_ID, 0)
LAG_MS_MAX = 30_000
CEILING_RECORDS = 1_000


class MemoryLog:
    """Offsets and epochs of a log without bytes. A `broker.core.replicas.divergence.LogView`."""

    def __init__(self, log_end_offset: int = 0, last_epoch: int = -1, log_start_offset: int = 0) -> None:
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_start_offset
        self.flushed_offset = log_start_offset
        self.epochs = LeaderEpochCache()
        self.last_epoch = -1
        if log_end_offset > log_start_offset:
            self.append(log_end_offset - log_start_offset, last_epoch)
            self.flushed_offset = log_end_offset

    @property
    def durable_start_offset(self) -> int:
        return self.log_start_offset

    def append(self, count: int, epoch: int) -> None:
        self.epochs.assign(epoch, self.log_end_offset)
        self.last_epoch = epoch
        self.log_end_offset += count

    def start_epoch(self, epoch: int) -> int:
        self.epochs.assign(epoch, self.log_end_offset)
        return self.log_end_offset

    def truncate_to(self, end_offset: int) -> None:
        self.epochs.truncate_from_end(end_offset)
        self.log_end_offset = end_offset
        self.flushed_offset = min(self.flushed_offset, end_offset)
        self.last_epoch = self.epochs.last_written(end_offset)

    def reset_to(self, offset: int) -> None:
        self.epochs.clear()
        self.log_start_offset = self.log_end_offset = self.flushed_offset = offset
        self.last_epoch = -1

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int] | None:
        return self.epochs.end_offset_for(epoch, self.log_end_offset)


def registration(
    leader: int | None = 1,
    isr: tuple[int, ...] = (1, 2, 3),
    *,
    min_isr: int = 2,
    leader_epoch: int = 0,
    partition_epoch: int = 0,
    replicas: tuple[int, ...] = (1, 2, 3),
    elr: tuple[int, ...] = (),
) -> PartitionRegistration:
    """A registration of the one partition of these tests."""
    return PartitionRegistration(
        replicas=replicas,
        isr=isr,
        leader=leader,
        leader_epoch=leader_epoch,
        partition_epoch=partition_epoch,
        min_isr=min_isr,
        elr=elr,
    )


class LonePartition:
    """Broker 1's partition, a clock that only `tick` moves, and what it prints."""

    def __init__(
        self, *, log: MemoryLog | None = None, counts_flushed: bool = False, high_watermark: int = 0
    ) -> None:
        self.now_ms = 1_000_000
        self.log = log or MemoryLog()
        self.brokers = KnownBrokers()
        for broker_id in (1, 2, 3):
            self.brokers.epochs[broker_id] = self.brokers.acceptable[broker_id] = 10 * broker_id
        self.partition = Partition(
            1,
            KEY,
            "t",
            self.log,
            high_watermark=high_watermark,
            brokers=self.brokers,
            lag_ms_max=LAG_MS_MAX,
            ceiling=Ceiling(CEILING_RECORDS, -1),
            counts_flushed=counts_flushed,
        )
        self.proposal: Proposal | None = None

    def register(self, value: PartitionRegistration, *, start: bool = True) -> None:
        """Apply a registration; a new leader starts its epoch in the log at once."""
        self.partition.apply_registration(value, self.now_ms)
        leadership = self.partition.leadership
        if start and leadership is not None and leadership.start_offset is None:
            self.start()

    def start(self) -> None:
        epoch = self.partition.leader_epoch
        assert self.partition.epoch_started(epoch, self.log.start_epoch(epoch))
        self.advance()

    def append(self, count: int) -> None:
        self.log.append(count, self.partition.leader_epoch)
        self.advance()

    def flush(self) -> None:
        self.log.flushed_offset = self.log.log_end_offset
        self.advance()

    def fetch(
        self,
        replica_id: int,
        offset: int,
        *,
        leader_epoch: int | None = None,
        last_epoch: int | None = None,
        flushed: int | None = None,
        broker_epoch: int | None = None,
    ) -> ErrorCode | tuple[int, int]:
        """A follower's fetch; returns its error code, or the diverging epoch."""
        leader_epoch = self.partition.leader_epoch if leader_epoch is None else leader_epoch
        broker_epoch = 10 * replica_id if broker_epoch is None else broker_epoch
        if last_epoch is None:
            found = self.log.epochs.epoch_at(offset - 1) if offset > 0 else None
            last_epoch = -1 if found is None else found
        refusal = self.partition.check_follower(replica_id, broker_epoch, leader_epoch, offset, last_epoch)
        if refusal is not None:
            return refusal.diverging or refusal.error_code
        proposal = self.partition.follower_fetched(
            replica_id, broker_epoch, offset, offset if flushed is None else flushed, self.now_ms
        )
        self.proposal = proposal or self.proposal
        self.advance()
        return ErrorCode.NONE

    def advance(self) -> None:
        """Move the high watermark, on a disk that stores every ceiling at once."""
        if self.partition.ceiling_urgency() is Urgency.NOW:
            self.partition.ceiling.stored(self.partition.promise_ceiling(self.now_ms))
        self.partition.advance_high_watermark(self.now_ms)

    def tick(self, duration_ms: int) -> None:
        self.now_ms += duration_ms
        self.proposal = self.partition.maybe_shrink(self.now_ms) or self.proposal

    def answer(
        self,
        isr: tuple[int, ...] = (),
        *,
        partition_epoch: int = 0,
        leader_epoch: int | None = None,
        min_isr: int = 2,
        error: ErrorCode = ErrorCode.NONE,
    ) -> AlterVerdict:
        """The controller's answer to the open proposal."""
        assert self.proposal is not None, "nothing was proposed"
        proposal, self.proposal = self.proposal, None
        row = AlterPartitionPartitionResponse(
            topic_id=TOPIC_ID,
            partition_index=0,
            error_code=error,
            leader_id=1,
            leader_epoch=self.partition.leader_epoch if leader_epoch is None else leader_epoch,
            isr=isr,
            leader_recovery_state=0,
            partition_epoch=partition_epoch,
            min_isr=min_isr,
        )
        verdict, _ = self.partition.alter_answered(proposal, row, self.now_ms)
        self.advance()
        return verdict
