"""Actions of the controller quorum, as one committed metadata log: every change is one record, at once.

Owns the order of the steps of a partition change (R4), fencing, registration, AlterPartition, reassignment,
min ISR changes, unclean recovery and failover (soft state is lost). Asks `Rules` wherever a rule decides.
"""

from holdfast.sim.model.rules import ACCEPTED, VERDICTS
from holdfast.sim.model.state import (
    ALTER_ANSWER,
    ALTER_PARTITION,
    BALANCED,
    CLEAN_RESTART,
    FENCE_RECORD,
    FENCING,
    FROM_ELR,
    FROM_ISR,
    LOG_INFO,
    LONGEST_LOG,
    MIN_ISR_CHANGE,
    MIN_ISR_RECORD,
    NONE,
    PARTITION_RECORD,
    REASSIGNMENT,
    RECOVERY,
    REGISTER_RECORD,
    RUNNING,
    SHUTDOWN,
    SHUTDOWN_RECORD,
    STARTING,
    UNCLEAN_PASS,
    UNCLEAN_REGISTRATION,
    UNFENCE_RECORD,
    UNFENCING,
    ModelBroker,
    ModelRecovery,
    ModelWorld,
    PartitionState,
    ids,
    mask_of,
)

#: messages under way to and from the controller; the oldest is lost beyond
MESSAGES_MAX = 8

#: (order, adding, removing, original)
Lists = tuple[tuple[int, ...], int, int, tuple[int, ...] | None]


class Before:
    """What a partition was before a change, for the action properties."""

    __slots__ = (
        "isr",
        "elr",
        "last_known_elr",
        "leader",
        "leader_epoch",
        "partition_epoch",
        "min_isr",
        "replicas",
        "adding",
        "original",
    )

    def __init__(self, part: PartitionState) -> None:
        self.isr = part.isr
        self.elr = part.elr
        self.last_known_elr = part.last_known_elr
        self.leader = part.leader
        self.leader_epoch = part.leader_epoch
        self.partition_epoch = part.partition_epoch
        self.min_isr = part.min_isr
        self.replicas = part.replicas
        self.adding = part.adding
        self.original = part.original


def change(
    w: ModelWorld,
    part: PartitionState,
    isr: int,
    cause: int,
    active: int,
    *,
    unclean: int = 0,
    forgotten: int = 0,
    lists: Lists | None = None,
    designated: int = -1,
    preferred: bool = False,
    asked_unclean: bool = False,
    proof: bool = True,
) -> bool:
    """Take the partition to the state that goes with `isr` (R4). False when nothing changes (R3).

    `unclean` may have lost their tails, `forgotten` are no brokers any more. `designated` is the choice of an
    unclean recovery or of an operator, `proof` whether every log that counts was compared.
    """
    rules, setup = w.rules, w.setup
    order, adding, removing, original = lists or (part.order, part.adding, part.removing, part.original)
    allows_unclean = asked_unclean or rules.allows_unclean(setup, cause)
    if original is not None:
        final = tuple(r for r in order if not removing >> r & 1)
        staying = isr & ~removing
        needs_leaver = rules.needs_leaver(removing, staying, active, designated, allows_unclean)
        if not needs_leaver and rules.completes_reassignment(
            staying, adding, min(part.configured_min_isr, len(final))
        ):
            order, adding, removing, original, isr = final, 0, 0, None, staying
            w.mark("reassignment completed")
    replicas = mask_of(order)
    min_isr = min(part.configured_min_isr, rules.counted_replicas(order, original))
    elr = last_known_elr = 0
    if setup.elr:
        elr, last_known_elr = rules.eligible(part, isr, min_isr, replicas & ~forgotten, unclean)
    if designated >= 0:
        leader, how = designated, rules.kind_of_designated(designated, isr, elr)
    elif preferred and rules.may_take_over(part, order[0], isr, active):
        leader, how = order[0], FROM_ISR
    else:
        leader, how = rules.elect(w, part, order, isr, elr, active, allows_unclean)
    known = part.last_known_leader if part.last_known_leader in order and setup.elr else -1
    takes_over = leader >= 0 and not isr >> leader & 1
    if takes_over:
        if how == FROM_ELR:
            isr = 1 << leader
            elr, last_known_elr = rules.eligible(part, isr, min_isr, replicas & ~forgotten, unclean)
        else:
            keeps = setup.manager and setup.elr
            last_known_elr = rules.seats_after_recovery(part, leader, min_isr) if keeps else 0
            isr, elr = 1 << leader, 0
    if leader >= 0:
        known = -1
    else:
        if not setup.elr and not isr:
            isr = part.isr & replicas  # the last member stays, though it is fenced (F7)
        if part.leader in order and setup.elr:
            known = part.leader
        elif rules.loses_last_member(setup, part, isr, forgotten) and part.isr & replicas:
            known = part.isr.bit_length() - 1
    epoch = rules.leader_epoch(part, leader, takes_over, bool(part.replicas & ~replicas))
    new = (order, adding, removing, original, isr, elr, last_known_elr, known, leader, epoch, min_isr)
    if new == (
        part.order,
        part.adding,
        part.removing,
        part.original,
        part.isr,
        part.elr,
        part.last_known_elr,
        part.last_known_leader,
        part.leader,
        part.leader_epoch,
        part.min_isr,
    ):
        return False
    before = Before(part)
    (
        part.order,
        part.adding,
        part.removing,
        part.original,
        part.isr,
        part.elr,
        part.last_known_elr,
        part.last_known_leader,
        part.leader,
        part.leader_epoch,
        part.min_isr,
    ) = new
    part.replicas = replicas
    part.partition_epoch += 1
    part.lossy &= replicas
    for joined in ids(part.lossy & isr & ~before.isr):
        if _is_whole(w, joined):
            part.lossy &= ~(1 << joined)
    _note_election(w, part, before, how, proof)
    commit(w, part)
    w.checker.changed(w, part, before, cause, how, active, unclean)
    return True


