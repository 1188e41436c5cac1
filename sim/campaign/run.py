"""One run from a seed: boot, load and faults for a while, heal, quiesce, judge; and the page about it.

Owns the order of a run and its report. A run is a function of its seed and shape: equal inputs, equal hash.
"""

import gc
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace

from holdfast.broker.core.replicas.partition import Partition
from holdfast.protocol.record_batch import CorruptBatch
from holdfast.sim.checks import group_rules, history_rules, liveness
from holdfast.sim.checks.all import all_properties
from holdfast.sim.checks.bands import excuse_of_loss
from holdfast.sim.checks.observe.observer import Observer
from holdfast.sim.checks.observe.views import Property
from holdfast.sim.cluster.limits import made_tiny
from holdfast.sim.cluster.nodes import SimBroker, SimController
from holdfast.sim.cluster.world import ClusterSpec, Violation, World, logs_of
from holdfast.sim.faults import partial_heal
from holdfast.sim.faults.table import Faults, Plan
from holdfast.sim.load import clients, final_operations
from holdfast.sim.machine.choices import Choices
from holdfast.sim.machine.loop import START_NS

#: a run that takes more handles than this is one that never rests: a busy cluster has a quarter of that. The
#: bound is of the story and not of the machine, so that no busy processor decides what a seed shows.
_HANDLES_BESIDE_LOAD = 400_000
_HANDLES_A_SECOND = 10_000
#: what a producer gave up on while it was under way has arrived by then: it may wait behind a request that
#: times out after 2 s
_LATE_MS = 2_500


@dataclass(frozen=True, slots=True)
class RunResult:
    """What became of a run. Wall times are the caller's."""

    seed: str
    shape: ClusterSpec
    #: the property and the story; None: everything held
    violation: str | None
    trace_hash: str
    simulated_seconds: float
    handles: int
    acknowledged: int
    acknowledged_batches: int
    sent: int
    records: int
    #: steps of nodes that changed something that properties look at
    changes: int
    faults: dict[str, int]
    events: dict[str, int]
    boots: int
    #: rare states that were reached, by name; zero too
    marks: dict[str, int] = field(default_factory=dict)
    #: shapes of partitions that were seen
    fingerprints: int = 0
    #: losses that a rule allows, with the rule: partitions, or rows of the history
    allowed: dict[str, int] = field(default_factory=dict)
    #: for a report of a failure
    newest: list[str] = field(default_factory=list)
    pending: str = ""
    replicas: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def as_text(self) -> str:
        """One page."""
        shape = self.shape
        lines = [
            f"seed {self.seed}: {'violated: ' + self.violation if self.violation else 'every property held'}",
            f"  trace {self.trace_hash}, {self.simulated_seconds:.1f} simulated seconds, "
            f"{self.handles} handles, {self.changes} changes checked",
            f"  {shape.brokers} brokers, {shape.voters} voters, {shape.partitions} partitions of "
            f"{shape.replicas} replicas, min ISR {shape.min_isr}, "
            f"flush {'every write' if shape.every_write else 'by the page cache'}",
            f"  {self.sent} records sent, {self.acknowledged} acknowledged (acks=all) in "
            f"{self.acknowledged_batches} batches, {self.records} in the logs",
            f"  {sum(self.faults.values())} faults, {self.boots} boots: "
            + ", ".join(f"{name} {count}" for name, count in sorted(self.faults.items())),
            "  events: " + ", ".join(f"{name} {count}" for name, count in sorted(self.events.items())),
        ]
        reached = [f"{name} {count}" for name, count in self.marks.items() if count]
        lines += [
            f"  rare states, {len(reached)} of {len(self.marks)}, {self.fingerprints} shapes of partitions: "
            + ", ".join(reached)
        ]
        lines += [f"  allowed: {name}: {count}" for name, count in self.allowed.items()]
        if self.violation:
            lines += ["replicas:", *self.replicas, "waiting:", self.pending, "last events:", *self.newest]
            lines += ["errors logged:", *self.errors[-10:]] if self.errors else []
        return "\n".join(lines)


def shape_of(seed: str, base: ClusterSpec) -> ClusterSpec:
    """The shape with what the seed decides: how writes are flushed."""
    return replace(base, every_write=Choices(seed).stream("shape").draw(4) == 3)


