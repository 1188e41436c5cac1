"""Actions of brokers on their replicas: metadata replay, roles, appends, fetches, ISR proposals, flushes.

Owns what leader and follower do (R50-R56, R80-R84). Each action takes the world and random bits, looks for a
broker or replica that can do it, beginning at a random one, and tells whether anything happened.
"""

from sim.model.controller import answer_alter_partition, send, take_log_info
from sim.model.rules import ACCEPTED, INELIGIBLE
from sim.model.state import (
    ALTER_ANSWER,
    ALTER_REQUEST,
    EPOCH_SHIFT,
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
    Broker,
    FetchAnswer,
    FetchRequest,
    Proposal,
    Registration,
    Replica,
    World,
    entry,
)

#: fetches given up that may still arrive; the oldest is lost beyond
LATE_MAX = 6
#: messages held by a cut
HELD_MAX = 4
#: records of one fetch answer
FETCH_MAX = 3

# --- metadata --------------------------------------------------------------------------------------------


def replay(w: World, bits: int) -> bool:
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


def replay_one(w: World, broker: Broker) -> None:
    """Apply the next record; roles begin with the broker's own registration (D-2, K26)."""
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


def learn(broker: Broker, record: tuple[int, ...]) -> None:
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


def take_registration(w: World, broker: Broker, replica: Replica, known: Registration) -> None:
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


def _take_role(w: World, broker: Broker, replica: Replica) -> None:
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


def _delete(w: World, replica: Replica) -> None:
    """The broker holds no replica any more: its log goes."""
    give_up_fetch(w, replica)
    replica.role = NO_ROLE
    replica.proposal = None
    replica.waiting.clear()
    if replica.log:
        w.mark("replica deleted")
    shorten(w, replica, 0)


# --- high watermark --------------------------------------------------------------------------------------


def advance(w: World, replica: Replica) -> None:
    """Move a leader's high watermark as far as it may go."""
    if replica.role != LEADER:
        return
    end = w.rules.position(len(replica.log), replica.flushed, w.setup.flush_every_write)
    if end > replica.high_watermark:
        new = w.rules.high_watermark(replica, end)
        if new > replica.high_watermark:
            raise_high_watermark(w, replica, new)


def raise_high_watermark(w: World, replica: Replica, new: int) -> None:
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


def shorten(w: World, replica: Replica, end: int) -> None:
    """Cut the log, whoever wants it; what is above `end` is gone from this disk."""
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


def produce(w: World, bits: int) -> bool:
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


def append(w: World, replica: Replica, wants_all: bool) -> None:
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


def consume(w: World, bits: int) -> bool:
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


# --- fetch -----------------------------------------------------------------------------------------------


def give_up_fetch(w: World, replica: Replica) -> None:
    """Close the connection; what is under way may still arrive (D-4)."""
    if replica.request is not None:
        late = w.late
        late.append((replica, replica.request if replica.answer is None else None, replica.answer))
        if len(late) > LATE_MAX:
            del late[0]
        replica.request = None
        replica.answer = None


def fetch(w: World, bits: int) -> bool:
    """A follower asks its leader for more (R80); one request at a time."""
    replicas = w.replicas
    count = len(replicas)
    for i in range(count):
        replica = replicas[(bits + i) % count]
        if replica.role == FOLLOWER and replica.request is None and replica.leader >= 0:
            broker = w.brokers[replica.broker]
            if broker.state != RUNNING:
                continue
            log = replica.log
            end = len(log)
            w.last_request += 1
            replica.request = (
                w.last_request,
                broker.epoch,
                replica.leader_epoch,
                end,
                log[end - 1] >> EPOCH_SHIFT if end else -1,
                replica.flushed,
                replica.leader,
            )
            replica.answer = None
            return True
    return False


def serve_fetch(w: World, bits: int) -> bool:
    """A fetch reaches the leader."""
    replicas = w.replicas
    count = len(replicas)
    for i in range(count):
        replica = replicas[(bits + i) % count]
        request = replica.request
        if request is not None and replica.answer is None:
            answer = handle_fetch(w, replica.broker, replica.partition, request)
            if answer is None:
                replica.request = None  # an error, or nobody there
            else:
                replica.answer = answer
            return True
    return False


