"""Many seeds: rows, their sums, the engine of processes, and what is kept of a seed that fails."""

import gzip
import json
import os
import re
import struct
import time
from collections import Counter
from dataclasses import asdict, replace
from multiprocessing import Pipe, get_context, parent_process
from pathlib import Path
from threading import Event, current_thread, main_thread
from typing import Any

import pytest
from click.testing import CliRunner

from holdfast.cli.sim.command import command
from holdfast.cli.sim.options import BANDS as BAND_OPTIONS
from holdfast.sim.campaign import run as sim_run
from holdfast.sim.campaign import swarm
from holdfast.sim.campaign.artifact import load
from holdfast.sim.campaign.rows import TIMES, BadRows, SeedRow, from_mapping, sums, to_line
from holdfast.sim.campaign.run_spec import _BAND_WEIGHTS, BANDS, RunSpec, RunTemplate
from holdfast.sim.campaign.runs import page, with_run
from holdfast.sim.campaign.swarm import SeedLimits, keep_seed, play_seed, play_seeds
from holdfast.sim.checks.observe.observer import Observer
from holdfast.sim.checks.observe.views import Property
from holdfast.sim.cluster.nodes import SimBroker
from holdfast.sim.cluster.world import ClusterSpec
from holdfast.sim.faults.names import FAULT_NAMES, STORY_FAULTS

SMALL = ("--seconds", "1", "--voters", "1", "--partitions", "1", "--producers", "1", "--fault-gap-ms", "400")
RECIPE = RunTemplate(ClusterSpec(voters=1, partitions=1, producers=1), seconds=1.0, gap_ms=400)


class EndsAtOne(RunTemplate):
    """For these tests: the process that plays seed 1 ends."""

    def spec(self, seed: str) -> RunSpec:
        if seed == "1" and parent_process() is not None:
            os._exit(9)
        return super().spec(seed)


class HangsAtOne(RunTemplate):
    """For these tests: the process of seed 1 is never done, and works or waits meanwhile."""

    def spec(self, seed: str) -> RunSpec:
        if seed == "1" and parent_process() is not None and current_thread() is main_thread():
            hang = self.wait_for_ever if self.is_reference else self.work_for_ever
            hang()
        return super().spec(seed)

    def work_for_ever(self) -> None:
        while True:
            pass

    def wait_for_ever(self) -> None:
        Event().wait()


class NoBrokerEnds(Property):
    """For these tests: one kill is enough to violate it."""

    name = "T-1 NoBrokerEnds"

    def broker_ends(self, seen: Observer, broker: SimBroker) -> None:
        seen.broken(self, None, broker.name)


def untimed(row: SeedRow) -> dict[str, Any]:
    return {name: value for name, value in asdict(row).items() if name not in TIMES}


# --- stories -------------------------------------------------------------------------------------------


def test_of_five_seeds_two_are_tuned_two_have_their_own_weights_and_one_crashes_at_points() -> None:
    specs = [RunTemplate().spec(str(seed)) for seed in range(500)]
    counts = Counter(spec.mix for spec in specs)
    assert all(
        abs(counts[mix] - share) < 50 for mix, share in (("tuned", 200), ("swarm", 200), ("triggers", 100))
    )
    assert {spec.shape.every_write for spec in specs} == {False, True}
    assert all(set(spec.plan.weights) <= set(FAULT_NAMES) for spec in specs)
    own = [tuple(spec.plan.weights.values()) for spec in specs if spec.mix == "swarm"]
    assert len(set(own)) > len(own) // 2


def test_a_story_is_a_function_of_its_seed_and_bands_change_its_shape_and_what_they_are_about() -> None:
    assert RunTemplate().spec("7") == RunTemplate().spec("7")
    for band, changes in BANDS.items():
        spec = RunTemplate(band=band).spec("7")
        weights = RunTemplate().spec("7").plan.weights | _BAND_WEIGHTS.get(band, {})
        assert spec.plan == replace(RunTemplate().spec("7").plan, weights=weights)
        assert all(getattr(spec.shape, name) == value for name, value in changes.items())
        assert band in spec.told()
    assert tuple(BANDS) == BAND_OPTIONS


