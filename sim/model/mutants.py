"""Wrong rules, by name: each replaces one method of `Rules`, and the properties must notice (§5.3).

Owns no check. A mutant of a mutant breaks both rules: the first alone is masked by the second.
"""

from sim.model.rules import ACCEPTED, INELIGIBLE, NOT_CONTROLLER, STALE_BROKER_EPOCH, Rules, end_of_epoch
from sim.model.state import (
    FROM_ELR,
    FROM_ISR,
    LAST_KNOWN_LEADER,
    Broker,
    FetchAnswer,
    PartitionState,
    Proposal,
    Recovery,
    Replica,
    World,
    ids,
)


class Mutant(Rules):
    """One rule broken. The docstring says which."""

    #: row of verification.md §5.3, 0 for one of our own
    row = 0
    #: the band in which it matters
    band = "mixed"
    #: walks hardly ever get there; a story of the tests does
    is_rare = False


# --- the high watermark ------------------------------------------------------------------------------------


class GateByMaximalIsr(Mutant):
    """The size of the maximal ISR opens the high watermark, not that of the committed one."""

    row = 1

    def high_watermark(self, replica: Replica, end: int) -> int:
        committed, replica.isr = replica.isr, replica.maximal_isr
        try:
            return super().high_watermark(replica, end)
        finally:
            replica.isr = committed


class NoGate(Mutant):
    """The high watermark moves below min ISR too, as before KIP-966."""

    row = 2

    def high_watermark(self, replica: Replica, end: int) -> int:
        min_isr, replica.min_isr = replica.min_isr, 0
        try:
            return super().high_watermark(replica, end)
        finally:
            replica.min_isr = min_isr


class IgnoresPendingExpansion(Mutant):
    """The high watermark counts the committed ISR, not the members asked for."""

    row = 3

    def after_proposal(self, replica: Replica, proposal: Proposal) -> tuple[int, int]:
        return replica.isr, replica.isr


class ShrinksBeforeConfirmed(Mutant):
    """A proposed shrink counts at once."""

    row = 4

    def after_proposal(self, replica: Replica, proposal: Proposal) -> tuple[int, int]:
        return replica.isr, proposal[0]


class HighWatermarkOffByOne(Mutant):
    """The high watermark is taken for inclusive."""

    row = 5

    def high_watermark(self, replica: Replica, end: int) -> int:
        new = super().high_watermark(replica, end)
        return min(new + 1, end) if new > replica.high_watermark else new


class MajorityHighWatermark(Mutant):
    """The MinISR-th largest position is taken for committed."""

    row = 6

    def high_watermark(self, replica: Replica, end: int) -> int:
        if replica.isr.bit_count() < replica.min_isr:
            return replica.high_watermark
        others = ids(replica.maximal_isr & ~(1 << replica.broker))
        positions = sorted([end, *(replica.positions[other] for other in others)], reverse=True)
        at = min(replica.min_isr, len(positions)) - 1
        return max(replica.high_watermark, positions[at])


class NewLeaderCommitsAll(Mutant):
    """A new leader takes its log end for the high watermark (the primer)."""

    def high_watermark_at_start(self, replica: Replica) -> int:
        return len(replica.log)


class ShowsLaggingHighWatermark(Mutant):
    """A new leader tells consumers its high watermark at once (A-6)."""

    def is_visible(self, replica: Replica) -> bool:
        return True


class AcknowledgesBelowMinIsr(Mutant):
    """Writes of acks=all are taken and acknowledged below min ISR (with the gate open)."""

    def may_acknowledge(self, replica: Replica) -> bool:
        return True

    def refuses_writes(self, replica: Replica) -> bool:
        return False

    def high_watermark(self, replica: Replica, end: int) -> int:
        return NoGate.high_watermark(NoGate(), replica, end)


# --- ELR -------------------------------------------------------------------------------------------------


class ElrAboveMinIsr(Mutant):
    """A removed replica is put into the ELR although the ISR stays at min ISR."""

    row = 9

    def eligible(
        self, part: PartitionState, isr: int, min_isr: int, replicas: int, unclean: int
    ) -> tuple[int, int]:
        elr, known = super().eligible(part, isr, min_isr, replicas, unclean)
        removed = part.isr & ~isr & ~unclean & replicas
        return elr | removed, known & ~removed


