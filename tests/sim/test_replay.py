"""Runs that are kept: the file, the replay, and what two plays of one story must have in common."""

import json
from array import array
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from holdfast.cli.sim.command import command
from holdfast.sim.campaign.artifact import Artifact, BadArtifact, artifact_of, load, name_of, save
from holdfast.sim.campaign.recording import difference, first_event_that_differs, play, record
from holdfast.sim.campaign.run_spec import RunSpec, RunTemplate
from holdfast.sim.cluster.world import ClusterSpec
from holdfast.sim.faults.table import Plan

SHORT = RunSpec(
    "5", ClusterSpec(brokers=3, voters=1, partitions=1, producers=1), 1.0, Plan(gap_ms=300), "budget", "swarm"
)
SEEDS = Path(__file__).with_name("seeds.txt")
#: the first ones; `make test-all` plays the others, too
SEEDS_OF_MAKE_TEST = 3


@pytest.fixture(scope="module")
def kept() -> Artifact:
    recording = record(SHORT)
    return artifact_of(SHORT, recording.tape, recording.result)


def test_a_kept_run_comes_back_as_it_was(kept: Artifact, tmp_path: Path) -> None:
    big = replace(kept, violation="I-8 lost: 3 records", tape={**kept.tape, "net": array("Q", [0, 1, 2**63])})
    save(big, tmp_path / "folder" / "run.json")
    assert load(tmp_path / "folder" / "run.json") == big


def test_a_kept_run_plays_again_to_the_same_hash(kept: Artifact, tmp_path: Path) -> None:
    save(kept, tmp_path / "run.json")
    again = load(tmp_path / "run.json")
    assert play(again.spec, again.tape).trace_hash == kept.trace_hash == play(SHORT).trace_hash


def test_the_command_tells_a_run_that_is_the_same_from_another(kept: Artifact, tmp_path: Path) -> None:
    save(kept, tmp_path / "same.json")
    same = CliRunner().invoke(command, ["replay", str(tmp_path / "same.json")])
    assert (same.exit_code, "the same run" in same.output) == (0, True), same.output
    save(replace(kept, trace_hash="0" * 16, commit="f" * 12), tmp_path / "other.json")
    other = CliRunner().invoke(command, ["replay", str(tmp_path / "other.json")])
    assert "another run" in other.output
    assert "that was commit ffffffffffff" in other.output


@pytest.mark.slow
def test_a_tape_may_end_early_and_a_story_without_choices_keeps_every_promise() -> None:
    """Once all was written to the first partition then, and a reader that seeks began anew without end."""
    shape = replace(SHORT.shape, partitions=3, topics=2, wanderers=1, remakes=True, asks_alone=True)
    spec = replace(SHORT, shape=shape, seconds=8.0)
    result = play(spec, {})
    assert result.violation is None, result.as_text()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"format": 99}, "format 99"),
        ({"shape": {"brokers": 3, "moons": 2}}, "ClusterSpec has no moons"),
        ({"tape": {"net": "no base64 "}}, "no run of the simulator"),
        ({"seconds": "long"}, "no run of the simulator"),
    ],
)
def test_a_file_of_another_version_is_refused_with_the_reason(
    kept: Artifact, tmp_path: Path, change: dict[str, Any], told: str
) -> None:
    path = tmp_path / "run.json"
    save(kept, path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(BadArtifact, match=told):
        load(path)
    refused = CliRunner().invoke(command, ["replay", str(path)])
    assert refused.exit_code == 2
    assert told in refused.output


def test_a_run_that_passed_has_nothing_to_shrink(kept: Artifact, tmp_path: Path) -> None:
    save(kept, tmp_path / "run.json")
    refused = CliRunner().invoke(command, ["shrink", str(tmp_path / "run.json")])
    assert refused.exit_code == 2
    assert "every property held" in refused.output


@pytest.mark.parametrize(
    ("violation", "name"),
    [(None, None), ("I-8 partition 0: gone", "I-8"), ("lost: 3 rows", "lost"), ("", "bug")],
)
def test_a_violation_begins_with_the_name_of_its_property(violation: str | None, name: str | None) -> None:
    assert name_of(violation) == name


# --- determinism ---------------------------------------------------------------------------------------


def test_two_plays_of_a_story_have_every_draw_and_every_event_in_common() -> None:
    assert difference(record(SHORT), record(SHORT)) is None


def test_a_play_that_parts_is_told_by_its_first_draw_and_its_first_event() -> None:
    one, other = record(SHORT), record(replace(SHORT, seed="6"))
    found = difference(one, other)
    assert found is not None
    at = next(i for i, (a, b) in enumerate(zip(one.tape["net"], other.tape["net"], strict=False)) if a != b)
    assert f"stream net: value of draw {at} is {one.tape['net'][at]}" in found
    event = first_event_that_differs(one.events, other.events)
    assert event is not None
    assert f"event {event[0]}: {event[1]!r}" in found


def test_a_play_that_draws_once_more_or_from_another_bound_is_told_too() -> None:
    one = record(SHORT)
    longer = replace(one, tape={**one.tape, "net": one.tape["net"] + array("Q", [1])})
    assert (
        difference(one, longer) == f"stream net: {len(one.tape['net'])} and {len(one.tape['net']) + 1} draws"
    )
    bounds = array("Q", one.bounds["net"])
    bounds[3] += 1
    told = difference(one, replace(one, bounds={**one.bounds, "net": bounds}))
    assert told == f"stream net: bound of draw 3 is {one.bounds['net'][3]} and {bounds[3]}"


def test_a_trace_that_ends_early_differs_at_its_end() -> None:
    assert first_event_that_differs(["a", "b"], ["a"]) == (1, "b", "(its end)")
    assert first_event_that_differs(["a"], ["a"]) is None


@pytest.mark.long
def test_a_hundred_replays_have_one_hash(kept: Artifact) -> None:
    assert {play(kept.spec, kept.tape).trace_hash for _ in range(100)} == {kept.trace_hash}


# --- seeds that have failed once -----------------------------------------------------------------------


def kept_seeds() -> list[Any]:
    """The lines of seeds.txt: options of `sim run`, and the story's name behind a number sign."""
    lines = [line.partition("#") for line in SEEDS.read_text().splitlines() if line.partition("#")[0].strip()]
    slow, long = pytest.mark.slow, pytest.mark.long
    return [
        pytest.param(options.split(), id=name.strip(), marks=slow if number < SEEDS_OF_MAKE_TEST else long)
        for number, (options, _, name) in enumerate(lines)
    ]


@pytest.mark.parametrize("options", kept_seeds())
def test_a_seed_that_failed_once_passes(options: list[str]) -> None:
    ran = CliRunner().invoke(command, ["run", *options])
    assert ran.exit_code == 0, ran.output


def test_every_kept_seed_has_a_story() -> None:
    assert all(param.id for param in kept_seeds())


def test_the_line_that_plays_a_seed_again_makes_the_same_story() -> None:
    base = ClusterSpec(brokers=5, voters=1, partitions=2, replicas=3, min_isr=2, producers=7)
    template = RunTemplate(base, seconds=2.5, gap_ms=700, band="over-budget")
    words = template.command("a b").split("run ")[1]
    assert words == (
        "--seed 'a b' --seconds 2.5 --band over-budget --brokers 5 --voters 1 --partitions 2 --producers 7 "
        "--fault-gap-ms 700"
    )
    assert RunTemplate().command("7") == "holdfast sim run --seed 7"
