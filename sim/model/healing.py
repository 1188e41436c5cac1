"""The end of a walk: faults stop, all brokers come back, and what must come about does (L-1 to L-9).

Owns a fair schedule and the liveness properties. Where the strategy waits for an operator, no leader is asked
for; where a possible loss was reported, only agreement of the replicas is.
"""

from holdfast.sim.model import controller, fetching, lifecycle, proposals, replica
from holdfast.sim.model.properties import ModelViolation, members
from holdfast.sim.model.state import BALANCED, OFF, RUNNING, STARTING, STOPPING, ModelWorld, PartitionState

#: rounds in which everything that can happen happens once; logs of some hundred records need as many fetches
ROUNDS_MAX = 400


def heal(w: ModelWorld) -> None:
    """Let everything happen in turn until nothing changes. Raises: Violation."""
    w.messages += w.held
    w.held.clear()
    quiet = 0
    for _ in range(ROUNDS_MAX):
        before = _progress(w)
        _round(w)
        quiet = quiet + 1 if _progress(w) == before else 0
        if quiet == 3:
            break
    for part in w.partitions:
        problem = _problem(w, part)
        if problem is not None:
            raise ModelViolation(*problem)


def _progress(w: ModelWorld) -> tuple[object, ...]:
    return (
        len(w.metadata),
        [len(r.log) for r in w.replicas],
        [r.high_watermark for r in w.replicas],
        [broker.metadata_offset for broker in w.brokers],
        [broker.state for broker in w.brokers],
        [r.proposal for r in w.replicas],
    )


def _round(w: ModelWorld) -> None:
    step = w.checker.step
    for index, broker in enumerate(w.brokers):
        while broker.state == STOPPING:
            lifecycle.finish_stop(w, index)
        if broker.state == OFF:
            lifecycle.start(w, index | 1 << 8)
        if broker.state == STARTING and not controller.register(w, broker, False):
            controller.fence(w, index)
        elif broker.state == STARTING:
            broker.state = RUNNING
        while broker.state == RUNNING and broker.metadata_offset < len(w.metadata):
            replica.replay_one(w, broker)
            step(w)
        if w.stopping >> index & 1 and broker.state == RUNNING:
            lifecycle.stop(w, index)
        step(w)
    while controller.unfence(w, 0):
        step(w)
    while w.messages:
        proposals.deliver(w, 1 << 8)
        step(w)
    for part in w.partitions:
        for broker in w.brokers:
            controller.ask_for_log_info(w, part.index | broker.id << 8)
            while w.messages:
                proposals.deliver(w, 1 << 8)
        controller.recover(w, part.index)
        controller.recover(w, part.index)
        step(w)
    for action in (
        fetching.fetch,
        fetching.serve_fetch,
        fetching.take_fetch_answer,
        replica.begin_flush,
        replica.end_flush,
        proposals.resend_proposal,
        proposals.expand,
    ):
        for index in range(len(w.replicas)):
            action(w, index)
            step(w)


def _problem(w: ModelWorld, part: PartitionState) -> tuple[str, str] | None:
    for broker in w.brokers:
        if broker.state != RUNNING:
            return "L-1 BrokerStarts", f"broker {broker.id} does not run"
        if not w.active >> broker.id & 1:
            return "L-2 BrokerIsUnfenced", f"broker {broker.id} stays fenced"
    where = f"partition {part.index}"
    if part.leader < 0:
        setup = w.setup
        waits = bool(part.isr | part.elr) or (setup.manager and setup.elr and setup.strategy == BALANCED)
        return ("L-9 LeaderIsElected", f"{where} stays without a leader") if waits else None
    leader = w.brokers[part.leader].replicas[part.index]
    if leader.partition_epoch != part.partition_epoch or leader.proposal is not None:
        return "L-4 ViewsConverge", f"{where}: the leader's view stays behind, or its proposal open (L-3)"
    if part.original is not None:
        return "L-7 ReassignmentEnds", f"{where} is still moving to {part.order}"
    if part.isr != part.replicas:
        return "L-6 AllCatchUp", f"{where}: ISR stays {members(part.isr)} of {members(part.replicas)}"
    for broker in w.brokers:
        copy = broker.replicas[part.index]
        if part.replicas >> broker.id & 1 and copy.log != leader.log:
            return "L-6 AllCatchUp", f"{where}: broker {broker.id} keeps another log than the leader"
    if leader.high_watermark != len(leader.log):
        return "L-5 AllIsAnswered", f"{where}: high watermark {leader.high_watermark} of {len(leader.log)}"
    return None
