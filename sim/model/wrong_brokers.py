"""Wrong rules of brokers: high watermark, joining, replication, starts and stops.

Owns wrong rules only; each docstring says which rule is gone. A mutant of a mutant breaks both: the first
alone is masked by the second.
"""

from holdfast.sim.model.mutant import ModelMutant
from holdfast.sim.model.rules import end_of_epoch
from holdfast.sim.model.state import FetchAnswer, ModelBroker, ModelProposal, ModelReplica, ModelWorld, ids

# --- the high watermark ------------------------------------------------------------------------------------


class GateByMaximalIsr(ModelMutant):
    """The size of the maximal ISR opens the high watermark, not that of the committed one."""

    row = 1

    def high_watermark(self, replica: ModelReplica, end: int) -> int:
        committed, replica.isr = replica.isr, replica.maximal_isr
        try:
            return super().high_watermark(replica, end)
        finally:
            replica.isr = committed


class NoGate(ModelMutant):
    """The high watermark moves below min ISR too, as before KIP-966."""

    row = 2

    def high_watermark(self, replica: ModelReplica, end: int) -> int:
        min_isr, replica.min_isr = replica.min_isr, 0
        try:
            return super().high_watermark(replica, end)
        finally:
            replica.min_isr = min_isr


class IgnoresPendingExpansion(ModelMutant):
    """The high watermark counts the committed ISR, not the members asked for."""

    row = 3

    def after_proposal(self, replica: ModelReplica, proposal: ModelProposal) -> tuple[int, int]:
        return replica.isr, replica.isr


class ShrinksBeforeConfirmed(ModelMutant):
    """A proposed shrink counts at once."""

    row = 4

    def after_proposal(self, replica: ModelReplica, proposal: ModelProposal) -> tuple[int, int]:
        return replica.isr, proposal[0]


class HighWatermarkOffByOne(ModelMutant):
    """The high watermark is taken for inclusive."""

    row = 5

    def high_watermark(self, replica: ModelReplica, end: int) -> int:
        new = super().high_watermark(replica, end)
        return min(new + 1, end) if new > replica.high_watermark else new


class MajorityHighWatermark(ModelMutant):
    """The MinISR-th largest position is taken for committed."""

    row = 6

    def high_watermark(self, replica: ModelReplica, end: int) -> int:
        if replica.isr.bit_count() < replica.min_isr:
            return replica.high_watermark
        others = ids(replica.maximal_isr & ~(1 << replica.broker))
        positions = sorted([end, *(replica.positions[other] for other in others)], reverse=True)
        at = min(replica.min_isr, len(positions)) - 1
        return max(replica.high_watermark, positions[at])


class NewLeaderCommitsAll(ModelMutant):
    """A new leader takes its log end for the high watermark (the primer)."""

    def high_watermark_at_start(self, replica: ModelReplica) -> int:
        return len(replica.log)


class ShowsLaggingHighWatermark(ModelMutant):
    """A new leader tells consumers its high watermark at once (A-6)."""

    def is_visible(self, replica: ModelReplica) -> bool:
        return True


class AcknowledgesBelowMinIsr(ModelMutant):
    """Writes of acks=all are taken and acknowledged below min ISR (with the gate open)."""

    def may_acknowledge(self, replica: ModelReplica) -> bool:
        return True

    def refuses_writes(self, replica: ModelReplica) -> bool:
        return False

    def high_watermark(self, replica: ModelReplica, end: int) -> int:
        return NoGate.high_watermark(NoGate(), replica, end)


# --- joining the ISR --------------------------------------------------------------------------------------


class JoinsBelowEpochStart(ModelMutant):
    """A follower may join before it has reached the start of the leader's epoch."""

    row = 18

    def may_join(self, replica: ModelReplica, broker: ModelBroker, follower: int) -> bool:
        start, replica.start_offset = replica.start_offset, 0
        try:
            return super().may_join(replica, broker, follower)
        finally:
            replica.start_offset = start


class JoinsBelowHighWatermark(ModelMutant):
    """A follower may join before it has reached the high watermark."""

    def may_join(self, replica: ModelReplica, broker: ModelBroker, follower: int) -> bool:
        known, replica.high_watermark = replica.high_watermark, 0
        try:
            return super().may_join(replica, broker, follower)
        finally:
            replica.high_watermark = known


