"""The rules of the protocol, one method each, over plain numbers and sets: what mutants change.

Owns no state. A method answers one question; actions ask it and do the rest. Codes of
docs/rules.md stand where they are kept. Sets are bitmasks.
"""

from holdfast.sim.model.state import (
    BALANCED,
    ELR_SWITCH,
    EPOCH_SHIFT,
    FIRST_ACTIVE,
    FROM_ELR,
    FROM_ISR,
    LAST_KNOWN_LEADER,
    LEADER,
    LONGEST_LOG,
    MIN_ISR_CHANGE,
    NO_EPOCH,
    NO_REPLICA,
    NONE,
    PREFERRED,
    FetchAnswer,
    ModelBroker,
    ModelProposal,
    ModelRecovery,
    ModelReplica,
    ModelWorld,
    PartitionState,
    Setup,
    ids,
)

#: answers to AlterPartition that the model tells apart
(
    ACCEPTED,
    STALE_BROKER_EPOCH,
    NOT_CONTROLLER,
    FENCED_LEADER_EPOCH,
    INVALID,
    OLD_PARTITION_EPOCH,
    INELIGIBLE,
) = range(7)
VERDICTS = (
    "accepted",
    "stale broker epoch",
    "not controller",
    "fenced leader epoch",
    "invalid request",
    "invalid update version",
    "ineligible replica",
)


def epoch_before(log: list[int], end: int) -> int:
    """Leader epoch of the entry before `end`, -1 for none."""
    return log[end - 1] >> EPOCH_SHIFT if end else -1


def end_of_epoch(log: list[int], epoch: int) -> int:
    """End (exclusive) of the largest epoch that is not above `epoch`."""
    end = len(log)
    while end and log[end - 1] >> EPOCH_SHIFT > epoch:
        end -= 1
    return end


