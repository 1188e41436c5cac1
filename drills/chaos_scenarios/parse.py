"""A scenario file's text to values. Pure; what is not understood is refused in a sentence that says where.

Owns the keys of the format (docs/faults.md).
"""

import difflib
import re
import tomllib
from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeVar

from holdfast.drills.chaos_scenarios.model import (
    ClusterSpec,
    ConfigStep,
    ConsumerSpec,
    FaultStep,
    Flush,
    HealStep,
    LoadStep,
    Phase,
    ProducerSpec,
    RandomPhase,
    Scenario,
    Step,
    StepsPhase,
    TopicSpec,
    WaitStep,
    Wanted,
)
from holdfast.drills.settings import Expectation, ExpectedLoss
from holdfast.localcluster.clocks import OFF_S_MAX
from holdfast.localcluster.faults.places import Part
from holdfast.localcluster.faults.shapes import WAYS
from holdfast.localcluster.faults.targets import partition_of, problem_of

T = TypeVar("T")

#: {fault: what a step may say of it beside fault, target, seconds and as}
FaultKeys = Mapping[str, Collection[str]]
#: {topic: how many partitions it has}
Topics = Mapping[str, int]

_VERDICTS = {
    "nothing lost": ExpectedLoss.NONE,
    "loss": ExpectedLoss.CERTAIN,
    "loss possible": ExpectedLoss.POSSIBLE,
}
_PLACE = r"(?P<topic>[A-Za-z0-9._-]+)-(?P<partition>\d+)"
_WAITS = (
    (re.compile(r"in sync"), Wanted.IN_SYNC),
    (re.compile(rf"{_PLACE} has a leader"), Wanted.LEADER),
    (re.compile(rf"{_PLACE} has no leader"), Wanted.NO_LEADER),
    (re.compile(rf"isr of {_PLACE} has (?P<number>\d+)"), Wanted.ISR),
    (re.compile(r"(?P<number>\d+(\.\d+)?) s"), Wanted.SECONDS),
    (re.compile(r"(?P<number>\d+) records"), Wanted.RECORDS),
)
_STEPS = ("fault", "heal", "wait", "load", "set")
_NO_BOUND = 1e9
_KEYS = ("name", "says", "seed", "cluster", "topic", "producer", "consumer", "phase", "expect")


class BadScenario(ValueError):
    """The file is no scenario. The text says where, and what is possible there."""


def parse(text: str, faults: FaultKeys) -> Scenario:
    """Raises: BadScenario."""
    try:
        table = _Table(tomllib.loads(text), "")
    except tomllib.TOMLDecodeError as error:
        raise BadScenario(f"this is not TOML: {error}") from error
    table.allow(_KEYS)
    topics = tuple(_topic(name, part) for name, part in table.tables("topic"))
    if not topics:
        raise BadScenario("there is no topic: a table [topic.t] makes one called t")
    names = {topic.name: topic.partitions for topic in topics}
    producers = tuple(_producer(name, part, names) for name, part in table.tables("producer"))
    if not any(producer.acks == "all" for producer in producers):
        raise BadScenario(
            "no producer has acks=all, so nothing could be lost: a table [producer.p] makes one"
        )
    cluster = table.table("cluster")
    scenario = Scenario(
        name=table.take("name", str),
        says=" ".join(table.take("says", str).split()),
        seed=table.number("seed", 0, least=0),
        topics=topics,
        producers=producers,
        consumers=tuple(_consumer(name, part, names) for name, part in table.tables("consumer")),
        phases=tuple(_phase(part, faults, names) for part in table.rows("phase")),
        expectations=tuple(_expectation(part) for part in table.rows("expect")),
        manager=cluster.take("manager", bool, True),
        elr=cluster.take("elr", bool, True),
        strategy=cluster.choice("strategy", ("Balanced", "Aggressive", "None"), "Balanced"),
        cluster=ClusterSpec(
            properties=cluster.strings("properties"),
            of_brokers={_broker_id(name, part): part.rest() for name, part in cluster.tables("broker")},
        ),
    )
    cluster.end()
    if not scenario.phases:
        raise BadScenario("there is no phase: [[phase]] with `steps` or `random`")
    if not scenario.expectations:
        raise BadScenario("nothing is expected: [[expect]] with a `verdict`")
    _check_targets(scenario.phases, names)
    return scenario


