"""Whole clusters from seeds: what holds, what is found, and that a run is a function of its seed."""

import subprocess
import sys

import pytest

from sim.choices import Choices
from sim.faults import Plan
from sim.run import run, shape_of
from sim.world import Shape

FEW_FAULTS = Plan(gap_ms=800)


@pytest.mark.parametrize("seed", ["1", "2"])
def test_a_short_run_keeps_every_promise(seed: str) -> None:
    result = run(Choices(seed), shape_of(seed, Shape()), 4, plan=FEW_FAULTS)
    assert result.violation is None, result.as_text()
    assert result.acknowledged > 20
    assert sum(result.faults.values()) > 1


def test_equal_seeds_give_equal_traces_also_from_a_tape() -> None:
    recording = Choices("3", record=True)
    first = run(recording, Shape(), 3, plan=FEW_FAULTS)
    assert run(Choices("3"), Shape(), 3, plan=FEW_FAULTS).trace_hash == first.trace_hash
    replayed = run(Choices("3", tape=recording.tape()), Shape(), 3, plan=FEW_FAULTS)
    assert replayed.trace_hash == first.trace_hash
    assert run(Choices("4"), Shape(), 3, plan=FEW_FAULTS).trace_hash != first.trace_hash


@pytest.mark.slow
def test_transcripts_of_two_processes_with_two_hash_seeds_are_equal(tmp_path) -> None:  # type: ignore[no-untyped-def]
    pages = []
    for hash_seed in ("1", "2"):
        transcript = tmp_path / hash_seed
        command = [sys.executable, "-m", "cli", "sim", "run", "--seed", "5", "--seconds", "6"]
        ran = subprocess.run(
            [*command, "--transcript", str(transcript)],
            env={"PYTHONHASHSEED": hash_seed, "PATH": ""},
            capture_output=True,
            check=True,
        )
        pages.append((ran.stdout, transcript.read_bytes()))
    assert pages[0] == pages[1]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [str(number) for number in range(10, 20)])
def test_seeds_keep_every_promise(seed: str) -> None:
    result = run(Choices(seed), shape_of(seed, Shape()), 15)
    assert result.violation is None, result.as_text()