def run(
    choices: Choices,
    shape: ClusterSpec,
    seconds: float,
    *,
    plan: Plan | None = None,
    sink: Callable[[str], object] | None = None,
    listeners: Sequence[Property] = (),
) -> RunResult:
    """One run with `seconds` of load under faults, drawn from a seed or read from a tape.

    `listeners` hear what the properties hear, and change nothing.

    The cycle collector rests meanwhile, but for the loop's own collections (`sim.machine.loop`).
    """
    was_collecting = gc.isenabled()
    gc.disable()
    try:
        limits: AbstractContextManager[dict[str, int]] = nullcontext({})
        if shape.tiny_limits:
            limits = made_tiny(choices.stream("limits"))
        with limits as tiny:
            return _played(choices, shape, seconds, plan or Plan(), sink, tiny, listeners)
    finally:
        if was_collecting:
            gc.enable()


def _played(
    choices: Choices,
    shape: ClusterSpec,
    seconds: float,
    plan: Plan,
    sink: Callable[[str], object] | None,
    tiny: Mapping[str, int],
    listeners: Sequence[Property],
) -> RunResult:
    world = World(shape, choices, sink)
    for name, value in tiny.items():
        world.trace.add("limit", f"{name} {value}")
    world.loop.steps_max = int(_HANDLES_BESIDE_LOAD + _HANDLES_A_SECOND * seconds)
    faults = Faults(world, plan)
    observer = Observer(world, [*all_properties(), *listeners])
    violation = None
    history: history_rules.History | None = None
    with logs_of(world):
        try:
            world.boot()
            world.start_load()
            faults.start()
            if shape.loses_voter:
                faults.lose_a_voter(int(1000 * seconds))
            world.pass_time(seconds * 1000)
            if shape.core_first:
                _heal_a_core(world, faults)
            faults.heal()
            history = _quiesce_and_read(world)
            _judge(observer, history)
            _judge_group(world)
        except AssertionError as error:
            violation = str(error) or repr(error)
        result = _result(world, faults, observer, history, violation)
        world.close()
    return result


def _heal_a_core(world: World, faults: Faults) -> None:
    """A part of the cluster works again, and must do without the rest. Raises: Violation."""
    chosen = partial_heal.draw_healed_subset(world, world.choices.stream("core"))
    faults.heal(chosen)
    liveness.settle(world, partial_heal.wanted(chosen))
    world.load.acknowledged.clear()
    epoch = partial_heal.leader_epoch(world)
    liveness.settle(world, partial_heal.wanted_of_writes(chosen))
    world.pass_time(partial_heal.CALM_MS)
    if partial_heal.leader_epoch(world) != epoch:
        led_in = partial_heal.leader_epoch(world)
        raise Violation(f"L-8 the core keeps its leader: epoch {led_in} after {epoch} without a fault")


def _judge(observer: Observer, history: history_rules.History) -> None:
    """Apply the rules of the history. Raises: Violation, but for losses that a rule allows."""
    shape = observer.world.shape
    rules = {index: excuse_of_loss(shape, observer.evidence(index)) for index in sorted(observer.ghosts)}
    for index, rule in rules.items():
        if rule is not None:
            for name, rows in history_rules.losses(history, index).items():
                observer.allowed_rows[name, rule] = observer.allowed_rows.get((name, rule), 0) + rows
    broken = history_rules.broken_rules(history, lossy=[index for index, rule in rules.items() if rule])
    if broken:
        raise Violation("\n    ".join(broken))


def _judge_group(world: World) -> None:
    """Apply the rules of consumer groups. Raises: Violation."""
    if not group_rules.is_judged(world.shape):
        return
    broken = group_rules.broken_rules(world.group)
    broken += group_rules.lost_commits(world.group, group_rules.committed_offsets(world))
    if broken:
        raise Violation("\n    ".join(broken))


def _quiesce_and_read(world: World) -> history_rules.History:
    """Wait until the cluster has come to rest, and read everything there is."""
    load = world.load
    liveness.settle(world, liveness.BEFORE_THE_LOAD_ENDS)
    for operation in final_operations.unblocking_operations(world):
        final_operations.fulfil(world, operation, liveness.WITHIN_MS)
    liveness.settle(world, liveness.ALL_LED)
    load.acknowledged.clear()
    liveness.settle(world, liveness.WHILE_THE_LOAD_GOES_ON)
    load.is_over = True
    liveness.settle(world, liveness.AFTER_THE_LOAD)
    world.pass_time(_LATE_MS)
    liveness.settle(world, liveness.AT_REST)
    if world.shape.replaces_voters:
        liveness.settle(world, liveness.VOTERS_AT_REST)
    if world.shape.snapshots:
        liveness.settle(world, liveness.IMAGES_AT_REST)
    for operation in final_operations.operations(world):
        final_operations.fulfil(world, operation, liveness.WITHIN_MS)
    if group_rules.is_judged(world.shape):
        world.eventually("group: it comes to rest", lambda: group_rules.is_at_rest(world))
    load.is_read = True
    log = {index: _agreed_log(world, index) for index, _ in world.partitions()}
    ends = {index: records[-1].offset + 1 if records else 0 for index, records in log.items()}
    world.start_client("last", clients.final_reader(load, ends))
    last = world.clients[-1]
    world.eventually("L-6 the last reader has read all", lambda: last.exit_code is not None)
    sends = history_rules.read_ledgers(world.producer_machines)
    idempotent = frozenset(f"p{n}" for n in range(world.shape.producers) if n % 5 in (0, 2, 3))
    starts = {index: _log_start(liveness.replicas_of(world, index)) for index in log}
    told = history_rules.read_deliveries(load.deliveries)
    return history_rules.History(
        sends, log, load.polls, load.final_polls, idempotent, world.read_spans, load.troubles, starts, told
    )