# --- the load ------------------------------------------------------------------------------------------


def _topic(name: str, part: "_Table") -> TopicSpec:
    flush = part.choice("flush", [flush.value for flush in Flush], Flush.PAGE_CACHE.value)
    found = TopicSpec(
        name,
        partitions=part.number("partitions", 1, least=1),
        min_isr=part.number("min-isr", 2, least=1),
        flush=Flush(flush),
        configs=part.strings("configs"),
    )
    part.end()
    return found


def _producer(name: str, part: "_Table", topics: Collection[str]) -> ProducerSpec:
    found = ProducerSpec(
        name,
        topic=part.choice("topic", topics),
        acks=part.choice("acks", ("all", "1", "0"), "all"),
        records_per_second=part.number("records-per-second", 200, least=1, most=2_000),
    )
    part.end()
    return found


def _consumer(name: str, part: "_Table", topics: Collection[str]) -> ConsumerSpec:
    found = ConsumerSpec(name, part.choice("topic", topics))
    part.end()
    return found


def _broker_id(name: str, part: "_Table") -> int:
    if name not in ("1", "2", "3"):
        raise BadScenario(f"{part.where}: there are brokers 1, 2 and 3")
    return int(name)


def _expectation(part: "_Table") -> Expectation:
    verdict = part.choice("verdict", _VERDICTS)
    found = Expectation(
        _VERDICTS[verdict],
        " ".join(part.take("because", str).split()),
        manager=part.take("manager", bool, None),
        elr=part.take("elr", bool, None),
    )
    part.end()
    return found


# --- phases and steps ----------------------------------------------------------------------------------


def _phase(part: "_Table", faults: FaultKeys, topics: Topics) -> Phase:
    name = part.take("name", str)
    if part.has("random") == part.has("steps"):
        raise BadScenario(f"{part.where}: a phase has either `steps` or `random`")
    phase = _random(name, part, faults, topics) if part.has("random") else _steps(name, part, faults, topics)
    part.end()
    return phase


def _steps(name: str, part: "_Table", faults: FaultKeys, topics: Topics) -> StepsPhase:
    steps = tuple(_step(row, faults, topics) for row in part.rows("steps", "step"))
    return StepsPhase(name, steps, part.number("repeat", 1, least=1))


def _random(name: str, part: "_Table", faults: FaultKeys, topics: Topics) -> RandomPhase:
    weights = part.table("random")
    drawn = {}
    for fault in weights.keys():
        _check_known(fault, faults, "fault", weights.where)
        drawn[fault] = weights.number(fault, 1, least=1)
    if not drawn:
        raise BadScenario(f"{weights.where}: no fault to draw; {{kill = 3, pause = 1}} draws kill most often")
    targets = tuple(part.take("targets", list, ["random broker"]))
    for target in targets:
        _check_target(target, (), topics, part.where)
    lasts = part.take("lasts", list, [0.5, 4.0])
    if len(lasts) != 2 or not 0 <= lasts[0] <= lasts[1]:
        raise BadScenario(f"{part.where}: `lasts` is [least, most] in seconds")
    return RandomPhase(name, part.seconds("seconds"), drawn, targets, (float(lasts[0]), float(lasts[1])))


def _step(part: "_Table", faults: FaultKeys, topics: Topics) -> Step:
    kinds = [kind for kind in _STEPS if part.has(kind)]
    if len(kinds) != 1:
        unknown = [key for key in part.keys() if _closest(key, _STEPS)]
        hint = _did_you_mean(unknown[0], _STEPS) if unknown and not kinds else ""
        raise BadScenario(f"{part.where}: a step has one of {', '.join(_STEPS)}{hint}")
    match kinds[0]:
        case "fault":
            step: Step = _fault(part, faults, topics)
        case "heal":
            step = HealStep(part.take("heal", str))
        case "wait":
            step = _wait(part, topics)
        case "load":
            step = LoadStep(part.choice("load", ("pauses", "goes on")) == "goes on")
        case _:
            step = ConfigStep(part.choice("topic", topics), part.take("set", str), part.take("to", str))
    part.end()
    return step


