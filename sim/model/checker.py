"""Properties of single steps, one class each, and the checker that actions report to.

Owns which property is asked when. State properties run in `step`, for the partitions that were touched; the
others where something happens: an append, an acknowledgement, a truncation, a registration, an election.
"""

from holdfast.sim.model.controller import Before
from holdfast.sim.model.properties import CHANGE_PROPERTIES, STATE_PROPERTIES, ModelViolation, members
from holdfast.sim.model.state import (
    BALANCED,
    EPOCH_SHIFT,
    NO_FILE,
    RUNNING,
    ModelBroker,
    ModelProposal,
    ModelRecovery,
    ModelReplica,
    ModelWorld,
    PartitionState,
    ids,
)


class CommittedOnlyGrows:
    """A-1: nothing below the high watermark is cut, and candidates never below what was committed."""

    name = "A-1 CommittedOnlyGrows"

    @staticmethod
    def check(w: ModelWorld, replica: ModelReplica, end: int) -> str | None:
        part = w.partitions[replica.partition]
        if part.is_excused:
            return None
        if end < replica.high_watermark:
            return (
                f"broker {replica.broker} truncates to {end}, its high watermark is {replica.high_watermark}"
            )
        if (
            (part.isr | part.elr) >> replica.broker & 1
            and w.is_live(replica.broker)
            and end < len(part.committed)
        ):
            return f"candidate {replica.broker} truncates to {end}, committed are {len(part.committed)}"
        return None


class HighWatermarkQuorum:
    """A-2"""

    name = "A-2 HighWatermarkQuorum"

    @staticmethod
    def check(w: ModelWorld, replica: ModelReplica, new: int) -> str | None:
        if replica.isr.bit_count() < replica.min_isr:
            return f"leader {replica.broker} moves to {new} with ISR {members(replica.isr)}"
        own = replica.flushed if w.setup.flush_every_write else len(replica.log)
        if new > own:
            return f"leader {replica.broker} moves to {new}, its own log counts to {own}"
        proposed = replica.proposal[0] if replica.proposal is not None else 0
        for member in ids((replica.isr | proposed) & ~(1 << replica.broker)):
            if replica.positions[member] < new:
                return f"leader {replica.broker} moves to {new}, {member} is at {replica.positions[member]}"
        return None


class AcceptedProposal:
    """A-4"""

    name = "A-4 AcceptedProposal"

    @staticmethod
    def check(
        w: ModelWorld, part: PartitionState, sender: int, epoch: int, proposal: ModelProposal
    ) -> str | None:
        isr, epochs, leader_epoch, partition_epoch = proposal
        if sender != part.leader or leader_epoch != part.leader_epoch:
            return f"from {sender} in leader epoch {leader_epoch}; {part.leader} leads in {part.leader_epoch}"
        if partition_epoch != part.partition_epoch or epoch != w.epochs[sender]:
            return (
                f"from broker epoch {epoch} at partition epoch {partition_epoch}, now {part.partition_epoch}"
            )
        if isr & ~w.active:
            return f"{members(isr & ~w.active)} is not active"
        for member in ids(isr & ~part.isr):
            if epochs[member] != w.epochs[member]:
                return f"{member} joins in broker epoch {epochs[member]}, now {w.epochs[member]}"
        return None


class CaughtUpJoins:
    """A-5"""

    name = "A-5 CaughtUpJoins"

    @staticmethod
    def check(w: ModelWorld, replica: ModelReplica, follower: int) -> str | None:
        position = replica.positions[follower]
        if position < 0 or position < replica.high_watermark or position < replica.start_offset:
            return (
                f"{follower} at {position} may join; high watermark {replica.high_watermark}, "
                f"the epoch begins at {replica.start_offset}"
            )
        return None


