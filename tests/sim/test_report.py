"""The page about a failing run and the table of a swarm, from rows and runs that are written down here."""

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.cli.sim.command import command
from holdfast.sim.campaign.artifact import Artifact
from holdfast.sim.campaign.recording import Recording
from holdfast.sim.campaign.report import HEADS, cells, failure_page, summary
from holdfast.sim.campaign.rows import BadRows, SeedRow, broken_row, read_rows, sums, to_line
from holdfast.sim.campaign.run import RunResult
from holdfast.sim.campaign.run_spec import RunSpec, RunTemplate
from holdfast.sim.campaign.shrink import Neighbour

ROW = SeedRow(
    seed=7,
    band="budget",
    mix="swarm",
    violated=None,
    violation=None,
    defect=None,
    trace_hash="abc",
    steps=1000,
    changes=100,
    simulated_seconds=30.0,
    wall_seconds=4.0,
    cpu_seconds=1.5,
    acknowledged_batches=600,
    fingerprints=40,
    faults={"kill_broker": 12},
    marks={"ISR empty": 2, "ELR of one": 0},
    allowed={},
)
LOST = replace(
    ROW, seed=9, violated="I-8", violation="I-8 partition 0: gone", marks={"ISR empty": 0, "ELR of one": 0}
)


def test_sums_have_rates_that_are_of_sums_and_marks_that_no_run_met() -> None:
    total = sums([LOST, ROW])
    assert total["seeds"] == 2
    assert total["simulated_seconds_per_cpu_second"] == 20.0
    assert total["seeds_per_cpu_minute"] == 40.0
    assert total["batches_per_simulated_second"] == 20.0
    assert total["faults_per_simulated_second"] == 0.4
    assert total["violations"] == {"I-8": [9]}
    assert total["marks"] == {"ELR of one": 0, "ISR empty": 2}
    assert total["marks_never_met"] == ["ELR of one"]


def test_the_summary_names_what_was_violated_what_differed_and_what_was_never_met() -> None:
    told = summary(sums([ROW, LOST, replace(ROW, seed=11, defect="stream net: 3 and 4 draws")]))
    assert "violated: I-8 by 1 seeds: 9" in told
    assert "DEFECTS OF THE SIMULATOR, two plays differ: seeds 11" in told
    assert "1 of 2 met; never: ELR of one" in told
    assert "every property held" not in told
    assert "every property held" in summary(sums([ROW]))


def test_no_rows_have_no_rates() -> None:
    assert sums([])["simulated_seconds_per_cpu_second"] == 0.0


def test_a_row_of_the_table_has_a_cell_under_each_head() -> None:
    assert len(cells(ROW)) == len(HEADS)
    assert cells(ROW)[3] == "-"
    assert cells(LOST)[3] == "I-8"
    assert cells(broken_row(3, STORY, "KeyError"))[3] == "DEFECT"


def test_rows_of_several_files_are_read_by_seed_and_a_violation_is_an_exit_code(tmp_path: Path) -> None:
    (tmp_path / "rows-8-9.jsonl").write_text(to_line(LOST) + "\n")
    (tmp_path / "rows-0-7.jsonl").write_text(to_line(ROW) + "\n")
    assert read_rows(tmp_path) == [ROW, LOST]
    told = CliRunner().invoke(command, ["report", str(tmp_path)])
    assert told.exit_code == 1
    assert [line.split()[0] for line in told.output.splitlines()[:2]] == ["seed", "9"]


def test_a_folder_without_rows_and_rows_of_another_version_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadRows, match="has no rows"):
        read_rows(tmp_path)
    (tmp_path / "rows-0-7.jsonl").write_text('{"seed": 1}\n')
    with pytest.raises(BadRows, match="another version"):
        read_rows(tmp_path)
    told = CliRunner().invoke(command, ["report", str(tmp_path)])
    assert (told.exit_code, "another version" in told.output) == (1, True)


# --- the page ------------------------------------------------------------------------------------------

STORY: RunSpec = RunTemplate().spec("7")
EVENTS = [
    "1000000000000 boot b1.1",
    "1001000000000 fault kill_leader",
    "1001000000000 kill b1.1",
    "1001500000000 stall b2 -> c101 900 ms",
    "1001500000000 stall b2 -> c101 900 ms",
    "1002000000000 log c101.1 INFO holdfast.controller: t-0: leader 1@0 -> none@1",
    "1002000000000 log c101.1 INFO holdfast.controller: t-1: leader 1@0 -> none@1",
    *[f"{number} net 1 b2 100 77" for number in range(1_002_000_000_001, 1_002_000_000_060)],
]
RESULT = RunResult(
    seed="7",
    shape=STORY.shape,
    violation="I-8 LeaderCandidateCompleteness partition 0: record 3 is gone",
    trace_hash="feedbeef",
    simulated_seconds=2.5,
    handles=4321,
    acknowledged=0,
    acknowledged_batches=0,
    sent=0,
    records=0,
    changes=0,
    faults={},
    events={},
    boots=1,
    pending="  b1.1: fetch at broker/server.py:10 serve\n  b2.1: fetch at broker/server.py:10 serve\n"
    "  b2.1: fetch at broker/server.py:10 serve\n  c101.1: tick at raft/driver.py:20 tick",
    replicas=["  t-0 leader=1"],
    errors=["b1.1 ERROR gone"],
)
KEPT = Artifact(STORY, {}, RESULT.violation, "feedbeef", 4321, "c0ffee", "3.11.7")
RECORDING = Recording(STORY, RESULT, {}, {}, EVENTS)


