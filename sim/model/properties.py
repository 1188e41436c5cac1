"""What must hold: one class a property, named as in the TLA+ modules (I-...: after each step that touched a
partition; A-..., D-...: where the thing happens).

Owns the checks and nothing else: they read states and ghosts, never change them and draw no random numbers. A
broken property raises `ModelViolation`. Within the fault budget all must hold; once a possible loss was
reported beyond it, what G-4 allows to break is not asked any more for that partition: `is_excused`.
"""

from holdfast.sim.model.controller import Before
from holdfast.sim.model.state import (
    ALTER_PARTITION,
    CAUSES,
    FENCING,
    FOLLOWER,
    FROM_ELR,
    FROM_ISR,
    KINDS,
    LEADER,
    MIN_ISR_CHANGE,
    REASSIGNMENT,
    RECOVERY,
    RUNNING,
    SHUTDOWN,
    UNCLEAN_REGISTRATION,
    UNFENCING,
    ModelWorld,
    PartitionState,
    ids,
)


class ModelViolation(AssertionError):
    """A property does not hold."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f"{name}: {text}")
        self.property_name = name


def members(mask: int) -> str:
    """A set for people."""
    return "(" + ",".join(map(str, ids(mask))) + ")"


# --- state properties ------------------------------------------------------------------------------------


class TypeOK:
    """I-1"""

    name = "I-1 TypeOK"

    @staticmethod
    def check(w: ModelWorld, part: PartitionState) -> str | None:
        if part.min_isr < 1 or part.leader >= w.broker_count or not part.replicas:
            return f"min ISR {part.min_isr}, leader {part.leader}, replicas {members(part.replicas)}"
        for broker in w.brokers:
            replica = broker.replicas[part.index]
            end = len(replica.log)
            if (
                not 0 <= replica.high_watermark <= end
                or not 0 <= replica.flushed <= end
                or replica.durable > end
            ):
                seen = (replica.high_watermark, replica.flushed, replica.durable, end)
                return f"broker {broker.id}: high watermark, flushed, durable and log end are {seen}"
        return None


class ValidBrokerState:
    """I-2"""

    name = "I-2 ValidBrokerState"

    @staticmethod
    def check(w: ModelWorld, part: PartitionState) -> str | None:
        for broker in w.brokers:
            if broker.state == RUNNING and broker.epoch < 0:
                return f"broker {broker.id} runs without a registration"
        return None


class ValidReplicaState:
    """I-3"""

    name = "I-3 ValidReplicaState"

    @staticmethod
    def check(w: ModelWorld, part: PartitionState) -> str | None:
        for broker in w.brokers:
            replica = broker.replicas[part.index]
            if replica.role == LEADER and replica.leader != broker.id:
                return f"broker {broker.id} leads and takes {replica.leader} for the leader"
        return None


class ValidFetcherState:
    """I-4"""

    name = "I-4 ValidFetcherState"

    @staticmethod
    def check(w: ModelWorld, part: PartitionState) -> str | None:
        for broker in w.brokers:
            replica = broker.replicas[part.index]
            request = replica.request
            if request is not None and (replica.role != FOLLOWER or request[6] != replica.leader):
                return f"broker {broker.id} fetches from {request[6]}, its leader is {replica.leader}"
        return None


class ValidControllerState:
    """I-5: no fenced broker in the ISR, nor leading. With ELR off the last member may be (F7)."""

    name = "I-5 ValidControllerState"

    @staticmethod
    def check(w: ModelWorld, part: PartitionState) -> str | None:
        if part.leader >= 0 and not part.isr >> part.leader & 1:
            return f"leader {part.leader} is not in the ISR {members(part.isr)}"
        fenced = part.isr & ~w.unfenced
        if fenced and (w.setup.elr or part.leader >= 0):
            return f"{members(fenced)} of the ISR is fenced"
        return None


class ValidIsrElr:
    """I-6"""

    name = "I-6 ValidIsrElr"

    @staticmethod
    def check(w: ModelWorld, part: PartitionState) -> str | None:
        isr, elr = part.isr, part.elr
        if (isr | elr | part.last_known_elr) & ~part.replicas:
            return f"ISR {members(isr)} or ELR {members(elr)} outside of replicas {members(part.replicas)}"
        if isr & elr or part.last_known_elr & (isr | elr):
            return f"ISR {members(isr)}, ELR {members(elr)} and {members(part.last_known_elr)} overlap"
        if elr and isr.bit_count() >= part.min_isr:
            return f"ELR {members(elr)} with ISR {members(isr)} at min ISR {part.min_isr}"
        return None


class ReplicationQuorumSuperset:
    """I-7: what a leader counts covers what the controller might elect."""

    name = "I-7 ReplicationQuorumSuperset"

    @staticmethod
    def check(w: ModelWorld, part: PartitionState) -> str | None:
        for broker in w.brokers:
            replica = broker.replicas[part.index]
            if replica.role != LEADER or replica.leader_epoch != part.leader_epoch:
                continue
            if replica.proposal is None and replica.maximal_isr != replica.isr:
                return f"leader {broker.id} counts {members(replica.maximal_isr)}, no proposal is open"
            if replica.isr.bit_count() >= replica.min_isr:
                # with ELR off the last member may be fenced, and the ELR is empty
                missing = (part.isr | part.elr) & ~replica.maximal_isr
                if missing:
                    return (
                        f"leader {broker.id} counts {members(replica.maximal_isr)} and leaves out "
                        f"{members(missing)} of ISR {members(part.isr)} and ELR {members(part.elr)}"
                    )
        return None


class LeaderCandidateCompleteness:
    """I-8"""

    name = "I-8 LeaderCandidateCompleteness"

    @staticmethod
    def check(w: ModelWorld, part: PartitionState) -> str | None:
        if part.is_excused:
            return None
        end = len(part.committed)
        candidates = part.isr | part.elr
        for broker in w.brokers:
            if (
                candidates >> broker.id & 1
                and broker.state == RUNNING
                and broker.epoch == w.epochs[broker.id]
            ):
                log = broker.replicas[part.index].log
                if len(log) < end:
                    return f"candidate {broker.id} ends at {len(log)}, committed are {end}"
                if end and log[end - 1] != part.committed[end - 1]:
                    return f"candidate {broker.id} has another record at {end - 1} than was committed"
        return None


class LeaderCompleteness:
    """I-9"""

    name = "I-9 LeaderCompleteness"

    @staticmethod
    def check(w: ModelWorld, part: PartitionState) -> str | None:
        leader = part.leader
        if leader < 0 or part.is_excused or not w.is_live(leader):
            return None
        log = w.brokers[leader].replicas[part.index].log
        end = len(part.committed)
        if len(log) < end:
            return f"leader {leader} ends at {len(log)}, committed are {end}"
        last = part.acked_end
        if last and log[last - 1] != part.committed[last - 1]:
            return f"leader {leader} has another record at {last - 1} than was acknowledged"
        return None


class ConsistentRead:
    """I-13"""

    name = "I-13 ConsistentRead"

    @staticmethod
    def check(w: ModelWorld, part: PartitionState) -> str | None:
        end = part.consumed_end
        if not end or part.is_excused:
            return None
        for broker in w.brokers:
            replica = broker.replicas[part.index]
            if replica.role == LEADER and replica.leader_epoch == part.leader_epoch:
                log = replica.log
                if len(log) < end or log[end - 1] != part.committed[end - 1]:
                    return f"leader {broker.id} lacks what was consumed below {end}; it ends at {len(log)}"
        return None


class MinIsrRecoveryQuorum:
    """I-14, as far as D14 asserts it."""

    name = "I-14 MinIsrRecoveryQuorum"

    @staticmethod
    def check(w: ModelWorld, part: PartitionState) -> str | None:
        if part.isr or part.elr or not part.recovery_quorum_holds or not w.setup.elr:
            return None
        if not w.setup.manager and part.may_have_lost:
            return None
        if part.last_known_elr.bit_count() < part.min_isr:
            return f"last known ELR {members(part.last_known_elr)} is below min ISR {part.min_isr}"
        return None


STATE_PROPERTIES = (
    TypeOK,
    ValidBrokerState,
    ValidReplicaState,
    ValidFetcherState,
    ValidControllerState,
    ValidIsrElr,
    ReplicationQuorumSuperset,
    LeaderCandidateCompleteness,
    LeaderCompleteness,
    ConsistentRead,
    MinIsrRecoveryQuorum,
)


# --- properties of changes by the controller -------------------------------------------------------------


class IsrGrowth:
    """A-3"""

    name = "A-3 IsrGrowth"

    @staticmethod
    def check(
        w: ModelWorld, part: PartitionState, old: Before, cause: int, how: int, active: int, unclean: int
    ) -> str | None:
        grown = part.isr & ~old.isr
        if not grown or cause == ALTER_PARTITION:
            return None
        is_elected = part.leader >= 0 and part.isr == 1 << part.leader and not old.isr & ~unclean & active
        if is_elected and (how == FROM_ELR or how >= 3):
            return None
        return f"{members(grown)} joined the ISR by {CAUSES[cause]}"


class ElrUpdate:
    """A-9, by its own reading of the KIP."""

    name = "A-9 ElrUpdate"

    @staticmethod
    def check(
        w: ModelWorld, part: PartitionState, old: Before, cause: int, how: int, active: int, unclean: int
    ) -> str | None:
        if not w.setup.elr:
            return None if not part.elr else "an ELR without the feature"
        if part.isr.bit_count() >= part.min_isr:
            expected = 0
        elif how >= 3:
            expected = 0  # R10
        else:
            expected = (old.elr | old.isr & ~part.isr) & ~part.isr & ~unclean & part.replicas
        if part.elr != expected:
            return f"ELR is {members(part.elr)}, should be {members(expected)}"
        return None


class CandidatesKept:
    """A-10, R9"""

    name = "A-10 CandidatesKept"

    @staticmethod
    def check(
        w: ModelWorld, part: PartitionState, old: Before, cause: int, how: int, active: int, unclean: int
    ) -> str | None:
        if (
            cause in (UNCLEAN_REGISTRATION, REASSIGNMENT, MIN_ISR_CHANGE, RECOVERY)
            or not w.setup.elr
            or how >= 3
        ):
            return None
        if old.original is not None and part.original is None:
            return None
        was, now = (old.isr | old.elr).bit_count(), (part.isr | part.elr).bit_count()
        if now < part.min_isr and now < was:
            return f"{was} candidates became {now} by {CAUSES[cause]}, min ISR is {part.min_isr}"
        return None


class EpochsGrow:
    """A-11, R2"""

    name = "A-11 EpochsGrow"

    @staticmethod
    def check(
        w: ModelWorld, part: PartitionState, old: Before, cause: int, how: int, active: int, unclean: int
    ) -> str | None:
        if cause == MIN_ISR_CHANGE and part.partition_epoch == old.partition_epoch:
            return "min ISR changed without a new partition epoch"
        if part.partition_epoch != old.partition_epoch + 1:
            return f"partition epoch {old.partition_epoch} -> {part.partition_epoch}"
        decided = part.leader != old.leader or bool(old.replicas & ~part.replicas)
        grown = part.leader_epoch - old.leader_epoch
        if grown not in (0, 1) or (decided and not grown):
            return f"leader {old.leader} -> {part.leader} in epoch {old.leader_epoch} -> {part.leader_epoch}"
        if grown and not decided and part.leader >= 0 and old.isr >> part.leader & 1:
            return f"leader epoch {old.leader_epoch} -> {part.leader_epoch} without a decision"
        return None


class LastKnownElrGains:
    """A-12"""

    name = "A-12 LastKnownElrGains"

    @staticmethod
    def check(
        w: ModelWorld, part: PartitionState, old: Before, cause: int, how: int, active: int, unclean: int
    ) -> str | None:
        if not w.setup.elr:
            return None
        if part.isr.bit_count() >= part.min_isr:
            if part.last_known_elr:
                return f"last known ELR {members(part.last_known_elr)} outlives min ISR"
            return None
        if how >= 3 and not w.setup.manager:
            return None  # R10: forgotten
        gone = old.last_known_elr & ~part.last_known_elr & ~part.isr & part.replicas
        return f"{members(gone)} left the last known ELR by {CAUSES[cause]}" if gone else None


class ElectionOrder:
    """A-13: ISR, else unfenced ELR, else by strategy; no broker that is not active, on no path."""

    name = "A-13 ElectionOrder"

    @staticmethod
    def check(
        w: ModelWorld, part: PartitionState, old: Before, cause: int, how: int, active: int, unclean: int
    ) -> str | None:
        leader = part.leader
        if leader < 0:
            if how == 0 and cause in (FENCING, SHUTDOWN, UNFENCING) and (part.isr or part.elr) & active:
                return f"there is no leader while {members((part.isr or part.elr) & active)} could"
            return None
        if leader == old.leader and part.leader_epoch == old.leader_epoch:
            return None
        if not active >> leader & 1:
            return f"{leader} was elected ({KINDS[how]}) and is not active"
        if how == FROM_ISR and not (old.isr | part.isr) >> leader & 1:
            return f"{leader} was elected as member of ISR {members(old.isr)}"
        clean = old.isr & active & part.replicas & ~unclean
        if cause != ALTER_PARTITION and clean and not old.isr >> leader & 1:
            return f"{leader} was elected, {members(clean)} of the ISR could lead"
        if how == FROM_ELR and not (old.elr | old.isr) >> leader & 1:
            return f"{leader} was elected as member of ELR {members(old.elr)}"
        if how >= 3 and old.elr & active & ~unclean & part.replicas:
            return (
                f"{leader} was elected ({KINDS[how]}) while {members(old.elr & active)} of the ELR could lead"
            )
        return None


class ReassignmentKeepsData:
    """A-17"""

    name = "A-17 ReassignmentKeepsData"

    @staticmethod
    def check(
        w: ModelWorld, part: PartitionState, old: Before, cause: int, how: int, active: int, unclean: int
    ) -> str | None:
        left = old.replicas & ~part.replicas
        if not left:
            return None
        if (part.elr | part.isr | part.last_known_elr) & left:
            return f"{members(left)} is no replica and still a candidate"
        had = (old.isr | old.elr | old.last_known_elr) & left
        if had and part.isr.bit_count() < part.min_isr:
            return f"complete replicas {members(had)} were dropped, the ISR is {members(part.isr)}"
        if (
            old.original is not None
            and part.original is None
            and cause != REASSIGNMENT
            and old.adding & ~part.isr
        ):
            return f"completed without {members(old.adding & ~part.isr)}"
        return None


CHANGE_PROPERTIES = (
    IsrGrowth,
    ElrUpdate,
    CandidatesKept,
    EpochsGrow,
    LastKnownElrGains,
    ElectionOrder,
    ReassignmentKeepsData,
)
