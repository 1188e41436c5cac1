"""The page of all benchmarks: every figure that was measured is drawn, beside the machine's limits."""

from typing import Any

from holdfast.bench.page import page_of_all, page_of_failover
from holdfast.bench.report import Answer

MACHINE = {"cpus": 2, "cpu_model": "<cpu>", "system": "Linux", "python": "3.11", "load_average": 0.5}


def spread(median: float) -> dict[str, float]:
    return {"median": median, "low": median - 1, "high": median + 1, "runs": 3}


LATENCY = {key: spread(2.0) for key in ("p50_ms", "p90_ms", "p99_ms", "p999_ms", "max_ms")}
LIMITS = {key: spread(900.0) for key in ("append_mb_s", "echo_mb_s", "echo_p50_ms", "echo_p99_ms")}
PRODUCED: dict[str, Any] = {
    "machine": MACHINE, "runs": 3,
    "sizes": {"100": {
        "limits": LIMITS, "one_by_one": {"latency": LATENCY},
        "throughput": {
            "1": {"mb_s": spread(40.0), "paced_mb_s": 20.0, "paced_latency": LATENCY},
            "4": {"mb_s": spread(55.0), "paced_mb_s": 25.0, "paced_latency": LATENCY},
        },
    }},
}  # fmt: skip
ANSWERS = {
    "produce": Answer(PRODUCED, "PRODUCE <table>"),
    "consume": Answer({"sizes": {"100": {"consumers": {"1 records": {"mb_s": spread(80.0)}}}}}, "CONSUME"),
    "failover": Answer({"cells": [{"wait": {"p50_ms": 61.0}, "waits_ms": [60.0, 61.0, 70.0]}]}, "FAILOVER"),
    "recovery": Answer(
        {
            "partitions": 2000,
            **dict.fromkeys(("to_registration_s", "logs_s", "to_unfenced_s", "to_leaders_s"), spread(3.0)),
        },
        "RECOVERY",
    ),
}


def test_every_benchmark_is_on_the_page() -> None:
    text = page_of_all(ANSWERS)
    assert "55 MB/s acknowledged by all replicas, back 61 ms after a kill" in text
    assert "Medians of 3 runs" in text
    assert text.count("Plotly.newPlot") == 4
    for bar in ("100 B raw append, three copies", "100 B produced by 4", "100 B read, 1 records"):
        assert bar in text
    for row in ("100 B one at a time", "100 B, 4 at 25 MB", "to the last leader"):
        assert row in text


def test_the_page_says_when_nothing_came_back() -> None:
    text = page_of_all(ANSWERS | {"failover": Answer({"cells": [cell("kill", 0, [])]}, "FAILOVER")})
    assert "55 MB/s acknowledged by all replicas, nothing back after a kill" in text


def test_what_was_printed_is_there_and_nothing_of_it_is_markup() -> None:
    text = page_of_all(ANSWERS)
    assert all(answer.text.split()[0] in text for answer in ANSWERS.values())
    assert "&lt;table&gt;" in text
    assert "&lt;cpu&gt;" in text


def cell(way: str, others: int, waits_ms: list[float], error: str | None = None) -> dict[str, Any]:
    wait = {"p50_ms": 61.0, "p99_ms": 70.0, "max_ms": 71.0} if waits_ms else None
    return {"way": way, "others": others, "waits_ms": waits_ms, "wait": wait, "error": error}


def page_of_cells(*cells: dict[str, Any]) -> str:
    data = {"machine": MACHINE, "times": 50, "seconds": 9.0, "cells": cells}
    return page_of_failover(Answer(data, "FAILOVER <ms>"))


def test_each_way_to_lose_a_leader_is_drawn_and_what_has_failed_is_said() -> None:
    text = page_of_cells(cell("kill", 0, [60.0, 61.0]), cell("pause", 0, [], "b1 <ended>"))
    assert "kill -9 of a leader: 61 ms" in text
    assert "SIGSTOP of a leader has failed after 0 waits: b1 &lt;ended&gt;" in text
    assert text.count("Plotly.newPlot") == 1
    assert "FAILOVER &lt;ms&gt;" in text


def test_what_an_election_costs_is_drawn_over_the_number_of_other_partitions() -> None:
    text = page_of_cells(cell("kill", 0, [60.0]), cell("kill", 1000, [90.0]))
    assert text.count("Plotly.newPlot") == 3
    assert "What an election costs" in text
    assert "beside 1,000 other partitions" in text


def test_a_page_of_nothing_is_a_page() -> None:
    assert "nothing was measured" in page_of_cells(cell("stop", 0, [], "no cluster"))
