"""Actions of brokers on their replicas: metadata replay, roles, appends, high watermarks, consumers, flushes.

Owns what leader and follower do by themselves (R52-R56); fetches are in `fetching`, proposals in `proposals`.
Each action takes the world and random bits, looks for a broker or replica that can do it, beginning at a
random one, and tells whether anything happened.
"""

from holdfast.sim.model.state import (
    FENCE_RECORD,
    FOLLOWER,
    LEADER,
    MIN_ISR_RECORD,
    NO_ROLE,
    PARTITION_RECORD,
    REGISTER_RECORD,
    RUNNING,
    SHUTDOWN_RECORD,
    UNFENCE_RECORD,
    ModelBroker,
    ModelReplica,
    ModelWorld,
    Registration,
    entry,
)

#: fetches given up that may still arrive; the oldest is lost beyond
LATE_MAX = 6

# --- metadata --------------------------------------------------------------------------------------------


def replay(w: ModelWorld, bits: int) -> bool:
    """A broker applies one to four more metadata records."""
    end = len(w.metadata)
    for i in range(w.broker_count):
        broker = w.brokers[(bits + i) % w.broker_count]
        if broker.state == RUNNING and broker.metadata_offset < end:
            for _ in range(1 + (bits >> 8 & 3)):
                if broker.metadata_offset < end:
                    replay_one(w, broker)
            return True
    return False


def replay_one(w: ModelWorld, broker: ModelBroker) -> None:
    """Apply the next record; roles begin with the broker's own registration (N-2, K26)."""
    record = w.metadata[broker.metadata_offset]
    broker.metadata_offset += 1
    kind = record[0]
    if kind == PARTITION_RECORD:
        replica = broker.replicas[record[1]]
        replica.known = (record[2], record[3], record[4], record[5], record[6], record[7])
        if broker.has_caught_up:
            take_registration(w, broker, replica, replica.known)
    elif kind == MIN_ISR_RECORD:
        replica = broker.replicas[record[1]]
        replica.min_isr = record[2]
        advance(w, replica)
    else:
        learn(broker, record)
    if not broker.has_caught_up and w.rules.takes_roles(broker):
        broker.has_caught_up = True
        for replica in broker.replicas:
            if replica.known is not None:
                take_registration(w, broker, replica, replica.known)


def learn(broker: ModelBroker, record: tuple[int, ...]) -> None:
    """Apply a record about a broker."""
    kind, other = record[0], record[1]
    if kind == UNFENCE_RECORD:
        broker.acceptable |= 1 << other
        return
    broker.acceptable &= ~(1 << other)
    if kind == REGISTER_RECORD:
        broker.known_epochs[other] = record[2]
    else:
        assert kind in (FENCE_RECORD, SHUTDOWN_RECORD)


def take_registration(w: ModelWorld, broker: ModelBroker, replica: ModelReplica, known: Registration) -> None:
    """A committed state, from metadata or an AlterPartition answer, newest first by partition epoch."""
    leader, leader_epoch, partition_epoch, isr, min_isr, replicas = known
    if not w.rules.is_fresh(replica, partition_epoch):
        return
    is_new = leader_epoch > replica.leader_epoch or replica.role == NO_ROLE
    replica.leader = leader
    replica.leader_epoch = leader_epoch
    replica.partition_epoch = partition_epoch
    replica.isr = isr
    if w.rules.changes_min_isr_in_registration() or is_new:
        replica.min_isr = min_isr
    w.touched |= 1 << replica.partition
    if not replicas >> broker.id & 1:
        _delete(w, replica)
    elif is_new:
        _take_role(w, broker, replica)
    elif replica.role == LEADER:
        proposal = replica.proposal
        if proposal is None or partition_epoch > proposal[3]:
            replica.proposal = None
            replica.maximal_isr = isr
        if not w.rules.may_acknowledge(replica):
            replica.waiting.clear()  # NOT_ENOUGH_REPLICAS_AFTER_APPEND; they may commit all the same
        advance(w, replica)


def _take_role(w: ModelWorld, broker: ModelBroker, replica: ModelReplica) -> None:
    give_up_fetch(w, replica)
    replica.waiting.clear()
    replica.proposal = None
    if replica.leader != broker.id:
        replica.role = FOLLOWER
        return
    replica.role = LEADER
    replica.start_offset = w.rules.start_offset(replica)
    replica.maximal_isr = replica.isr
    replica.positions = [-1] * w.broker_count
    replica.position_epochs = [-1] * w.broker_count
    if replica.high_watermark < replica.start_offset:
        w.mark("high watermark below the epoch's start")
    w.checker.leads(w, replica)
    raised = w.rules.high_watermark_at_start(replica)
    if raised > replica.high_watermark:
        raise_high_watermark(w, replica, raised)
    advance(w, replica)


def _delete(w: ModelWorld, replica: ModelReplica) -> None:
    """The broker holds no replica any more: its log goes."""
    give_up_fetch(w, replica)
    replica.role = NO_ROLE
    replica.proposal = None
    replica.waiting.clear()
    if replica.log:
        w.mark("replica deleted")
    shorten(w, replica, 0)