def test_the_page_says_what_where_and_how_to_see_it_again() -> None:
    page = failure_page(KEPT, RECORDING, "holdfast sim run --seed 7", Neighbour(0, [EVENTS[0]], None), None)
    lines = page.splitlines()
    told = "  I-8 LeaderCandidateCompleteness partition 0: record 3 is gone"
    assert lines[:2] == ["I-8 violated by seed 7", told]
    for part in (
        "says:    Every replica that may be elected has everything below the true high watermark.",
        "checked: sim/checks/properties/logs.py, LeaderCandidateCompleteness",
        "again:   holdfast sim run --seed 7",
        "step 4321, 2.500000 simulated seconds",
        "feedbeef",
        "commit c0ffee, Python 3.11.7",
        "  t-0 leader=1",
        "  b1.1 ERROR gone",
    ):
        assert part in page, part
    at = lines.index(
        "without 1.000000 fault kill_leader it passes; the first event that differs is number 1:"
    )
    assert lines[at + 1 : at + 3] == [f"  {EVENTS[1]}", "  (its end)"]


def test_the_page_tells_what_befell_the_cluster_and_the_partition_apart_from_the_last_events() -> None:
    lines = failure_page(KEPT, RECORDING, "again", None, None).splitlines()
    at = lines.index("what befell it, at which second (the last 5 of 5):")
    assert lines[at + 1 : at + 6] == [
        "   0.000000 boot b1.1",
        "   1.000000 fault kill_leader",
        "   1.000000 kill b1.1",
        "   1.500000 stall b2 -> c101 900 ms (2 times)",
        "   2.000000 log c101.1 INFO holdfast.controller: t-0: leader 1@0 -> none@1",
    ]
    at = lines.index("last 40 events:")
    assert lines[at + 1 : at + 41] == [f"  {event}" for event in EVENTS[-40:]]
    assert any(line.startswith("no neighbour:") for line in lines)


def test_waiting_tasks_are_told_by_the_place_where_they_wait() -> None:
    lines = failure_page(KEPT, RECORDING, "again", None, None).splitlines()
    at = lines.index("waiting:")
    assert lines[at + 1 : at + 3] == [
        "  raft/driver.py:20 tick: c101.1",
        "  broker/server.py:10 serve: b1.1, b2.1 (2)",
    ]


def test_a_long_violation_is_told_on_several_lines_and_a_rule_of_the_history_is_explained_too() -> None:
    told = f"doubled: 1 rows, e.g. {'a row of many words ' * 20}".strip()
    recording = replace(RECORDING, result=replace(RESULT, violation=told))
    lines = failure_page(replace(KEPT, violation=told), recording, "again", None, None).splitlines()
    assert lines[0] == "doubled violated by seed 7"
    at = next(number for number, line in enumerate(lines) if line.startswith("  says:"))
    assert " ".join(line.strip() for line in lines[1:at]) == told
    assert lines[at + 1] == "  checked: sim/checks/history_rules.py, doubled"


def test_a_page_about_a_mutant_says_so() -> None:
    page = failure_page(replace(KEPT, mutant="no-gate"), RECORDING, "again", None, None)
    assert "code:    commit c0ffee, Python 3.11.7, broken on purpose by the mutant no-gate" in page


def test_two_plays_that_differ_are_told_as_a_defect_of_the_simulator() -> None:
    page = failure_page(KEPT, RECORDING, "again", None, "stream net: 3 and 4 draws")
    assert "DEFECT OF THE SIMULATOR" in page
    assert "stream net: 3 and 4 draws" in page


def test_a_neighbour_that_fails_later_or_by_the_same_events_is_told_so() -> None:
    page = failure_page(KEPT, RECORDING, "again", Neighbour(0, EVENTS, 9.25), None)
    assert "fault kill_leader it does not fail before 9.250000, by the same events" in page
    page = failure_page(KEPT, RECORDING, "again", Neighbour(1, EVENTS, None), None)
    assert "without one of them it passes, by the same events" in page
