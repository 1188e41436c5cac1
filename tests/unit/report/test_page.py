"""The report's words: the verdict in a sentence, elections with reasons, and what was not checked."""

import re
from typing import Any

import pytest

from holdfast.report.history import Row
from holdfast.report.page import page, sentence
from holdfast.report.picture import LANES_MAX, figure

RUN: Row = {
    "kind": "run",
    "t_ms": 0,
    "what": "a run",
    "seed": 3,
    "started": "2026",
    "settings": {"elr": "on"},
}
SETS = {"topic": "t", "partition": 0, "isr": [2], "elr": [], "last_known_elr": [], "min_isr": 2}
KILL: Row = {
    "kind": "fault", "t_ms": 500, "until_ms": 900, "fault": "kill -9", "target": "broker-1",
    "text": "kill -9 broker-1",
}  # fmt: skip
ELECTION: Row = {
    **SETS, "kind": "partition", "t_ms": 510, "leader": 2, "leader_epoch": 1,
    "why": ["Why: the session ended."], "is_election": True, "is_unclean": False,
}  # fmt: skip
BEGIN: Row = {
    **ELECTION,
    "t_ms": 10,
    "leader": 1,
    "leader_epoch": 0,
    "isr": [1, 2],
    "is_election": False,
    "why": [],
}
ONLINE: Row = {"kind": "broker", "t_ms": -40, "broker": 1, "state": "online", "text": "unfenced"}
FENCED: Row = {**ONLINE, "t_ms": 505, "state": "fenced", "text": "fenced"}
LOAD: Row = {
    "kind": "load", "t_ms": 100, "until_ms": 1000, "acked": 90, "failed": 1, "p50_ms": 1.0, "p99_ms": 2.0,
    "max_ms": 3.0,
}  # fmt: skip


def verdict(*reasons: str, **counts: int) -> Row:
    facts = {"acked": 1000, "sent": 1001, "replica_batches": 4}
    samples: dict[str, Any] = {name: [{"offset": 5, "value": "<x>"}] for name in counts}
    return {
        "kind": "verdict", "t_ms": 2000, "exit_code": 6 if reasons else 0, "counts": counts, "facts": facts,
        "samples": samples, "reasons": list(reasons),
    }  # fmt: skip


def words(html: str) -> str:
    return re.sub(r"<script.*?</script>", "", html, flags=re.DOTALL)


@pytest.mark.parametrize(
    ("rows", "kind", "text"),
    [
        ([], "warn", "No verdict"),
        ([verdict(lost=0)], "good", "Nothing acknowledged was lost: 1,000 records, 0 faults"),
        ([KILL, verdict(lost=0)], "good", "1,000 records, 1 fault"),
        ([KILL, verdict(lost=7)], "bad", "7 of 1,000 acknowledged records were lost"),
        ([verdict(lost=0, duplicated=2)], "bad", "but: 2 duplicated"),
        ([verdict("a ledger is cut", lost=3)], "warn", "Inconclusive: a ledger is cut"),
    ],
)
def test_the_verdict_is_a_sentence(rows: list[Row], kind: str, text: str) -> None:
    found = sentence([RUN, *rows])
    assert found[0] == kind
    assert text in found[1]


def test_the_page_opens_without_a_network_and_says_what_happened() -> None:
    html = page([[RUN, ONLINE, BEGIN, LOAD, KILL, FENCED, ELECTION, verdict(lost=2)]])
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=", html)
    text = words(html)
    assert "kill -9 broker-1" in text
    assert "broker 2 leads, epoch 1" in text
    assert "the session ended." in text
    assert "&lt;x&gt;" in text
    assert "<x>" not in text


def test_what_was_not_checked_is_said() -> None:
    bare = {**verdict(lost=0), "facts": {"acked": 1}}
    text = words(page([[RUN, bare]]))
    for said in ("Replicas were not compared", "Nothing was made to fail", "elections are not shown"):
        assert said in text
    assert "Nothing that this report knows of" in words(page([[RUN, KILL, ELECTION, verdict(lost=0)]]))


def test_runs_are_compared_side_by_side() -> None:
    unclean = {**ELECTION, "is_unclean": True}
    html = page([[RUN, unclean, verdict(lost=9)], [RUN, ELECTION, verdict(lost=0)]], ["off", "on"])
    text = words(html)
    assert "off: 9 of 1,000 acknowledged records were lost; on: Nothing acknowledged was lost" in text
    assert re.search(r"unclean elections</th><td class=number>1</td><td class=number>0<", text)
    assert html.count("plotly.js v") == 1


def test_a_lane_shows_who_led_and_when_a_broker_was_away() -> None:
    drawn = figure([RUN, ONLINE, BEGIN, KILL, FENCED, ELECTION, LOAD])
    bars = [trace for trace in drawn.data if trace.type == "bar"]
    spans = {
        (lane, text, round(start, 2), round(length, 2))
        for trace in bars
        for lane, text, start, length in zip(trace.y, trace.text, trace.base, trace.x, strict=True)
    }
    assert ("t-0", "1", 0.01, 0.5) in spans
    assert ("t-0", "2", 0.51, 0.49) in spans
    assert ("broker-1", "fenced", 0.5, 0.49) in spans or ("broker-1", "fenced", 0.51, 0.49) in spans
    patterns = {shape for trace in bars for shape in trace.marker.pattern.shape}
    assert "/" in patterns, "an ISR below min ISR is hatched"


def test_a_history_without_anything_still_draws() -> None:
    assert figure([RUN]).layout.height > 0


def test_an_anomaly_is_on_the_timeline_with_its_story() -> None:
    lost = {"topic": "t", "partition": 0, "offset": 5, "t_ms": 420.0, "story": "epoch 1 began uncleanly"}
    found = verdict(lost=1, diverged=1, recovered=1)
    found = {
        **found,
        "samples": {
            "lost": [lost],
            "diverged": [{"topic": "t", "partition": 0, "offset": 9, "detail": "broker 2 differs"}],
            "recovered": [lost],
        },
    }
    rows = [RUN, ONLINE, BEGIN, LOAD, KILL, FENCED, ELECTION, found]
    (marks,) = [trace for trace in figure(rows).data if trace.name == "anomaly"]
    assert list(zip(marks.x, marks.y, marks.text, strict=True)) == [
        (0.42, "t-0", "lost: t-0 offset 5<br>epoch 1 began uncleanly"),
        (1.0, "t-0", "diverged: t-0 offset 9<br>broker 2 differs"),
    ]
    text = words(page([rows]))
    assert "topic t, partition 0, offset 5 at 0.42 s: epoch 1 began uncleanly" in text


def test_partitions_with_anomalies_have_lanes_before_others() -> None:
    quiet = {**BEGIN, "topic": "z"}
    busy = [{**BEGIN, "topic": f"busy{n}", "t_ms": t_ms} for n in range(LANES_MAX) for t_ms in (10, 20)]
    found = {**verdict(lost=1), "samples": {"lost": [{"topic": "z", "partition": 0, "offset": 5}]}}
    lanes = {lane for trace in figure([RUN, *busy, quiet, found]).data for lane in trace.y or ()}
    assert "z-0" in lanes


def test_a_loss_in_doubt_is_a_loss_and_its_reason_is_beside_it() -> None:
    rows = [RUN, {**verdict("a file was passed over", lost=3), "exit_code": 4, "notes": ["5 unanswered"]}]
    assert sentence(rows) == ("bad", "3 of 1,000 acknowledged records were lost")
    unchecked = words(page([rows])).split("Not checked")[1]
    assert "a file was passed over" in unchecked
    assert "5 unanswered" in unchecked