def test_the_reference_load_is_one_cluster_whose_seeds_decide_only_what_befalls_it() -> None:
    specs = [RunTemplate(is_reference=True).spec(str(seed)) for seed in range(60)]
    weights = [RunTemplate().spec(spec.seed).plan.weights for spec in specs]
    usual = [{name: w for name, w in row.items() if name not in STORY_FAULTS} for row in weights]
    assert [spec.plan.weights for spec in specs] == usual
    shapes = {replace(spec.shape, every_write=False) for spec in specs}
    gap_ms = specs[0].shape.send_gap_ms
    assert shapes == {replace(ClusterSpec(), send_gap_ms=gap_ms, producers_alike=True)}
    assert "--seed 7 --reference" in RunTemplate(is_reference=True).command("7")


# --- rows ----------------------------------------------------------------------------------------------


def test_sums_do_not_depend_on_the_order_of_rows() -> None:
    """A sum of 0.35 s is rounded to 0.3 s or 0.4 s if it depends on which row came first."""
    row = play_seed(RECIPE, 3)
    rows = [replace(row, seed=seed, simulated_seconds=s) for seed, s in enumerate((0.1, 0.2, 0.05))]
    assert sums(rows) == sums(rows[::-1])


@pytest.mark.slow
def test_rows_of_two_plays_differ_in_nothing_but_their_times() -> None:
    row = play_seed(RECIPE, 3)
    assert untimed(row) == untimed(play_seed(RECIPE, 3))
    assert untimed(row) != untimed(replace(play_seed(RECIPE, 4), seed=3))
    assert row.simulated_seconds > 1
    assert from_mapping(json.loads(to_line(row))) == row


def test_a_seed_that_the_simulator_cannot_play_is_a_row_and_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def breaks(spec: object) -> None:
        raise KeyError("no such wire")

    monkeypatch.setattr(swarm, "play", breaks)
    row = play_seed(RECIPE, 3)
    assert row.is_broken
    assert row.is_failing
    assert "no such wire" in str(row.defect)


@pytest.mark.slow
def test_a_failing_seed_says_which_property_and_is_played_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sim_run, "all_properties", lambda: [NoBrokerEnds()])
    failing = next(row for row in (play_seed(RECIPE, seed) for seed in range(20)) if row.violation)
    assert failing.violated == "T-1"
    assert failing.defect is None
    total = sums([failing])
    assert total["violations"] == {"T-1": [failing.seed]}


@pytest.mark.slow
def test_what_is_kept_of_a_failing_seed_is_a_tape_a_page_and_every_event(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sim_run, "all_properties", lambda: [NoBrokerEnds()])
    # those that heal a core end brokers without any fault
    whole = [seed for seed in range(60) if not RECIPE.spec(str(seed)).shape.core_first]
    rows = (play_seed(RECIPE, seed) for seed in whole)
    seed = next(row.seed for row in rows if row.violation and not row.faults)  # by the very first fault
    page = keep_seed(RECIPE, str(seed), tmp_path)
    kept = load(tmp_path / f"seed-{seed}.json")
    assert kept.property_name == "T-1"
    assert (tmp_path / f"seed-{seed}.txt").read_text() == page + "\n"
    with gzip.open(tmp_path / f"seed-{seed}.events.gz", "rt") as file:
        events = file.read().splitlines()
    assert f"  {events[-1]}"[:160] in page.splitlines()
    for part in (
        f"T-1 violated by seed {seed}",
        f"again:   {RECIPE.command(str(seed))}",
        f"step {kept.steps}",
        kept.trace_hash,
        f"Python {kept.python}",
        "budget",
        "b1 running",
        "the first event that differs",
        "last 40 events:",
        "waiting:",
    ):
        assert part in page, part
    assert "DEFECT" not in page
    assert len(page.splitlines()) < 130


# --- the engine of processes ---------------------------------------------------------------------------