def _fault(part: "_Table", faults: FaultKeys, topics: Topics) -> FaultStep:
    fault = part.take("fault", str)
    _check_known(fault, faults, "fault", part.where)
    return FaultStep(
        fault,
        target=part.take("target", str),
        seconds=part.seconds("seconds") if part.has("seconds") else None,
        other=part.take("other", str, "") if "other" in faults[fault] else "",
        label=part.take("as", str, ""),
        options={
            key: _option(key, part, topics)
            for key in sorted(faults[fault])
            if key != "other" and part.has(key)
        },
    )


def _option(key: str, part: "_Table", topics: Topics) -> Any:
    match key:
        case "how":
            return part.choice(key, WAYS)
        case "one-way":
            return part.take(key, bool)
        case "delay-ms":
            return part.number(key, 200, least=1, most=60_000)
        case "by-s":
            return part.number(key, 7_200, least=-OFF_S_MAX, most=OFF_S_MAX)
        case "part":
            return part.choice(key, [one.value for one in Part])
        case "topic":
            return part.choice(key, topics)
        case "partition":
            return _place(key, part, topics)
    return part.take(key, str)


def _place(key: str, part: "_Table", topics: Topics) -> str:
    words: str = part.take(key, str)
    found = re.fullmatch(_PLACE, words)
    if found is None:
        raise BadScenario(f"{part.where}: `{key}` is {words!r}: expected a topic and a number, as t-0")
    _check_partition(found["topic"], int(found["partition"]), topics, part.where)
    return words


def _wait(part: "_Table", topics: Topics) -> WaitStep:
    words = " ".join(part.take("wait", str).split())
    for pattern, wanted in _WAITS:
        if found := pattern.fullmatch(words):
            given = found.groupdict()
            if "topic" in given:
                _check_partition(given["topic"], int(given["partition"]), topics, part.where)
            return WaitStep(
                wanted,
                given.get("topic", ""),
                int(given.get("partition") or 0),
                float(given.get("number") or 0),
            )
    raise BadScenario(
        f"{part.where}: cannot wait for {words!r}: possible are `in sync`, `t-0 has a leader`, "
        "`t-0 has no leader`, `isr of t-0 has 2`, `3 s` and `500 records`"
    )


def _check_targets(phases: Iterable[Phase], topics: Topics) -> None:
    """A label is given before it is used, and every target is one or says which nodes."""
    labels: set[str] = set()
    for number, phase in enumerate(phases, 1):
        for index, step in enumerate(phase.steps if isinstance(phase, StepsPhase) else (), 1):
            where = f"phase {number}, step {index}"
            if isinstance(step, HealStep) and step.label != "all":
                _check_known(step.label, labels | {"all"}, "label", where)
            if isinstance(step, FaultStep):
                for words in filter(None, (step.target, step.other)):
                    _check_target(words, labels, topics, where)
                labels |= {step.label} - {""}


def _check_target(words: str, labels: Collection[str], topics: Topics, where: str) -> None:
    if words in labels:
        return
    if problem := problem_of(words):
        raise BadScenario(f"{where}: {problem}{_did_you_mean(words, labels)}")
    if (found := partition_of(words)) is not None:
        _check_partition(*found, topics, where)


def _check_partition(topic: str, partition: int, topics: Topics, where: str) -> None:
    _check_known(topic, topics, "topic", where)
    if partition >= topics[topic]:
        has = f"the partitions 0 to {topics[topic] - 1}" if topics[topic] > 1 else "only partition 0"
        raise BadScenario(f"{where}: there is no {topic}-{partition}: {topic} has {has}")


# --- tables --------------------------------------------------------------------------------------------