def handle_fetch(w: World, follower: int, partition: int, request: FetchRequest) -> FetchAnswer | None:
    """What the broker asked answers; the request proves what the follower has (R50, R55, R80)."""
    number, epoch, leader_epoch, offset, last_epoch, flushed, source = request
    broker = w.brokers[source]
    replica = broker.replicas[partition]
    rules = w.rules
    if broker.state != RUNNING or not rules.accepts_fetch(replica, broker, follower, epoch, leader_epoch):
        return None
    log = replica.log
    diverging = rules.divergence(log, offset, last_epoch)
    if diverging is not None:
        w.mark("diverging answer")
        return number, leader_epoch, offset, diverging[0], diverging[1], [], -1
    if offset > len(log):
        return None
    replica.positions[follower] = rules.position(offset, flushed, w.setup.flush_every_write)
    replica.position_epochs[follower] = epoch
    advance(w, replica)
    return (
        number,
        leader_epoch,
        offset,
        -1,
        -1,
        log[offset : offset + FETCH_MAX],
        replica.high_watermark,
    )


def take_fetch_answer(w: World, bits: int) -> bool:
    """A follower gets the answer to its outstanding request."""
    replicas = w.replicas
    count = len(replicas)
    for i in range(count):
        replica = replicas[(bits + i) % count]
        answer = replica.answer
        if answer is not None:
            apply_answer(w, replica, answer)
            replica.request = None
            replica.answer = None
            return True
    return False


def apply_answer(w: World, replica: Replica, answer: FetchAnswer) -> None:
    """Truncate, or append and follow the high watermark (R81, R82, R84)."""
    _, leader_epoch, offset, diverging_epoch, diverging_end, entries, high_watermark = answer
    rules = w.rules
    if (
        replica.role != FOLLOWER
        or leader_epoch != replica.leader_epoch
        or not rules.takes_answer(replica, answer)
    ):
        return
    log = replica.log
    if high_watermark < 0:
        end = rules.truncation(log, replica.high_watermark, diverging_epoch, diverging_end)
        if end < len(log):
            w.checker.truncates(w, replica, end, diverging_epoch, diverging_end)
            w.mark("truncated to 0" if end == 0 else "truncated")
            shorten(w, replica, end)
        return
    if entries:
        w.checker.follows(w, replica, offset, entries)
        log.extend(entries)
    new = rules.follows_high_watermark(replica, high_watermark)
    if new != replica.high_watermark:
        replica.high_watermark = new
        w.checker.matches(w, replica)


def time_out_fetch(w: World, bits: int) -> bool:
    """A follower gives its fetch up."""
    replicas = w.replicas
    count = len(replicas)
    wants_divergence = bits >> 20 & 1
    for i in range(2 * count):
        replica = replicas[(bits + i) % count]
        if replica.request is not None:
            if wants_divergence and i < count and (replica.answer is None or replica.answer[6] >= 0):
                continue
            give_up_fetch(w, replica)
            w.mark("fetch timed out")
            return True
    return False


def late_fetch(w: World, bits: int) -> bool:
    """Something arrives that its sender has given up: a request changes the leader, an answer nobody."""
    late = w.late
    if not late:
        return False
    at = bits % len(late)
    if bits >> 20 & 1:
        # it hurts most when it looks as if it were the answer to what was asked last
        for i, (replica, _, answer) in enumerate(late):
            if answer is not None and answer[2] == len(replica.log):
                at = i
                break
    replica, request, answer = late.pop(at)
    if answer is not None:
        apply_answer(w, replica, answer)
        return True
    assert request is not None
    answer = handle_fetch(w, replica.broker, replica.partition, request)
    if answer is not None and bits >> 4 & 1:
        late.append((replica, None, answer))
    return True


# --- ISR proposals ---------------------------------------------------------------------------------------


def expand(w: World, bits: int) -> bool:
    """A leader proposes a caught-up follower for the ISR (R50, A-5)."""
    replicas = w.replicas
    count = len(replicas)
    for i in range(count):
        replica = replicas[(bits + i) % count]
        if replica.role != LEADER or replica.proposal is not None:
            continue
        broker = w.brokers[replica.broker]
        if broker.state != RUNNING or replica.known is None:
            continue
        joining = 0
        outside = replica.known[5] & ~replica.isr & ~(1 << replica.broker)
        while outside:
            low = outside & -outside
            outside ^= low
            follower = low.bit_length() - 1
            if w.rules.may_join(replica, broker, follower):
                w.checker.joins(w, replica, follower)
                joining |= low
        if joining:
            _propose(w, broker, replica, replica.isr | joining)
            return True
    return False