class Rules:
    """The protocol as it should be. A mutant changes the text of one method."""

    name = "protocol"

    # --- leader ----------------------------------------------------------------------------------------

    def high_watermark(self, replica: ModelReplica, end: int) -> int:
        """Lowest position over the leader (`end`) and the maximal ISR (F3), while the committed ISR is not
        below min ISR (F1, A-2)."""
        known = replica.high_watermark
        if replica.isr.bit_count() < replica.min_isr:
            return known
        positions = replica.positions
        left = replica.maximal_isr & ~(1 << replica.broker)
        while left:
            low = left & -left
            left ^= low
            position = positions[low.bit_length() - 1]
            if position < end:
                if position <= known:
                    return known
                end = position
        return end

    def position(self, end: int, flushed: int, flush_every_write: bool) -> int:
        """What counts of a log (D6)."""
        return min(end, flushed) if flush_every_write else end

    def may_join(self, replica: ModelReplica, broker: ModelBroker, follower: int) -> bool:
        """A follower may be proposed: fetched in this epoch, has the high watermark and the start of the
        epoch (A-5), active in this incarnation as far as is known (R50)."""
        position = replica.positions[follower]
        return (
            position >= 0
            and position >= replica.high_watermark
            and position >= replica.start_offset
            and bool(broker.acceptable >> follower & 1)
            and replica.position_epochs[follower] == broker.known_epochs[follower]
        )

    def after_proposal(self, replica: ModelReplica, proposal: ModelProposal) -> tuple[int, int]:
        """(committed, maximal) ISR at the leader while the proposal is open: a shrink changes nothing."""
        return replica.isr, replica.isr | proposal[0]

    def may_acknowledge(self, replica: ModelReplica) -> bool:
        """acks=all writes below the high watermark may be acknowledged (F5, I-16)."""
        return replica.isr.bit_count() >= replica.min_isr

    def refuses_writes(self, replica: ModelReplica) -> bool:
        """acks=all is refused below min ISR, before the append (F5)."""
        return replica.isr.bit_count() < replica.min_isr

    def is_visible(self, replica: ModelReplica) -> bool:
        """Consumers may know the high watermark (A-6)."""
        return replica.high_watermark >= replica.start_offset

    def start_offset(self, replica: ModelReplica) -> int:
        """Where a new leader's epoch begins (R54)."""
        return len(replica.log)

    def high_watermark_at_start(self, replica: ModelReplica) -> int:
        """A new leader starts from what it knew (F6)."""
        return replica.high_watermark

    # --- fetch -----------------------------------------------------------------------------------------

    def accepts_fetch(
        self, replica: ModelReplica, broker: ModelBroker, follower: int, epoch: int, leader_epoch: int
    ) -> bool:
        """The leader serves this fetch (R55)."""
        return (
            replica.role == LEADER
            and leader_epoch == replica.leader_epoch
            and bool(replica.known is not None and replica.known[5] >> follower & 1)
            and epoch >= broker.known_epochs[follower]
        )

    def divergence(self, log: list[int], fetch_offset: int, last_epoch: int) -> tuple[int, int] | None:
        """(largest epoch not above the follower's, its end) when the follower's log is no prefix (R80)."""
        if last_epoch < 0:
            return None
        end = end_of_epoch(log, last_epoch)
        epoch = epoch_before(log, end)
        if epoch < last_epoch or end < fetch_offset:
            return epoch, end
        return None

    def truncation(self, log: list[int], high_watermark: int, epoch: int, end: int) -> int:
        """Own end of the diverging epoch, capped by the leader's when both have it (A-16)."""
        own_end = end_of_epoch(log, epoch)
        return min(own_end, end) if epoch_before(log, own_end) == epoch else own_end

    def high_watermark_after_cut(self, replica: ModelReplica) -> int:
        """Never above the end."""
        return min(replica.high_watermark, len(replica.log))

    def takes_answer(self, replica: ModelReplica, answer: FetchAnswer) -> bool:
        """An answer belongs to the outstanding request (N-4)."""
        return replica.request is not None and replica.request[0] == answer[0]

    def follows_high_watermark(self, replica: ModelReplica, leader_high_watermark: int) -> int:
        """A follower's own (R52)."""
        return min(leader_high_watermark, len(replica.log))

    # --- broker ----------------------------------------------------------------------------------------

    def takes_roles(self, broker: ModelBroker) -> bool:
        """Not before its own registration was replayed (N-2)."""
        return broker.epoch != NO_EPOCH and broker.metadata_offset > broker.epoch

    def flushes_before_file(self) -> bool:
        """Clean stop: every log is flushed before the file is written (A-19)."""
        return True

    def removes_file_at_start(self) -> bool:
        """The clean-shutdown file is deleted before anything is appended (A-19, R35)."""
        return True

    def flushed_by(self, replica: ModelReplica) -> int:
        """What an fsync has made durable: what was there when it started (A-21)."""
        return replica.flushing_to

    def survives_failed_flush(self) -> bool:
        """EIO is fail-stop (A-20)."""
        return False

    # --- controller: brokers ---------------------------------------------------------------------------

    def grants_registration(self, world: ModelWorld, broker: ModelBroker) -> bool:
        """To a fenced id, or to who proves that the former incarnation ended cleanly (A-7, D14)."""
        epoch = world.epochs[broker.id]
        return not world.unfenced >> broker.id & 1 or (epoch >= 0 and broker.previous_epoch == epoch)

    def is_clean(self, stored_epoch: int, previous_epoch: int) -> bool:
        """Same epoch, clean shutdown (R32)."""
        return previous_epoch == stored_epoch

    def unfences(self, broker: ModelBroker) -> bool:
        """Only who has replayed its own registration (R23)."""
        return broker.metadata_offset > broker.epoch

    # --- controller: partitions ------------------------------------------------------------------------

    def judge(
        self, world: ModelWorld, part: PartitionState, sender: int, sender_epoch: int, proposal: ModelProposal
    ) -> int:
        """The first check of R40, R41 that fails, in order."""
        isr, epochs, leader_epoch, partition_epoch = proposal
        if sender_epoch != world.epochs[sender]:
            return STALE_BROKER_EPOCH
        if leader_epoch > part.leader_epoch or partition_epoch > part.partition_epoch:
            return NOT_CONTROLLER
        if leader_epoch < part.leader_epoch:
            return FENCED_LEADER_EPOCH
        if sender != part.leader:
            return INVALID
        if partition_epoch < part.partition_epoch:
            return OLD_PARTITION_EPOCH
        if isr & ~part.replicas or not isr >> sender & 1:
            return INVALID
        if isr & ~world.active:
            return INELIGIBLE
        for member in range(world.broker_count):
            if isr >> member & 1 and member != sender and epochs[member] != world.epochs[member]:
                return INELIGIBLE
        return ACCEPTED

    def is_late(self, heard: tuple[int, int], request: tuple[int, int], is_meant_for_other: bool) -> bool:
        """A copy of a proposal behind a later request, or meant for another tenure: void. The leader may
        have gone on without it, after the later copy was refused."""
        return is_meant_for_other or request <= heard

    def eligible(
        self, part: PartitionState, isr: int, min_isr: int, replicas: int, unclean: int
    ) -> tuple[int, int]:
        """ELR and last known ELR that go with the new ISR (R5, R6, A-9, A-12)."""
        if isr.bit_count() >= min_isr:
            return 0, 0
        complete = (part.elr | part.isr) & ~isr & replicas
        elr = complete & ~unclean
        return elr, (complete | part.last_known_elr) & ~isr & ~elr & replicas

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
        """(leader or -1, how it was found): the present one, else by assignment order (R11, R12, A-13)."""
        candidates = (isr or elr) & active
        if candidates:
            how = FROM_ISR if isr else FROM_ELR
            if part.leader >= 0 and candidates >> part.leader & 1:
                return part.leader, how
            for replica in order:
                if candidates >> replica & 1:
                    return replica, how
        setup = world.setup
        known = part.last_known_leader
        if setup.elr and not setup.manager and not isr and not elr and known in order and active >> known & 1:
            return known, LAST_KNOWN_LEADER
        if unclean:
            for replica in order:
                if active >> replica & 1:
                    return replica, FIRST_ACTIVE
        return -1, NO_REPLICA

    def allows_unclean(self, setup: Setup, cause: int) -> bool:
        """Such a change may elect anybody, where the topic allows it and no logs are compared (R16, F38): all
        but what a change of configuration asks for."""
        if not setup.unclean_elections or (setup.manager and setup.elr):
            return False
        return cause not in (MIN_ISR_CHANGE, ELR_SWITCH, PREFERRED)

    def may_take_over(self, part: PartitionState, preferred: int, isr: int, active: int) -> bool:
        """The preferred replica leads instead of who does: only from the ISR (R12)."""
        return preferred != part.leader and bool((isr & active) >> preferred & 1)

    def kind_of_designated(self, replica: int, isr: int, elr: int) -> int:
        """Who is chosen by its log, or by an operator, and is complete, is elected as such (D8.5)."""
        if isr:
            return FROM_ISR if isr >> replica & 1 else LONGEST_LOG
        return FROM_ELR if elr >> replica & 1 else LONGEST_LOG

    def leader_epoch(self, part: PartitionState, leader: int, takes_over: bool, lost_replica: bool) -> int:
        """Every decision about the leader counts, also for none, and so does a lost replica (R2, R4)."""
        return part.leader_epoch + (leader != part.leader or takes_over or lost_replica)

    def counted_replicas(self, order: tuple[int, ...], original: tuple[int, ...] | None) -> int:
        """Replicas that bound min ISR: the original ones while a reassignment runs (D8, R109)."""
        return len(order if original is None else original)

    def completes_reassignment(self, staying: int, adding: int, min_isr: int) -> bool:
        """All that were added are in sync, and enough stay (R101, A-17)."""
        return not adding & ~staying and staying.bit_count() >= min_isr

    def needs_leaver(
        self, removing: int, staying: int, active: int, designated: int, allows_unclean: bool
    ) -> bool:
        """Who is elected now leaves with the reassignment: it does not end by this record (F7, R101)."""
        if designated >= 0:
            return bool(removing >> designated & 1)
        return allows_unclean and not staying & active and bool(removing & active)

    def may_redirect(self, part: PartitionState, replicas: int, is_cancel: bool) -> bool:
        """Cancelling or redirecting must not leave complete replicas behind (R103, A-17): what stays of
        the ISR is at least min ISR, unless no complete replica is dropped."""
        staying = part.isr & replicas
        dropped = (part.isr | part.elr | part.last_known_elr) & ~replicas
        if is_cancel or dropped:
            return staying.bit_count() >= part.min_isr
        return True

    # --- controller: unclean recovery --------------------------------------------------------------------

    def accepts_log_info(
        self, world: ModelWorld, part: PartitionState, broker: int, broker_epoch: int, leader_epoch: int
    ) -> bool:
        """An answer counts: this incarnation, active, and of the present leader epoch (R62)."""
        return (
            broker_epoch == world.epochs[broker]
            and bool(world.active >> broker & 1)
            and bool(part.replicas >> broker & 1)
            and leader_epoch == part.leader_epoch
        )

    def recovery_choice(self, world: ModelWorld, part: PartitionState, recovery: ModelRecovery) -> int:
        """The replica that is elected now, -1 for none yet (R63-R66, N-3, D8.3)."""
        strategy = world.setup.strategy
        active = world.active & part.replicas
        valid = 0
        for broker in ids(active):
            reply = recovery.replies[broker]
            if reply is not None and reply[0] == world.epochs[broker]:
                valid |= 1 << broker
        if not valid or strategy == NONE:
            return -1
        if strategy == BALANCED and part.last_known_elr:
            if part.last_known_elr & ~valid:
                return -1
            wanted = active if self.known_held_everything(part) else part.replicas
            if not recovery.timed_out and valid != wanted:
                return -1
        elif not recovery.timed_out and valid != (part.replicas if strategy == BALANCED else active):
            return -1
        if self.known_held_everything(part) and not part.last_known_elr & ~valid:
            valid = self.candidates_of_recovery(part, recovery, valid)
        return self.best_log(part, recovery, valid)

    def known_held_everything(self, part: PartitionState) -> bool:
        """Within the fault budget one of the last known ELR has lost nothing: they are min ISR or more."""
        return part.last_known_elr.bit_count() >= max(1, part.min_isr)

    def candidates_of_recovery(self, part: PartitionState, recovery: ModelRecovery, valid: int) -> int:
        """The last known ELR, and all that end in the same epoch as the best of it: one leader wrote both.
        What others wrote in a later epoch may never have been committed, while an older record was committed
        after it: a higher epoch proves nothing about them. All, if no log of the last known ELR has records:
        then nothing was committed, or all of it is gone."""
        known = valid & part.last_known_elr
        best = recovery.replies[self.best_log(part, recovery, known)]
        assert best is not None
        if best[2] == 0:
            return valid
        chosen = 0
        for broker in ids(valid):
            reply = recovery.replies[broker]
            if reply is not None and reply[1] == best[1]:
                chosen |= 1 << broker
        return chosen

    def best_log(self, part: PartitionState, recovery: ModelRecovery, valid: int) -> int:
        """Highest last written epoch, then longest; ties: last known ELR, then assignment order (R66)."""
        best, best_key = -1, (-1, -1, False, 0)
        for place, broker in enumerate(part.order):
            reply = recovery.replies[broker]
            if valid >> broker & 1 and reply is not None:
                key = (reply[1], reply[2], bool(part.last_known_elr >> broker & 1), -place)
                if best < 0 or key > best_key:
                    best, best_key = broker, key
        return best

    def loses_last_member(self, setup: Setup, part: PartitionState, isr: int, forgotten: int) -> bool:
        """With ELR on again, the member leaves that F7 has kept in the ISR: it was the last to lead."""
        return (
            setup.elr
            and part.leader < 0
            and part.last_known_leader < 0
            and not isr
            and part.isr.bit_count() == 1
            and not part.isr & forgotten
        )

    def seats_after_recovery(self, part: PartitionState, leader: int, min_isr: int) -> int:
        """Last known ELR after an election by logs: the seats stay until min ISR is reached (D8.1, D8.4)."""
        if min_isr <= 1:
            return 0
        return (part.isr | part.elr | part.last_known_elr) & ~(1 << leader) & part.replicas

    def changes_min_isr_in_registration(self) -> bool:
        """Controller and leader switch min ISR at the same metadata offset (R109, N-5)."""
        return True

    def is_fresh(self, replica: ModelReplica, partition_epoch: int) -> bool:
        """A registration says something new (`partition_epoch` orders answers and records)."""
        return partition_epoch > replica.partition_epoch
