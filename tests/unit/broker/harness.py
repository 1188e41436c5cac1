"""A log in memory and the command table of the partition scenarios.

brokers 2 3 epoch=20                 registered, unfenced brokers with that broker epoch
fence 2 | leave 2                    fenced; in controlled shutdown
registration leader=1 isr=(1,2,3) min_isr=2 le=0 pe=0 [replicas=(1,2,3)]     we are broker 1
start                                the log takes the leader epoch at its end
append 5                             leader: five records in one batch; follower: of the fetched epoch
[epoch=3] flush                                everything is durable now
fetch replica=2 offset=5 [le=0] [last_epoch=0] [flushed=5] [broker_epoch=20]
tick 500                             so many ms pass; looks for followers that are out of sync
answer isr=(1,2) pe=1 [le=0] [min_isr=2] [error=INELIGIBLE_REPLICA]          to the open proposal
produce acks=-1 | read [le=0] | waiting le=0 | latest     what clients would be told
diverging epoch=1 end=7              a follower's answer from its leader; truncates
leader_hwm 12                        a follower's answer without records
"""

from broker.partition import AlterVerdict, KnownBrokers, Partition, Proposal, Role, TopicPartition
from cli.datadriven import Command
from metadata.partition import PartitionRegistration, ids_text
from protocol.errors import ErrorCode
from protocol.messages.alter_partition import AlterPartitionPartitionResponse
from storage.leader_epoch_cache import LeaderEpochCache

TOPIC_ID = b"t" * 16
KEY = TopicPartition(TOPIC_ID, 0)
LAG_MS_MAX = 30_000


class MemoryLog:
    """Offsets and epochs of a log without bytes. A `broker.partition.LogView`."""

    def __init__(self, log_end_offset: int = 0, last_epoch: int = -1, log_start_offset: int = 0) -> None:
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_start_offset
        self.flushed_offset = log_start_offset
        self.epochs = LeaderEpochCache()
        self.last_epoch = -1
        if log_end_offset > log_start_offset:
            self.append(log_end_offset - log_start_offset, last_epoch)
            self.flushed_offset = log_end_offset

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
        found = self.epochs.epoch_at(end_offset - 1) if end_offset > self.log_start_offset else None
        self.last_epoch = -1 if found is None else found

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