def _is_whole(w: ModelWorld, broker_id: int) -> bool:
    """Nothing was lost since the registered incarnation fetched: it runs, or has stopped cleanly. Who joins
    by a fetch from before its power loss has not got its records back."""
    broker, epoch = w.brokers[broker_id], w.epochs[broker_id]
    if broker.state == STARTING and broker.previous_epoch == epoch:
        return True
    return epoch in (broker.epoch, broker.clean_file)


def _note_election(w: ModelWorld, part: PartitionState, before: Before, how: int, proof: bool) -> None:
    """Keep the ghosts that say what may be lost by now, and count rare states."""
    if part.isr.bit_count() >= part.min_isr:
        part.recovery_quorum_holds = True
    elif part.original is not None or before.original is not None or part.min_isr != before.min_isr:
        part.recovery_quorum_holds = False
    if part.leader >= 0 and (part.leader != before.leader or part.leader_epoch != before.leader_epoch):
        if how >= 3 and not (how == LONGEST_LOG and (before.isr | before.elr) >> part.leader & 1):
            # R68: a leader that is not from ISR or ELR is reported as a possible loss
            part.may_have_lost += 1
            part.recovery_quorum_holds = False
            w.mark(f"elected: {how}")
            if not proof or how != LONGEST_LOG or part.is_over_budget:
                part.is_excused = True
        elif how == FROM_ELR and not before.isr >> part.leader & 1:
            w.mark("elected from ELR")
    size = part.elr.bit_count()
    if size:
        w.mark("ELR of one" if size == 1 else "ELR of two or more")
    if not part.isr and before.isr:
        w.mark("ISR empty")
    if before.elr and not part.elr and part.isr.bit_count() >= part.min_isr:
        w.mark("ELR cleared by expansion")
    if not part.isr and not part.elr:
        w.mark("ISR and ELR empty")
        if part.last_known_elr.bit_count() > part.min_isr:
            w.mark("last known ELR above min ISR")


def commit(w: ModelWorld, part: PartitionState) -> None:
    """Write the partition's state to the metadata log, for the brokers to replay."""
    w.metadata.append(
        (
            PARTITION_RECORD,
            part.index,
            part.leader,
            part.leader_epoch,
            part.partition_epoch,
            part.isr,
            part.min_isr,
            part.replicas,
        )
    )
    part.recovery = None
    w.touched |= 1 << part.index