def shrink(w: World, bits: int) -> bool:
    """A leader proposes an ISR without a follower that lags, or seems to (R51)."""
    replicas = w.replicas
    count = len(replicas)
    for i in range(count):
        replica = replicas[(bits + i) % count]
        if replica.role != LEADER or replica.proposal is not None:
            continue
        others = replica.isr & ~(1 << replica.broker)
        broker = w.brokers[replica.broker]
        if others and broker.state == RUNNING:
            leaving = others & bits >> 8 or others & -others
            _propose(w, broker, replica, replica.isr & ~leaving)
            return True
    return False


def _propose(w: World, broker: Broker, replica: Replica, isr: int) -> None:
    epochs = tuple(
        epoch if epoch >= 0 else broker.known_epochs[member]
        for member, epoch in enumerate(replica.position_epochs)
    )
    proposal = (isr, epochs, replica.leader_epoch, replica.partition_epoch)
    replica.proposal = proposal
    replica.isr, replica.maximal_isr = w.rules.after_proposal(replica, proposal)
    w.touched |= 1 << replica.partition
    _send_proposal(w, broker, replica, proposal)


def _send_proposal(w: World, broker: Broker, replica: Replica, proposal: Proposal) -> None:
    isr, epochs, leader_epoch, partition_epoch = proposal
    w.last_request += 1
    replica.proposal_number = w.last_request
    send(
        w,
        (
            ALTER_REQUEST,
            replica.partition,
            broker.id,
            broker.epoch,
            broker.starts,
            isr,
            leader_epoch,
            partition_epoch,
            w.tenure,
            w.last_request,
            *epochs,
        ),
    )


def resend_proposal(w: World, bits: int) -> bool:
    """A leader asks again: the request, or its answer, seems lost (R45)."""
    replicas = w.replicas
    count = len(replicas)
    for i in range(count):
        replica = replicas[(bits + i) % count]
        proposal = replica.proposal
        if replica.role == LEADER and proposal is not None and w.brokers[replica.broker].state == RUNNING:
            _send_proposal(w, w.brokers[replica.broker], replica, proposal)
            return True
    return False


def deliver(w: World, bits: int) -> bool:
    """Any message to or from the controller arrives, often the newest; one answer in sixteen comes again."""
    messages = w.messages
    if not messages:
        return False
    at = bits % len(messages) if bits >> 20 & 3 else len(messages) - 1
    message = messages[at] if bits >> 8 & 15 == 0 and messages[at][0] == ALTER_ANSWER else messages.pop(at)
    if message[0] == ALTER_REQUEST:
        answer_alter_partition(w, message)
    elif message[0] == ALTER_ANSWER:
        take_alter_answer(w, message)
    else:
        take_log_info(w, message)
    return True


def hold_message(w: World, bits: int) -> bool:
    """A message to or from the controller is caught in a cut."""
    if not w.messages or len(w.held) >= HELD_MAX:
        return False
    w.held.append(w.messages.pop(bits % len(w.messages)))
    return True


def release_message(w: World, bits: int) -> bool:
    """The cut ends: what it held is on its way again."""
    if not w.held:
        return False
    send(w, w.held.pop(bits % len(w.held)))
    return True


def lose_message(w: World, bits: int) -> bool:
    """A message to or from the controller is lost."""
    if not w.messages:
        return False
    del w.messages[bits % len(w.messages)]
    return True


def take_alter_answer(w: World, message: tuple[int, ...]) -> None:
    """The leader learns what became of its proposal (R44, D-5)."""
    _, index, leader, starts, verdict, number, leader_epoch, partition_epoch, new_isr, min_isr = message
    broker = w.brokers[leader]
    replica = broker.replicas[index]
    if broker.state != RUNNING or broker.starts != starts or replica.role != LEADER or replica.known is None:
        return
    proposal = replica.proposal
    is_open = proposal is not None and replica.proposal_number == number
    if verdict == ACCEPTED:
        if leader_epoch == replica.leader_epoch:
            if is_open and partition_epoch == replica.partition_epoch:
                replica.proposal = None  # granted without a change
                replica.maximal_isr = replica.isr
            known = (leader, leader_epoch, partition_epoch, new_isr, min_isr, replica.known[5])
            take_registration(w, broker, replica, known)
    elif verdict == INELIGIBLE and is_open:
        replica.proposal = None
        replica.maximal_isr = replica.isr
        w.touched |= 1 << index
        advance(w, replica)


# --- disk ------------------------------------------------------------------------------------------------


def begin_flush(w: World, bits: int) -> bool:
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


def end_flush(w: World, bits: int) -> bool:
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
