"""Usage of `holdfast drill`: wrong options are refused before a start, and the output shows what was run."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast.cli.__main__ import main
from holdfast.drills import command as drill_command
from holdfast.drills.catalogue import DRILLS
from holdfast.drills.outcome import DrillEvidence, Run
from holdfast.drills.outcome import DrillResult as Ended
from holdfast.drills.settings import Expectation, ExpectedLoss, Settings
from holdfast.drills.spark_judge import SparkJudge
from holdfast.localcluster.nodes import ClusterError


def test_all_drills_are_listed() -> None:
    shown = CliRunner().invoke(main, ["drill", "--list"])
    assert shown.exit_code == 0
    assert [line.split()[0] for line in shown.output.splitlines()[1:]] == list(DRILLS)
    rows = json.loads(CliRunner().invoke(main, ["drill", "--list", "--output", "json"]).output)["data"]
    assert {row["name"]: row["compares"] for row in rows}["power-outage"] == "manager"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "which drill?"),
        (["outage"], "no drill outage"),
        (["stale-reply", "--compare"], "nothing to compare"),
        (["stale-reply", "--manager", "off"], "cannot be run with manager off"),
        (["kip-timeline", "--elr", "off"], "cannot be run with manager on, elr off"),
        (["power-outage", "--strategy", "none"], "cannot be run with"),
        (["power-outage", "--seed", "1", "--seeds", "1..2"], "exclude each other"),
        (["power-outage", "--seeds", "2..1"], "--seeds"),
        (["power-outage", "--power-loss", "hammer"], "hammer"),
        (["power-outage", "--client", "kcat"], "kcat"),
        (["stale-reply", "--power-loss", "tracked", "--report", "no/such/r.json"], "no/such is no folder"),
    ],
)
def test_what_cannot_be_played_is_refused_with_the_reason(words: list[str], said: str) -> None:
    result = CliRunner().invoke(main, ["drill", *words])
    assert result.exit_code == 2
    assert said in result.output


# --- the output ----------------------------------------------------------------------------------------


def ended(seed: int, result: Ended) -> Run:
    evidence = None if result is Ended.VOID else DrillEvidence(0, {}, {"acked": 9})
    return Run(
        "stale-reply", Settings(seed=seed), Expectation(ExpectedLoss.NONE, "R64"), result, "", evidence
    )


def drilled(monkeypatch: pytest.MonkeyPatch, runs: Sequence[Run] | ClusterError, *words: str) -> Result:
    """The command, when these are the runs, or when there is no verdict."""

    def play_all(*_: object, **__: object) -> Sequence[Run]:
        if isinstance(runs, ClusterError):
            raise runs
        return runs

    monkeypatch.setattr(drill_command, "require", lambda extra: None)
    monkeypatch.setattr(drill_command, "_play_all", play_all)
    return CliRunner().invoke(main, ["drill", "stale-reply", "--power-loss", "tracked", *words])


def test_a_void_run_that_is_forgiven_is_no_error_on_the_screen_nor_in_the_report(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    words = ("--seeds", "1..2", "--output", "json", "--report", str(tmp_path / "r.json"))
    result = drilled(monkeypatch, [ended(1, Ended.EXPECTED), ended(2, Ended.VOID)], *words)
    assert result.exit_code == 0
    said = json.loads(result.stdout)
    assert (said["ok"], said["errors"], len(said["data"]["runs"])) == (True, [], 2)
    assert json.loads((tmp_path / "r.json").read_text()) == said


def test_a_drill_that_spark_cannot_judge_says_so_and_where_its_data_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    words = ("--output", "json", "--keep", str(tmp_path / "kept"))
    result = drilled(monkeypatch, ClusterError("Spark does not start: no Java"), *words)
    assert result.exit_code == 6
    said = json.loads(result.stdout)
    assert not said["ok"]
    assert said["errors"] == [{"code": "INCONCLUSIVE", "message": "Spark does not start: no Java"}]
    assert result.stderr.splitlines() == [
        "error: Spark does not start: no Java",
        f"kept: {tmp_path / 'kept'}",
    ]


def test_a_report_that_cannot_be_written_in_the_end_takes_no_result_away(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    report = tmp_path / ("x" * 300)
    result = drilled(monkeypatch, [ended(1, Ended.LOST)], "--report", str(report))
    assert result.exit_code == 4
    assert "LOST" in result.stdout
    assert f"error: --report {report}: File name too long" in result.stderr


@pytest.mark.parametrize("error", ["Py4JNetworkError", "ConnectionRefusedError"])
def test_a_spark_that_fails_while_it_compares_is_a_failure_of_the_drill(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: str
) -> None:
    py4j = pytest.importorskip("py4j.protocol", reason="needs the extra `spark`")
    from holdfast.durability import snapshots

    def judge_all(*_: object) -> None:
        raise getattr(py4j, error, ConnectionRefusedError)("Java is gone")

    monkeypatch.setattr(snapshots, "judge_all", judge_all)
    monkeypatch.setattr(SparkJudge, "_start", lambda self: None)
    with pytest.raises(ClusterError, match="while it compared: Java is gone"):
        SparkJudge(starts_now=False).verdicts(tmp_path, [tmp_path])