# --- brokers ---------------------------------------------------------------------------------------------


def _take_out(w: ModelWorld, broker: int, cause: int) -> None:
    """Out of every ISR, and out of the ELR too when its log is not to be trusted (R20, R32, A-8)."""
    bit = 1 << broker
    for part in w.partitions:
        if cause == UNCLEAN_REGISTRATION:
            if (part.isr | part.elr) & bit:
                change(w, part, part.isr & ~bit, cause, w.active & ~bit, unclean=bit)
        elif part.isr & bit:
            change(w, part, part.isr & ~bit, cause, w.active & ~bit)


def fence(w: ModelWorld, broker: int) -> None:
    """The session has ended (R20)."""
    _take_out(w, broker, FENCING)
    w.unfenced &= ~(1 << broker)
    w.metadata.append((FENCE_RECORD, broker))
    w.touched = -1


def expire_session(w: ModelWorld, bits: int) -> bool:
    """The session of a broker that is not there any more ends."""
    n = w.broker_count
    for i in range(n):
        broker = (bits + i) % n
        if w.unfenced >> broker & 1 and not w.is_live(broker):
            fence(w, broker)
            return True
    return False


def expire_live_session(w: ModelWorld, bits: int) -> bool:
    """Heartbeats of a broker that is well do not arrive."""
    n = w.broker_count
    for i in range(n):
        broker = (bits + i) % n
        if w.unfenced >> broker & 1 and w.is_live(broker):
            fence(w, broker)
            return True
    return False


def unfence(w: ModelWorld, bits: int) -> bool:
    """A heartbeat of a fenced broker that has caught up (R21, R23)."""
    n = w.broker_count
    for i in range(n):
        broker = w.brokers[(bits + i) % n]
        if (
            not w.unfenced >> broker.id & 1
            and broker.state == RUNNING
            and broker.epoch >= 0
            and broker.epoch == w.epochs[broker.id]
            and w.rules.unfences(broker)
        ):
            w.unfenced |= 1 << broker.id
            w.stopping &= ~(1 << broker.id)
            w.metadata.append((UNFENCE_RECORD, broker.id))
            w.touched = -1
            for part in w.partitions:
                if part.leader < 0:
                    change(w, part, part.isr, UNFENCING, w.active)
            return True
    return False


def controlled_shutdown(w: ModelWorld, bits: int) -> bool:
    """A broker asks to leave: its leaderships go first (R22)."""
    n = w.broker_count
    for i in range(n):
        broker = (bits + i) % n
        if w.active >> broker & 1 and w.is_live(broker):
            w.stopping |= 1 << broker
            w.metadata.append((SHUTDOWN_RECORD, broker))
            _take_out(w, broker, SHUTDOWN)
            w.touched = -1
            return True
    return False


def register(w: ModelWorld, broker: ModelBroker, answer_is_lost: bool) -> bool:
    """A started process registers (R30-R32, A-7, A-8). Its answer may be lost; then it asks again (R31)."""
    me = broker.id
    if w.incarnations[me] == broker.starts:
        if answer_is_lost:
            return False
        broker.epoch = w.epochs[me]
        return True
    if not w.rules.grants_registration(w, broker):
        return False
    stored = w.epochs[me]
    is_clean = w.rules.is_clean(stored, broker.previous_epoch)
    was_unfenced = w.unfenced >> me & 1
    if was_unfenced:
        _take_out(w, me, CLEAN_RESTART)
    if not is_clean and w.setup.elr:
        _take_out(w, me, UNCLEAN_REGISTRATION)
    w.epochs[me] = len(w.metadata)
    w.incarnations[me] = broker.starts
    w.unfenced &= ~(1 << me)
    w.stopping &= ~(1 << me)
    w.metadata.append((REGISTER_RECORD, me, w.epochs[me]))
    w.touched = -1
    w.mark("clean registration" if is_clean else "unclean registration")
    w.checker.registered(w, broker, stored, was_unfenced, is_clean)
    if not answer_is_lost:
        broker.epoch = w.epochs[me]
    return True


