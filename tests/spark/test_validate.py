"""The whole job: ledger files, a node on the wire, segment files of replicas, a verdict."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from holdfast.client.core.outcomes import DeliveryOutcome
from holdfast.durability import validate as job
from holdfast.durability.settled import SettledLedger
from holdfast.durability.tables import SCHEMAS
from holdfast.durability.validate import ValidateOptions, run, validate
from holdfast.durability.verdict import Verdict
from holdfast.protocol.errors import ErrorCode
from tests.spark.builders import RunHistory, clean_history, history_batches, write_ledger, write_log_dir
from tests.spark.planted_log import PlantedLogs, damaged

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark session"), pytest.mark.timeout(600)]

TIMEOUT_MS = 120_000
#: Neither a pattern nor escapes may be seen in a path.
ODD_NAME = "my [ä] {b,c}*?^%20#"


def verdict_of(
    spark: Any,
    folder: Path,
    node: PlantedLogs,
    history: RunHistory,
    timeout_ms: int = TIMEOUT_MS,
    **options: Any,
) -> Verdict:
    ledger = write_ledger(folder / ODD_NAME, [history])
    return validate(
        spark,
        ValidateOptions(str(ledger), node.address, timeout_ms=timeout_ms, **options),
    )


def test_a_clean_run_is_good_replicas_included_and_reported(spark: Any, tmp_path: Path) -> None:
    history = clean_history("t")
    logs = history_batches(history)
    dirs = {
        broker: str(write_log_dir(tmp_path / f"b{broker}", logs, 20, broker=broker)) for broker in (1, 2, 3)
    }
    # a tail that is torn behind the high watermark is no business of a verdict
    segment = tmp_path / "b2" / "t-0" / "00000000000000000000.log"
    segment.write_bytes(segment.read_bytes() + logs["t", 0][0][:33])
    with PlantedLogs(logs, replicas=(1, 2, 3)) as node:
        report = tmp_path / f"report {ODD_NAME}"
        verdict = verdict_of(spark, tmp_path, node, history, log_dirs=dirs, report=str(report))
    assert verdict.exit_code == 0, verdict.as_text()
    assert verdict.facts["ok"] == verdict.facts["served"] == 40
    assert verdict.facts["replica_batches"] == 3 * 8
    assert not any(verdict.counts.values())
    assert json.loads((report / "verdict.json").read_text())["ok"] is True
    assert "VERDICT: good" in (report / "verdict.txt").read_text()


def write_by_producer(folder: Path, history: RunHistory) -> str:
    """A file for each producer, as producers write them: lines of several are always looked at."""
    folder.mkdir(exist_ok=True)
    for name in sorted({send.producer for send in history.sends}):
        sends = [send for send in history.sends if send.producer == name]
        lines = RunHistory(history.topic, history.run, sends).ledger_lines()
        (folder / f"{name}.jsonl").write_text("".join(lines))
    return str(folder)


def test_a_run_that_adds_up_is_judged_as_if_each_send_was_looked_at(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = clean_history("t")
    ledger = write_by_producer(tmp_path / "ledger", history)
    with PlantedLogs(history_batches(history)) as node:
        looked = validate(spark, ValidateOptions(ledger, node.address, tables=str(tmp_path / "tables")))
        monkeypatch.setattr(job, "read_sends", None)
        summed = validate(spark, ValidateOptions(ledger, node.address))
    assert summed.exit_code == 0, summed.as_text()
    assert (summed.counts, summed.facts, summed.notes) == (looked.counts, looked.facts, looked.notes)


def test_what_does_not_add_up_is_looked_at(spark: Any, tmp_path: Path) -> None:
    history = clean_history("t")
    logs = history_batches(history)
    ledger = write_by_producer(tmp_path / "ledger", history)
    with PlantedLogs({**logs, ("t", 0): logs["t", 0][:-1]}) as node:
        verdict = validate(spark, ValidateOptions(ledger, node.address))
    assert {name: count for name, count in verdict.counts.items() if count} == {"lost": 5}
    assert (verdict.facts["ok"], verdict.facts["served"]) == (35, 35)


def test_a_closer_look_sees_no_more_of_the_ledger_than_the_first(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is acknowledged meanwhile lies behind the ends that were asked for: it would be lost."""
    history, later = clean_history("t"), clean_history("t")
    later.send("p0", 20, 1)
    ledger = write_by_producer(tmp_path / "ledger", history)

    def grows(*_: Any) -> bool:
        write_by_producer(tmp_path / "ledger", later)
        return False

    monkeypatch.setattr(SettledLedger, "is_served", grows)
    with PlantedLogs(history_batches(history)) as node:
        verdict = validate(spark, ValidateOptions(ledger, node.address))
    assert verdict.exit_code == 0, verdict.as_text()
    assert verdict.facts["sent"] == 40