class AppliedHighWatermark:
    """A-6: what consumers are told never goes back."""

    name = "A-6 AppliedHighWatermark"

    @staticmethod
    def check(w: ModelWorld, replica: ModelReplica) -> str | None:
        part = w.partitions[replica.partition]
        if part.is_excused or replica.leader_epoch != part.leader_epoch:
            return None
        if replica.high_watermark < part.consumed_end:
            return f"leader {replica.broker} shows {replica.high_watermark}, {part.consumed_end} was consumed"
        return None


class RegistrationGranted:
    """A-7"""

    name = "A-7 RegistrationGranted"

    @staticmethod
    def check(w: ModelWorld, broker: ModelBroker, stored: int, was_unfenced: int) -> str | None:
        if was_unfenced and not (stored >= 0 and broker.previous_epoch == stored):
            return f"broker {broker.id} registered while its former incarnation was unfenced"
        if w.epochs[broker.id] <= stored:
            return f"broker epoch {stored} -> {w.epochs[broker.id]}"
        return None


class UncleanExclusion:
    """A-8: who may have lost its tail is no candidate once it is registered."""

    name = "A-8 UncleanExclusion"

    @staticmethod
    def check(w: ModelWorld, broker: ModelBroker, stored: int) -> str | None:
        if not w.setup.elr:
            return None
        for part in w.partitions:
            if not (part.isr | part.elr) >> broker.id & 1:
                continue
            if broker.previous_epoch != stored:
                return f"broker {broker.id} was unclean and is in ISR or ELR of partition {part.index}"
            if part.lossy >> broker.id & 1:
                return f"broker {broker.id} lost records of partition {part.index} and is in ISR or ELR"
        return None


class BalancedRecovery:
    """A-14: all of last known ELR have answered in their present incarnation, and the best of them leads."""

    name = "A-14 BalancedRecovery"

    @staticmethod
    def check(w: ModelWorld, part: PartitionState, recovery: ModelRecovery, chosen: int) -> str | None:
        if not w.active >> chosen & 1:
            return f"{chosen} is chosen and not active"
        if w.setup.strategy != BALANCED:
            return None
        best = recovery.replies[chosen]
        if best is None or best[0] != w.epochs[chosen]:
            return f"{chosen} is chosen, its answer {best} is of another incarnation"
        known = [
            reply for member in ids(part.last_known_elr) if (reply := recovery.replies[member]) is not None
        ]
        last_epoch, end_offset = max((reply[1:] for reply in known), default=(-1, 0))
        is_proof = len(known) >= part.min_isr
        if end_offset and last_epoch != best[1] and is_proof:
            return (
                f"{chosen} is chosen with {best}, last known ELR {members(part.last_known_elr)} has {known}"
            )
        for member in ids(part.last_known_elr):
            reply = recovery.replies[member]
            if not w.active >> member & 1 or reply is None or reply[0] != w.epochs[member]:
                return f"{chosen} is chosen without an answer of {member} that counts: {reply}"
            if reply[1:] > best[1:]:
                return f"{chosen} is chosen with {best}, {member} has {reply}"
            log = w.brokers[member].replicas[part.index].log
            own = (log[-1] >> EPOCH_SHIFT if log else -1, len(log))
            if w.is_live(member) and own != reply[1:]:
                return f"{member} ends at {own} now, it said {reply[1:]}"
        return None


class AppendsInOwnEpoch:
    """A-15"""

    name = "A-15 AppendsInOwnEpoch"

    @staticmethod
    def check(w: ModelWorld, replica: ModelReplica, record: int) -> str | None:
        if record >> EPOCH_SHIFT != replica.leader_epoch:
            return (
                f"leader {replica.broker} of epoch {replica.leader_epoch} appends in {record >> EPOCH_SHIFT}"
            )
        return None


class TruncationPoint:
    """A-16"""

    name = "A-16 TruncationPoint"

    @staticmethod
    def check(w: ModelWorld, replica: ModelReplica, end: int, epoch: int, leader_end: int) -> str | None:
        epochs = [record >> EPOCH_SHIFT for record in replica.log]
        expected = sum(1 for own in epochs if own <= epoch)
        if epoch in epochs:
            expected = min(expected, leader_end)
        return (
            None if end == expected else f"broker {replica.broker} truncates to {end}, should to {expected}"
        )