class PartitionScenario:
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
            counts_flushed=counts_flushed,
        )
        self.proposal: Proposal | None = None

    # --- steps, for tests in Python -----------------------------------------------------------------------

    def register(self, value: PartitionRegistration, *, start: bool = True) -> None:
        """Apply a registration; a new leader's log takes the epoch at once."""
        self.partition.apply_registration(value, self.now_ms)
        leadership = self.partition.leadership
        if start and leadership is not None and leadership.start_offset is None:
            self.start()

    def start(self) -> None:
        epoch = self.partition.leader_epoch
        assert self.partition.epoch_started(epoch, self.log.start_epoch(epoch))
        self.partition.advance_high_watermark(self.now_ms)

    def append(self, count: int) -> None:
        self.log.append(count, self.partition.leader_epoch)
        self.partition.advance_high_watermark(self.now_ms)

    def flush(self) -> None:
        self.log.flushed_offset = self.log.log_end_offset
        self.partition.advance_high_watermark(self.now_ms)

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
        """A follower's fetch; its error code, or where the logs part."""
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
        self.partition.advance_high_watermark(self.now_ms)
        return ErrorCode.NONE

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
        self.partition.advance_high_watermark(self.now_ms)
        return verdict

    # --- commands -----------------------------------------------------------------------------------------

    def execute(self, command: Command) -> list[str]:
        """Run one command of a scenario file; what it prints."""
        before = self.proposal
        lines = getattr(self, f"_{command.name}")(command)
        if self.proposal is not None and self.proposal is not before:
            lines.append(f"propose isr={ids_text(self.proposal.isr)}")
        return list(lines)

    def _state(self) -> list[str]:
        partition = self.partition
        text = f"{partition.role.value}@{partition.leader_epoch} end={self.log.log_end_offset}"
        if partition.counts_flushed:
            text += f" flushed={self.log.flushed_offset}"
        text += f" hwm={partition.high_watermark}"
        if (
            partition.role is Role.LEADER
            and partition.leadership is not None
            and partition.registration is not None
        ):
            text += f" isr={ids_text(partition.registration.isr)}"
            text += f" maximal={ids_text(partition.leadership.maximal_isr)}"
        return [text]

    def _brokers(self, command: Command) -> list[str]:
        epoch = command.integer("epoch", 0)
        for word in command.words:
            broker_id = int(word)
            self.brokers.epochs[broker_id] = self.brokers.acceptable[broker_id] = epoch or 10 * broker_id
        self.proposal = self.partition.retry_expand(self.now_ms) or self.proposal
        return self._state()

    def _fence(self, command: Command) -> list[str]:
        for word in command.words:
            self.brokers.acceptable.pop(int(word))
        return self._state()

    _leave = _fence

    def _every_write_is_flushed(self, command: Command) -> list[str]:
        self.partition.counts_flushed = True
        return self._state()

    def _registration(self, command: Command) -> list[str]:
        leader = command.text("leader")
        value = registration(
            None if leader == "none" else int(leader),
            command.ids("isr"),
            min_isr=command.integer("min_isr", 2),
            leader_epoch=command.integer("le", 0),
            partition_epoch=command.integer("pe", 0),
            replicas=command.ids("replicas", (1, 2, 3)),
        )
        self.register(value, start=False)
        self.partition.advance_high_watermark(self.now_ms)
        return self._state()

    def _start(self, command: Command) -> list[str]:
        self.start()
        return self._state()

    def _append(self, command: Command) -> list[str]:
        epoch = command.integer("epoch", self.partition.leader_epoch)
        self.log.append(int(command.words[0]), epoch)
        self.partition.advance_high_watermark(self.now_ms)
        return self._state()

    def _flush(self, command: Command) -> list[str]:
        self.flush()
        return self._state()

    def _fetch(self, command: Command) -> list[str]:
        offset = command.integer("offset")
        answer = self.fetch(
            command.integer("replica"),
            offset,
            leader_epoch=command.integer("le", self.partition.leader_epoch),
            last_epoch=command.integer("last_epoch") if "last_epoch" in command.arguments else None,
            flushed=command.integer("flushed", offset),
            broker_epoch=command.integer("broker_epoch") if "broker_epoch" in command.arguments else None,
        )
        if isinstance(answer, tuple):
            return [f"diverging epoch={answer[0]} end={answer[1]}", *self._state()]
        return self._state() if answer is ErrorCode.NONE else [f"error={answer.name}"]

    def _tick(self, command: Command) -> list[str]:
        self.tick(int(command.words[0]))
        return self._state()

    def _answer(self, command: Command) -> list[str]:
        verdict = self.answer(
            command.ids("isr", ()),
            partition_epoch=command.integer("pe", 0),
            leader_epoch=command.integer("le", self.partition.leader_epoch),
            min_isr=command.integer("min_isr", 2),
            error=ErrorCode[command.text("error", "NONE")],
        )
        return [verdict.value, *self._state()]

    def _produce(self, command: Command) -> list[str]:
        return [self.partition.check_produce(command.integer("acks")).name]

    def _read(self, command: Command) -> list[str]:
        return [self.partition.check_leader(command.integer("le", -1)).name]

    def _waiting(self, command: Command) -> list[str]:
        return [self.partition.check_waiting(command.integer("le")).name]

    def _latest(self, command: Command) -> list[str]:
        offset = self.partition.visible_high_watermark
        return [ErrorCode.OFFSET_NOT_AVAILABLE.name if offset < 0 else str(offset)]

    def _diverging(self, command: Command) -> list[str]:
        end_offset = self.partition.truncation_offset(command.integer("epoch"), command.integer("end"))
        self.log.truncate_to(end_offset)
        self.partition.log_was_cut()
        return [f"truncate to {end_offset}", *self._state()]

    def _leader_hwm(self, command: Command) -> list[str]:
        self.partition.leader_answered(int(command.words[0]))
        return self._state()
