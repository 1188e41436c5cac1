"""Random walks over the model: from a seed to a set-up, a mix of actions and a verdict; replay and shrink.

Owns the choice of what happens next, never what it does. All chance comes through `draw(bits)`, so a walk is
a function of its seed. Mix (docs/model.md): 40 % tuned weights, 40 % swarm, 20 % swarm with triggers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from holdfast.sim.model.actions import ACTIONS, EVENTS, FAULTS, FUNCTIONS, MOMENTS, PAIRS, TARGETED
from holdfast.sim.model.checker import Checker
from holdfast.sim.model.controller import commit
from holdfast.sim.model.healing import heal
from holdfast.sim.model.properties import ModelViolation
from holdfast.sim.model.replica import replay_one
from holdfast.sim.model.rules import Rules
from holdfast.sim.model.state import (
    AGGRESSIVE,
    BALANCED,
    NONE,
    REGISTER_RECORD,
    RUNNING,
    UNFENCE_RECORD,
    ModelWorld,
    PartitionState,
    Setup,
    ids,
)

#: a new random integer of so many bits
Draw = Callable[[int], int]
#: (brokers, replication factor, MinISR) that were measured first (G-1)
SIZES = ((3, 3, 2), (4, 3, 2), (4, 4, 2), (4, 4, 3), (5, 5, 3), (5, 3, 2), (3, 3, 1))
SLOTS = 1024
#: faults in a thousand steps of a tuned walk; swarm walks draw one of FAULT_SHARES
FAULT_SHARE = 50
FAULT_SHARES = (10, 30, 60, 120)
#: picks without effect after which a fault may come all the same
PATIENCE = 64
#: applied steps between two looks at everything
FULL_CHECK_STEPS = 512
#: a step is kept as bits << ACTION_BITS | action
ACTION_BITS = 6


@dataclass(frozen=True, slots=True)
class WalkPlan:
    """What a seed stands for."""

    setup: Setup
    #: tuned, swarm or triggers
    mix: str
    #: ordinary actions and faults, SLOTS equally likely ones of each
    work: tuple[int, ...]
    faults: tuple[int, ...]
    #: faults in 1024 steps
    fault_share: int
    #: {action or rare state: faults that may fire right after it}
    triggers: dict[int | str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WalkResult:
    """What a walk came to."""

    setup: Setup
    mix: str
    #: steps that did something
    steps: int
    #: property and story, None when all held
    property_name: str | None
    problem: str
    #: all steps, as `replay` takes them
    trace: list[int]
    marks: dict[str, int]
    #: partitions in which a possible loss was reported, and those in which acknowledged records are gone
    reported: int
    lost: int

    @property
    def is_broken(self) -> bool:
        """A property does not hold."""
        return self.property_name is not None


def draw_setup(draw: Draw) -> Setup:
    """A set-up within the budget, ELR on; the bands and switches vary."""
    brokers, factor, min_isr = SIZES[draw(16) % len(SIZES)]
    manager = draw(3) != 0
    excess: int | None = 0 if draw(3) else None
    return Setup(
        brokers=brokers,
        partitions=1 + draw(8) % 3,
        replication_factor=factor,
        min_isr=min_isr,
        manager=manager,
        strategy=(BALANCED, BALANCED, BALANCED, BALANCED, BALANCED, AGGRESSIVE, NONE, BALANCED)[draw(3)],
        unclean_elections=draw(2) == 0,
        flush_every_write=draw(2) == 0,
        budget_excess=excess,
        reassigns=draw(1) == 1,
        changes_min_isr=draw(2) == 0,
    )


def draw_plan(draw: Draw, band: Callable[[Setup], Setup] | None) -> WalkPlan:
    """Set-up, as the band changes it, and mix of a seed."""
    setup = draw_setup(draw)
    if band is not None:
        setup = band(setup)
    kind = draw(16) % 10
    mix = "tuned" if kind < 4 else "swarm" if kind < 8 else "triggers"
    weights = [action.weight for action in ACTIONS]
    if mix != "tuned":
        for index, action in enumerate(ACTIONS):
            factors = (0.0, 0.3, 1.0, 4.0) if action.is_fault else (0.4, 1.0, 1.0, 2.5)
            weights[index] *= factors[draw(2)]
    triggers: dict[int | str, tuple[int, ...]] = {}
    if mix == "triggers":
        for _ in range(2 + draw(8) % 4):
            faults = TARGETED if draw(1) else FAULTS
            chosen = tuple(faults[draw(16) % len(faults)] for _ in range(2))
            if draw(1):
                chosen = PAIRS[draw(16) % len(PAIRS)]
            if draw(2):
                triggers[EVENTS[draw(16) % len(EVENTS)]] = chosen
            else:
                triggers[MOMENTS[draw(16) % len(MOMENTS)]] = chosen
    share = FAULT_SHARE if mix == "tuned" else FAULT_SHARES[draw(2)]
    work = _slots(weights, [index for index in range(len(ACTIONS)) if index not in FAULTS])
    return WalkPlan(setup, mix, work, _slots(weights, FAULTS), share, triggers)


def _slots(weights: Sequence[float], chosen: Sequence[int]) -> tuple[int, ...]:
    """Actions by weight, as a table of SLOTS."""
    total = sum(weights[index] for index in chosen) or 1.0
    table: list[int] = []
    for index in chosen:
        table += [index] * round(weights[index] / total * SLOTS)
    return tuple((table or list(chosen))[place % len(table or chosen)] for place in range(SLOTS))


def new_world(setup: Setup, checker: Checker) -> ModelWorld:
    """A cluster that has just come up: all brokers registered, unfenced and caught up, all logs empty."""
    w = ModelWorld(setup, Rules(), checker)
    for broker in w.brokers:
        w.epochs[broker.id] = broker.epoch = len(w.metadata)
        w.incarnations[broker.id] = broker.starts = 1
        broker.state = RUNNING
        w.metadata.append((REGISTER_RECORD, broker.id, broker.epoch))
    for broker in w.brokers:
        w.unfenced |= 1 << broker.id
        w.metadata.append((UNFENCE_RECORD, broker.id))
    for part in w.partitions:
        commit(w, part)
    for broker in w.brokers:
        while broker.metadata_offset < len(w.metadata):
            replay_one(w, broker)
    w.touched = -1
    return w


def walk(draw: Draw, steps: int, band: Callable[[Setup], Setup] | None = None) -> WalkResult:
    """Walk `steps` steps that do something, then heal and look at everything."""
    plan = draw_plan(draw, band)
    checker = Checker()
    w = new_world(plan.setup, checker)
    trace: list[int] = []
    try:
        _wander(w, plan, draw, steps, trace)
        checker.full(w)
        heal(w)
        checker.full(w)
        _demand_reports(w)
    except ModelViolation as violation:
        return _verdict(w, plan.mix, trace, violation)
    return _verdict(w, plan.mix, trace, None)


def _wander(w: ModelWorld, plan: WalkPlan, draw: Draw, steps: int, trace: list[int]) -> None:
    work, faults, share = plan.work, plan.faults, plan.fault_share
    functions, triggers = FUNCTIONS, plan.triggers
    step, record = w.checker.step, trace.append
    mask = SLOTS - 1
    tries_left = 16 * steps
    until_full = FULL_CHECK_STEPS
    idle = 0
    while len(trace) < steps and tries_left:
        tries_left -= 1
        bits = draw(64)
        # ordinary picks without effect do not bring the next fault nearer
        is_fault = bits & mask < share and (not idle or idle > PATIENCE)
        index = (faults if is_fault else work)[bits >> 10 & mask]
        bits >>= 20
        # recorded first, so that a step that breaks something is in the story
        record(bits << ACTION_BITS | index)
        if not functions[index](w, bits):
            trace.pop()
            idle += 1
            continue
        idle = 0
        if w.touched:
            step(w)
        if triggers:
            if index in triggers and not draw(2):
                _fire(w, triggers[index], draw, trace)
            if w.last_mark in triggers and draw(1):
                _fire(w, triggers[w.last_mark], draw, trace)
            w.last_mark = ""
        until_full -= 1
        if not until_full:
            until_full = FULL_CHECK_STEPS
            w.checker.full(w)


def _fire(w: ModelWorld, faults: Sequence[int], draw: Draw, trace: list[int]) -> None:
    """One of two faults or both right after something: at a leader, at a member of a set, or anywhere."""
    which = draw(2)
    for fault in faults if which > 1 else faults[which : which + 1]:
        bits = _aimed(w, draw) if fault in TARGETED else draw(44)
        trace.append(bits << ACTION_BITS | fault)
        if not FUNCTIONS[fault](w, bits):
            trace.pop()
        elif w.touched:
            w.checker.step(w)


def _aimed(w: ModelWorld, draw: Draw) -> int:
    """Bits that make a fault begin at a broker which matters for some partition, half of the time."""
    bits = draw(44)
    part = w.partitions[(bits >> 30) % w.partition_count]
    aim = draw(2)
    members = ids(part.isr or part.elr or part.last_known_elr)
    target = -1
    if aim == 0:
        target = part.leader
    elif aim == 1:
        # who is about to join matters as much as who is in
        for copy in w.replicas:
            if copy.proposal is not None:
                members = ids(copy.proposal[0] & ~copy.isr) or members
        if members:
            target = members[(bits >> 20) % len(members)]
    return bits if target < 0 else bits + target - bits % w.broker_count + w.broker_count


def _verdict(w: ModelWorld, mix: str, trace: list[int], violation: ModelViolation | None) -> WalkResult:
    return WalkResult(
        setup=w.setup,
        mix=mix,
        steps=len(trace),
        property_name=None if violation is None else violation.property_name,
        problem="" if violation is None else str(violation),
        trace=trace,
        marks=w.marks,
        reported=sum(1 for part in w.partitions if part.may_have_lost),
        lost=sum(1 for part in w.partitions if lacks_acknowledged(w, part)),
    )


def lacks_acknowledged(w: ModelWorld, part: PartitionState) -> bool:
    """The present leader's log lacks an acknowledged record. False while there is no leader."""
    if part.leader < 0:
        return False
    log = w.brokers[part.leader].replicas[part.index].log
    return any(len(log) <= offset or log[offset] != record for offset, record in part.acked.items())


