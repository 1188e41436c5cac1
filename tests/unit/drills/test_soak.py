"""The result of a soak: Spark's verdict first, then what was not as it must be."""

from dataclasses import replace

import pytest

from holdfast.drills.chaos_report import OVER_BUDGET, ChaosReport, merged
from holdfast.drills.ground import NEEDS_DISKS, not_possible
from holdfast.drills.outcome import DrillResult
from holdfast.drills.soak import RECORDS_MAX_PER_TOPIC, records_per_second, topic_configs
from holdfast.drills.soak_faults import MENU, MENUS, OF_CONTROLLERS
from holdfast.durability.verdict import Verdict, inconclusive
from holdfast.localcluster.faults.catalogue import FAULTS

GOOD = Verdict(counts={"lost": 0}, samples={}, facts={"acked": 10})
#: of containers, beside those of disks; a soak without it goes on without them
NEEDS_ROOT = {"slow-links"}
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


def test_what_was_acknowledged_with_less_than_all_and_is_gone_is_said_beside_the_losses() -> None:
    """Else 4,725 acknowledged, none lost and 4,724 served contradict each other."""
    weak = Verdict(counts={"lost": 0, "lost_weakly_acked": 1}, samples={}, facts={"acked": 10})
    found = ChaosReport(1, acked=10, verdicts={"a": GOOD, "b": weak})
    assert (
        "10 records were acknowledged, 0 of them are lost; 1 acknowledged with acks=0 or 1 are gone (allowed)"
        in found.lines()
    )
    assert found.result is DrillResult.EXPECTED


def test_the_menu_has_only_faults_that_there_are() -> None:
    assert MENU.keys() | OF_CONTROLLERS.keys() <= FAULTS.keys()


def test_over_budget_lost_records_are_possible_but_no_anomaly_is() -> None:
    duplicated = Verdict(counts={"duplicated": 1}, samples={}, facts={"acked": 10})
    results = [
        ChaosReport(1, expectation=OVER_BUDGET, verdicts=verdicts).result
        for verdicts in ({"a": LOST}, {"a": LOST, "b": duplicated})
    ]
    assert results == [DrillResult.EXPECTED, DrillResult.ANOMALY]


def test_without_a_verdict_only_a_run_that_asked_for_none_is_good() -> None:
    missing = ChaosReport(1, unjudged="pyspark is not installed")
    unwanted = ChaosReport(1, unjudged="--no-verdict", is_unjudged_on_purpose=True)
    broken = ChaosReport(1, complaints=["broker-1 has ended"], is_unjudged_on_purpose=True)
    assert missing.result is DrillResult.INCONCLUSIVE
    assert unwanted.result is DrillResult.EXPECTED
    assert broken.result is DrillResult.BROKEN
    assert unwanted.as_json()["data"]["lost"] is None


def test_verdicts_on_several_topics_are_added_up() -> None:
    both = merged({"a": GOOD, "b": LOST, "c": inconclusive("nothing was acknowledged")})
    assert both.counts["lost"] == 3
    assert both.facts["acked"] == 20
    assert both.doubts == ("nothing was acknowledged",)
    assert both.exit_code == 4
    assert merged({"c": inconclusive("nothing was acknowledged")}).inconclusive == (
        "nothing was acknowledged",
    )


def test_a_topic_in_doubt_leaves_the_soak_in_doubt_and_says_why() -> None:
    doubted = replace(GOOD, doubts=("nothing was compared",), notes=("a short replica",))
    found = report(a=GOOD, b=doubted)
    assert found.result is DrillResult.INCONCLUSIVE
    lines = found.lines()
    assert "note: a short replica" in lines
    assert "inconclusive: nothing was compared" in lines
    assert lines[-1] == "RESULT: INCONCLUSIVE: nothing was compared"
    data = found.as_json()["data"]
    assert data["doubts"] == {"a": (), "b": ("nothing was compared",)}
    assert data["notes"] == {"a": (), "b": ("a short replica",)}
    assert report(a=LOST, b=doubted).result is DrillResult.LOST
    over = ChaosReport(1, expectation=OVER_BUDGET, verdicts={"a": LOST, "b": doubted})
    assert over.result is DrillResult.INCONCLUSIVE


@pytest.mark.parametrize("minutes", [0.5, 5, 30, 600])
def test_a_soak_writes_no_more_however_long_it_is(minutes: float) -> None:
    written = records_per_second(minutes) * minutes * 60
    assert written <= RECORDS_MAX_PER_TOPIC
    assert int(topic_configs(minutes)["segment.bytes"]) >= 64 << 10


def test_each_driver_has_a_menu_of_faults_that_it_can_make() -> None:
    assert MENUS.keys() == {"local", "compose"}
    for menu in MENUS["compose"]:
        assert not_possible("compose", sorted(menu.keys() - NEEDS_DISKS - NEEDS_ROOT)) == []
