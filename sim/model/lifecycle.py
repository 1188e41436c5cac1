"""Actions on broker processes and their disks: start, clean stop, process kill, power loss, failed fsync.

Owns the order of a clean stop (A-19) and the fault budget (G-1): who may lose records in this walk. The three
kinds of stop are never mixed (D10).
"""

from holdfast.sim.model.replica import give_up_fetch, learn, shorten
from holdfast.sim.model.state import (
    LEADER,
    MIN_ISR_RECORD,
    NO_EPOCH,
    NO_FILE,
    OFF,
    PARTITION_RECORD,
    RUNNING,
    STARTING,
    STOPPING,
    ModelBroker,
    ModelReplica,
    ModelWorld,
)


def start(w: ModelWorld, bits: int) -> bool:
    """A process starts: reads and removes the marker, recovers its logs, then wants to register (D5)."""
    n = w.broker_count
    for i in range(n):
        broker = w.brokers[(bits + i) % n]
        if broker.state == OFF:
            _start(w, broker, bits >> 8)
            return True
    return False


def _start(w: ModelWorld, broker: ModelBroker, bits: int) -> None:
    broker.state = STARTING
    broker.starts += 1
    broker.epoch = NO_EPOCH
    broker.previous_epoch = NO_EPOCH if broker.clean_file == NO_FILE else broker.clean_file
    if w.rules.removes_file_at_start():
        broker.clean_file = NO_FILE
    for replica in broker.replicas:
        # recovery keeps what is whole, and makes it durable before it is served (R86, A-22)
        replica.durable = replica.flushed = len(replica.log)
    w.checker.started(w, broker)
    back = bits & 3
    if back == 0 and broker.metadata_offset:
        # the copy of the metadata log has lost its unsynced end
        broker.metadata_offset -= (bits >> 2) % min(broker.metadata_offset, 30)
    _rebuild_image(w, broker)


def _rebuild_image(w: ModelWorld, broker: ModelBroker) -> None:
    """The image comes of the local copy of the metadata log, up to where that goes."""
    broker.known_epochs = [NO_EPOCH] * w.broker_count
    broker.acceptable = 0
    broker.has_caught_up = False
    for replica in broker.replicas:
        replica.known = None
    for record in w.metadata[: broker.metadata_offset]:
        if record[0] == PARTITION_RECORD:
            replica = broker.replicas[record[1]]
            replica.known = (record[2], record[3], record[4], record[5], record[6], record[7])
        elif record[0] != MIN_ISR_RECORD:
            learn(broker, record)


def _end(w: ModelWorld, broker: ModelBroker, bits: int) -> None:
    """The process is gone: what was in its memory is gone too; high watermarks are as last checkpointed."""
    broker.state = OFF
    broker.epoch = NO_EPOCH
    broker.has_caught_up = False
    w.touched = -1
    for replica in broker.replicas:
        give_up_fetch(w, replica)
        if replica.role == LEADER:
            w.mark("leader stopped")
        replica.forget_role(w.broker_count)
        replica.flushing_to = -1
        if bits & 1 and replica.high_watermark:
            replica.high_watermark -= (bits >> 1) % (replica.high_watermark + 1) % 5
        replica.checked_to = min(replica.checked_to, replica.high_watermark)
        bits >>= 2


def kill(w: ModelWorld, bits: int) -> bool:
    """kill -9: the page cache lives (G-2)."""
    n = w.broker_count
    for i in range(n):
        broker = w.brokers[(bits + i) % n]
        if broker.state != OFF:
            _end(w, broker, bits >> 8)
            return True
    return False


def cut_power(w: ModelWorld, bits: int) -> bool:
    """Power loss of one broker, running or not: unsynced records may be gone, as far as the budget allows."""
    n = w.broker_count
    for i in range(n):
        broker = w.brokers[(bits + i) % n]
        if broker.state != OFF or any(replica.durable < len(replica.log) for replica in broker.replicas):
            _cut_power(w, broker, bits >> 8)
            return True
    return False