def _log_start(replicas: Iterable[tuple[SimBroker, Partition]]) -> int:
    """The first offset that all of them have: each deletes by itself what is too old."""
    return max(replica.log.log_start_offset for _, replica in replicas)


def _agreed_log(world: World, index: int) -> list[history_rules.Stored]:
    """What all replicas hold of a partition. Raises: Violation when they differ."""
    logs = {}
    replicas = liveness.replicas_of(world, index)
    start_offset = _log_start(replicas)
    for broker, replica in replicas:
        assert broker.node is not None
        log = broker.node.log_manager.logs[replica.key]
        data, offset = bytearray(), start_offset
        while offset < replica.high_watermark:
            piece = log.read(offset, 1 << 30, replica.high_watermark)
            data += piece
            try:
                offset = history_rules.end_of(piece)
            except CorruptBatch as error:
                raise Violation(f"A-22 partition {index} on {broker.name} from {offset}: {error}") from error
        logs[broker.name] = bytes(data)
    difference = history_rules.diverged(logs)
    if difference is not None:
        raise Violation(f"I-10 partition {index}: {difference}")
    stored = history_rules.records_of(next(iter(logs.values())))
    return [one for one in stored if one.offset >= start_offset]  # the log may begin within a batch


def _result(
    world: World,
    faults: Faults,
    observer: Observer,
    history: history_rules.History | None,
    violation: str | None,
) -> RunResult:
    loop = world.loop
    sends = {} if history is None else history.sends
    acknowledged = [send for send in sends.values() if send.outcome == "ok" and send.acks == -1]
    return RunResult(
        seed=world.choices.seed,
        shape=world.shape,
        violation=violation,
        trace_hash=world.trace.digest(),
        simulated_seconds=(loop.now_ns - START_NS) / 1e9,
        handles=loop.steps,
        acknowledged=len(acknowledged),
        acknowledged_batches=world.load.acknowledged_batches,
        sent=len(sends),
        records=0 if history is None else sum(map(len, history.log.values())),
        changes=observer.changes,
        faults=dict(faults.counts),
        events=dict(world.trace.counts),
        boots=sum(node.boots for node in world.nodes),
        marks=dict(observer.marks.counts),
        fingerprints=len(observer.marks.fingerprints),
        allowed=observer.losses(),
        newest=world.trace.newest() if violation else [],
        pending=loop.pending() if violation else "",
        replicas=_table(world) if violation else [],
        errors=world.errors,
    )


def _table(world: World) -> list[str]:
    """Every replica with its log, every partition as committed, every process, and what voters are."""
    lines = []
    for index, row in world.partitions():
        lines.append(f"  {clients.name_at(index)} {row}")
        for broker, replica in liveness.replicas_of(world, index):
            lines.append(
                f"    {broker.name} {replica.role.value} epoch {replica.leader_epoch} "
                f"end {replica.log.log_end_offset} flushed {replica.log.flushed_offset} "
                f"hwm {replica.high_watermark}"
            )
    for node in world.nodes:
        role = f" {_voter(node)}" if isinstance(node, SimController) else ""
        lines.append(f"  {node.name} {node.state.value} exit {node.exit_code} boots {node.boots}{role}")
    return lines


def _voter(node: SimController) -> str:
    """What it believed when it was looked at, or when its process ended."""
    voter = None if node.server is None else node.server.driver.snapshot()
    if voter is None:
        return "unknown to itself"
    return (
        f"{voter.role.lower()} epoch {voter.raft_epoch} leader {voter.leader_id} end {voter.log_end_offset} "
        f"flushed {voter.flushed_offset} committed {voter.high_watermark}"
    )
