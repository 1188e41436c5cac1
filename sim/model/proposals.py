"""Actions of ISR proposals and of the messages that carry them, log infos included, both ways.

Owns what a leader proposes (R50, R51), that it asks again (R45) and takes the answer (R44); messages arrive
in any order, twice, late or not at all. Each action takes the world and random bits, as in `replica`.
"""

from holdfast.sim.model.controller import answer_alter_partition, send, take_log_info
from holdfast.sim.model.replica import advance, take_registration
from holdfast.sim.model.rules import ACCEPTED, INELIGIBLE
from holdfast.sim.model.state import (
    ALTER_ANSWER,
    ALTER_REQUEST,
    LEADER,
    RUNNING,
    ModelBroker,
    ModelProposal,
    ModelReplica,
    ModelWorld,
)

#: messages held by a cut
HELD_MAX = 4


def expand(w: ModelWorld, bits: int) -> bool:
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


def shrink(w: ModelWorld, bits: int) -> bool:
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


def _propose(w: ModelWorld, broker: ModelBroker, replica: ModelReplica, isr: int) -> None:
    epochs = tuple(
        epoch if epoch >= 0 else broker.known_epochs[member]
        for member, epoch in enumerate(replica.position_epochs)
    )
    proposal = (isr, epochs, replica.leader_epoch, replica.partition_epoch)
    replica.proposal = proposal
    replica.isr, replica.maximal_isr = w.rules.after_proposal(replica, proposal)
    w.touched |= 1 << replica.partition
    _send_proposal(w, broker, replica, proposal)


def _send_proposal(
    w: ModelWorld, broker: ModelBroker, replica: ModelReplica, proposal: ModelProposal
) -> None:
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


def resend_proposal(w: ModelWorld, bits: int) -> bool:
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


def deliver(w: ModelWorld, bits: int) -> bool:
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


def hold_message(w: ModelWorld, bits: int) -> bool:
    """A message to or from the controller is caught in a cut."""
    if not w.messages or len(w.held) >= HELD_MAX:
        return False
    w.held.append(w.messages.pop(bits % len(w.messages)))
    return True


def release_message(w: ModelWorld, bits: int) -> bool:
    """The cut ends: what it held is on its way again."""
    if not w.held:
        return False
    send(w, w.held.pop(bits % len(w.held)))
    return True


def lose_message(w: ModelWorld, bits: int) -> bool:
    """A message to or from the controller is lost."""
    if not w.messages:
        return False
    del w.messages[bits % len(w.messages)]
    return True


def take_alter_answer(w: ModelWorld, message: tuple[int, ...]) -> None:
    """The leader learns what became of its proposal (R44, N-5)."""
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