class UncleanStaysInElr(Mutant):
    """A broker that registers unclean stays in the ELR."""

    row = 10

    def eligible(
        self, part: PartitionState, isr: int, min_isr: int, replicas: int, unclean: int
    ) -> tuple[int, int]:
        return super().eligible(part, isr, min_isr, replicas, 0)


class ElrNotCleared(Mutant):
    """The ELR outlives the ISR's return to min ISR."""

    def eligible(
        self, part: PartitionState, isr: int, min_isr: int, replicas: int, unclean: int
    ) -> tuple[int, int]:
        elr, known = super().eligible(part, isr, min_isr, replicas, unclean)
        return elr | part.elr & ~isr & replicas, known


class ElrForgets(Mutant):
    """Only who leaves the ISR now is eligible, not who was before."""

    def eligible(
        self, part: PartitionState, isr: int, min_isr: int, replicas: int, unclean: int
    ) -> tuple[int, int]:
        old, part.elr = part.elr, 0
        try:
            return super().eligible(part, isr, min_isr, replicas, unclean)
        finally:
            part.elr = old


class LastKnownElrClearedByElection(Mutant):
    """The last known ELR is forgotten when somebody is elected, not when min ISR is reached."""

    row = 27

    def eligible(
        self, part: PartitionState, isr: int, min_isr: int, replicas: int, unclean: int
    ) -> tuple[int, int]:
        elr, known = super().eligible(part, isr, min_isr, replicas, unclean)
        return elr, known & ~part.last_known_elr if part.leader >= 0 or isr else known

    def seats_after_recovery(self, part: PartitionState, leader: int, min_isr: int) -> int:
        return 0


class LastKnownElrForgetsUnclean(Mutant):
    """Unclean members do not become last known."""

    def eligible(
        self, part: PartitionState, isr: int, min_isr: int, replicas: int, unclean: int
    ) -> tuple[int, int]:
        elr, known = super().eligible(part, isr, min_isr, replicas, unclean)
        return elr, known & ~unclean


# --- brokers that stop and come back -----------------------------------------------------------------------


class FileBeforeFlush(Mutant):
    """The clean-shutdown file is written before the logs are flushed."""

    row = 11

    def flushes_before_file(self) -> bool:
        return False


class KeepsFile(Mutant):
    """The clean-shutdown file stays after the start."""

    def removes_file_at_start(self) -> bool:
        return False


class RegistersOverLiveEpoch(Mutant):
    """A registration is granted while the old epoch is unfenced."""

    row = 13

    def grants_registration(self, world: World, broker: Broker) -> bool:
        return True


class EveryStartIsClean(Mutant):
    """Any epoch in the file counts as a clean stop, and so does none."""

    def is_clean(self, stored_epoch: int, previous_epoch: int) -> bool:
        return True


class RolesBeforeRegistration(Mutant):
    """A broker takes roles before it has replayed its own registration (D-2)."""

    def takes_roles(self, broker: Broker) -> bool:
        return broker.epoch >= 0


class FlushCoversCompletion(Mutant):
    """The durable offset becomes the log end at the completion of an fsync (A-21)."""

    row = 29

    def flushed_by(self, replica: Replica) -> int:
        return len(replica.log)


class GoesOnAfterFailedFlush(Mutant):
    """EIO on fsync is retried instead of ending the broker (A-20)."""

    row = 32

    def survives_failed_flush(self) -> bool:
        return True


class CountsUnflushed(Mutant):
    """With every write flushed, log ends count instead of flushed ends (B-3)."""

    def position(self, end: int, flushed: int, flush_every_write: bool) -> int:
        return end


# --- elections ---------------------------------------------------------------------------------------------


