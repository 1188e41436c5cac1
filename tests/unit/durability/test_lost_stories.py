"""What goes with a verdict never costs the verdict."""

import pytest

pytest.importorskip("pyspark", reason="needs the extra `spark`")

from pyspark.errors import PySparkException

from holdfast.durability import beside_verdict
from holdfast.durability.beside_verdict import with_stories
from holdfast.durability.loss_story import LostRecord
from holdfast.durability.lost_records import Loss, LostSample
from holdfast.durability.verdict import EXIT_LOST, Verdict

LOST = Verdict({"lost": 1}, {"lost": [{"topic": "t", "offset": 5}]}, {"acked": 9})


def test_a_loss_stays_one_when_spark_cannot_tell_its_story(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(_: object) -> None:
        raise PySparkException("no memory is left")

    monkeypatch.setattr(beside_verdict, "find_lost", find)
    verdict = with_stories(None, LOST, {}, None, lambda *_: ())
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
    verdict = with_stories(None, LOST, {1: "/nowhere"}, None, elections)
    assert verdict.exit_code == EXIT_LOST
    assert verdict.samples["lost"] == [sample.row]
    assert verdict.losses == ({"records": 1, "story": ""},)
    assert verdict.facts["losses"] == 1
