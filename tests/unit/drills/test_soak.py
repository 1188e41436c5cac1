"""The result of a soak: Spark's verdict first, then what was not as it must be."""

from holdfast.drills.chaos_report import ChaosReport
from holdfast.drills.outcome import DrillResult
from holdfast.drills.soak_faults import MENU, OF_CONTROLLERS
from holdfast.durability.verdict import Verdict, inconclusive
from holdfast.localcluster.faults.catalogue import FAULTS

GOOD = Verdict(counts={"lost": 0}, samples={}, facts={"acked": 10})
LOST = Verdict(counts={"lost": 3}, samples={}, facts={"acked": 10})


def report(*complaints: str, **verdicts: Verdict) -> ChaosReport:
    return ChaosReport(1, complaints=list(complaints), verdicts=verdicts)


def test_the_worst_verdict_decides_then_the_complaints() -> None:
    assert report(a=GOOD, b=GOOD).result is DrillResult.EXPECTED
    assert report("broker-1 has ended", a=GOOD, b=LOST).result is DrillResult.LOST
    assert report("broker-1 has ended", a=GOOD).result is DrillResult.BROKEN
    assert report(a=GOOD, b=inconclusive("nothing was acknowledged")).result is DrillResult.INCONCLUSIVE
    assert report().result is DrillResult.INCONCLUSIVE


def test_lost_records_are_counted_and_shown_to_people_and_scripts() -> None:
    found = report("a node ended", a=LOST, b=LOST)
    found.faults.update({"kill": 2, "pause": 1})
    assert found.lost == 6
    assert found.as_json()["data"]["faults"] == {"kill": 2, "pause": 1}
    assert not found.as_json()["ok"]
    text = "\n".join(found.lines())
    assert "3 faults" in text
    assert "2 kill, 1 pause" in text
    assert "a node ended" in text
    assert "LOST" in text


def test_the_menu_has_only_faults_that_there_are() -> None:
    assert MENU.keys() | OF_CONTROLLERS.keys() <= FAULTS.keys()