class JoinsInOldIncarnation(ModelMutant):
    """What a former incarnation fetched counts for the present one, at the leader and at the controller."""

    def may_join(self, replica: ModelReplica, broker: ModelBroker, follower: int) -> bool:
        replica.position_epochs[follower] = broker.known_epochs[follower]
        return super().may_join(replica, broker, follower)


# --- replication -------------------------------------------------------------------------------------------


class NoDivergenceCheck(ModelMutant):
    """The leader does not compare the follower's last epoch with its own log."""

    row = 20

    def divergence(self, log: list[int], fetch_offset: int, last_epoch: int) -> tuple[int, int] | None:
        return None


class TakesStaleAnswers(ModelMutant):
    """A follower takes any answer of the leader epoch, asked for or not."""

    row = 20

    def takes_answer(self, replica: ModelReplica, answer: FetchAnswer) -> bool:
        return True


class MatchesAnswersByOffset(ModelMutant):
    """A follower matches answers by leader epoch and offset instead of by request (N-4)."""

    def takes_answer(self, replica: ModelReplica, answer: FetchAnswer) -> bool:
        return answer[2] == len(replica.log)


class TruncatesToHighWatermark(ModelMutant):
    """A follower truncates to its own high watermark (the primer)."""

    row = 21

    def truncation(self, log: list[int], high_watermark: int, epoch: int, end: int) -> int:
        return high_watermark


class TruncatesToLeadersEnd(ModelMutant):
    """A follower truncates to the end that the leader names, also where its own log differs below that."""

    def truncation(self, log: list[int], high_watermark: int, epoch: int, end: int) -> int:
        return min(len(log), end)


class TruncatesToOwnEnd(ModelMutant):
    """A follower keeps all of its own diverging epoch."""

    def truncation(self, log: list[int], high_watermark: int, epoch: int, end: int) -> int:
        return end_of_epoch(log, epoch)


class NeverTruncates(ModelMutant):
    """A follower keeps what diverges. Safe, and stuck for ever: L-6."""

    def truncation(self, log: list[int], high_watermark: int, epoch: int, end: int) -> int:
        return len(log)


class ServesFormerEpochs(ModelMutant):
    """The leader serves fetches of any leader epoch."""

    def accepts_fetch(
        self, replica: ModelReplica, broker: ModelBroker, follower: int, epoch: int, leader_epoch: int
    ) -> bool:
        return super().accepts_fetch(replica, broker, follower, epoch, replica.leader_epoch)


class KeepsHighWatermarkWhenCut(ModelMutant):
    """The high watermark stays where it was when the log is cut below it."""

    def high_watermark_after_cut(self, replica: ModelReplica) -> int:
        return replica.high_watermark


class TakesOldRegistrations(ModelMutant):
    """An older partition epoch replaces a newer one."""

    def is_fresh(self, replica: ModelReplica, partition_epoch: int) -> bool:
        return partition_epoch != replica.partition_epoch


# --- brokers that stop and come back -----------------------------------------------------------------------


class FileBeforeFlush(ModelMutant):
    """The clean-shutdown file is written before the logs are flushed."""

    row = 11

    def flushes_before_file(self) -> bool:
        return False


class KeepsFile(ModelMutant):
    """The clean-shutdown file stays after the start."""

    def removes_file_at_start(self) -> bool:
        return False


class RegistersOverLiveEpoch(ModelMutant):
    """A registration is granted while the old epoch is unfenced."""

    row = 13

    def grants_registration(self, world: ModelWorld, broker: ModelBroker) -> bool:
        return True


class EveryStartIsClean(ModelMutant):
    """Any epoch in the file counts as a clean stop, and so does none."""

    def is_clean(self, stored_epoch: int, previous_epoch: int) -> bool:
        return True


class RolesBeforeRegistration(ModelMutant):
    """A broker takes roles before it has replayed its own registration (N-2)."""

    def takes_roles(self, broker: ModelBroker) -> bool:
        return broker.epoch >= 0


class FlushCoversCompletion(ModelMutant):
    """The durable offset becomes the log end at the completion of an fsync (A-21)."""

    row = 29

    def flushed_by(self, replica: ModelReplica) -> int:
        return len(replica.log)


class GoesOnAfterFailedFlush(ModelMutant):
    """EIO on fsync is retried instead of ending the broker (A-20)."""

    row = 32

    def survives_failed_flush(self) -> bool:
        return True


class CountsUnflushed(ModelMutant):
    """With every write flushed, log ends count instead of flushed ends (G-3)."""

    def position(self, end: int, flushed: int, flush_every_write: bool) -> int:
        return end
