"""Wrong rules of controllers: ELR, elections, AlterPartition, unclean recovery, operators.

Owns wrong rules only; each docstring says which rule is gone.
"""

from holdfast.sim.model.mutant import ModelMutant
from holdfast.sim.model.rules import ACCEPTED, INELIGIBLE, NOT_CONTROLLER, STALE_BROKER_EPOCH
from holdfast.sim.model.state import (
    FROM_ELR,
    FROM_ISR,
    LAST_KNOWN_LEADER,
    ModelProposal,
    ModelRecovery,
    ModelWorld,
    PartitionState,
    ids,
)

# --- ELR -------------------------------------------------------------------------------------------------


class ElrAboveMinIsr(ModelMutant):
    """A removed replica is put into the ELR although the ISR stays at min ISR."""

    row = 9

    def eligible(
        self, part: PartitionState, isr: int, min_isr: int, replicas: int, unclean: int
    ) -> tuple[int, int]:
        elr, known = super().eligible(part, isr, min_isr, replicas, unclean)
        removed = part.isr & ~isr & ~unclean & replicas
        return elr | removed, known & ~removed


class UncleanStaysInElr(ModelMutant):
    """A broker that registers unclean stays in the ELR."""

    row = 10

    def eligible(
        self, part: PartitionState, isr: int, min_isr: int, replicas: int, unclean: int
    ) -> tuple[int, int]:
        return super().eligible(part, isr, min_isr, replicas, 0)


class ElrNotCleared(ModelMutant):
    """The ELR outlives the ISR's return to min ISR."""

    def eligible(
        self, part: PartitionState, isr: int, min_isr: int, replicas: int, unclean: int
    ) -> tuple[int, int]:
        elr, known = super().eligible(part, isr, min_isr, replicas, unclean)
        return elr | part.elr & ~isr & replicas, known


class ElrForgets(ModelMutant):
    """Only who leaves the ISR now is eligible, not who was before."""

    def eligible(
        self, part: PartitionState, isr: int, min_isr: int, replicas: int, unclean: int
    ) -> tuple[int, int]:
        old, part.elr = part.elr, 0
        try:
            return super().eligible(part, isr, min_isr, replicas, unclean)
        finally:
            part.elr = old


class LastKnownElrClearedByElection(ModelMutant):
    """The last known ELR is forgotten when a replica is elected, not when min ISR is reached."""

    row = 27

    def eligible(
        self, part: PartitionState, isr: int, min_isr: int, replicas: int, unclean: int
    ) -> tuple[int, int]:
        elr, known = super().eligible(part, isr, min_isr, replicas, unclean)
        return elr, known & ~part.last_known_elr if part.leader >= 0 or isr else known

    def seats_after_recovery(self, part: PartitionState, leader: int, min_isr: int) -> int:
        return 0


class LastKnownElrForgetsUnclean(ModelMutant):
    """Unclean members do not become last known."""

    def eligible(
        self, part: PartitionState, isr: int, min_isr: int, replicas: int, unclean: int
    ) -> tuple[int, int]:
        elr, known = super().eligible(part, isr, min_isr, replicas, unclean)
        return elr, known & ~unclean


# --- elections ---------------------------------------------------------------------------------------------