class CleanStopOrder:
    """A-19: the marker comes after everything is durable."""

    name = "A-19 CleanStopOrder"

    @staticmethod
    def check(w: ModelWorld, broker: ModelBroker) -> str | None:
        for replica in broker.replicas:
            if replica.durable < len(replica.log):
                return f"broker {broker.id} wrote its marker at {replica.durable} of {len(replica.log)}"
        return None


class FailStop:
    """A-20"""

    name = "A-20 FailStop"

    @staticmethod
    def check(w: ModelWorld, replica: ModelReplica) -> str | None:
        if w.brokers[replica.broker].state == RUNNING:
            return f"broker {replica.broker} goes on after a failed fsync"
        return None


class FlushCovers:
    """A-21"""

    name = "A-21 FlushCovers"

    @staticmethod
    def check(w: ModelWorld, replica: ModelReplica) -> str | None:
        if replica.flushed > replica.durable:
            return f"broker {replica.broker} counts {replica.flushed} as durable, {replica.durable} are"
        return None


class LogMatching:
    """I-10, against what was committed: who agrees with that below its high watermark agrees with all."""

    name = "I-10 LogMatching"

    @staticmethod
    def check(w: ModelWorld, replica: ModelReplica) -> str | None:
        part = w.partitions[replica.partition]
        end = replica.high_watermark
        at = replica.checked_to
        if at >= end or part.is_excused:
            return None
        committed = part.committed
        if end > len(committed):
            return f"broker {replica.broker} has high watermark {end}, committed are {len(committed)}"
        if replica.log[at:end] != committed[at:end]:
            return f"broker {replica.broker} differs in [{at}, {end}) from what was committed"
        replica.checked_to = end
        return None


class NoCommittedRecordLostGlobally:
    """I-12: what was acknowledged is on some disk."""

    name = "I-12 NoCommittedRecordLostGlobally"

    @staticmethod
    def check(w: ModelWorld, replica: ModelReplica, end: int, gone: list[int]) -> str | None:
        part = w.partitions[replica.partition]
        if part.is_excused or part.is_over_budget:
            return None
        for offset in range(end, min(end + len(gone), part.acked_end)):
            record = gone[offset - end]
            if part.acked.get(offset) != record:
                continue
            for broker in w.brokers:
                log = broker.replicas[part.index].log
                if len(log) > offset and log[offset] == record:
                    break
            else:
                return f"the acknowledged record at {offset} was on broker {replica.broker} alone and is gone"
        return None


class OneLeaderPerEpoch:
    """I-15"""

    name = "I-15 OneLeaderPerEpoch"

    @staticmethod
    def check(w: ModelWorld, replica: ModelReplica) -> str | None:
        leaders = w.partitions[replica.partition].leaders
        known = leaders.setdefault(replica.leader_epoch, replica.broker)
        return (
            None if known == replica.broker else f"{known} and {replica.broker} lead {replica.leader_epoch}"
        )


class AckedIsCommitted:
    """I-16"""

    name = "I-16 AckedIsCommitted"

    @staticmethod
    def check(w: ModelWorld, replica: ModelReplica, offset: int) -> str | None:
        part = w.partitions[replica.partition]
        if replica.isr.bit_count() < replica.min_isr:
            return f"leader {replica.broker} acknowledges {offset} with ISR {members(replica.isr)}"
        if part.is_excused:
            return None
        if offset >= len(part.committed) or part.committed[offset] != replica.log[offset]:
            return f"leader {replica.broker} acknowledges {offset}, committed is something else"
        return None


class CleanFileDiscipline:
    """I-17"""

    name = "I-17 CleanFileDiscipline"

    @staticmethod
    def check(w: ModelWorld, broker: ModelBroker) -> str | None:
        return None if broker.clean_file == NO_FILE else f"broker {broker.id} starts and keeps its marker"


