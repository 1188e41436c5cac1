"""Mechanical mutants: each is put in and taken out again, and what becomes of it is told."""

import os
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import pytest
from click.testing import CliRunner

from holdfast.cli.sim.command import command
from holdfast.sim.mutants import mechanical
from holdfast.sim.mutants.mechanical import NotExchangeable, SourceChange, applied, changes_of
from holdfast.sim.mutants.sweep import USUAL, SweepRuns, drawn, judge, sweep
from tests.cases import long, slow


def named(module: str, function: str, text: str) -> SourceChange:
    """The change of that function with this in its text."""
    return next(one for one in changes_of(module) if one.function == function and text in one.text)


def code_of(change: SourceChange) -> Any:
    """What the function runs now."""
    found: Any = import_module(change.module)
    for part in change.function.split("."):
        found = vars(found)[part]
    return found.__code__


def test_a_change_is_there_for_a_while_and_then_gone() -> None:
    change = named("holdfast.client.core.backoff", "Backoff.pause_ms", "off by one")
    before = code_of(change)
    with applied(change):
        assert code_of(change) is not before
    assert code_of(change) is before


@pytest.mark.parametrize(
    "module",
    [
        *slow("holdfast.raft.core.member"),
        *long("holdfast.broker.core.replicas.partition", "holdfast.storage.log", "holdfast.broker.server"),
    ],
)
def test_nearly_every_change_of_a_module_can_be_made_and_each_is_another(module: str) -> None:
    changes = changes_of(module)
    assert [change.number for change in changes] == list(range(len(changes)))
    assert {change.module for change in changes} == {module}
    refused = 0
    for change in changes:
        try:
            with applied(change):
                pass
        except NotExchangeable:
            refused += 1
    assert len(changes) > 50
    assert refused < len(changes) / 20


def test_what_is_drawn_depends_on_the_draw_alone_and_comes_once() -> None:
    names = mechanical.modules(("metadata",))
    some = drawn(names, 30, "1")
    assert some == drawn(names, 30, "1") != drawn(names, 30, "2")
    assert len(set(some)) == 30
    assert len(drawn(["holdfast.client.core.backoff"], 1_000, "1")) == len(
        changes_of("holdfast.client.core.backoff")
    )


@pytest.mark.slow
def test_a_broken_rule_is_noticed_by_the_first_story() -> None:
    gate = named(
        "holdfast.broker.core.replicas.partition", "Partition.advance_high_watermark", "min_isr` is False"
    )
    finding = judge(gate, ["1", "2"])
    assert finding is not None
    assert (finding.outcome, finding.seed) == ("killed", "1")
    assert "HighWatermarkNeedsMinIsr" in finding.text or "I-8" in finding.text


@dataclass(frozen=True, slots=True)
class Deadly(SourceChange):
    """Ends the process that is to judge it."""

    def __reduce__(self) -> Any:
        return os._exit, (1,)


@pytest.mark.slow
def test_a_change_that_takes_its_process_along_is_killed_and_the_others_are_judged() -> None:
    one, two, three = changes_of("holdfast.client.core.backoff")[:3]
    deadly = Deadly(two.module, two.number, two.line, two.function, two.text)
    found = list(sweep([one, deadly, three], ["1"], USUAL, jobs=2))
    assert {finding.change.number for finding in found} == {one.number, two.number, three.number}
    assert [finding.outcome for finding in found if finding.text == "its process ended"] == ["killed"]


def cannot_start() -> None:
    """As `_bound` where the hard limit of memory is below that."""
    raise ValueError("not allowed to raise maximum limit")


@pytest.mark.slow
def test_processes_that_cannot_even_start_kill_no_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.sim.mutants.sweep._bound", cannot_start)
    with pytest.raises(BrokenProcessPool):
        list(sweep(changes_of("holdfast.client.core.backoff")[:2], ["1"], USUAL, jobs=1))


@pytest.mark.slow
def test_what_no_story_does_has_no_effect() -> None:
    unused = named("holdfast.controller.core.brokers.can_stop", "can_stop", "is True")
    finding = judge(unused, ["1"])
    assert finding is not None
    assert finding.outcome in ("no effect", "not reached")


@pytest.mark.slow
def test_the_command_tells_of_each_change_and_how_many_there_were() -> None:
    words = ["sweep", "--count", "2", "--module", "holdfast.client.core.backoff", "--seeds", "1"]
    done = CliRunner().invoke(command, words)
    assert done.exit_code == 0, done.output
    *lines, total = done.output.splitlines()
    assert len(lines) == 2
    assert all("holdfast.client.core.backoff:" in line for line in lines)
    assert sum(int(part.split()[0]) for part in total.split(", ")) == 2


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--module", "holdfast.brokr"], "no module holdfast.brokr; there are: "),
        (["--band", "wide"], "no band wide; there are: "),
        (["--like", "no-such-rule"], "no mutant no-such-rule; docs/mutants.md has them"),
    ],
)
def test_what_is_not_there_is_refused(words: list[str], told: str) -> None:
    done = CliRunner().invoke(command, ["sweep", *words])
    assert done.exit_code == 2
    assert told in done.output


@pytest.mark.slow
def test_a_rule_that_ordinary_stories_hardly_need_shows_in_those_of_its_like() -> None:
    change = named("holdfast.raft.core.quorum", "Votes.is_won", "off by one")
    finding = judge(change, ["1", "2"], SweepRuns(like="needs-all-votes"))
    assert finding is not None
    assert (finding.outcome, finding.text[:3]) == ("killed", "L-1")