def cut_all_power(w: ModelWorld, bits: int) -> bool:
    """Power loss everywhere at once."""
    if all(broker.state == OFF for broker in w.brokers):
        return False
    for broker in w.brokers:
        _cut_power(w, broker, bits >> 4 * broker.id)
    w.mark("power outage")
    return True


def kill_all(w: ModelWorld, bits: int) -> bool:
    """kill -9 of all brokers at once."""
    if all(broker.state == OFF for broker in w.brokers):
        return False
    for broker in w.brokers:
        if broker.state != OFF:
            _end(w, broker, bits >> broker.id)
    w.mark("all killed")
    return True


def _cut_power(w: ModelWorld, broker: ModelBroker, bits: int) -> None:
    if broker.state != OFF:
        _end(w, broker, bits)
    for replica in broker.replicas:
        unsynced = len(replica.log) - replica.durable
        if unsynced:
            lose_tail(w, replica, len(replica.log) - 1 - (bits >> 3) % (unsynced + 1))
        bits >>= 2


def lose_tail(w: ModelWorld, replica: ModelReplica, end: int) -> None:
    """The disk keeps what is below `end` (not below what is durable), if the replica may lose now (G-1)."""
    end = max(end, replica.durable)
    if end < len(replica.log) and may_lose(w, replica):
        w.mark("records lost by power")
        shorten(w, replica, end)


def may_lose(w: ModelWorld, replica: ModelReplica) -> bool:
    """One more replica of this partition may lack records that it held. Counts it, if so."""
    part = w.partitions[replica.partition]
    bit = 1 << replica.broker
    if not part.replicas & bit:
        return True
    if w.setup.budget_excess is None and not w.setup.flush_every_write:
        return False
    lossy = part.lossy | bit
    if not w.setup.flush_every_write:  # G-3: flushed before counted, any number of power losses
        if lossy.bit_count() > part.loss_limit:
            return False
        if lossy.bit_count() > part.loss_limit - (w.setup.budget_excess or 0):
            part.is_over_budget = True
    part.lossy = lossy
    return True


def fail_flush(w: ModelWorld, bits: int) -> bool:
    """An fsync returns EIO and the kernel drops the dirty pages: the broker stops at once (A-20)."""
    replicas = w.replicas
    count = len(replicas)
    for i in range(count):
        replica = replicas[(bits + i) % count]
        broker = w.brokers[replica.broker]
        if replica.flushing_to >= 0 and broker.state == RUNNING and may_lose(w, replica):
            w.mark("fsync failed")
            if w.rules.survives_failed_flush():
                replica.flushed = replica.flushing_to
                replica.flushing_to = -1
            else:
                _end(w, broker, bits >> 8)
                shorten(w, replica, replica.durable)
            w.checker.flush_failed(w, replica)
            return True
    return False


# --- clean stop, step by step (A-19) -----------------------------------------------------------------------


def stop(w: ModelWorld, bits: int) -> bool:
    """A broker stops appends: its controlled shutdown is through, or took too long (R29)."""
    n = w.broker_count
    for i in range(n):
        broker = w.brokers[(bits + i) % n]
        is_asked = w.stopping >> broker.id & 1 or bits >> 8 & 3 == 0
        if is_asked and broker.state in (STARTING, RUNNING):
            if broker.state == STARTING:
                w.mark("stopped before it had an epoch")  # its marker will say -1
            broker.state = STOPPING
            broker.has_caught_up = False
            for replica in broker.replicas:
                give_up_fetch(w, replica)
                replica.forget_role(w.broker_count)
            w.touched = -1
            return True
    return False


def finish_stop(w: ModelWorld, bits: int) -> bool:
    """A stopping broker flushes its logs, one a step, then writes the marker and exits."""
    n = w.broker_count
    for i in range(n):
        broker = w.brokers[(bits + i) % n]
        if broker.state != STOPPING:
            continue
        if w.rules.flushes_before_file():
            for replica in broker.replicas:
                if replica.durable < len(replica.log):
                    replica.durable = replica.flushed = len(replica.log)
                    return True
        broker.clean_file = broker.epoch
        w.checker.wrote_file(w, broker)
        w.mark("clean stop")
        state_bits = bits >> 8 & ~1
        _end(w, broker, state_bits)
        return True
    return False
