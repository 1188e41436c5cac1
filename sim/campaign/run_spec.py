"""A story: everything that decides a run beside its draws; and the recipe that makes one from a seed.

Owns the bands, and the mix: of five seeds two play the tuned table of faults, two a
table with weights of their own, one mostly crashes at named points. `sim run` and both engines of the swarm
come here, so a seed is the same story everywhere.
"""

import shlex
from dataclasses import dataclass, field, replace

from holdfast.sim.campaign.run import shape_of
from holdfast.sim.cluster.world import PRODUCER_KINDS, ClusterSpec, varied
from holdfast.sim.faults.names import AIMED_FAULTS, FAULT_NAMES, MORE_FAULTS, ONLY_IF_NAMED
from holdfast.sim.faults.table import Plan
from holdfast.sim.machine.choices import Choices

#: which faults may add up to what: {name: what of the shape is other than usual}
BANDS: dict[str, dict[str, bool]] = {
    "budget": {},
    "manager": {"recovery_manager": True},
    "edge": {"over_budget": True, "on_edge": True},
    "over-budget": {"over_budget": True},
    "no-elr": {"elr": False},
    "switched-elr": {"elr": False, "switches_elr": True},
    "unclean-no-elr": {"elr": False, "over_budget": True},
    "unclean-switched-elr": {"elr": False, "switches_elr": True, "over_budget": True},
    "lying-disks": {"every_write": True, "disks_lie": True},
    "lost-voter": {"elr": False, "switches_elr": True, "loses_voter": True},
    "snapshots": {"snapshots": True},
    # A part that is healed first might be a majority with an empty disk in it.
    "replaced-voters": {"snapshots": True, "replaces_voters": True, "core_first": False},
}

#: what both of these are about: which replicas count during a move, and which leads when none is complete
_UNCLEAN_MOVES = {
    "move_partition": 6,
    "cancel_move": 3,
    "tear_move": 3,
    "strand_move": 6,
    "act_while_leaderless": 4,
    "elect_unclean": 6,
    "change_strategy": 3,
    "unregister_broker": 3,
}
#: what the others decide without a voter
_WITHOUT_A_VOTER = {"switch_elr": 4, "unregister_broker": 4}
_BAND_WEIGHTS = {
    "unclean-no-elr": _UNCLEAN_MOVES,
    "unclean-switched-elr": _UNCLEAN_MOVES | {"switch_elr": 4},
    "lost-voter": _WITHOUT_A_VOTER,
    "replaced-voters": {"replace_voter": 10},
}

MIXES = ("tuned", "tuned", "swarm", "swarm", "triggers")
#: what finds most
_TUNED = {
    "kill_broker": 3,
    "kill_leader": 3,
    "kill_busy_leader": 8,
    "power_broker": 2,
    "power_leader": 3,
    "power_all": 2,
    "pause_leader": 2,
    "isolate_leader": 2,
    "crash_at_point": 6,
}
#: half of the faults never, some rarely, one in five often
_OWN_WEIGHTS = (1, 0, 0, 1, 6)
#: choreographies of several steps, in so many stories only: much of their time belongs to them then
_AIMED_ONE_IN = 4
_AIMED_WEIGHT = 2
#: stories whose logs are kept short, those with a reader that seeks, those with a topic that is remade
_SHORT_LOGS_ONE_IN = 5
_WANDERER_ONE_IN = 4
_REMAKES_ONE_IN = 5
#: stories in which a fetch brings a follower one batch; and others in which followers' fetches are late, as
#: they are in all of the former
_SMALL_FETCHES_ONE_IN = 6
_LATE_FETCHES_ONE_IN = 6
_LATE_FETCHES_WEIGHT = 6
#: stories in which controllers do every second what they do every few minutes, and wait no longer for logs
_SHORT_INTERVALS_ONE_IN = 4
_LATE_LOGS_WEIGHT = 3
#: stories in which each node is asked alone
_ASKER_ONE_IN = 4
#: stories in which an intruder sends what no correct peer does
_INTRUDER_ONE_IN = 4
#: stories in which operators do more, and those in which some producers wait for no answer
_MORE_ACTS_ONE_IN = 2
_NO_ACKS_ONE_IN = 4
_NO_ACKS_ONE_IN = 4
#: stories in which handles take time
_STRAINED_ONE_IN = 3
#: those in which a part of the cluster is healed first
_CORE_ONE_IN = 3
#: most that a producer of the reference load waits: four of them write a little more than 20 batches a second
_REFERENCE_GAP_MS = 280
_TRIGGERS = {"crash_at_point": 25, "kill_busy_leader": 5}


@dataclass(frozen=True, slots=True)
class RunSpec:
    """One run before it is played."""

    seed: str
    shape: ClusterSpec
    #: of load and faults, before everything is healed
    seconds: float
    plan: Plan
    band: str = "budget"
    mix: str = "tuned"

    def told(self) -> str:
        """One line for people."""
        shape = self.shape
        return (
            f"{self.band}, {self.mix}, {shape.brokers} brokers, {shape.voters} voters, "
            f"{shape.partitions} partitions of {shape.replicas}, min ISR {shape.min_isr}, "
            f"{shape.topics} topics, recovery manager {'on' if shape.recovery_manager else 'off'}, "
            f"{shape.producers} producers, {self.seconds:g} s, "
            f"a fault every {self.plan.gap_ms} ms, "
            f"flush {'every write' if shape.every_write else 'by the page cache'}"
        )


