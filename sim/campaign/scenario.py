"""A story that a person wrote: what the cluster consists of, and what befalls it when.

Owns the text: one word or fact a line, `#` begins a comment.

    brokers 3            any number of the shape: brokers, voters, partitions, replicas, min_isr, producers
    every_write          any switch of the shape; `no elr` turns it off
    seconds 6            of load, before everything is healed
    at 1.5 kill b2       kill, power, stop, pause or isolate a node, seconds after the load has begun
    at 2 kill_leader     or a fault of the table, whose victim is drawn from the seed
"""

from dataclasses import fields, replace
from typing import Any

from holdfast.sim.campaign.run_spec import RunSpec
from holdfast.sim.cluster.world import FIRST_VOTER, ClusterSpec
from holdfast.sim.faults.names import FAULT_NAMES, NODE_FAULTS
from holdfast.sim.faults.table import Plan


class BadScenario(Exception):
    """The text says which line, and what was expected."""


def read_scenario(text: str, seed: str) -> RunSpec:
    """The story in `text`. What it leaves open is drawn from `seed`. Raises: BadScenario."""
    shape, seconds, script = ClusterSpec(), 10.0, list[tuple[int, str]]()
    kinds = {field.name: type(field.default) for field in fields(ClusterSpec)}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        try:
            match words:
                case []:
                    pass
                case ["seconds", value]:
                    seconds = float(value)
                case ["at", after, *what] if what:
                    script.append((int(1000 * float(after)), " ".join(what)))
                case [name, value] if kinds.get(name) is int:
                    shape = _with(shape, name, max(1, int(value)))
                case [name] if kinds.get(name) is bool:
                    shape = _with(shape, name, True)
                case ["no", name] if kinds.get(name) is bool:
                    shape = _with(shape, name, False)
                case _:
                    raise BadScenario(f"line {number}: {line.strip()}: no such fact of a scenario")
        except ValueError as error:
            raise BadScenario(f"line {number}: {line.strip()}: {error}") from error
    _check(shape, script)
    return RunSpec(seed, shape, seconds, Plan(script=tuple(script)), "written", "written")


def _with(shape: ClusterSpec, name: str, value: Any) -> ClusterSpec:
    return replace(shape, **{name: value})


def _check(shape: ClusterSpec, script: list[tuple[int, str]]) -> None:
    """Raises: BadScenario."""
    if not shape.min_isr <= shape.replicas <= shape.brokers:
        raise BadScenario(
            f"min_isr {shape.min_isr}, replicas {shape.replicas}, brokers {shape.brokers}: "
            "none may be above the next"
        )
    nodes = [f"b{number}" for number in range(1, shape.brokers + 1)]
    nodes += [f"c{number}" for number in range(FIRST_VOTER, FIRST_VOTER + shape.voters)]
    for _, name in script:
        what, _, whom = name.partition(" ")
        if whom and what not in NODE_FAULTS:
            raise BadScenario(f"{name}: what befalls a node is one of {', '.join(NODE_FAULTS)}")
        if whom and whom not in nodes:
            raise BadScenario(f"{name}: the nodes are {', '.join(nodes)}")
        if not whom and what not in FAULT_NAMES:
            raise BadScenario(f"{name}: no such fault; there are {', '.join(FAULT_NAMES)}")
