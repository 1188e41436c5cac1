"""Wrong code on purpose is noticed, each mutant by its killing seed; and it still replaces what it names."""

import ast
import builtins
import dis
import inspect
import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from holdfast.broker.core.replicas.partition import Partition
from holdfast.cli.sim.command import command
from holdfast.protocol.errors import ErrorCode
from holdfast.sim.campaign.artifact import load
from holdfast.sim.checks.all import PROPERTIES
from holdfast.sim.checks.history_rules import RULES
from holdfast.sim.mutants import declarations, find_kill
from holdfast.sim.mutants.mechanical import codes
from holdfast.sim.mutants.mutant import Mutant, Patch
from holdfast.sim.mutants.page import page
from holdfast.sim.mutants.source_patch import SourcePatch, begin, patch, patched
from holdfast.sim.mutants.table import MUTANTS, PARTS
from holdfast.tools.mutant_docs import PAGE

PRODUCTION = tuple(
    f"holdfast.{name}."
    for name in (
        "protocol",
        "runtime",
        "rpc",
        "storage",
        "metadata",
        "raft",
        "controller",
        "broker",
        "client",
    )
)
#: one or two of each part that every other seed kills, for every run of the tests
HANDFUL = (
    "no-gate",
    "shrinks-before-confirmed",
    "unclean-stays-in-elr",
    "stops-without-flush",
    "flush-writes-nothing",
    "wins-without-majority",
    "takes-silence-for-stored",
    "recovers-at-random",
)


def _standing(one: Patch | SourcePatch) -> object:
    """What runs at the place of a patch."""
    return one.function().__code__ if isinstance(one, SourcePatch) else vars(one.owner)[one.name]


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=str)
def test_a_mutant_changes_what_is_there_and_puts_it_back(mutant: Mutant) -> None:
    """The old text of a patch stands in its function exactly once: else applying it is an error."""
    before = [_standing(one) for one in mutant.patches]
    with mutant.applied():
        assert all(_standing(one) is not was for one, was in zip(mutant.patches, before, strict=True))
        assert {name for one in mutant.patches for name in _unknown_names(one)} == set()
    assert [_standing(one) for one in mutant.patches] == before
    assert mutant.part in PARTS
    assert mutant.breaks
    assert mutant.by


def _unknown_names(one: Patch | SourcePatch) -> set[str]:
    """Which the patched function reads and its module does not have."""
    if not isinstance(one, SourcePatch):
        return set()
    function = one.function()
    read = {
        str(instruction.argval)
        for code in (function.__code__, *codes(function.__code__))
        for instruction in dis.get_instructions(code)
        if instruction.opname == "LOAD_GLOBAL"
    }
    return read - function.__globals__.keys() - vars(builtins).keys()


def test_a_mutant_that_a_change_of_the_text_made_void_is_an_error() -> None:
    with patched([patch(Partition, "check_produce", "required_acks == -1", "False")]):
        pass
    for old, told in (("required_acks is None", "has 0 times"), ("return ErrorCode", "has 3 times")):
        with pytest.raises(AssertionError, match=told), patched([patch(Partition, "check_produce", old, "")]):
            pass
    with pytest.raises(AssertionError, match="not there any more"), patched([begin(Partition, "gone", "")]):
        pass