class EpochsInLog:
    """I-18"""

    name = "I-18 EpochsInLog"

    @staticmethod
    def check(w: ModelWorld, replica: ModelReplica, records: list[int]) -> str | None:
        last = replica.log[-1] if replica.log else -1
        for record in records:
            if record >> EPOCH_SHIFT < last >> EPOCH_SHIFT:
                return f"broker {replica.broker}: epoch {record >> EPOCH_SHIFT} after {last >> EPOCH_SHIFT}"
            last = record
        return None


class EpochOffsetUniqueness:
    """N-1"""

    name = "N-1 EpochOffsetUniqueness"

    @staticmethod
    def check(w: ModelWorld, replica: ModelReplica, offset: int, records: list[int]) -> str | None:
        values = w.partitions[replica.partition].values
        for record in records:
            known = values.setdefault((record >> EPOCH_SHIFT, offset), record)
            if known != record:
                return (
                    f"broker {replica.broker}: two values in epoch {record >> EPOCH_SHIFT} at offset {offset}"
                )
            offset += 1
        return None


class FollowerAppends:
    """A-15, the follower's half: at its end, in no epoch above the one it follows."""

    name = "A-15 FollowerAppends"

    @staticmethod
    def check(w: ModelWorld, replica: ModelReplica, offset: int, records: list[int]) -> str | None:
        if offset != len(replica.log):
            return f"broker {replica.broker} appends what belongs at {offset} at {len(replica.log)}"
        if records[-1] >> EPOCH_SHIFT > replica.leader_epoch:
            return f"broker {replica.broker} appends of epoch {records[-1] >> EPOCH_SHIFT}"
        return None