@pytest.mark.usefixtures("little_and_much")
def test_loss_damage_and_divergence_are_told_apart(spark: Any, tmp_path: Path) -> None:
    history = clean_history("t")
    whole = history_batches(history)
    served = {
        ("t", 0): whole["t", 0][:-1],  # five records fewer
        ("t", 1): [whole["t", 1][0], damaged(whole["t", 1][1]), *whole["t", 1][2:]],
    }
    dirs = {1: str(write_log_dir(tmp_path / "b1", whole, 20))}
    # the other replica has the batches of another leader in the place of its last one
    other = clean_history("t")
    other.log[0][15:] = other.log[0][:5]
    dirs[2] = str(write_log_dir(tmp_path / "b2", history_batches(other), 20, broker=2))
    with PlantedLogs(served, replicas=(1, 2)) as node:
        report, tables = tmp_path / f"report {ODD_NAME}", tmp_path / "tables"
        places: dict[str, Any] = {"log_dirs": dirs, "report": str(report), "tables": str(tables)}
        verdict = verdict_of(spark, tmp_path, node, history, **places)
    assert {name: count for name, count in verdict.counts.items() if count} == {
        "lost": 5,
        "corrupt": 5,
        "diverged": 1,
    }
    assert verdict.exit_code == 4
    assert verdict.samples["diverged"][0]["detail"] == "replicas 1, 2 hold different batches"
    assert pq.read_table(report / "violations").num_rows == 11
    rows = {name: pq.read_table(tables / name) for name in SCHEMAS}
    assert {name: table.num_rows for name, table in rows.items()} == {
        "sends": 40, "final": 35, "replicas": 16, "meta": 4, "polls": 0, "events": 0,
        "anomalies": 11,
    }  # fmt: skip
    assert set(rows["sends"].column("tp").to_pylist()) == {"t-0", "t-1"}
    assert set(rows["anomalies"].column("run").to_pylist()) == {"demo"}
    assert set(rows["sends"].column("outcome").to_pylist()) == {"ok"}


def test_replicas_that_are_damaged_short_or_gone_are_told(spark: Any, tmp_path: Path) -> None:
    history = clean_history("t")
    logs = history_batches(history)
    dirs = {
        broker: write_log_dir(tmp_path / f"b{broker}", logs, 20, broker=broker) for broker in (1, 2, 3, 4)
    }
    damaged = dirs[2] / "t-0" / "00000000000000000000.log"
    damaged.write_bytes(logs["t", 0][0][:16] + b"\xfd" + b"".join(logs["t", 0])[17:])
    (dirs[3] / "t-0" / "00000000000000000000.log").write_bytes(logs["t", 0][0])
    shutil.rmtree(dirs[3] / "t-1")
    checkpoint = dirs[4] / "replication-offset-checkpoint"
    checkpoint.write_text(checkpoint.read_text()[:-2])
    with PlantedLogs(logs, replicas=(1, 2, 3, 4), leaving=(2, 3, 4)) as node:
        options = {broker: str(folder) for broker, folder in dirs.items()}
        verdict = verdict_of(spark, tmp_path, node, history, log_dirs=options)
    assert {name: count for name, count in verdict.counts.items() if count} == {"damaged": 1}
    assert verdict.samples["damaged"][0]["command"] == f"holdfast dump-log --files {damaged}"
    assert verdict.samples["damaged"][0]["detail"] == f"batch on replica 2, {damaged.name} at byte 0"
    assert verdict.doubts == (
        f"{dirs[4]} of broker 4 has no whole replication-offset-checkpoint: nothing of it was compared",
    )
    assert verdict.notes == (
        "replicas below their own high watermarks: broker 3 of t-0 ends at 5, its mark is 20; "
        "broker 3 of t-1 has no log, its mark is 20",
    )


def test_a_cut_last_line_leaves_its_send_unanswered(spark: Any, tmp_path: Path) -> None:
    history = clean_history("t")
    with PlantedLogs(history_batches(history)) as node:
        ledger = write_ledger(tmp_path / "ledger", [history])
        (path,) = ledger.iterdir()
        path.write_text(path.read_text()[:-20])
        options = ValidateOptions(str(ledger), node.address, timeout_ms=TIMEOUT_MS)
        verdict = validate(spark, options)
    assert verdict.exit_code == 0, verdict.as_text()
    assert (verdict.facts["acked"], verdict.facts["unanswered"], verdict.counts["recovered"]) == (39, 1, 1)
    assert any("cut line" in note for note in verdict.notes)