def _demand_reports(w: ModelWorld) -> None:
    """G-4: when records are lost, the controller has reported a possible loss."""
    for part in w.partitions:
        if not part.may_have_lost and lacks_acknowledged(w, part):
            raise ModelViolation(
                "G-4 LossIsReported", f"partition {part.index} lost records and no controller said so"
            )


# --- replay and shrink -----------------------------------------------------------------------------------


def replay_trace(setup: Setup, trace: Sequence[int], story: list[str] | None = None) -> WalkResult:
    """Take the same steps again; those that can do nothing here are passed over. Lines go to `story`."""
    checker = Checker()
    w = new_world(setup, checker)
    done: list[int] = []
    mask = (1 << ACTION_BITS) - 1
    try:
        for step in trace:
            done.append(step)
            try:
                applied = FUNCTIONS[step & mask](w, step >> ACTION_BITS)
            finally:
                if story is not None:
                    story.append(describe(w, step))
            if not applied:
                done.pop()
                if story is not None:
                    story.pop()
            elif w.touched:
                checker.step(w)
        checker.full(w)
        heal(w)
        checker.full(w)
        _demand_reports(w)
    except ModelViolation as violation:
        return _verdict(w, "replay", done, violation)
    return _verdict(w, "replay", done, None)


def shrink(verdict: WalkResult, replays_max: int = 300) -> WalkResult:
    """A shorter trace that breaks the same property: chunks are left out, big ones first."""
    best = replay_trace(verdict.setup, verdict.trace)
    if best.property_name != verdict.property_name:
        return verdict
    replays = 1
    chunk = max(1, len(best.trace) // 2)
    while replays < replays_max:
        at = len(best.trace)
        shorter = False
        while at > 0 and replays < replays_max:
            trace = best.trace[: max(0, at - chunk)] + best.trace[at:]
            attempt = replay_trace(verdict.setup, trace)
            replays += 1
            if attempt.property_name == verdict.property_name and len(attempt.trace) < len(best.trace):
                best, shorter = attempt, True
                at = min(at, len(best.trace))
            at -= chunk
        if chunk == 1 and not shorter:
            break
        chunk = max(1, chunk // 2)
    return replace(best, mix=verdict.mix, marks=verdict.marks)


def describe(w: ModelWorld, step: int) -> str:
    """A step and the state after it, on one line for each partition."""
    name = ACTIONS[step & (1 << ACTION_BITS) - 1].name
    return f"{name:20s} " + " | ".join(_partition_line(w, index) for index in range(w.partition_count))


def _partition_line(w: ModelWorld, index: int) -> str:
    part = w.partitions[index]
    logs: list[str] = []
    for broker in w.brokers:
        replica = broker.replicas[index]
        state = "-sRx"[broker.state] + ("" if w.unfenced >> broker.id & 1 else "f")
        role = " LF"[replica.role]
        view = f"{role}{replica.leader_epoch}.{replica.partition_epoch}" if replica.role else ""
        logs.append(
            f"{broker.id}:{state}{view}[{replica.high_watermark}/{replica.durable}/{len(replica.log)}]"
        )
    moving = "" if part.original is None else f" moving {part.order}"
    epochs = f"{part.leader_epoch}.{part.partition_epoch}"
    return (
        f"leader {part.leader} {epochs} isr {_set(part.isr)} elr {_set(part.elr)} "
        f"lk {_set(part.last_known_elr)} min {part.min_isr}{moving} hw {len(part.committed)} {' '.join(logs)}"
    )


def _set(mask: int) -> str:
    return "".join(str(i) for i in range(mask.bit_length()) if mask >> i & 1) or "-"
