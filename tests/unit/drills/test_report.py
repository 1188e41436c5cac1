"""What is printed of runs."""

from holdfast.drills.outcome import DrillEvidence, DrillResult, Election, LostRecord, Run
from holdfast.drills.report import compare_lines, run_lines, run_row, seeds_lines, totals
from holdfast.drills.settings import Axis, Expectation, ExpectedLoss, Settings


def lost(*offsets: int) -> tuple[LostRecord, ...]:
    return tuple(LostRecord("t", 0, offset, f"abcd1234:all:{offset}") for offset in offsets)


def evidence(*offsets: int, predicted: int | None = None) -> DrillEvidence:
    counts = {"lost": len(offsets), "reordered": len(offsets)}
    facts = {"sent": 1200, "acked": 1000, "ok": 1000 - len(offsets)}
    elections = (Election(3, "last_known_leader", predicted),) if offsets else ()
    return DrillEvidence(4 if offsets else 0, counts, facts, lost(*offsets), elections)


OFF = Run(
    "power-outage",
    Settings(manager=False, seed=7, power_loss="tracked"),
    Expectation(ExpectedLoss.CERTAIN, "R12"),
    DrillResult.EXPECTED,
    evidence=evidence(3, 4, 5, 9, *range(20, 30)),
    seconds=9.0,
)
ON = Run(
    "power-outage",
    Settings(seed=7, power_loss="tracked"),
    Expectation(ExpectedLoss.NONE, "R64"),
    DrillResult.EXPECTED,
    evidence=evidence(),
    seconds=8.5,
)
VOID = Run(
    "power-outage",
    Settings(seed=8, power_loss="tracked"),
    Expectation(ExpectedLoss.NONE, "R64"),
    DrillResult.VOID,
    "broker 3 still has all",
)


def test_two_runs_stand_side_by_side_and_lost_records_are_named_by_offset_and_value() -> None:
    lines = compare_lines([OFF, ON], Axis.MANAGER)
    rows = {line.split("  ")[0]: line.split()[-2:] for line in lines[:9]}
    assert rows["acknowledged"] == ["1,000", "1,000"]
    assert rows["lost"] == ["14", "0"]
    assert lines[0].split() == ["manager", "off", "manager", "on"]
    text = "\n".join(lines)
    assert "manager off: 14 acknowledged records are lost: offsets 3 to 5, 9, 20 to 29" in text
    assert "manager off:   lost: offset 3, value abcd1234:all:3" in text
    assert "manager off:   and 4 more; --output json names them" in text
    assert "manager on: EXPECTED: nothing lost, as the rules say (8.5 s)" in text


def test_a_single_run_tells_its_result_and_the_rule() -> None:
    assert run_lines(ON)[-2:] == ["EXPECTED: nothing lost, as the rules say (8.5 s)", "why: R64"]
    assert run_lines(VOID)[-1].startswith("VOID: ")
    assert "broker 3 still has all" in run_lines(VOID)[-1]


def test_many_seeds_make_a_row_each_and_sums_by_settings() -> None:
    lines = seeds_lines([OFF, ON, VOID])
    assert len(lines) == 1 + 3 + 2
    assert lines[1].split()[0:2] == ["power-outage", "7"]
    assert lines[-2].endswith("1 runs, 1 EXPECTED; acknowledged 1,000, lost 14 in 1 runs")
    assert lines[-1].endswith("2 runs, 1 EXPECTED, 1 VOID; acknowledged 1,000, lost 0 in 0 runs")
    assert [total["lost"] for total in totals([OFF, ON, VOID])] == [14, 0]


def test_json_names_every_lost_record() -> None:
    row = run_row(OFF)
    assert len(row["lost"]) == 14
    assert row["lost"][3] == {"topic": "t", "partition": 0, "offset": 9, "value": "abcd1234:all:9"}
    assert row["elections"] == [
        {"leader": 3, "reason": "last_known_leader", "predicted_loss": None, "most_lost": None}
    ]
    assert "counts" not in run_row(VOID)