class ElectsAnyUnfenced(Mutant):
    """The first active replica is elected, in the ISR or not."""

    row = 14

    def elect(
        self,
        world: World,
        part: PartitionState,
        order: tuple[int, ...],
        isr: int,
        elr: int,
        active: int,
        unclean: bool,
    ) -> tuple[int, int]:
        for replica in order:
            if active >> replica & 1:
                return replica, FROM_ISR if isr >> replica & 1 else FROM_ELR
        return -1, 0


class ElectsFencedElr(Mutant):
    """A member of the ELR is elected although it is fenced."""

    row = 14

    def elect(
        self,
        world: World,
        part: PartitionState,
        order: tuple[int, ...],
        isr: int,
        elr: int,
        active: int,
        unclean: bool,
    ) -> tuple[int, int]:
        return super().elect(world, part, order, isr, elr, active | elr, unclean)


class ElectsFencedLastKnownLeader(Mutant):
    """The last known leader is elected without a look at whether it is there."""

    row = 14
    band = "manager-off"

    def elect(
        self,
        world: World,
        part: PartitionState,
        order: tuple[int, ...],
        isr: int,
        elr: int,
        active: int,
        unclean: bool,
    ) -> tuple[int, int]:
        leader, how = super().elect(world, part, order, isr, elr, active, unclean)
        known = part.last_known_leader
        if leader < 0 and known in order and not isr and not elr:
            return known, LAST_KNOWN_LEADER
        return leader, how


class ElectsElrBeforeIsr(Mutant):
    """ELR members are candidates while the ISR has active ones."""

    def elect(
        self,
        world: World,
        part: PartitionState,
        order: tuple[int, ...],
        isr: int,
        elr: int,
        active: int,
        unclean: bool,
    ) -> tuple[int, int]:
        if part.leader < 0 or not isr >> part.leader & 1:
            for replica in order:
                if elr & active & ~part.isr >> replica & 1:
                    return replica, FROM_ELR
        return super().elect(world, part, order, isr, elr, active, unclean)


class LeaderEpochNotBumped(Mutant):
    """A new leader keeps the leader epoch."""

    row = 15

    def leader_epoch(self, part: PartitionState, leader: int, takes_over: bool, lost_replica: bool) -> int:
        return part.leader_epoch + (leader < 0 and part.leader >= 0)


# --- joining the ISR --------------------------------------------------------------------------------------


class JoinsBelowEpochStart(Mutant):
    """A follower may join before it has reached the start of the leader's epoch."""

    row = 18

    def may_join(self, replica: Replica, broker: Broker, follower: int) -> bool:
        start, replica.start_offset = replica.start_offset, 0
        try:
            return super().may_join(replica, broker, follower)
        finally:
            replica.start_offset = start


class JoinsBelowHighWatermark(Mutant):
    """A follower may join before it has reached the high watermark."""

    def may_join(self, replica: Replica, broker: Broker, follower: int) -> bool:
        known, replica.high_watermark = replica.high_watermark, 0
        try:
            return super().may_join(replica, broker, follower)
        finally:
            replica.high_watermark = known


class JoinsInOldIncarnation(Mutant):
    """What a former incarnation fetched counts for the present one, at the leader and at the controller."""

    def may_join(self, replica: Replica, broker: Broker, follower: int) -> bool:
        replica.position_epochs[follower] = broker.known_epochs[follower]
        return super().may_join(replica, broker, follower)


class GrantsLateCopies(Mutant):
    """A refused proposal may be granted by a late copy of itself once its member is unfenced again."""

    is_rare = True

    def is_late(self, heard: tuple[int, int], request: tuple[int, int], is_meant_for_other: bool) -> bool:
        return False


class AcceptsStaleBrokerEpochs(Mutant):
    """AlterPartition does not compare the members' broker epochs."""

    def judge(
        self, world: World, part: PartitionState, sender: int, sender_epoch: int, proposal: Proposal
    ) -> int:
        epochs = tuple(world.epochs)
        return super().judge(world, part, sender, sender_epoch, (proposal[0], epochs, *proposal[2:]))


class AcceptsFencedMembers(Mutant):
    """AlterPartition does not look whether the members are fenced."""

    def judge(
        self, world: World, part: PartitionState, sender: int, sender_epoch: int, proposal: Proposal
    ) -> int:
        verdict = super().judge(world, part, sender, sender_epoch, proposal)
        return ACCEPTED if verdict == INELIGIBLE else verdict