def registration(w: ModelWorld, bits: int) -> bool:
    """Some starting process registers."""
    n = w.broker_count
    for i in range(n):
        broker = w.brokers[(bits + i) % n]
        if broker.state == STARTING and register(w, broker, (bits >> 8) % 8 == 0):
            if broker.epoch >= 0:
                broker.state = RUNNING
            return True
    return False


def fail_over(w: ModelWorld, bits: int) -> bool:
    """Another voter leads the quorum: recoveries start over, requests to the old one may be lost (R26)."""
    if not w.messages and all(part.recovery is None for part in w.partitions):
        return False
    for part in w.partitions:
        if part.recovery is not None:
            w.mark("recovery lost by failover")
            part.recovery = None
    w.tenure += 1
    w.heard.clear()
    w.messages = [message for i, message in enumerate(w.messages) if bits >> i & 1]
    return True


# --- AlterPartition --------------------------------------------------------------------------------------


def send(w: ModelWorld, message: tuple[int, ...]) -> None:
    """Put a message on its way; the oldest is lost when too many are."""
    w.messages.append(message)
    if len(w.messages) > MESSAGES_MAX:
        del w.messages[0]


def answer_alter_partition(w: ModelWorld, message: tuple[int, ...]) -> None:
    """Judge a proposed ISR and answer (R40-R44). The answer carries min ISR (N-5)."""
    _, index, sender, sender_epoch, starts, isr, leader_epoch, partition_epoch, tenure, number, *epochs = (
        message
    )
    part = w.partitions[index]
    proposal = (isr, tuple(epochs), leader_epoch, partition_epoch)
    heard = w.heard.get((sender, index), (-1, -1))
    if w.rules.is_late(heard, (sender_epoch, number), tenure != w.tenure):
        w.mark("late copy of a proposal")
        return
    w.heard[sender, index] = (sender_epoch, number)
    verdict = w.rules.judge(w, part, sender, sender_epoch, proposal)
    if verdict == ACCEPTED:
        w.checker.accepted(w, part, sender, sender_epoch, proposal)
        change(w, part, isr, ALTER_PARTITION, w.active)
        if part.leader != sender:
            return  # NEW_LEADER_ELECTED: metadata tells (R42)
    else:
        w.mark(f"AlterPartition refused: {VERDICTS[verdict]}")
    send(
        w,
        (
            ALTER_ANSWER,
            index,
            sender,
            starts,
            verdict,
            number,
            part.leader_epoch,
            part.partition_epoch,
            part.isr,
            part.min_isr,
        ),
    )


# --- operators -------------------------------------------------------------------------------------------


def reassign(w: ModelWorld, bits: int) -> bool:
    """Begin, redirect or cancel some move."""
    if not w.setup.reassigns:
        return False
    part = w.partitions[bits % w.partition_count]
    bits >>= 3
    if part.original is not None and bits & 3 == 0:
        return move(w, part, None)
    bits >>= 2
    size = w.setup.replication_factor
    if bits & 3 == 0 and size > 2:
        size -= 1
    bits >>= 2
    others = [(bits + i) % w.broker_count for i in range(w.broker_count)]
    if bits >> 8 & 1:
        others.reverse()
    return move(w, part, tuple(others[:size]))


def move(w: ModelWorld, part: PartitionState, target: tuple[int, ...] | None) -> bool:
    """Begin or redirect a move to `target`, counted from the original replicas; None cancels (R100-R105)."""
    original = part.original or part.order
    lists: Lists
    if target is None:
        lists = (original, 0, 0, None)
    else:
        adding = mask_of(target) & ~mask_of(original)
        leaving = tuple(r for r in original if r not in target)
        is_move = adding or leaving
        lists = (target + leaving, adding, mask_of(leaving), original) if is_move else (target, 0, 0, None)
    replicas = mask_of(lists[0])
    if not w.rules.may_redirect(part, replicas, target is None):
        w.mark("reassignment refused")
        return False
    if target is None:
        w.mark("reassignment cancelled")
    return change(w, part, part.isr & replicas, REASSIGNMENT, w.active, lists=lists)


