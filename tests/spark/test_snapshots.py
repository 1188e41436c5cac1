"""Snapshots of several clusters are judged in one comparison, and each gets the verdict of its own topic."""

from pathlib import Path
from typing import Any

import pytest

from holdfast.durability.snapshots import judge_all, take
from tests.spark.builders import RunHistory, clean_history, history_batches, write_ledger, write_log_dir
from tests.spark.planted_log import PlantedLogs

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark session"), pytest.mark.timeout(300)]


def snapshot(folder: Path, history: RunHistory) -> Path:
    """Of a cluster of one broker that serves what is in the story's log."""
    logs = history_batches(history)
    log_dir = write_log_dir(folder / history.topic, logs, high_watermark=10)
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
    lost = spark.sql("SELECT topic, partition, offset FROM violations WHERE class = 'lost'").collect()
    assert sorted(map(tuple, lost)) == [("bad", 1, offset) for offset in range(16, 20)]


def test_a_ledger_that_proves_nothing_has_one_verdict_for_all(spark: Any, tmp_path: Path) -> None:
    history = clean_history("cut")
    folder = snapshot(tmp_path, history)
    ledger = write_ledger(tmp_path / "ledger", [history])
    next(iter(ledger.iterdir())).write_text("no ledger\nat all\n")
    assert judge_all(spark, ledger, [folder])[""].exit_code == 6