class AcceptsOldPartitionEpoch(Mutant):
    """AlterPartition does not compare partition epochs."""

    def judge(
        self, world: World, part: PartitionState, sender: int, sender_epoch: int, proposal: Proposal
    ) -> int:
        isr, epochs, leader_epoch, _ = proposal
        fresh = (isr, epochs, leader_epoch, part.partition_epoch)
        return super().judge(world, part, sender, sender_epoch, fresh)


class AcceptsOldLeaderEpoch(Mutant):
    """AlterPartition is granted whoever leads by now."""

    def judge(
        self, world: World, part: PartitionState, sender: int, sender_epoch: int, proposal: Proposal
    ) -> int:
        if sender_epoch != world.epochs[sender]:
            return STALE_BROKER_EPOCH
        if proposal[3] > part.partition_epoch:
            return NOT_CONTROLLER
        return ACCEPTED if not proposal[0] & ~(part.replicas & world.active) else INELIGIBLE


# --- replication -------------------------------------------------------------------------------------------


class NoDivergenceCheck(Mutant):
    """The leader does not compare the follower's last epoch with its own log."""

    row = 20

    def divergence(self, log: list[int], fetch_offset: int, last_epoch: int) -> tuple[int, int] | None:
        return None


class TakesStaleAnswers(Mutant):
    """A follower takes any answer of the leader epoch, asked for or not."""

    row = 20

    def takes_answer(self, replica: Replica, answer: FetchAnswer) -> bool:
        return True


class MatchesAnswersByOffset(Mutant):
    """A follower matches answers by leader epoch and offset instead of by request (D-4)."""

    def takes_answer(self, replica: Replica, answer: FetchAnswer) -> bool:
        return answer[2] == len(replica.log)


class TruncatesToHighWatermark(Mutant):
    """A follower truncates to its own high watermark (the primer)."""

    row = 21

    def truncation(self, log: list[int], high_watermark: int, epoch: int, end: int) -> int:
        return high_watermark


class TruncatesToLeadersEnd(Mutant):
    """A follower truncates to the end that the leader names, whatever its own log holds."""

    def truncation(self, log: list[int], high_watermark: int, epoch: int, end: int) -> int:
        return min(len(log), end)


class TruncatesToOwnEnd(Mutant):
    """A follower keeps all of its own diverging epoch."""

    def truncation(self, log: list[int], high_watermark: int, epoch: int, end: int) -> int:
        return end_of_epoch(log, epoch)


class NeverTruncates(Mutant):
    """A follower keeps what diverges. Safe, and stuck for ever: L-6."""

    def truncation(self, log: list[int], high_watermark: int, epoch: int, end: int) -> int:
        return len(log)


class ServesFormerEpochs(Mutant):
    """The leader serves fetches of any leader epoch."""

    def accepts_fetch(
        self, replica: Replica, broker: Broker, follower: int, epoch: int, leader_epoch: int
    ) -> bool:
        return super().accepts_fetch(replica, broker, follower, epoch, replica.leader_epoch)


class KeepsHighWatermarkWhenCut(Mutant):
    """The high watermark stays where it was when the log is cut below it."""

    def high_watermark_after_cut(self, replica: Replica) -> int:
        return replica.high_watermark


class TakesOldRegistrations(Mutant):
    """An older partition epoch replaces a newer one."""

    def is_fresh(self, replica: Replica, partition_epoch: int) -> bool:
        return partition_epoch != replica.partition_epoch


# --- unclean recovery --------------------------------------------------------------------------------------


class RecoversOnFirstReply(Mutant):
    """Balanced recovery elects on the first answer."""

    row = 24

    def recovery_choice(self, world: World, part: PartitionState, recovery: Recovery) -> int:
        for broker in ids(world.active & part.replicas):
            if recovery.replies[broker] is not None:
                return broker
        return -1


