"""Wrong code on purpose is noticed, each mutant by its killing seed; and it still replaces what it names."""

import ast
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
from holdfast.cli.sim import mutants
from holdfast.cli.sim.command import command
from holdfast.cli.sim.mutants import PAGE, RECORD
from holdfast.sim.campaign.artifact import load
from holdfast.sim.mutants import find_kill
from holdfast.sim.mutants.mutant import Mutant, Patch
from holdfast.sim.mutants.page import page
from holdfast.sim.mutants.table import MUTANTS, PARTS

VERDICTS = find_kill.load(RECORD)
KILLED = [name for name, verdict in VERDICTS.items() if verdict.is_killed]
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


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=str)
def test_a_mutant_replaces_what_is_there_and_puts_it_back(mutant: Mutant) -> None:
    before = [vars(patch.owner)[patch.name] for patch in mutant.patches]
    with mutant.applied():
        assert all(
            vars(patch.owner)[patch.name] is not was
            for patch, was in zip(mutant.patches, before, strict=True)
        )
    assert [vars(patch.owner)[patch.name] for patch in mutant.patches] == before
    assert mutant.part in PARTS
    assert mutant.breaks
    assert mutant.by


def test_a_mutant_that_a_refactoring_made_void_is_an_error() -> None:
    def wrong(original: object, self: object, now_ms: int) -> bool:
        return True

    Patch(Partition, "advance_high_watermark", wrong).replacement()
    with pytest.raises(AssertionError, match="not there any more"):
        Patch(Partition, "advance_mark", wrong).replacement()
    renamed = SimpleNamespace(__name__="renamed", advance=lambda self, partition_epoch: None)
    with pytest.raises(AssertionError, match="takes .*'partition_epoch'"):
        Patch(renamed, "advance", wrong).replacement()


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=str)
def test_a_mutant_replaces_a_function_where_it_is_called(mutant: Mutant) -> None:
    """A module that has imported the function by name goes on calling the right one."""
    for patch in mutant.patches:
        original = vars(patch.owner)[patch.name]
        if not inspect.ismodule(patch.owner) or not inspect.isfunction(original):
            continue
        elsewhere = [
            name
            for name, module in sys.modules.items()
            if name.startswith(PRODUCTION) and vars(module).get(patch.name) is original
        ]
        nodes = ast.walk(ast.parse(inspect.getsource(patch.owner)))
        is_called_here = any(isinstance(node, ast.Name) and node.id == patch.name for node in nodes)
        assert is_called_here or elsewhere == [patch.owner.__name__], f"{patch.place}: {elsewhere}"


def test_every_mutant_has_its_verdict_or_a_reason_and_the_page_tells() -> None:
    alive = [name for name, one in MUTANTS.items() if name not in KILLED and not one.masked and not one.gap]
    assert alive == [], "run `holdfast sim mutants --only NAME --write`, or say what would unmask it"
    assert PAGE.read_text(encoding="utf-8") == page(VERDICTS), "run `holdfast sim mutants --write`"


@pytest.mark.slow
@pytest.mark.parametrize("name", HANDFUL)
@pytest.mark.usefixtures("failures_logged")
def test_a_killing_seed_still_kills(name: str) -> None:
    _replay(name)


def _replay(name: str) -> None:
    seed = VERDICTS[name].seed
    assert seed is not None
    violation = find_kill.violation_of(MUTANTS[name], seed)
    again = f"seed {seed} does not kill {name} any more: `holdfast sim mutants --only {name} --write`"
    assert violation is not None, again


@pytest.mark.slow
@pytest.mark.usefixtures("failures_logged")
def test_a_recorded_seed_that_kills_no_more_is_replaced_and_others_stay(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    record = tmp_path / "mutants.json"
    former = {name: replace(VERDICTS[name], tried=7) for name in ("no-gate", "votes-twice")}
    former["votes-twice"] = replace(former["votes-twice"], seed="1")  # which does not
    former["stops-without-flush"] = find_kill.MutantResult(
        "stops-without-flush", 30, None, "", ""
    )  # not killed then
    find_kill.save(record, former)
    monkeypatch.setattr(mutants, "RECORD", record)
    monkeypatch.setattr(mutants, "PAGE", tmp_path / "mutants.md")
    ran = CliRunner().invoke(command, ["mutants", "--recorded", "--write", "--output", "json"])
    assert ran.exit_code == 0, ran.output
    told = {row["mutant"]: row for row in map(json.loads, ran.stdout.splitlines())}
    found = find_kill.load(record)
    assert told.keys() == found.keys() == former.keys()
    assert (found["no-gate"].seed, found["no-gate"].tried) == (former["no-gate"].seed, 7)
    assert found["votes-twice"].tried == int(found["votes-twice"].seed or 0) > 1
    assert found["stops-without-flush"].is_killed
    refused = CliRunner().invoke(command, ["mutants", "--recorded", "--only", "wins-without-majority"])
    assert refused.exit_code == 2


@pytest.mark.slow
@pytest.mark.usefixtures("failures_logged")
def test_a_mutant_is_shown_by_its_seed_kept_and_replayed_as_it_was(tmp_path: Path) -> None:
    kept = tmp_path / "run.json"
    ran = CliRunner().invoke(command, ["run", "--mutant", "shows-uncommitted", "--keep", str(kept)])
    assert ran.exit_code == 1, ran.output
    seed = VERDICTS["shows-uncommitted"].seed
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
        (["--mutant", "serves-any-epoch"], "no seed is known"),
        ([], "which --seed?"),
    ],
)
def test_what_cannot_be_shown_is_refused_with_the_reason(arguments: list[str], told: str) -> None:
    refused = CliRunner().invoke(command, ["run", *arguments])
    assert refused.exit_code == 2
    assert told in refused.output
