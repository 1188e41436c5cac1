"""Exit codes, their order, and the two forms of a verdict."""

import json
from dataclasses import replace

import pytest

from holdfast.durability.rules import RULES
from holdfast.durability.verdict import (
    ALLOWED,
    FORBIDDEN,
    Verdict,
    inconclusive,
    of_a_part_of_the_ledger,
)


def verdict(**counts: int) -> Verdict:
    sample = {
        "topic": "t",
        "partition": 0,
        "offset": 17,
        "run": "r",
        "producer": "p",
        "pseq": 3,
        "detail": "why",
    }
    return Verdict(
        counts={name: counts.get(name, 0) for name in (*FORBIDDEN, *ALLOWED)},
        samples={name: [sample] for name in counts},
        facts={
            "sent": 12_345,
            "acked": 12_000,
            "ok": 12_000,
            "served": 12_001,
            "producers": 4,
            "partitions": 6,
        },
    )


def test_every_rule_has_a_meaning() -> None:
    assert set(RULES) == set(FORBIDDEN) | set(ALLOWED)
    for name, rule in RULES.items():
        assert name == rule.name
        assert rule.meaning, name
        assert rule.false_alarm, name


@pytest.mark.parametrize("name", sorted(FORBIDDEN))
def test_loss_is_4_and_every_other_anomaly_5(name: str) -> None:
    assert verdict(**{name: 1}).exit_code == (4 if name == "lost" else 5)


def test_what_is_allowed_is_no_failure() -> None:
    assert verdict(**dict.fromkeys(ALLOWED, 7)).exit_code == 0


def test_order_is_only_claimed_where_it_was_looked_at() -> None:
    whole = verdict()
    counts = {name: count for name, count in whole.counts.items() if name != "reordered"}
    unordered = Verdict(counts=counts, samples={}, facts=whole.facts)
    said = [found.as_json()["data"]["verdict"] for found in (whole, unordered)]
    assert said == [f"good: everything acknowledged is there, once{order}" for order in (", in order", "")]


def test_what_a_part_of_the_ledger_does_not_know_is_in_doubt_and_no_anomaly() -> None:
    assert of_a_part_of_the_ledger(verdict(moved=1)) == verdict(moved=1)
    found = of_a_part_of_the_ledger(verdict(unexpected=7))
    assert (found.exit_code, "unexpected" in found.counts, found.samples) == (6, False, {})
    assert found.doubts[0].startswith("7 records of the log are not of what was read")
    assert of_a_part_of_the_ledger(verdict(unexpected=7, lost=1)).exit_code == 4


def test_what_is_sure_of_a_part_of_the_ledger_stays_an_anomaly() -> None:
    whole = verdict(unexpected=7)
    unknown = {**whole.samples["unexpected"][0], "detail": "never sent"}
    whole = replace(whole, samples={"unexpected": [unknown, *whole.samples["unexpected"]]})
    found = of_a_part_of_the_ledger(whole, {"unexpected": 5})
    assert (found.exit_code, found.counts["unexpected"]) == (5, 2)
    assert [row["detail"] for row in found.samples["unexpected"]] == ["why"]
    assert found.doubts[0].startswith("5 records of the log are not of what was read")
    assert of_a_part_of_the_ledger(whole, {}) == whole
    assert "unexpected" not in of_a_part_of_the_ledger(whole, {"unexpected": 7}).counts


def test_of_polled_records_too_only_those_that_were_never_sent_are_in_doubt() -> None:
    whole = verdict(polled_unsent=3)
    unknown = {**whole.samples["polled_unsent"][0], "detail": "consumer c, session s, poll 1: never sent"}
    whole = replace(whole, samples={"polled_unsent": [unknown, *whole.samples["polled_unsent"]]})
    found = of_a_part_of_the_ledger(whole, {"polled_unsent": 2})
    assert (found.exit_code, found.counts["polled_unsent"]) == (5, 1)
    assert [row["detail"] for row in found.samples["polled_unsent"]] == ["why"]
    assert found.doubts[0].startswith("2 polled records are not of what was read")


def test_a_record_of_another_client_is_named_by_its_value() -> None:
    found = verdict(lost=1)
    found.samples["lost"][0].update({"producer": None, "pseq": None, "value_sha256": "3f0a"})  # type: ignore[attr-defined]
    assert "  t-0 offset 17 value_sha256 3f0a...: why" in found.as_text().splitlines()


def test_loss_weighs_more_than_anomalies_and_nothing_is_concluded_from_half() -> None:
    assert verdict(lost=1, duplicated=5).exit_code == 4
    assert inconclusive("ledger: gone").exit_code == 6


def test_json_is_one_object_with_an_error_for_each_class() -> None:
    body = json.loads(json.dumps(verdict(lost=2, recovered=1).as_json()))
    assert body["schema"] == "holdfast.validate/1"
    assert body["ok"] is False
    assert [error["code"] for error in body["errors"]] == ["LOST"]
    assert body["errors"][0]["count"] == 2
    assert body["data"]["counts"]["recovered"] == 1
    assert body["data"]["samples"]["lost"][0]["offset"] == 17
    assert inconclusive("why").as_json()["errors"] == [{"code": "INCONCLUSIVE", "message": "why"}]


def test_text_shows_counts_samples_and_the_verdict_last() -> None:
    lines = verdict(lost=2, recovered=1).as_text().splitlines()
    assert lines[0] == "12,345 records sent by 4 producers, 12,001 served from 6 partitions"
    assert any(line.startswith("lost") and "2  acknowledged, nowhere" in line for line in lines)
    assert "  t-0 offset 17 p record 3: why" in lines
    assert not any("record 3" in line for line in verdict(recovered=1).as_text().splitlines())
    assert lines[-1] == "VERDICT: LOST: acknowledged records are gone (exit code 4)"
    assert verdict().as_text().splitlines()[-1].endswith("(exit code 0)")


def test_monitoring_gets_the_verdict_as_gauges() -> None:
    verdict = Verdict(counts={"lost": 3}, samples={}, facts={"acked": 1200})
    lines = verdict.as_prometheus(1_700_000_000).splitlines()
    assert "holdfast_validate_exit_code 4" in lines
    assert "holdfast_validate_acknowledged_records 1200" in lines
    assert 'holdfast_validate_violations{class="lost"} 3' in lines
    assert 'holdfast_validate_violations{class="corrupt"} 0' in lines
    assert lines[-1] == "holdfast_validate_finished_time_seconds 1700000000"


def test_what_was_lost_together_is_told_once() -> None:
    lost = {"topic": "t", "partition": 0, "offset": 5, "producer": "p", "pseq": 5, "detail": "gone"}
    losses = (
        {"topic": "t", "partition": 0, "leader_epoch": 1, "first_offset": 5, "last_offset": 1204,
         "records": 1200, "story": "epoch 2 began uncleanly"},
        {"topic": "t", "partition": 1, "leader_epoch": 1, "first_offset": 7, "last_offset": 7, "records": 1,
         "story": ""},
    )  # fmt: skip
    rows = [{**lost, "story": "epoch 2 began uncleanly"}]
    verdict = Verdict({"lost": 1201}, {"lost": rows}, {"losses": 40}, losses=losses)
    text = verdict.as_text()
    assert "losses, first 2 of 40:\n  t-0 offsets 5 to 1204, 1,200 records: epoch 2 began uncleanly\n" in text
    assert "  t-1 offset 7, 1 record: nothing is known of it\n" in text
    assert "  t-0 offset 5 p record 5: gone\n" in text
    assert verdict.as_json()["data"]["losses"] == list(losses)