class RecoversAtRandom(Mutant):
    """Unclean recovery takes any active replica."""

    row = 24

    def recovery_choice(self, world: World, part: PartitionState, recovery: Recovery) -> int:
        return next(iter(ids(world.active & part.replicas)), -1)


class RecoversWithoutRevalidation(Mutant):
    """Answers are checked when they arrive and not when the choice is made (D-3)."""

    def recovery_choice(self, world: World, part: PartitionState, recovery: Recovery) -> int:
        known = part.last_known_elr
        valid = 0
        for broker in ids(part.replicas):
            if recovery.replies[broker] is not None:
                valid |= 1 << broker
        if not known or known & ~valid:
            return super().recovery_choice(world, part, recovery)
        chosen = self.best_log(part, recovery, valid & world.active)
        return chosen


class TakesStaleLogInfo(Mutant):
    """An answer of a former incarnation counts."""

    def accepts_log_info(
        self, world: World, part: PartitionState, broker: int, broker_epoch: int, leader_epoch: int
    ) -> bool:
        return leader_epoch == part.leader_epoch

    def recovery_choice(self, world: World, part: PartitionState, recovery: Recovery) -> int:
        for broker, reply in enumerate(recovery.replies):
            if reply is not None:
                recovery.replies[broker] = (world.epochs[broker], *reply[1:])
        return super().recovery_choice(world, part, recovery)


class RecoversFromOutsiders(Mutant):
    """A replica outside last known ELR may win a balanced recovery by its later epoch (R61, R66)."""

    def candidates_of_recovery(self, part: PartitionState, recovery: Recovery, valid: int) -> int:
        return valid


class LongestLogBeforeEpoch(Mutant):
    """The longest log wins, whatever epoch it ends in (B22)."""

    def best_log(self, part: PartitionState, recovery: Recovery, valid: int) -> int:
        replies = [(reply[2], broker) for broker, reply in enumerate(recovery.replies) if reply]
        return max(((end, broker) for end, broker in replies if valid >> broker & 1), default=(0, -1))[1]


# --- operators --------------------------------------------------------------------------------------------


class MinIsrByConfig(Mutant):
    """The leader learns of a new min ISR from a record of its own, after the controller used it (D-5, B6)."""

    def changes_min_isr_in_registration(self) -> bool:
        return False


class CompletesBelowMinIsr(Mutant):
    """A reassignment completes when all that were added are in sync, however few that is."""

    def completes_reassignment(self, staying: int, adding: int, min_isr: int) -> bool:
        return not adding & ~staying and bool(staying)


class CompletesWithoutAdding(Mutant):
    """A reassignment completes with enough in sync, whoever that is."""

    def completes_reassignment(self, staying: int, adding: int, min_isr: int) -> bool:
        return staying.bit_count() >= min_isr


class CancelsBelowMinIsr(Mutant):
    """A reassignment is cancelled whatever stays in the ISR."""

    def may_redirect(self, part: PartitionState, replicas: int, is_cancel: bool) -> bool:
        return True


class RedirectsDropCandidates(Mutant):
    """A redirected reassignment looks at the ISR only: complete replicas of the ELR may be dropped."""

    def may_redirect(self, part: PartitionState, replicas: int, is_cancel: bool) -> bool:
        staying = part.isr & replicas
        return staying.bit_count() >= part.min_isr if is_cancel or staying != part.isr else True


class RedirectsDropLastKnown(Mutant):
    """A redirected reassignment may drop members of the last known ELR: one of them alone may be complete."""

    def may_redirect(self, part: PartitionState, replicas: int, is_cancel: bool) -> bool:
        staying = part.isr & replicas
        is_cut = is_cancel or (part.isr | part.elr) & ~replicas
        return staying.bit_count() >= part.min_isr if is_cut else True


def _all() -> dict[str, type[Mutant]]:
    kinds = Mutant.__subclasses__()
    for kind in kinds:
        kinds += kind.__subclasses__()
    return {_name(kind): kind for kind in kinds}


def _name(kind: type[Mutant]) -> str:
    words = "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in kind.__name__)
    return words[1:]


#: by the name of the command line
MUTANTS = _all()
