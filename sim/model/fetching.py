"""Actions of fetches: a follower asks, its leader serves, the answer is applied; also late and given up.

Owns R80-R84 and R55, and that a request proves what its follower has (R50). Each action takes the world
and random bits, as in `replica`.
"""

from holdfast.sim.model.replica import advance, give_up_fetch, shorten
from holdfast.sim.model.state import (
    EPOCH_SHIFT,
    FOLLOWER,
    RUNNING,
    FetchAnswer,
    FetchRequest,
    ModelReplica,
    ModelWorld,
)

#: records of one fetch answer
FETCH_MAX = 3


def fetch(w: ModelWorld, bits: int) -> bool:
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


def serve_fetch(w: ModelWorld, bits: int) -> bool:
    """A fetch reaches the leader."""
    replicas = w.replicas
    count = len(replicas)
    for i in range(count):
        replica = replicas[(bits + i) % count]
        request = replica.request
        if request is not None and replica.answer is None:
            answer = handle_fetch(w, replica.broker, replica.partition, request)
            if answer is None:
                replica.request = None  # an error, or no process there
            else:
                replica.answer = answer
            return True
    return False


def handle_fetch(w: ModelWorld, follower: int, partition: int, request: FetchRequest) -> FetchAnswer | None:
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


def take_fetch_answer(w: ModelWorld, bits: int) -> bool:
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


def apply_answer(w: ModelWorld, replica: ModelReplica, answer: FetchAnswer) -> None:
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


def time_out_fetch(w: ModelWorld, bits: int) -> bool:
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


def late_fetch(w: ModelWorld, bits: int) -> bool:
    """Something arrives that its sender has given up: a request changes the leader, an answer no replica."""
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