class _Table:
    """A TOML table that knows where it is and which of its keys were taken."""

    def __init__(self, values: Any, where: str) -> None:
        if not isinstance(values, dict):
            raise BadScenario(f"{where}: expected a table of keys and values")
        self._values: dict[str, Any] = values
        self._taken: dict[str, None] = {}
        #: in words; empty: the file itself
        self.where = where

    def keys(self) -> list[str]:
        return list(self._values)

    def has(self, key: str) -> bool:
        return key in self._values

    def take(self, key: str, kind: type[T], *default: Any) -> Any:
        """The value of a key; without a default it must be there."""
        self._taken[key] = None
        if key not in self._values:
            if default:
                return default[0]
            near = _did_you_mean_one(key, [name for name in self._values if name not in self._taken])
            raise BadScenario(f"{self._prefix}there is no `{key}`{near}")
        value = self._values[key]
        if not isinstance(value, kind) or (
            kind is not object and isinstance(value, bool) and kind is not bool
        ):
            raise BadScenario(f"{self._prefix}`{key}` is {value!r}: expected {_KINDS[kind]}")
        return value

    def number(self, key: str, default: int, *, least: int, most: float = _NO_BOUND) -> int:
        value: int = self.take(key, int, default)
        if not least <= value <= most:
            bound = f"{least} or more" if most == _NO_BOUND else f"{least} to {most:g}"
            raise BadScenario(f"{self._prefix}`{key}` is {value}: expected {bound}")
        return value

    def seconds(self, key: str) -> float:
        value = self.take(key, object)
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            raise BadScenario(f"{self._prefix}`{key}` is {value!r}: expected a number of seconds")
        return float(value)

    def choice(self, key: str, possible: Collection[str], *default: str) -> str:
        value: str = self.take(key, str, *default)
        _check_known(value, possible, key, self.where)
        return value

    def strings(self, key: str) -> dict[str, str]:
        return self.table(key).rest()

    def rest(self) -> dict[str, str]:
        """All keys, as names and values of configurations."""
        return {key: self.take(key, str) for key in self._values}

    def table(self, key: str) -> "_Table":
        return _Table(self.take(key, object, {}), self._within(f"[{key}]"))

    def tables(self, key: str) -> list[tuple[str, "_Table"]]:
        table = self.table(key)
        return [(name, _Table(table.take(name, object), f"[{key}.{name}]")) for name in table.keys()]

    def rows(self, key: str, word: str = "") -> list["_Table"]:
        rows = self.take(key, list, [])
        return [_Table(row, self._within(f"{word or key} {n}")) for n, row in enumerate(rows, 1)]

    def end(self) -> None:
        """Refuse keys that nothing has taken."""
        self.allow(self._taken)

    def allow(self, possible: Collection[str]) -> None:
        """Refuse all other keys."""
        for key in self._values:
            if key not in possible:
                raise BadScenario(f"{self._prefix}unknown key `{key}`{_did_you_mean(key, possible)}")

    @property
    def _prefix(self) -> str:
        return f"{self.where}: " if self.where else ""

    def _within(self, what: str) -> str:
        return f"{self.where}, {what}" if self.where else what


_KINDS: Mapping[Any, str] = {
    str: "text in quotes",
    int: "a whole number",
    bool: "true or false",
    list: "a list",
}


def _check_known(name: str, possible: Collection[str], what: str, where: str) -> None:
    if name not in possible:
        prefix = f"{where}: " if where else ""
        raise BadScenario(f"{prefix}unknown {what} {name!r}{_did_you_mean(name, possible)}")


def _did_you_mean(name: str, possible: Collection[str]) -> str:
    near = _closest(name, possible)
    if near:
        return f"; did you mean {near!r}?"
    return f"; possible: {', '.join(sorted(possible))}" if possible else ""


def _did_you_mean_one(key: str, present: Collection[str]) -> str:
    near = _closest(key, present)
    return f"; is `{near}` meant to be it?" if near else ""


def _closest(name: str, possible: Collection[str]) -> str:
    return next(iter(difflib.get_close_matches(name, list(possible), 1)), "")
