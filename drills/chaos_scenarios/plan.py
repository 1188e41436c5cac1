"""What a scenario will do, in words, and what its random phases draw. Pure: the same seed, the same plan."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from holdfast.drills.chaos_scenarios.model import Flush, RandomPhase, Scenario, StepsPhase, TopicSpec
from holdfast.drills.settings import Expectation, Settings, expectation_of


class NothingExpected(ValueError):
    """The file says nothing about these settings."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """One fault of a random phase."""

    fault: str
    target: str
    #: how long it lasts
    seconds: float
    #: of the fault's own choices
    seed: int


def draws(phase: RandomPhase, seed: int, number: int) -> Iterator[Drawn]:
    """Faults without end; `number` tells the phases of a scenario apart."""
    chance = random.Random(f"{seed}:{number}:{phase.name}")
    names, weights = list(phase.faults), list(phase.faults.values())
    while True:
        yield Drawn(
            chance.choices(names, weights)[0],
            chance.choice(phase.targets),
            round(chance.uniform(*phase.lasts), 2),
            chance.randrange(1 << 31),
        )


def expected(scenario: Scenario, settings: Settings) -> Expectation:
    """What must come out under these settings. Raises: NothingExpected."""
    found = expectation_of(scenario.expectations, settings)
    if found is None:
        raise NothingExpected(
            f"{scenario.name} expects nothing with {settings.text}: give it an [[expect]], or choose others"
        )
    return found


def plan_lines(scenario: Scenario, settings: Settings, driver: str) -> list[str]:
    """The whole run in words."""
    expectation = expected(scenario, settings)
    lines = [
        f"{scenario.name}: {scenario.says}",
        f"seed {settings.seed}, driver {driver}, {settings.text}",
        "three brokers and three controllers" + _properties(scenario),
    ]
    lines += [_topic_line(topic) for topic in scenario.topics]
    lines += [
        f"producer {one.name}: to {one.topic}, acks={one.acks}, {one.records_per_second} records/s"
        for one in scenario.producers
    ]
    lines += [f"consumer {one.name}: checks {one.topic} as it goes" for one in scenario.consumers]
    for number, phase in enumerate(scenario.phases, 1):
        times = f" ({phase.repeat} times)" if isinstance(phase, StepsPhase) and phase.repeat > 1 else ""
        lines.append(f"{number}. {phase.name}{times}")
        if isinstance(phase, StepsPhase):
            lines += [f"   {step}" for step in phase.steps]
        else:
            lines += [f"   {line}" for line in _random_lines(phase, settings.seed, number)]
    lines.append("at the end everything is healed, and every replica must come back in sync")
    lines.append(f"expected: {expectation.loss.value} ({expectation.rule})")
    return lines


def _topic_line(topic: TopicSpec) -> str:
    flushed = (
        "each write is flushed" if topic.flush is Flush.EVERY_WRITE else "records stay in the page cache"
    )
    partitions = _counted(topic.partitions, "partition")
    return f"topic {topic.name}: {partitions}, three replicas, min ISR {topic.min_isr}, {flushed}"


def _random_lines(phase: RandomPhase, seed: int, number: int) -> list[str]:
    weights = ", ".join(f"{name} {weight}" for name, weight in phase.faults.items())
    first = islice(draws(phase, seed, number), 3)
    shown = "; ".join(f"{one.fault} on {one.target} for {one.seconds:g} s" for one in first)
    return [
        f"for {phase.seconds:g} s one random fault after the other, each when all is in sync: {weights}",
        f"the first three: {shown}",
    ]


def _properties(scenario: Scenario) -> str:
    spec = scenario.cluster
    parts = [f"{key}={value}" for key, value in spec.properties.items()]
    parts += [
        f"broker {broker_id}: {key}={value}"
        for broker_id, own in spec.of_brokers.items()
        for key, value in own.items()
    ]
    return f"; {', '.join(parts)}" if parts else ""


def _counted(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"
