"""Whole clusters from seeds: what holds, what is found, and that a run is a function of its seed."""

import subprocess
import sys

import pytest

from holdfast.sim.campaign.recording import play
from holdfast.sim.campaign.run import run, shape_of
from holdfast.sim.campaign.run_spec import RunTemplate
from holdfast.sim.cluster.world import ClusterSpec
from holdfast.sim.faults.table import Plan
from holdfast.sim.machine.choices import Choices
from holdfast.sim.mutants.shutdown import DIRS_FAIL
from holdfast.sim.mutants.table import MUTANTS
from tests.cases import long, slow

FEW_FAULTS = Plan(gap_ms=800)


@pytest.mark.parametrize("seed", ["1", *slow("2")])
def test_a_short_run_keeps_every_promise(seed: str) -> None:
    result = run(Choices(seed), shape_of(seed, ClusterSpec()), 4, plan=FEW_FAULTS)
    assert result.violation is None, result.as_text()
    assert result.acknowledged > 20
    assert sum(result.faults.values()) > 1


@pytest.mark.slow
def test_equal_seeds_give_equal_traces_also_from_a_tape() -> None:
    recording = Choices("3", record=True)
    first = run(recording, ClusterSpec(), 3, plan=FEW_FAULTS)
    assert run(Choices("3"), ClusterSpec(), 3, plan=FEW_FAULTS).trace_hash == first.trace_hash
    replayed = run(Choices("3", tape=recording.tape()), ClusterSpec(), 3, plan=FEW_FAULTS)
    assert replayed.trace_hash == first.trace_hash
    assert run(Choices("4"), ClusterSpec(), 3, plan=FEW_FAULTS).trace_hash != first.trace_hash


@pytest.mark.slow
def test_a_write_that_arrives_after_its_producer_gave_up_on_it_is_not_missed() -> None:
    """Once the logs were looked at while it was on its way, and a consumer had read what was not in them."""
    result = play(DIRS_FAIL.spec("3"))
    assert result.violation is None, result.as_text()


@pytest.mark.slow
def test_transcripts_of_two_processes_with_two_hash_seeds_are_equal(tmp_path) -> None:  # type: ignore[no-untyped-def]
    pages = []
    for hash_seed in ("1", "2"):
        transcript = tmp_path / hash_seed
        command = [sys.executable, "-m", "holdfast.cli", "sim", "run", "--seed", "5", "--seconds", "6"]
        ran = subprocess.run(
            [*command, "--transcript", str(transcript)],
            env={"PYTHONHASHSEED": hash_seed, "PATH": ""},
            capture_output=True,
            check=True,
        )
        pages.append((ran.stdout, transcript.read_bytes()))
    assert pages[0] == pages[1]


@pytest.mark.parametrize("seed", [*slow("10", "11"), *long(*map(str, range(12, 20)))])
def test_seeds_keep_every_promise(seed: str) -> None:
    result = run(Choices(seed), shape_of(seed, ClusterSpec()), 15)
    assert result.violation is None, result.as_text()


_PLAY = """
from holdfast.sim.campaign.recording import play
from holdfast.sim.campaign.run_spec import RunTemplate
print(play(RunTemplate(seconds=3.0).spec("{seed}")).trace_hash)
"""


@pytest.mark.slow
def test_a_seed_in_a_fresh_process_and_after_others_in_this_one_is_the_same_story() -> None:
    """Nothing of a run outlives it in the process: no counter, no cache, no clock of the processor."""
    fresh = subprocess.run(
        [sys.executable, "-c", _PLAY.format(seed="7")], capture_output=True, check=True, text=True
    ).stdout.strip()
    template = RunTemplate(seconds=3.0)
    mutant = MUTANTS["no-gate"]
    with mutant.applied():
        play(template.spec("8"))
    play(RunTemplate(seconds=2.0, band="over-budget").spec("9"))
    assert [play(template.spec("7")).trace_hash for _ in range(2)] == [fresh, fresh]


def test_a_run_that_never_rests_ends_as_a_violation_after_so_many_handles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("holdfast.sim.campaign.run._HANDLES_BESIDE_LOAD", 0)
    monkeypatch.setattr("holdfast.sim.campaign.run._HANDLES_A_SECOND", 10)
    monkeypatch.setattr("holdfast.sim.machine.loop._LIVELOCK_HANDLES", 1_000)
    monkeypatch.setattr("holdfast.sim.machine.loop._LIVELOCK_NS", 0)
    result = run(Choices("1"), ClusterSpec(), 100)
    assert result.violation is not None
    assert result.violation.startswith("L-4 no rest: 1000 handles")
    assert result.pending