def test_patches_of_one_function_are_made_together_and_a_first_statement_comes_first() -> None:
    wrong = (
        begin(Partition, "check_produce", "required_acks = 7"),
        *(
            patch(Partition, "check_produce", old, "required_acks")
            for old in ("ErrorCode.NOT_LEADER_OR_FOLLOWER", "ErrorCode.NOT_ENOUGH_REPLICAS")
        ),
    )
    follower = SimpleNamespace(is_serving=False)
    with patched(wrong):
        assert Partition.check_produce(follower, -1) == 7  # type: ignore[arg-type]
    assert Partition.check_produce(follower, -1) is ErrorCode.NOT_LEADER_OR_FOLLOWER  # type: ignore[arg-type]


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=str)
def test_a_mutant_replaces_a_function_where_it_is_called(mutant: Mutant) -> None:
    """A module that has imported the function by name goes on calling the right one."""
    for one in mutant.patches:
        if isinstance(one, SourcePatch):
            continue  # the function itself is changed
        original = vars(one.owner)[one.name]
        if not inspect.ismodule(one.owner) or not inspect.isfunction(original):
            continue
        elsewhere = [
            name
            for name, module in sys.modules.items()
            if name.startswith(PRODUCTION) and vars(module).get(one.name) is original
        ]
        nodes = ast.walk(ast.parse(inspect.getsource(one.owner)))
        is_called_here = any(isinstance(node, ast.Name) and node.id == one.name for node in nodes)
        assert is_called_here or elsewhere == [one.owner.__name__], f"{one.place}: {elsewhere}"