def give_up_fetch(w: ModelWorld, replica: ModelReplica) -> None:
    """Close the connection; what is under way may still arrive (N-4)."""
    if replica.request is not None:
        late = w.late
        late.append((replica, replica.request if replica.answer is None else None, replica.answer))
        if len(late) > LATE_MAX:
            del late[0]
        replica.request = None
        replica.answer = None


# --- high watermark --------------------------------------------------------------------------------------


def advance(w: ModelWorld, replica: ModelReplica) -> None:
    """Move a leader's high watermark as far as it may go."""
    if replica.role != LEADER:
        return
    end = w.rules.position(len(replica.log), replica.flushed, w.setup.flush_every_write)
    if end > replica.high_watermark:
        new = w.rules.high_watermark(replica, end)
        if new > replica.high_watermark:
            raise_high_watermark(w, replica, new)


def raise_high_watermark(w: ModelWorld, replica: ModelReplica, new: int) -> None:
    """Commit what is below `new`, and acknowledge what waited for it."""
    part = w.partitions[replica.partition]
    old = replica.high_watermark
    w.checker.raises(w, replica, old, new)
    replica.high_watermark = new
    committed = part.committed
    known = len(committed)
    if new > known:
        committed.extend(replica.log[known:new])
        w.touched |= 1 << replica.partition
    w.checker.matches(w, replica)
    waiting = replica.waiting
    if waiting and waiting[0] < new and w.rules.may_acknowledge(replica):
        while waiting and waiting[0] < new:
            offset = waiting.pop(0)
            w.checker.acknowledges(w, replica, offset)
            part.acked[offset] = replica.log[offset]
            if offset >= part.acked_end:
                part.acked_end = offset + 1


def shorten(w: ModelWorld, replica: ModelReplica, end: int) -> None:
    """Cut the log, for any reason; what is above `end` is gone from this disk."""
    log = replica.log
    if end >= len(log):
        return
    lost_from = len(log)
    gone = log[end:]
    del log[end:]
    replica.flushed = min(replica.flushed, end)
    replica.durable = min(replica.durable, end)
    replica.flushing_to = min(replica.flushing_to, end)
    replica.high_watermark = w.rules.high_watermark_after_cut(replica)
    replica.checked_to = min(replica.checked_to, end)
    w.touched |= 1 << replica.partition
    part = w.partitions[replica.partition]
    if end < part.acked_end and lost_from > end:
        w.checker.vanished(w, replica, end, gone)


# --- producers and consumers -----------------------------------------------------------------------------


def produce(w: ModelWorld, bits: int) -> bool:
    """A client writes a record, with acks all, 1 or 0, to a broker that takes itself for the leader."""
    replicas = w.replicas
    count = len(replicas)
    for i in range(count):
        replica = replicas[(bits + i) % count]
        if replica.role == LEADER and w.brokers[replica.broker].state == RUNNING:
            wants_all = bits >> 8 & 3
            if wants_all and w.rules.refuses_writes(replica):
                return False
            append(w, replica, bool(wants_all))
            return True
    return False


def append(w: ModelWorld, replica: ModelReplica, wants_all: bool) -> None:
    """Append one record in the leader's epoch (A-15)."""
    w.last_value += 1
    log = replica.log
    offset = len(log)
    record = entry(replica.leader_epoch, w.last_value)
    w.checker.appends(w, replica, offset, record)
    log.append(record)
    if wants_all:
        replica.waiting.append(offset)
    if replica.isr.bit_count() <= 1:
        advance(w, replica)


def consume(w: ModelWorld, bits: int) -> bool:
    """A consumer reads all below the high watermark, once it is known (A-6)."""
    replicas = w.replicas
    count = len(replicas)
    for i in range(count):
        replica = replicas[(bits + i) % count]
        if replica.role == LEADER and w.brokers[replica.broker].state == RUNNING:
            if not w.rules.is_visible(replica):
                return False
            w.checker.shows(w, replica)
            part = w.partitions[replica.partition]
            if replica.high_watermark > part.consumed_end:
                part.consumed_end = replica.high_watermark
                return True
    return False


# --- disk ------------------------------------------------------------------------------------------------


def begin_flush(w: ModelWorld, bits: int) -> bool:
    """An fsync starts."""
    replicas = w.replicas
    count = len(replicas)
    for i in range(count):
        replica = replicas[(bits + i) % count]
        if replica.flushing_to < 0 and replica.flushed < len(replica.log):
            if w.brokers[replica.broker].state == RUNNING:
                replica.flushing_to = len(replica.log)
                return True
    return False


def end_flush(w: ModelWorld, bits: int) -> bool:
    """An fsync is done: what was there when it started is durable (A-21)."""
    replicas = w.replicas
    count = len(replicas)
    for i in range(count):
        replica = replicas[(bits + i) % count]
        if replica.flushing_to >= 0 and w.brokers[replica.broker].state == RUNNING:
            replica.durable = max(replica.durable, replica.flushing_to)
            replica.flushed = max(replica.flushed, w.rules.flushed_by(replica))
            replica.flushing_to = -1
            w.checker.flushed(w, replica)
            advance(w, replica)
            return True
    return False
