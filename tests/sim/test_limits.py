"""Limits that are made tiny: they are those of production code, and are as they were after each run."""

import ast
import inspect
import sys
from array import array

import pytest

from holdfast.sim.campaign.recording import play, record
from holdfast.sim.campaign.run_spec import RunTemplate
from holdfast.sim.cluster.limits import LIMITS, Limit, made_tiny
from holdfast.sim.cluster.world import ClusterSpec
from holdfast.sim.machine.choices import ReplayedStream, SeededStream

SMALL = ClusterSpec(partitions=2, producers=2)
#: draws of a story in which every limit is the first of its tiny ones
ALL_TINY = array("Q", [len(limit.tiny) for limit in LIMITS])


def values() -> list[int]:
    return [getattr(module, limit.name) for limit in LIMITS for module in limit.modules]


@pytest.mark.parametrize("limit", LIMITS, ids=str)
def test_a_limit_is_larger_in_production_and_the_same_everywhere(limit: Limit) -> None:
    found = {getattr(module, limit.name) for module in limit.modules}
    assert len(found) == 1
    assert max(limit.tiny) < found.pop()
    assert sorted(set(limit.tiny)) == list(limit.tiny)


@pytest.mark.parametrize("limit", LIMITS, ids=str)
def test_a_limit_is_looked_up_where_it_is_set_and_nowhere_else(limit: Limit) -> None:
    """A default of a parameter, or a name that another module imports, would keep the production value."""
    modules = limit.modules
    for module in modules:
        tree = ast.parse(inspect.getsource(module))
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
        functions = [node for node in ast.walk(tree) if isinstance(node, kinds)]
        defaults = [node for one in functions for node in (*one.args.defaults, *one.args.kw_defaults)]
        assert not any(isinstance(node, ast.Name) and node.id == limit.name for node in defaults)
        bodies = [part for one in functions for part in one.body]
        assert any(is_looked_up(part, limit.name) for part in bodies), module.__name__
    defined_in = {f"holdfast.{name}" for name in limit.module_names}
    importing = [
        name
        for name, module in sys.modules.items()
        if name.startswith("holdfast.") and name not in defined_in and imports(module, limit, defined_in)
    ]
    assert importing == []


def is_looked_up(tree: ast.AST, name: str) -> bool:
    return any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(tree))


def imports(module: object, limit: Limit, defined_in: set[str]) -> bool:
    if limit.name not in vars(module):
        return False
    tree = ast.parse(inspect.getsource(module))  # type: ignore[arg-type]
    return any(
        isinstance(node, ast.ImportFrom)
        and node.module in defined_in
        and limit.name in [alias.name for alias in node.names]
        for node in ast.walk(tree)
    )


def test_zero_is_the_production_value_and_half_of_the_limits_are_tiny() -> None:
    before = values()
    with made_tiny(ReplayedStream(array("Q"))) as chosen:
        assert (chosen, values()) == ({}, before)
    with made_tiny(ReplayedStream(ALL_TINY)) as chosen:
        assert chosen == {str(limit): limit.tiny[0] for limit in LIMITS}
    counts = []
    for seed in range(20):
        with made_tiny(SeededStream(str(seed))) as chosen:
            counts.append(len(chosen))
    assert 0.4 < sum(counts) / (20 * len(LIMITS)) < 0.6


def test_limits_are_as_they_were_after_a_run_that_fails() -> None:
    before = values()
    failing = made_tiny(ReplayedStream(ALL_TINY))
    failing.__enter__()
    assert values() != before
    assert not failing.__exit__(KeyError, KeyError(), None)
    assert values() == before


@pytest.mark.usefixtures("failures_logged")
def test_a_story_with_tiny_limits_keeps_every_promise_and_leaves_nothing_behind() -> None:
    usual, tiny = (
        RunTemplate(SMALL, seconds=3.0, has_tiny_limits=is_tiny).spec("11") for is_tiny in (False, True)
    )
    before = play(usual)
    recording = record(tiny)
    assert recording.result.violation is None, recording.result.as_text()
    drawn = [line.split(" ", 3)[2] for line in recording.events if line.split(" ", 2)[1] == "limit"]
    assert {str(limit) for limit in LIMITS} > set(drawn) > set()
    again = play(tiny, recording.tape)
    assert again.trace_hash == recording.result.trace_hash != before.trace_hash
    assert play(usual).trace_hash == before.trace_hash


def test_the_command_that_plays_a_seed_again_says_that_limits_are_tiny() -> None:
    template = RunTemplate(has_tiny_limits=True)
    assert template.spec("7").shape.tiny_limits
    assert template.command("7") == "holdfast sim run --seed 7 --tiny-limits"