def test_every_mutant_is_declared_with_what_kills_it_and_the_page_tells() -> None:
    unnoticed = [name for name, one in MUTANTS.items() if not one.killed_by]
    assert unnoticed == [], "run `holdfast sim mutants --only NAME --declare`"
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make docs`"


def test_what_kills_a_mutant_is_a_property_or_a_rule_that_there_is() -> None:
    known = {one.name.split()[0] for one in PROPERTIES} | set(RULES) | {"OwnBug"}
    killers = {one.killer for one in MUTANTS.values() if one.killed_by}
    # of liveness are L-1 to L-10
    assert {name for name in killers - known if not re.fullmatch(r"L-\d+", name)} == set()


def test_a_killing_seed_is_written_into_the_declaration_and_nothing_else_changes(tmp_path: Path) -> None:
    module = tmp_path / "some.py"
    before = '''"""Mutants."""


@mutant(breaks="D5", by="A-1", killed_by="A-1@1")
def loses_half() -> Changes:
    """A write of größe two is lost."""
    return begin(Log, "append", "return")


@replacing(
    Log,
    "flush",
    breaks="D5",
    by="A-1",
    setting=SLOW,
)
def never_flushes(original: object) -> None:
    """No flush."""
'''
    module.write_text(before, encoding="utf-8")
    changed = declarations.declare({"loses-half": "I-8@12", "never-flushes": "A-22@3"}, tmp_path)
    assert changed == [module]
    after = before.replace('"A-1@1"', '"I-8@12"').replace(
        "setting=SLOW,", 'setting=SLOW, killed_by="A-22@3",'
    )
    assert module.read_text(encoding="utf-8") == after
    assert declarations.declare({"loses-half": "I-8@12"}, tmp_path) == []
    with pytest.raises(KeyError, match="of-yesterday"):
        declarations.declare({"of-yesterday": "I-8@1"}, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", HANDFUL)
@pytest.mark.usefixtures("failures_logged")
def test_a_killing_seed_still_kills(name: str) -> None:
    _replay(name)


def _replay(name: str) -> None:
    seed = MUTANTS[name].killing_seed
    assert seed is not None
    violation = find_kill.violation_of(MUTANTS[name], seed)
    again = f"seed {seed} does not kill {name} any more: `holdfast sim mutants --only {name} --declare`"
    assert violation is not None, again


@pytest.mark.slow
@pytest.mark.usefixtures("failures_logged")
def test_a_declared_seed_that_kills_no_more_is_replaced_and_others_stay(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    names = ("no-gate", "votes-twice", "stops-without-flush")
    declared = {name: replace(MUTANTS[name]) for name in names}
    declared["no-gate"] = replace(declared["no-gate"], killed_by="I-8@2")
    declared["votes-twice"] = replace(declared["votes-twice"], killed_by="I-8@1")
    declared["stops-without-flush"] = replace(declared["stops-without-flush"], killed_by="")
    for name, one in declared.items():
        monkeypatch.setitem(MUTANTS, name, one)
    played = find_kill.violation_of

    def first_seed_holds(mutant: Mutant, seed: str) -> str | None:
        return None if (mutant.name, seed) == ("votes-twice", "1") else played(mutant, seed)

    monkeypatch.setattr(find_kill, "violation_of", first_seed_holds)
    only = [word for name in names for word in ("--only", name)]
    arguments = ["mutants", *only, "--recorded", "--write", str(tmp_path), "--output", "json"]
    ran = CliRunner().invoke(command, arguments)
    assert ran.exit_code == 0, ran.output
    told = {row["mutant"]: row for row in map(json.loads, ran.stdout.splitlines())}
    assert told.keys() == {"no-gate", "votes-twice"}
    assert told["no-gate"]["seed"] == "2"
    assert told["votes-twice"]["seed"] != "1"
    assert told["votes-twice"]["tried"] == int(told["votes-twice"]["seed"])
    kept = json.loads((tmp_path / "mutants.json").read_text(encoding="utf-8"))
    assert {row["mutant"]: row["text"] for row in kept} == {name: row["text"] for name, row in told.items()}
    refused = CliRunner().invoke(command, ["mutants", "--recorded", "--only", "stops-without-flush"])
    assert refused.exit_code == 2


@pytest.mark.slow
@pytest.mark.usefixtures("failures_logged")
def test_a_mutant_is_shown_by_its_seed_kept_and_replayed_as_it_was(tmp_path: Path) -> None:
    kept = tmp_path / "run.json"
    ran = CliRunner().invoke(command, ["run", "--mutant", "shows-uncommitted", "--keep", str(kept)])
    assert ran.exit_code == 1, ran.output
    seed = MUTANTS["shows-uncommitted"].killing_seed
    assert f"again:   holdfast sim run --seed {seed} --mutant shows-uncommitted" in ran.output
    assert "broken on purpose by the mutant shows-uncommitted" in ran.output
    assert re.search(r"  c10[123] running exit None boots 1 leader epoch \d+ leader (\d+) end", ran.output)
    again = CliRunner().invoke(command, ["replay", str(kept)])
    assert (again.exit_code, "the same run" in again.output) == (1, True), again.output
    small = CliRunner().invoke(command, ["shrink", str(kept), "--replays", "1"])
    assert small.exit_code == 0, small.output
    assert load(tmp_path / "run.small.json").mutant == "shows-uncommitted"
    kept.write_text(kept.read_text().replace('"shows-uncommitted"', '"of-yesterday"'))
    for verb in ("replay", "shrink"):
        refused = CliRunner().invoke(command, [verb, str(kept)])
        assert (refused.exit_code, "of-yesterday, which this version" in refused.output) == (2, True)


@pytest.mark.slow
@pytest.mark.usefixtures("failures_logged")
def test_the_page_that_the_documentation_reads_is_the_one_that_is_shown() -> None:
    text = (PAGE.parent / "simulation.md").read_text(encoding="utf-8")
    (name,) = re.findall("--mutant ([a-z-]+)", text)
    (neighbour,) = re.findall("`(without [^`]* it passes)`", text)
    ran = CliRunner().invoke(command, ["run", "--mutant", name])
    assert neighbour in ran.output
    for event in ("power b3", "boot b3.2", "kill b2.1", "the session of broker 3 ended", "A-8 CleanIsTruth"):
        assert event in ran.output, event


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--mutant", "no-gates"], "no mutant no-gates; there are: gate-by"),
        (["--mutant", "no-gate", "--fault-gap-ms", "50"], "leave out --fault-gap-ms"),
        ([], "which --seed?"),
    ],
)
def test_what_cannot_be_shown_is_refused_with_the_reason(arguments: list[str], told: str) -> None:
    refused = CliRunner().invoke(command, ["run", *arguments])
    assert refused.exit_code == 2
    assert told in refused.output


def test_a_mutant_without_a_known_seed_needs_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MUTANTS, "no-gate", replace(MUTANTS["no-gate"], killed_by=""))
    refused = CliRunner().invoke(command, ["run", "--mutant", "no-gate"])
    assert (refused.exit_code, "no seed is known" in refused.output) == (2, True)
