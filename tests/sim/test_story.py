"""The report of a simulated run: its faults with their ends, who led, and the judge that the simulator is."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.cli.sim.command import command
from holdfast.cli.sim.story import fault_rows, story_of
from holdfast.report.page import page, sentence
from holdfast.report.picture import figure
from holdfast.sim.campaign.recording import Recording, record
from holdfast.sim.campaign.run_spec import RunSpec
from holdfast.sim.checks.observe.chronicle import Chronicle
from holdfast.sim.cluster.world import ClusterSpec
from holdfast.sim.faults.table import Plan


@pytest.mark.parametrize(
    ("events", "fault", "target", "text", "span"),
    [
        (["kill b1.1", "boot b1.2"], "kill", "broker-1", "broker-1 is killed", (0, 1)),
        (["power c103 P4", "boot c103.2"], "power", "controller-103", "loses its power", (0, 1)),
        (["pause b2.1", "resume b2.1"], "pause", "broker-2", "broker-2 is paused", (0, 1)),
        (["stop b2.1"], "stop", "broker-2", "is stopped cleanly", (0, None)),
        (
            ["cut b1 -> c101 b2 p0 reader", "mended all links"],
            "cut", "broker-1", "nothing passes: broker-1 -> controller-101, broker-2", (0, 1),
        ),
        (
            ["cut c101 b2 p0 <-> b3", "heal b1 b2"],
            "cut", "broker-3", "controller-101, broker-2 <-> broker-3", (0, 1),
        ),
        (["cut b1 -> p0 p1"], "cut", "broker-1", "broker-1 -> clients", (0, None)),
        (["hang b1 250 ms"], "hang", "broker-1", "its disk hangs for 250 ms", (0, 250)),
        (["clock c101 off by 3 h"], "clock", "controller-101", "its clock is off by 3 h", (0, 0)),
    ],
)  # fmt: skip
def test_what_befell_nodes_is_read_from_the_trace(
    events: list[str], fault: str, target: str, text: str, span: tuple[float, float | None]
) -> None:
    lines = [f"{1_000_000_000_000 + 1_000_000 * number} {event}" for number, event in enumerate(events)]
    (row,) = fault_rows(lines)
    assert (row["fault"], row["target"]) == (fault, target)
    assert text in row["text"]
    assert (row["t_ms"], row["until_ms"]) == span


def test_what_ends_clients_and_what_was_down_already_is_no_fault() -> None:
    lines = ["kill p0.1", "kill b1.1", "power b1 P4", "boot p0.2", "net 1 b1 31 5"]
    assert len(fault_rows(f"{1_000_000_000_000} {line}" for line in lines)) == 1


@pytest.fixture(scope="module")
def told() -> tuple[Recording, Chronicle]:
    chronicle = Chronicle()
    return record(RunSpec("story", ClusterSpec(), 4.0, Plan(gap_ms=800)), listeners=[chronicle]), chronicle


def test_a_simulated_run_is_drawn_as_a_real_one(told: tuple[Recording, Chronicle]) -> None:
    recording, chronicle = told
    rows = story_of(recording, chronicle)
    kinds = {row["kind"] for row in rows}
    assert kinds >= {"run", "broker", "controller", "partition", "load", "verdict"}
    assert sum(row["acked"] for row in rows if row["kind"] == "load") >= recording.result.acknowledged
    drawn = figure(rows)
    lanes = {lane for trace in drawn.data if trace.type == "bar" for lane in trace.y}
    assert {"controller", "broker-1", "broker-2", "broker-3", "t-0"} <= lanes
    assert sentence(rows)[0] == "good"
    assert "What the simulator found" in page([rows])
    assert "Replicas were not compared" not in page([rows])


def test_who_listens_changes_no_run(told: tuple[Recording, Chronicle]) -> None:
    recording, _ = told
    assert (
        record(RunSpec("story", ClusterSpec(), 4.0, Plan(gap_ms=800))).result.trace_hash
        == recording.result.trace_hash
    )


@pytest.mark.slow
def test_a_run_is_told_as_json_and_as_a_page(tmp_path: Path) -> None:
    page_file = tmp_path / "run.html"
    words = ["run", "--seed", "5", "--seconds", "3", "--output", "json", "--report", str(page_file)]
    done = CliRunner().invoke(command, words)
    answer = json.loads(done.stdout)
    assert (done.exit_code, answer["ok"], answer["data"]["seed"]) == (0, True, "5")
    assert "Every property held" in page_file.read_text()