class Checker:
    """Where actions tell what they do. Raises Violation."""

    def __init__(self, left_out: frozenset[str] = frozenset()) -> None:
        self._state = tuple((p.name, p.check) for p in STATE_PROPERTIES if p.name not in left_out)
        self._change = tuple((p.name, p.check) for p in CHANGE_PROPERTIES if p.name not in left_out)
        self._left_out = left_out

    def step(self, w: ModelWorld) -> None:
        """After a step: the state properties of what it touched."""
        touched, w.touched = w.touched, 0
        for part in w.partitions:
            if touched >> part.index & 1:
                for name, check in self._state:
                    problem = check(w, part)
                    if problem is not None:
                        raise ModelViolation(name, f"partition {part.index}: {problem}")

    def full(self, w: ModelWorld) -> None:
        """Everything, from the beginning of the logs: now and then, and at the end."""
        w.touched = -1
        self.step(w)
        for part in w.partitions:
            if part.is_excused:
                continue
            for broker in w.brokers:
                replica = broker.replicas[part.index]
                replica.checked_to = 0
                self.matches(w, replica)
            leader = part.leader
            if leader >= 0 and w.is_live(leader):
                log = w.brokers[leader].replicas[part.index].log
                if log[: len(part.committed)] != part.committed:
                    raise ModelViolation(
                        "I-9 LeaderCompleteness", f"leader {leader} differs from what was committed"
                    )

    def _demand(self, name: str, problem: str | None) -> None:
        if problem is not None and name not in self._left_out:
            raise ModelViolation(name, problem)

    def changed(
        self,
        w: ModelWorld,
        part: PartitionState,
        old: Before,
        cause: int,
        how: int,
        active: int,
        unclean: int,
    ) -> None:
        for name, check in self._change:
            problem = check(w, part, old, cause, how, active, unclean)
            if problem is not None:
                raise ModelViolation(name, f"partition {part.index}: {problem}")

    def registered(
        self, w: ModelWorld, broker: ModelBroker, stored: int, was_unfenced: int, is_clean: bool
    ) -> None:
        self._demand(RegistrationGranted.name, RegistrationGranted.check(w, broker, stored, was_unfenced))
        self._demand(UncleanExclusion.name, UncleanExclusion.check(w, broker, stored))

    def accepted(
        self, w: ModelWorld, part: PartitionState, sender: int, epoch: int, proposal: ModelProposal
    ) -> None:
        self._demand(AcceptedProposal.name, AcceptedProposal.check(w, part, sender, epoch, proposal))

    def recovered(self, w: ModelWorld, part: PartitionState, recovery: ModelRecovery, chosen: int) -> None:
        self._demand(BalancedRecovery.name, BalancedRecovery.check(w, part, recovery, chosen))

    def leads(self, w: ModelWorld, replica: ModelReplica) -> None:
        self._demand(OneLeaderPerEpoch.name, OneLeaderPerEpoch.check(w, replica))
        part = w.partitions[replica.partition]
        if replica.leader_epoch == part.leader_epoch and not part.is_excused:
            end = len(part.committed)
            if replica.log[:end] != part.committed:
                self._demand(
                    "I-9 LeaderCompleteness", f"{replica.broker} begins to lead without all committed"
                )

    def raises(self, w: ModelWorld, replica: ModelReplica, old: int, new: int) -> None:
        self._demand(HighWatermarkQuorum.name, HighWatermarkQuorum.check(w, replica, new))

    def matches(self, w: ModelWorld, replica: ModelReplica) -> None:
        self._demand(LogMatching.name, LogMatching.check(w, replica))

    def acknowledges(self, w: ModelWorld, replica: ModelReplica, offset: int) -> None:
        self._demand(AckedIsCommitted.name, AckedIsCommitted.check(w, replica, offset))

    def shows(self, w: ModelWorld, replica: ModelReplica) -> None:
        self._demand(AppliedHighWatermark.name, AppliedHighWatermark.check(w, replica))

    def joins(self, w: ModelWorld, replica: ModelReplica, follower: int) -> None:
        self._demand(CaughtUpJoins.name, CaughtUpJoins.check(w, replica, follower))

    def truncates(self, w: ModelWorld, replica: ModelReplica, end: int, epoch: int, leader_end: int) -> None:
        self._demand(TruncationPoint.name, TruncationPoint.check(w, replica, end, epoch, leader_end))
        self._demand(CommittedOnlyGrows.name, CommittedOnlyGrows.check(w, replica, end))

    def appends(self, w: ModelWorld, replica: ModelReplica, offset: int, record: int) -> None:
        self._demand(AppendsInOwnEpoch.name, AppendsInOwnEpoch.check(w, replica, record))
        self._demand(EpochsInLog.name, EpochsInLog.check(w, replica, [record]))
        self._demand(EpochOffsetUniqueness.name, EpochOffsetUniqueness.check(w, replica, offset, [record]))

    def follows(self, w: ModelWorld, replica: ModelReplica, offset: int, records: list[int]) -> None:
        self._demand(FollowerAppends.name, FollowerAppends.check(w, replica, offset, records))
        self._demand(EpochsInLog.name, EpochsInLog.check(w, replica, records))
        self._demand(EpochOffsetUniqueness.name, EpochOffsetUniqueness.check(w, replica, offset, records))

    def vanished(self, w: ModelWorld, replica: ModelReplica, end: int, gone: list[int]) -> None:
        problem = NoCommittedRecordLostGlobally.check(w, replica, end, gone)
        self._demand(NoCommittedRecordLostGlobally.name, problem)

    def flushed(self, w: ModelWorld, replica: ModelReplica) -> None:
        self._demand(FlushCovers.name, FlushCovers.check(w, replica))

    def flush_failed(self, w: ModelWorld, replica: ModelReplica) -> None:
        self._demand(FailStop.name, FailStop.check(w, replica))

    def started(self, w: ModelWorld, broker: ModelBroker) -> None:
        self._demand(CleanFileDiscipline.name, CleanFileDiscipline.check(w, broker))

    def wrote_file(self, w: ModelWorld, broker: ModelBroker) -> None:
        self._demand(CleanStopOrder.name, CleanStopOrder.check(w, broker))