@dataclass(frozen=True, slots=True)
class RunTemplate:
    """What is the same for all seeds of a swarm."""

    #: without what seeds and bands decide
    base: ClusterSpec = field(default_factory=ClusterSpec)
    seconds: float = 30.0
    #: about so long between two faults
    gap_ms: int = 1_000
    band: str = "budget"
    #: the base as it is, and only the faults that every plan has
    is_plain: bool = False
    #: the base as it is, with all faults, and no more load than is asked of it: what speed is measured at
    is_reference: bool = False
    #: with limits that only big clusters reach
    has_tiny_limits: bool = False

    def spec(self, seed: str) -> RunSpec:
        """What this seed plays."""
        choices = Choices(seed)
        shape = shape_of(seed, self.base)
        if self.is_reference:
            shape = replace(shape, send_gap_ms=_REFERENCE_GAP_MS, producers_alike=True)
        elif not self.is_plain:
            shape = _with_more(shape, choices)
        if shape.members:
            # The budget of faults counts the replicas of topics with load: those of the offsets are the same.
            shape = replace(shape, brokers=shape.replicas, recovery_manager=True)
        shape = replace(shape, tiny_limits=self.has_tiny_limits, **BANDS[self.band])
        stream = choices.stream("mix")
        mix = MIXES[stream.draw(len(MIXES))]
        more = () if self.is_plain else MORE_FAULTS
        weights = dict(_TUNED) | dict.fromkeys(more, 1)
        if mix != "tuned":
            usual = [name for name in FAULT_NAMES if name not in ONLY_IF_NAMED]
            weights = {name: _OWN_WEIGHTS[stream.draw(len(_OWN_WEIGHTS))] for name in (*usual, *more)}
            weights.update(_TRIGGERS if mix == "triggers" else {})
        if not self.is_plain and choices.stream("mix.aimed").draw(_AIMED_ONE_IN) == 1:
            weights |= dict.fromkeys(AIMED_FAULTS, _AIMED_WEIGHT)
        if not self.is_plain:
            weights |= _BAND_WEIGHTS.get(self.band, {})
        if not self.is_plain and not self.is_reference:
            is_late = choices.stream("mix.fetches").draw(_LATE_FETCHES_ONE_IN) == 1
            if is_late or shape.small_fetches:
                weights["late_fetches"] = _LATE_FETCHES_WEIGHT
            if shape.short_intervals and shape.recovery_manager:
                weights["late_logs"] = _LATE_LOGS_WEIGHT
        return RunSpec(seed, shape, self.seconds, Plan(self.gap_ms, weights=weights), self.band, mix)

    def command(self, seed: str) -> str:
        """How to play it again, on one line."""
        usual, base = RunTemplate(), self.base
        given = {
            "--seconds": (f"{self.seconds:g}", f"{usual.seconds:g}"),
            "--band": (self.band, usual.band),
            "--brokers": (base.brokers, usual.base.brokers),
            "--voters": (base.voters, usual.base.voters),
            "--partitions": (base.partitions, usual.base.partitions),
            "--producers": (base.producers, usual.base.producers),
            "--members": (base.members, usual.base.members),
            "--fault-gap-ms": (self.gap_ms, usual.gap_ms),
        }
        changed = "".join(f" {name} {value}" for name, (value, normal) in given.items() if value != normal)
        flags = " --reference" if self.is_reference else ""
        flags += " --tiny-limits" if self.has_tiny_limits else ""
        return f"holdfast sim run --seed {shlex.quote(seed)}{flags}{changed}"


def _with_more(shape: ClusterSpec, choices: Choices) -> ClusterSpec:
    """What may be there besides, each from a stream of its own: a story without it is as it was."""
    has_no_acks = choices.stream("shape.no_acks").draw(_NO_ACKS_ONE_IN) == 1
    return replace(
        varied(shape, choices.stream("shape.more")),
        producers=max(shape.producers, PRODUCER_KINDS) if has_no_acks else shape.producers,
        retention=choices.stream("shape.logs").draw(_SHORT_LOGS_ONE_IN) == 1,
        wanderers=int(choices.stream("shape.wanderers").draw(_WANDERER_ONE_IN) == 1),
        remakes=choices.stream("shape.remakes").draw(_REMAKES_ONE_IN) == 1,
        small_fetches=choices.stream("shape.fetches").draw(_SMALL_FETCHES_ONE_IN) == 1,
        short_intervals=choices.stream("shape.intervals").draw(_SHORT_INTERVALS_ONE_IN) == 1,
        asks_alone=choices.stream("shape.asker").draw(_ASKER_ONE_IN) == 1,
        intrudes=choices.stream("shape.intruder").draw(_INTRUDER_ONE_IN) == 1,
        more_acts=choices.stream("shape.acts").draw(_MORE_ACTS_ONE_IN) == 1,
        strained=choices.stream("shape.strained").draw(_STRAINED_ONE_IN) == 1,
        core_first=choices.stream("shape.core").draw(_CORE_ONE_IN) == 1,
    )


def run_template(
    brokers: int,
    voters: int,
    partitions: int,
    producers: int,
    seconds: float,
    gap_ms: int,
    band: str,
    is_reference: bool = False,
    has_tiny_limits: bool = False,
    members: int = 0,
) -> RunTemplate:
    """From the options of the command line; as many replicas and as high a min ISR as brokers allow."""
    replicas = min(3, brokers)
    base = ClusterSpec(
        brokers=brokers,
        voters=voters,
        partitions=partitions,
        replicas=replicas,
        min_isr=min(2, replicas),
        producers=producers,
        members=members,
    )
    return RunTemplate(
        base, seconds, gap_ms, band, is_reference=is_reference, has_tiny_limits=has_tiny_limits
    )