@pytest.mark.slow
def test_seeds_in_other_processes_give_the_same_rows() -> None:
    there = sorted(play_seeds(RECIPE, range(1, 4), jobs=2), key=lambda row: row.seed)
    assert [untimed(row) for row in there] == [untimed(play_seed(RECIPE, seed)) for seed in range(1, 4)]


@pytest.mark.slow
def test_a_seed_that_ends_its_process_is_a_row_and_others_go_on() -> None:
    """As one does that needs more memory than there is."""
    first, second = sorted(
        play_seeds(EndsAtOne(RECIPE.base, 1.0, 400), (1, 2), jobs=1), key=lambda row: row.seed
    )
    assert first.is_broken
    assert "its process ended with 9 before" in str(first.defect)
    assert untimed(second) == untimed(play_seed(RECIPE, 2))


@pytest.mark.parametrize(
    ("is_idle", "told"),
    [(False, r"not over after \d+ s of the processor: .* work_for_ever <"), (True, "not over idle for ")],
)
def test_a_seed_that_is_never_done_is_a_row_that_says_where_it_was_and_others_go_on(
    is_idle: bool, told: str
) -> None:
    template = HangsAtOne(RECIPE.base, 1.0, 400, is_reference=is_idle)
    limits = SeedLimits(cpu_seconds=8.0, idle_seconds=2.0)
    rows = list(play_seeds(template, (1, 2), jobs=1, limits=limits))
    assert [row.seed for row in rows] == [1, 2]
    assert rows[0].is_broken
    assert re.search(told, str(rows[0].defect)), rows[0].defect
    assert "test_swarm.py" in str(rows[0].defect)
    assert rows[1].defect is None


def test_a_row_that_is_cut_off_half_way_is_its_seeds_and_ends_nothing_else() -> None:
    """As when who writes it is killed, and it is longer than a pipe has room for."""
    process = get_context("forkserver").Process(target=int)
    process.start()
    process.join()
    ours, theirs = Pipe(duplex=False)
    os.write(theirs.fileno(), struct.pack("!i", 100) + b"ten bytes ")
    theirs.close()
    row = swarm._row_from(ours, process, RECIPE, 3)
    assert row.is_broken
    assert (row.seed, ours.closed) == (3, True)


def test_no_seed_is_begun_after_the_time_is_up() -> None:
    assert list(play_seeds(RECIPE, range(1000), jobs=1, until=time.monotonic())) == []


def test_the_command_keeps_rows_and_sums_and_report_reads_them(tmp_path: Path) -> None:
    arguments = ["--seeds", "0..2", "--jobs", "1", "--dir", str(tmp_path), "--output", "json", *SMALL]
    ran = CliRunner().invoke(command, ["swarm", *arguments])
    assert ran.exit_code == 0, ran.output
    total = json.loads(ran.stdout)
    assert (total["seeds"], total["violations"], total["defects"]) == (3, {}, [])
    assert json.loads((tmp_path / "summary.json").read_text()) == total
    told = CliRunner().invoke(command, ["report", str(tmp_path), "--output", "json"])
    assert told.exit_code == 0, told.output
    sums_told = json.loads(told.stdout)
    assert sums_told == {name: total[name] for name in sums_told}
    table = CliRunner().invoke(command, ["report", str(tmp_path), "--rows"]).output.splitlines()
    assert table[0].split()[:4] == ["seed", "band", "mix", "violated"]
    assert [line.split()[0] for line in table[1:4]] == ["0", "1", "2"]
    assert "every property held" in table[-1]