def test_an_arrow_ledger_whose_last_batch_is_cut_leaves_its_sends_unanswered(
    spark: Any, tmp_path: Path
) -> None:
    history = clean_history("t")
    with PlantedLogs(history_batches(history)) as node:
        ledger = write_ledger(tmp_path / "ledger", [history], "arrow")
        options = ValidateOptions(str(ledger), node.address, timeout_ms=TIMEOUT_MS)
        whole = validate(spark, options)
        for path in ledger.iterdir():
            path.write_bytes(path.read_bytes()[:-20])
        cut = validate(spark, options)
    assert (whole.exit_code, whole.facts["ok"]) == (0, 40), whole.as_text()
    # the last batch of either producer holds five answers
    assert (cut.exit_code, cut.facts["acked"], cut.facts["unanswered"]) == (0, 30, 10), cut.as_text()
    assert any("2 ledger files end in a cut line or batch" in note for note in cut.notes)


def test_a_cluster_in_use_is_judged_up_to_where_its_log_ended_before_the_ledger(
    spark: Any, tmp_path: Path
) -> None:
    """A record that the ledger does not know lies behind that end: no anomaly. Judged again, it is one."""
    history = clean_history("t")
    history.log[0].append(history.send("p0", 700, 1).value)
    history.log[1].pop()
    history.sends.pop()
    logs = history_batches(history)
    with PlantedLogs(logs, first_ends={("t", 0): 20, ("t", 1): 20}) as node:
        live = verdict_of(spark, tmp_path, node, history)
        quiet = validate(
            spark, ValidateOptions(str(tmp_path / ODD_NAME), node.address, timeout_ms=TIMEOUT_MS)
        )
    assert (live.exit_code, live.facts["served"], live.facts["served_later"]) == (0, 41, 1), live.as_text()
    assert live.counts["unexpected"] == 0
    assert {name: count for name, count in quiet.counts.items() if count} == {"unexpected": 1}, (
        quiet.as_text()
    )


# --- the report ----------------------------------------------------------------------------------------


def test_a_report_is_of_the_last_run_alone(spark: Any, tmp_path: Path) -> None:
    history = clean_history("t")
    logs = history_batches(history)
    report = tmp_path / "report"

    def codes(served: dict[tuple[str, int], list[bytes]]) -> tuple[int, int, bool]:
        with PlantedLogs(served) as node:
            found = verdict_of(spark, tmp_path, node, history, report=str(report)).exit_code
        kept = json.loads((report / "verdict.json").read_text())["data"]["exit_code"]
        return found, kept, (report / "violations").exists()

    assert codes({**logs, ("t", 0): logs["t", 0][:-1]}) == (4, 4, True)
    assert codes(logs) == (0, 0, False)
    assert codes({("other", 0): []}) == (6, 6, False)
    assert "INCONCLUSIVE" in (report / "verdict.txt").read_text()


def test_a_verdict_before_spark_was_started_is_reported(tmp_path: Path) -> None:
    report = tmp_path / "report"
    verdict = run(ValidateOptions(str(tmp_path), "127.0.0.1:1", report=str(report)))
    assert verdict.exit_code == 6
    assert json.loads((report / "verdict.json").read_text()) == verdict.as_json()


def test_a_report_that_cannot_be_written_is_a_note(spark: Any, tmp_path: Path) -> None:
    history = clean_history("t", 4)
    (tmp_path / "file").write_text("")
    with PlantedLogs(history_batches(history)) as node:
        verdict = verdict_of(spark, tmp_path, node, history, report=str(tmp_path / "file" / "report"))
    assert verdict.exit_code == 0
    (note,) = verdict.notes
    assert re.search("the report in .* is not whole: .*Not a directory", note)


# --- inconclusive --------------------------------------------------------------------------------------


def broken_line(path: Path) -> None:
    path.write_text("no ledger line\n" + path.read_text())


def line_without_number(path: Path) -> None:
    path.write_text(path.read_text() + '{"kind":"invoke","run":"demo","producer":"p9","topic":"t"}\n')


def lost_first_line(path: Path) -> None:
    path.write_text(path.read_text().partition("\n")[2])


def same_names_in_another_run(path: Path) -> None:
    again = path.read_text().replace('"run":"demo"', '"run":"again"')
    path.with_name("again.jsonl").write_text(again)


def other_run_in_the_file(path: Path) -> None:
    path.write_text(path.read_text() + path.read_text().replace('"run":"demo"', '"run":"again"'))


def sent_twice(path: Path) -> None:
    path.write_text(path.read_text() + path.read_text().partition("\n")[0] + "\n")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (broken_line, "no ledger lines: .*jsonl, line 1: no JSON: no ledger line"),
        (line_without_number, r"jsonl, line 17: no pseq"),
        (lost_first_line, r"1 answers to sends that were never written down: .*jsonl, line 1 "),
        (other_run_in_the_file, r"line 17: is of run again, the file begins with run demo"),
        (same_names_in_another_run, "same numbers in runs again and demo"),
        (sent_twice, r"written down more than once.*jsonl, line 17 "),
    ],
)
def test_an_unreadable_ledger_proves_nothing(
    spark: Any, tmp_path: Path, change: Callable[[Path], None], reason: str
) -> None:
    ledger = write_ledger(tmp_path / "ledger", [clean_history("t", 8)])
    (path,) = ledger.iterdir()
    change(path)
    verdict = validate(spark, ValidateOptions(str(ledger), "127.0.0.1:1", timeout_ms=200))
    assert verdict.exit_code == 6
    (said,) = verdict.inconclusive
    assert said.startswith("ledger: ")
    assert re.search(reason, said), said