class ElectsAnyUnfenced(ModelMutant):
    """The first active replica is elected, in the ISR or not."""

    row = 14

    def elect(
        self,
        world: ModelWorld,
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


class ElectsFencedElr(ModelMutant):
    """A member of the ELR is elected although it is fenced."""

    row = 14

    def elect(
        self,
        world: ModelWorld,
        part: PartitionState,
        order: tuple[int, ...],
        isr: int,
        elr: int,
        active: int,
        unclean: bool,
    ) -> tuple[int, int]:
        return super().elect(world, part, order, isr, elr, active | elr, unclean)


class ElectsFencedLastKnownLeader(ModelMutant):
    """The last known leader is elected without a look at whether it is there."""

    row = 14
    band = "manager-off"

    def elect(
        self,
        world: ModelWorld,
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


class ElectsElrBeforeIsr(ModelMutant):
    """ELR members are candidates while the ISR has active ones."""

    def elect(
        self,
        world: ModelWorld,
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


class LeaderEpochNotBumped(ModelMutant):
    """A new leader keeps the leader epoch."""

    row = 15

    def leader_epoch(self, part: PartitionState, leader: int, takes_over: bool, lost_replica: bool) -> int:
        return part.leader_epoch + (leader < 0 and part.leader >= 0)


# --- AlterPartition ------------------------------------------------------------------------------------


class GrantsLateCopies(ModelMutant):
    """A refused proposal may be granted by a late copy of itself once its member is unfenced again."""

    is_rare = True

    def is_late(self, heard: tuple[int, int], request: tuple[int, int], is_meant_for_other: bool) -> bool:
        return False


class AcceptsStaleBrokerEpochs(ModelMutant):
    """AlterPartition does not compare the members' broker epochs."""

    def judge(
        self, world: ModelWorld, part: PartitionState, sender: int, sender_epoch: int, proposal: ModelProposal
    ) -> int:
        epochs = tuple(world.epochs)
        return super().judge(world, part, sender, sender_epoch, (proposal[0], epochs, *proposal[2:]))


class AcceptsFencedMembers(ModelMutant):
    """AlterPartition does not look whether the members are fenced."""

    def judge(
        self, world: ModelWorld, part: PartitionState, sender: int, sender_epoch: int, proposal: ModelProposal
    ) -> int:
        verdict = super().judge(world, part, sender, sender_epoch, proposal)
        return ACCEPTED if verdict == INELIGIBLE else verdict


class AcceptsOldPartitionEpoch(ModelMutant):
    """AlterPartition does not compare partition epochs."""

    def judge(
        self, world: ModelWorld, part: PartitionState, sender: int, sender_epoch: int, proposal: ModelProposal
    ) -> int:
        isr, epochs, leader_epoch, _ = proposal
        fresh = (isr, epochs, leader_epoch, part.partition_epoch)
        return super().judge(world, part, sender, sender_epoch, fresh)


class AcceptsOldLeaderEpoch(ModelMutant):
    """AlterPartition is granted also when its sender leads no more."""

    def judge(
        self, world: ModelWorld, part: PartitionState, sender: int, sender_epoch: int, proposal: ModelProposal
    ) -> int:
        if sender_epoch != world.epochs[sender]:
            return STALE_BROKER_EPOCH
        if proposal[3] > part.partition_epoch:
            return NOT_CONTROLLER
        return ACCEPTED if not proposal[0] & ~(part.replicas & world.active) else INELIGIBLE


# --- unclean recovery --------------------------------------------------------------------------------------


class RecoversOnFirstReply(ModelMutant):
    """Balanced recovery elects on the first answer."""

    row = 24

    def recovery_choice(self, world: ModelWorld, part: PartitionState, recovery: ModelRecovery) -> int:
        for broker in ids(world.active & part.replicas):
            if recovery.replies[broker] is not None:
                return broker
        return -1


class RecoversAtRandom(ModelMutant):
    """Unclean recovery takes any active replica."""

    row = 24

    def recovery_choice(self, world: ModelWorld, part: PartitionState, recovery: ModelRecovery) -> int:
        return next(iter(ids(world.active & part.replicas)), -1)


class RecoversWithoutRevalidation(ModelMutant):
    """Answers are checked when they arrive and not when the choice is made (N-3)."""

    def recovery_choice(self, world: ModelWorld, part: PartitionState, recovery: ModelRecovery) -> int:
        known = part.last_known_elr
        valid = 0
        for broker in ids(part.replicas):
            if recovery.replies[broker] is not None:
                valid |= 1 << broker
        if not known or known & ~valid:
            return super().recovery_choice(world, part, recovery)
        chosen = self.best_log(part, recovery, valid & world.active)
        return chosen


class TakesStaleLogInfo(ModelMutant):
    """An answer of a former incarnation counts."""

    def accepts_log_info(
        self, world: ModelWorld, part: PartitionState, broker: int, broker_epoch: int, leader_epoch: int
    ) -> bool:
        return leader_epoch == part.leader_epoch

    def recovery_choice(self, world: ModelWorld, part: PartitionState, recovery: ModelRecovery) -> int:
        for broker, reply in enumerate(recovery.replies):
            if reply is not None:
                recovery.replies[broker] = (world.epochs[broker], *reply[1:])
        return super().recovery_choice(world, part, recovery)


class RecoversFromOutsiders(ModelMutant):
    """A replica outside last known ELR may win a balanced recovery by its later epoch (R61, R66)."""

    def candidates_of_recovery(self, part: PartitionState, recovery: ModelRecovery, valid: int) -> int:
        return valid


class LongestLogBeforeEpoch(ModelMutant):
    """The longest log wins, whichever epoch it ends in (B22)."""

    def best_log(self, part: PartitionState, recovery: ModelRecovery, valid: int) -> int:
        replies = [(reply[2], broker) for broker, reply in enumerate(recovery.replies) if reply]
        return max(((end, broker) for end, broker in replies if valid >> broker & 1), default=(0, -1))[1]


# --- operators --------------------------------------------------------------------------------------------


class MinIsrByConfig(ModelMutant):
    """The leader learns of a new min ISR from a record of its own, after the controller used it (N-5, B6)."""

    def changes_min_isr_in_registration(self) -> bool:
        return False


class CompletesBelowMinIsr(ModelMutant):
    """A reassignment completes when all that were added are in sync, however few that is."""

    def completes_reassignment(self, staying: int, adding: int, min_isr: int) -> bool:
        return not adding & ~staying and bool(staying)


class CompletesWithoutAdding(ModelMutant):
    """A reassignment completes with enough in sync, also when no new replica is."""

    def completes_reassignment(self, staying: int, adding: int, min_isr: int) -> bool:
        return staying.bit_count() >= min_isr


class CancelsBelowMinIsr(ModelMutant):
    """A reassignment is cancelled however few stay in the ISR."""

    def may_redirect(self, part: PartitionState, replicas: int, is_cancel: bool) -> bool:
        return True


class RedirectsDropCandidates(ModelMutant):
    """A redirected reassignment looks at the ISR only: complete replicas of the ELR may be dropped."""

    def may_redirect(self, part: PartitionState, replicas: int, is_cancel: bool) -> bool:
        staying = part.isr & replicas
        return staying.bit_count() >= part.min_isr if is_cancel or staying != part.isr else True


class RedirectsDropLastKnown(ModelMutant):
    """A redirected reassignment may drop members of the last known ELR: one of them alone may be complete."""

    def may_redirect(self, part: PartitionState, replicas: int, is_cancel: bool) -> bool:
        staying = part.isr & replicas
        is_cut = is_cancel or (part.isr | part.elr) & ~replicas
        return staying.bit_count() >= part.min_isr if is_cut else True
