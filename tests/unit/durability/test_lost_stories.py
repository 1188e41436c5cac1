"""What goes with a verdict never costs the verdict."""

from collections.abc import Callable
from pathlib import Path
from unittest.mock import MagicMock

import pytest

pytest.importorskip("pyspark", reason="needs the extra `spark`")

from pyspark.errors import PySparkException

from holdfast.durability import beside_verdict
from holdfast.durability.beside_verdict import reported, with_stories, with_tables, with_times
from holdfast.durability.loss_story import LostRecord
from holdfast.durability.lost_records import Loss, LostSample
from holdfast.durability.verdict import EXIT_LOST, Verdict

ROW = {"topic": "t", "offset": 5, "run": "r", "producer": "p", "pseq": 5}
LOST = Verdict({"lost": 1}, {"lost": [ROW]}, {"acked": 9, "runs": ()})


def test_a_loss_stays_one_when_spark_cannot_tell_its_story(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(_: object) -> None:
        raise PySparkException("no memory is left")

    monkeypatch.setattr(beside_verdict, "find_lost", find)
    verdict = with_stories(None, LOST, {}, None, lambda *_: (), str)
    assert verdict.exit_code == EXIT_LOST
    assert verdict.samples == LOST.samples
    assert "no memory is left" in verdict.notes[0]


def test_log_dirs_and_a_metadata_log_that_cannot_be_read_cost_the_story(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def elections(topic: str, partition: int) -> tuple[()]:
        raise OSError(f"{topic}-{partition}")

    sample = LostSample({"topic": "t", "partition": 0, "offset": 5}, LostRecord("t", 0, 5, "p", 5))
    monkeypatch.setattr(beside_verdict, "find_lost", lambda _: ([Loss({"records": 1}, sample)], [sample]))
    verdict = with_stories(None, LOST, {1: "/nowhere"}, None, elections, str)
    assert verdict.exit_code == EXIT_LOST
    assert verdict.samples["lost"] == [sample.row]
    assert verdict.losses == ({"records": 1, "story": ""},)
    assert verdict.facts["losses"] == 1


def _never(*_: object) -> tuple[()]:
    return ()


BESIDE: dict[str, Callable[[MagicMock, Path, Callable[[Exception], str]], Verdict]] = {
    "tables": lambda spark, folder, said: with_tables(spark, str(folder), LOST, (), _never, said),
    "stories": lambda spark, folder, said: with_stories(spark, LOST, {}, None, _never, said),
    "times": lambda spark, folder, said: with_times(spark, LOST, said),
    "report": lambda spark, folder, said: reported(spark, str(folder / "r"), LOST, said),
}


@pytest.mark.parametrize("name", BESIDE)
def test_what_fails_beside_a_verdict_is_told_as_the_cluster_tells_it(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each of these queries may read the log once more: an error may be Kafka's, and name a password."""

    def fail(*_: object) -> None:
        raise PySparkException("Login failed: s3cret")

    spark = MagicMock()
    spark.table().join().selectExpr().collect = spark.table().write.parquet = fail
    monkeypatch.setattr(beside_verdict, "F", MagicMock())
    monkeypatch.setattr(beside_verdict, "find_lost", fail)
    monkeypatch.setattr(beside_verdict, "write_tables", fail)
    verdict = BESIDE[name](spark, tmp_path, lambda error: str(error).replace("s3cret", "[hidden]"))
    (note,) = verdict.notes
    assert note.endswith("Login failed: [hidden]")