def test_a_ledger_file_that_may_not_be_read_proves_nothing(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = write_ledger(tmp_path / "ledger", [clean_history("t", 8)])

    def refused(path: Path, mode: str) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", refused)
    verdict = validate(spark, ValidateOptions(str(ledger), "127.0.0.1:1", timeout_ms=200))
    assert verdict.exit_code == 6
    assert re.search("reading failed: .*Permission denied: .*jsonl", verdict.inconclusive[0])


def test_without_an_acknowledgement_nothing_was_checked(spark: Any, tmp_path: Path) -> None:
    history = clean_history("t", 4)
    for index in range(4):
        history.change(index, outcome=DeliveryOutcome.INFO, offset=-1)
    ledger = write_ledger(tmp_path / "ledger", [history])
    verdict = validate(spark, ValidateOptions(str(ledger), "127.0.0.1:1", timeout_ms=200))
    assert verdict.exit_code == 6
    assert "no acknowledged send" in verdict.inconclusive[0]


def test_a_cluster_that_does_not_answer_or_know_the_topic_proves_nothing(spark: Any, tmp_path: Path) -> None:
    ledger = write_ledger(tmp_path / "ledger", [clean_history("t", 4)])
    silent = validate(spark, ValidateOptions(str(ledger), "127.0.0.1:1", timeout_ms=500))
    with PlantedLogs({("other", 0): []}) as node:
        stranger = validate(spark, ValidateOptions(str(ledger), node.address, timeout_ms=TIMEOUT_MS))
    assert (silent.exit_code, stranger.exit_code) == (6, 6)
    assert silent.inconclusive[0].startswith("cluster: ")
    assert "UNKNOWN_TOPIC_OR_PARTITION" in stranger.inconclusive[0]


@pytest.mark.usefixtures("little_and_much")
def test_a_partition_that_cannot_be_read_to_its_end_proves_nothing(spark: Any, tmp_path: Path) -> None:
    history = clean_history("t")
    logs = history_batches(history)
    by_producer = write_by_producer(tmp_path / "ledger", history)
    with PlantedLogs(logs, silent_from={("t", 1): 10}) as node:
        looked = verdict_of(spark, tmp_path, node, history, timeout_ms=3_000)
        summed = validate(spark, ValidateOptions(by_producer, node.address, timeout_ms=3_000))
    for verdict in (looked, summed):
        assert verdict.exit_code == 6
        assert "t-1: nothing came from offset 10 on" in verdict.inconclusive[0]


def test_a_compacted_topic_is_not_judged(spark: Any, tmp_path: Path) -> None:
    history = clean_history("t")
    with PlantedLogs(history_batches(history), compacted=["t"]) as node:
        verdict = verdict_of(spark, tmp_path, node, history)
    assert verdict.exit_code == 6
    assert verdict.inconclusive[0].startswith("t: cleanup.policy has compact")


def test_a_topic_of_which_the_cluster_does_not_tell_whether_it_is_compacted_is_not_judged(
    spark: Any, tmp_path: Path
) -> None:
    history = clean_history("t")
    with PlantedLogs(history_batches(history)) as node:
        node.refuse_configs("t", ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        verdict = verdict_of(spark, tmp_path, node, history)
    assert verdict.exit_code == 6
    assert verdict.inconclusive == (
        "cluster: cleanup.policy of topic t: CLUSTER_AUTHORIZATION_FAILED: not told",
    )


@pytest.mark.usefixtures("little_and_much")
def test_what_retention_has_taken_is_not_lost(spark: Any, tmp_path: Path) -> None:
    """The log begins later than the ledger: of what lay before nothing can be said, of the rest it can."""
    history = clean_history("t")
    whole = history_batches(history)
    served = {("t", 0): whole["t", 0][1:], ("t", 1): whole["t", 1]}
    with PlantedLogs(served) as node:
        verdict = verdict_of(spark, tmp_path, node, history)
    assert verdict.counts["lost"] == 0, verdict.as_text()
    assert verdict.exit_code == 6
    served["t", 0] = served["t", 0][:-1]
    (tmp_path / "b").mkdir()
    with PlantedLogs(served) as node:
        verdict = verdict_of(spark, tmp_path / "b", node, history)
    assert (verdict.exit_code, verdict.counts["lost"]) == (4, 5)