def test_a_swarm_goes_on_where_it_stopped_and_mixes_no_two_recipes(tmp_path: Path) -> None:
    def play(seeds: str, *more: str) -> Any:
        arguments = ["--seeds", seeds, "--jobs", "1", "--dir", str(tmp_path), "--output", "json"]
        return CliRunner().invoke(command, ["swarm", *arguments, *SMALL, *more])

    first = json.loads(play("0..1").stdout)
    written = (tmp_path / "rows-0-1.jsonl").read_text()
    both = json.loads(play("0..2").stdout)
    assert (first["seeds"], both["seeds"]) == (2, 3)
    assert both["steps"] > first["steps"]
    assert (tmp_path / "rows-0-1.jsonl").read_text() == written
    assert len((tmp_path / "rows-0-2.jsonl").read_text().splitlines()) == 1
    assert json.loads(play("0..2").stdout) == both
    other = play("0..2", "--band", "edge")
    assert other.exit_code == 2
    assert "choose another folder" in other.stderr
    (tmp_path / "swarm.json").unlink()
    without_swarm = play("0..2")
    assert without_swarm.exit_code == 2
    assert "no swarm.json" in without_swarm.stderr


def run_of(*rows: SeedRow) -> dict[str, Any]:
    return {"commit": "a", "recipe": "sim run --seed N", **sums(rows)}


@pytest.mark.slow
def test_the_record_of_runs_has_one_line_for_a_commit_and_a_recipe_and_the_page_tells_it() -> None:
    third, fourth = play_seed(RECIPE, 3), play_seed(RECIPE, 4)
    old, new = run_of(third), run_of(third, fourth)
    other = {**old, "commit": "b"}
    assert with_run([old, other], new) == [other, new]
    assert "| a | `sim run --seed N` | 2 | 0 |" in page([other, new])


def test_a_report_adds_its_sums_to_the_record_in_the_folder_that_is_named(tmp_path: Path) -> None:
    rows, record = tmp_path / "rows", tmp_path / "sim-out" / "record"
    played = CliRunner().invoke(
        command, ["swarm", "--seeds", "0..1", "--jobs", "1", "--dir", str(rows), *SMALL]
    )
    assert played.exit_code == 0, played.output
    for _ in range(2):  # the same sums take the place of what they were
        written = CliRunner().invoke(command, ["report", str(rows), "--write", str(record)])
        assert written.exit_code == 0, written.output
    (run,) = json.loads((record / "runs.json").read_text(encoding="utf-8"))
    assert (run["seeds"], run["seed_ranges"]) == (2, [[0, 1]])
    assert (record / "runs.md").read_text(encoding="utf-8") == page([run])


@pytest.mark.slow
def test_seeds_that_another_machine_has_played_are_added_to_the_record() -> None:
    rows = [play_seed(RECIPE, seed) for seed in (3, 4, 6)]
    rows[2] = replace(rows[2], violated="I-8", violation="I-8 of some partition")
    together = run_of(*rows)
    assert together["seed_ranges"] == [[3, 4], [6, 6]]
    assert together["violations"] == {"I-8": [6]}
    for cut in (1, 2):
        kept = json.loads(json.dumps(run_of(*rows[:cut])))
        [added] = with_run([kept], run_of(*rows[cut:]))
        assert added.keys() == together.keys()
        assert {name: value for name, value in added.items() if not isinstance(value, float)} == {
            name: value for name, value in together.items() if not isinstance(value, float)
        }
        assert added["simulated_seconds"] == pytest.approx(together["simulated_seconds"], abs=0.2)


@pytest.mark.slow
def test_no_seed_is_counted_twice_in_the_record() -> None:
    rows = [play_seed(RECIPE, seed) for seed in (3, 4, 5)]
    with pytest.raises(BadRows, match=r"1 of these seeds .* outside of \[\[3, 4\]\]"):
        with_run([run_of(*rows[:2])], run_of(*rows[1:]))


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("kind", [(), ("--tiny-limits",), ("--band", "lost-voter")], ids=" ".join)
def test_a_short_swarm_keeps_every_promise(kind: tuple[str, ...], tmp_path: Path) -> None:
    """What `make test` plays each time: the seeds of a minute, in one process a core."""
    arguments = ["--seeds", "10000..10999", "--seconds", "15", "--minutes", "0.34", "--dir", str(tmp_path)]
    ran = CliRunner().invoke(command, ["swarm", *arguments, *kind])
    assert ran.exit_code == 0, ran.output