def change_min_isr(w: ModelWorld, bits: int) -> bool:
    """`min.insync.replicas` is set (R109, N-5)."""
    if not w.setup.changes_min_isr:
        return False
    part = w.partitions[bits % w.partition_count]
    value = 1 + (bits >> 4) % w.setup.replication_factor
    limit = value - 1 + (w.setup.budget_excess or 0)
    if value == part.configured_min_isr or part.lossy.bit_count() > limit:
        return False
    if part.elr:
        w.mark("min ISR change with ELR")
    part.loss_limit = min(part.loss_limit, limit)
    part.configured_min_isr = value
    part.recovery_quorum_holds = False
    if w.rules.changes_min_isr_in_registration():
        change(w, part, part.isr, MIN_ISR_CHANGE, w.active)
    else:
        before = Before(part)
        part.min_isr = min(value, len(part.order))
        if part.isr.bit_count() >= part.min_isr:
            part.elr = part.last_known_elr = 0
        w.metadata.append((MIN_ISR_RECORD, part.index, part.min_isr))
        w.checker.changed(w, part, before, MIN_ISR_CHANGE, 0, w.active, 0)
    w.touched |= 1 << part.index
    return True


def elect_unclean(w: ModelWorld, bits: int) -> bool:
    """One pass of unclean elections, with the manager off (R16)."""
    if (w.setup.manager and w.setup.elr) or not w.setup.unclean_elections:
        return False
    part = w.partitions[bits % w.partition_count]
    return part.leader < 0 and change(w, part, part.isr, UNCLEAN_PASS, w.active)


# --- unclean recovery ------------------------------------------------------------------------------------


def recovery_of(w: ModelWorld, part: PartitionState) -> ModelRecovery | None:
    """The recovery that runs now, made when it is due (R14, R60); None while there is none."""
    setup = w.setup
    if part.leader >= 0 or not (setup.manager and setup.elr) or setup.strategy == NONE:
        return None
    if setup.strategy == BALANCED and part.isr | part.elr:
        return None
    if part.recovery is None:
        part.recovery = ModelRecovery(part.leader_epoch, part.partition_epoch, w.broker_count)
        w.mark("recovery started")
    return part.recovery


def take_log_info(w: ModelWorld, message: tuple[int, ...]) -> None:
    """Keep an answer that counts (R62)."""
    _, index, broker, broker_epoch, leader_epoch, last_epoch, end = message
    part = w.partitions[index]
    recovery = recovery_of(w, part)
    if recovery is None:
        return
    if w.rules.accepts_log_info(w, part, broker, broker_epoch, leader_epoch):
        recovery.replies[broker] = (broker_epoch, last_epoch, end)
    else:
        w.mark("log info refused")


def recover(w: ModelWorld, bits: int) -> bool:
    """Decide a recovery, or let its time run out (R64, R65)."""
    m = w.partition_count
    for i in range(m):
        part = w.partitions[(bits + i) % m]
        recovery = recovery_of(w, part)
        if recovery is None:
            continue
        chosen = w.rules.recovery_choice(w, part, recovery)
        if chosen >= 0:
            proof = w.setup.strategy == BALANCED and w.rules.known_held_everything(part)
            w.checker.recovered(w, part, recovery, chosen)
            w.mark("recovery by all last known" if proof else "recovery without proof")
            return change(w, part, part.isr, RECOVERY, w.active, designated=chosen, proof=proof)
        if not recovery.timed_out and bits >> 8 & 7 == 0:
            recovery.timed_out = True
            return True
    return False


def ask_for_log_info(w: ModelWorld, bits: int) -> bool:
    """A replica is asked for its log and answers as it is now (R61)."""
    m = w.partition_count
    for i in range(m):
        part = w.partitions[(bits + i) % m]
        recovery = recovery_of(w, part)
        if recovery is None:
            continue
        start = bits >> 8
        for j in range(w.broker_count):
            broker = w.brokers[(start + j) % w.broker_count]
            is_asked = recovery.replies[broker.id] is None or bits >> 16 & 7 == 0
            if is_asked and broker.state == RUNNING and part.replicas >> broker.id & 1:
                replica = broker.replicas[part.index]
                log = replica.log
                end = len(log)
                send(
                    w,
                    (
                        LOG_INFO,
                        part.index,
                        broker.id,
                        broker.epoch,
                        replica.leader_epoch,
                        log[end - 1] >> 40 if end else -1,
                        end,
                    ),
                )
                return True
    return False
