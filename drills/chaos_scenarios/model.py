"""What a scenario file says, as values. Pure: neither where it is played nor how.

Owns the words of steps and conditions, in which `--dry-run` and a run say what they do.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from holdfast.drills.settings import Expectation

#: Longest that a step waits for a condition.
PATIENCE_S = 90.0


class Flush(Enum):
    """When brokers flush the records of a topic, as files spell it."""

    PAGE_CACHE = "page cache"
    EVERY_WRITE = "every write"


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic that is made at the beginning, with three replicas."""

    name: str
    partitions: int = 1
    min_isr: int = 2
    flush: Flush = Flush.PAGE_CACHE
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProducerSpec:
    """A producer with a ledger."""

    name: str
    topic: str
    acks: str = "all"
    records_per_second: int = 200


@dataclass(frozen=True, slots=True)
class ConsumerSpec:
    """A consumer that checks what it reads, from the first record on."""

    name: str
    topic: str


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """Three brokers and three controllers; what differs from the defaults."""

    #: of every node
    properties: Mapping[str, str] = field(default_factory=dict)
    #: {broker id: what it alone has}
    of_brokers: Mapping[int, Mapping[str, str]] = field(default_factory=dict)


# --- steps ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FaultStep:
    """A fault is made; healed after `seconds`, by a later step, or at the end of the run."""

    fault: str
    target: str
    #: None: it stays
    seconds: float | None = None
    #: the other side, of faults that have one
    other: str = ""
    #: what later steps call it; also a target
    label: str = ""
    #: further keys of the fault: how, part, partition, one-way, delay-ms, by-s
    options: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        words = f"{self.fault}: {self.target}"
        if self.other:
            words += f" and {self.other}"
        if self.options:
            words += f" ({', '.join(f'{key} {value}' for key, value in self.options.items())})"
        if self.seconds is not None:
            words += f", for {self.seconds:g} s"
        return words + (f", called {self.label!r}" if self.label else "")


@dataclass(frozen=True, slots=True)
class HealStep:
    """Undo faults: those of a label, or all."""

    label: str

    def __str__(self) -> str:
        return "heal everything" if self.label == "all" else f"heal {self.label!r}"


class Wanted(Enum):
    """What a step waits for."""

    IN_SYNC = "in sync"
    LEADER = "leader"
    NO_LEADER = "no leader"
    ISR = "isr"
    SECONDS = "seconds"
    RECORDS = "records"


@dataclass(frozen=True, slots=True)
class WaitStep:
    """Wait until something holds."""

    wanted: Wanted
    topic: str = ""
    partition: int = 0
    #: replicas in the ISR, seconds, or further acknowledged records
    number: float = 0

    def __str__(self) -> str:
        place = f"{self.topic}-{self.partition}"
        match self.wanted:
            case Wanted.IN_SYNC:
                return "wait until all nodes run and every replica is in sync"
            case Wanted.LEADER:
                return f"wait until {place} has a leader"
            case Wanted.NO_LEADER:
                return f"wait until {place} has no leader"
            case Wanted.ISR:
                return f"wait until the ISR of {place} has {self.number:g}"
            case Wanted.SECONDS:
                return f"wait {self.number:g} s"
            case Wanted.RECORDS:
                return f"wait for {self.number:g} further acknowledged records"


@dataclass(frozen=True, slots=True)
class LoadStep:
    """The producers pause, when every record has its answer, or go on."""

    goes_on: bool

    def __str__(self) -> str:
        return "the producers go on" if self.goes_on else "the producers pause"


@dataclass(frozen=True, slots=True)
class ConfigStep:
    """A key of a topic is set."""

    topic: str
    key: str
    value: str

    def __str__(self) -> str:
        return f"set {self.key}={self.value} for {self.topic}"


Step = FaultStep | HealStep | WaitStep | LoadStep | ConfigStep


# --- phases --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StepsPhase:
    """Steps in their order."""

    name: str
    steps: tuple[Step, ...]
    repeat: int = 1


@dataclass(frozen=True, slots=True)
class RandomPhase:
    """One fault after the other, drawn from the seed; each begins when every replica is in sync again."""

    name: str
    seconds: float
    #: {fault: weight}
    faults: Mapping[str, int]
    targets: tuple[str, ...]
    #: how long one lasts, at least and at most
    lasts: tuple[float, float] = (0.5, 4.0)


Phase = StepsPhase | RandomPhase


@dataclass(frozen=True, slots=True)
class Scenario:
    """A whole file."""

    name: str
    #: what happens and what must come out of it
    says: str
    topics: tuple[TopicSpec, ...]
    producers: tuple[ProducerSpec, ...]
    consumers: tuple[ConsumerSpec, ...]
    phases: tuple[Phase, ...]
    #: the first that holds for the settings of a run
    expectations: tuple[Expectation, ...]
    cluster: ClusterSpec = field(default_factory=ClusterSpec)
    seed: int = 0
    #: defaults of `--manager`, `--elr`, and the topics' unclean.recovery.strategy
    manager: bool = True
    elr: bool = True
    strategy: str = "Balanced"

    @property
    def faults(self) -> frozenset[str]:
        """Every fault that the file names."""
        found: set[str] = set()
        for phase in self.phases:
            if isinstance(phase, RandomPhase):
                found |= phase.faults.keys()
            else:
                found |= {step.fault for step in phase.steps if isinstance(step, FaultStep)}
        return frozenset(found)
