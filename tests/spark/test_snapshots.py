"""Snapshots of several clusters are judged in one comparison, and each gets the verdict of its own topic."""

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.durability import snapshots
from holdfast.durability.judge import NOTHING_COMPARED
from holdfast.durability.log_dir_files import HIGH_WATERMARKS
from holdfast.durability.snapshots import judge_all, take
from tests.spark.builders import RunHistory, clean_history, history_batches, write_ledger, write_log_dir
from tests.spark.planted_log import PlantedLogs

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark session"), pytest.mark.timeout(300)]


def snapshot(folder: Path, history: RunHistory, *, has_marks: bool = True, is_blank: bool = False) -> Path:
    """Of a cluster of one broker that serves what is in the story's log. `is_blank`: and that has zeros for
    the first batch of its replica."""
    logs = history_batches(history)
    log_dir = write_log_dir(folder / history.topic, logs, high_watermark=10)
    if is_blank:
        (segment,) = (log_dir / f"{history.topic}-0").glob("*.log")
        segment.write_bytes(bytes(1024) + segment.read_bytes()[len(logs[history.topic, 0][0]) :])
    if not has_marks:
        (log_dir / HIGH_WATERMARKS).unlink()
    with PlantedLogs(logs) as node:
        take(node.address, history.topic, {1: str(log_dir)}, folder / f"{history.topic} [snapshot]")
    return folder / f"{history.topic} [snapshot]"


def test_what_one_cluster_has_lost_is_no_loss_of_the_others(spark: Any, tmp_path: Path) -> None:
    good, bad = clean_history("good"), clean_history("bad")
    folders = [snapshot(tmp_path, good)]
    # the last four of partition 1 never came back
    del bad.log[1][-4:]
    folders.append(snapshot(tmp_path, bad))
    verdicts = judge_all(spark, write_ledger(tmp_path / "ledger", [good, bad]), folders)
    assert verdicts["good"].exit_code == 0
    assert verdicts["good"].counts == {}
    assert verdicts["good"].facts["ok"] == verdicts["good"].facts["acked"] == 40
    assert verdicts["bad"].counts == {"lost": 4}
    assert verdicts["bad"].facts["ok"] == 36
    assert [row["offset"] for row in verdicts["bad"].samples["lost"]] == [16, 17, 18, 19]
    assert verdicts["good"].reasons == verdicts["bad"].reasons == ()
    lost = spark.sql("SELECT topic, partition, offset FROM violations WHERE class = 'lost'").collect()
    assert sorted(map(tuple, lost)) == [("bad", 1, offset) for offset in range(16, 20)]


def test_replicas_that_could_not_be_compared_leave_their_own_topic_in_doubt(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "_MARKS_S", 0.0)
    histories = [clean_history("good"), clean_history("unmarked"), clean_history("served")]
    folders = [snapshot(tmp_path, histories[0]), snapshot(tmp_path, histories[1], has_marks=False)]
    with PlantedLogs(history_batches(histories[2])) as node:
        take(node.address, "served", {}, tmp_path / "no files of replicas")
    verdicts = judge_all(
        spark, write_ledger(tmp_path / "ledger", histories), [*folders, tmp_path / "no files of replicas"]
    )
    assert {topic: verdict.exit_code for topic, verdict in verdicts.items()} == {
        "good": 0,
        "unmarked": 6,
        "served": 0,
    }
    assert verdicts["unmarked"].doubts == (
        "broker 1 has stored no high watermark of unmarked-0: its replica was not compared",
        "broker 1 has stored no high watermark of unmarked-1: its replica was not compared",
        NOTHING_COMPARED,
    )


def test_zeros_in_a_replica_are_never_passed_over(spark: Any, tmp_path: Path) -> None:
    """A power cut may leave them, until the broker is in sync again."""
    names = ("good", "in sync", "out of sync", "flushed", "earlier build")
    histories = {name: clean_history(name.replace(" ", "-")) for name in names}
    folders = {
        name: snapshot(tmp_path, history, is_blank=name not in ("good", "earlier build"))
        for name, history in histories.items()
    }

    def change(name: str, **changes: Any) -> None:
        said = json.loads((folders[name] / "marks.json").read_text()) | changes
        kept = {key: value for key, value in said.items() if value is not None}
        (folders[name] / "marks.json").write_text(json.dumps(kept))

    change("out of sync", members=[])
    change("flushed", marks=[], members=[], flushed=[[1, "flushed", 0, 5]])
    change("earlier build", members=None, flushed=None)
    ledger = write_ledger(tmp_path / "ledger", list(histories.values()))
    verdicts = judge_all(spark, ledger, list(folders.values()))
    found = {name: verdicts[history.topic] for name, history in histories.items()}
    assert {name: verdict.exit_code for name, verdict in found.items()} == dict(
        zip(names, (0, 5, 6, 6, 6), strict=True)
    )
    assert found["in sync"].counts == {"damaged": 1}
    assert found["out of sync"].doubts[0].startswith("1 replicas hold bytes that cannot be read")
    assert found["flushed"].doubts[-1].startswith("1 replicas hold bytes that cannot be read")
    assert found["earlier build"].doubts == (
        "an earlier build took the snapshot, without flushed and members",
    )


def test_replicas_below_their_marks_are_a_note_of_their_own_topic(spark: Any, tmp_path: Path) -> None:
    histories = [clean_history("good"), clean_history("short")]
    folders = [snapshot(tmp_path, history) for history in histories]
    marks = json.loads((folders[1] / "marks.json").read_text())
    marks["marks"] = [[broker, topic, index, 100] for broker, topic, index, _ in marks["marks"]]
    (folders[1] / "marks.json").write_text(json.dumps(marks))
    verdicts = judge_all(spark, write_ledger(tmp_path / "ledger", histories), folders)
    assert verdicts["good"].notes == ()
    assert verdicts["short"].notes == (
        "replicas below their own high watermarks: broker 1 of short-0 ends at 20, its mark is 100; "
        "broker 1 of short-1 ends at 20, its mark is 100",
    )


def test_a_ledger_with_a_file_that_is_not_read_leaves_all_topics_in_doubt(spark: Any, tmp_path: Path) -> None:
    history = clean_history("part")
    ledger = write_ledger(tmp_path / "ledger", [history])
    (ledger / "other.csv").write_text("a,b\n")
    verdicts = judge_all(spark, ledger, [snapshot(tmp_path, history)])
    assert verdicts["part"].exit_code == 6
    assert "other.csv" in verdicts["part"].doubts[0]


def test_a_topic_that_the_ledger_does_not_have_proves_nothing(spark: Any, tmp_path: Path) -> None:
    histories = [clean_history("known"), clean_history("unknown")]
    folders = [snapshot(tmp_path, history) for history in histories]
    verdicts = judge_all(spark, write_ledger(tmp_path / "ledger", histories[:1]), folders)
    assert verdicts["known"].exit_code == 0
    assert verdicts["unknown"].exit_code == 6
    assert verdicts["unknown"].inconclusive == ("the ledger has no send to the topic",)


def test_a_ledger_that_proves_nothing_has_one_verdict_for_all(spark: Any, tmp_path: Path) -> None:
    history = clean_history("cut")
    folder = snapshot(tmp_path, history)
    ledger = write_ledger(tmp_path / "ledger", [history])
    next(iter(ledger.iterdir())).write_text("no ledger\nat all\n")
    assert judge_all(spark, ledger, [folder])[""].exit_code == 6
