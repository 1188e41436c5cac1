"""Dashboards and rules ask for metrics that exist, with labels that they have."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.tools.dashboard_panels import BOARDS, Board
from holdfast.tools.dashboards import FOLDER, about, built

ROOT = Path(__file__).parents[3]
RULES = sorted((ROOT / "docker" / "prometheus").glob("*.rules.yml"))
PAGE = (ROOT / "docs" / "metrics.md").read_text()
#: what Prometheus adds to every series
ADDED = {"instance", "job"}


def documented() -> dict[str, set[str]]:
    """{series: its labels}, those of histograms by part."""
    found: dict[str, set[str]] = {"up": set()}
    for name, kind, text in re.findall(r"^\| (\w+) \| (gauge|counter|histogram) \| ([^|]*)\|", PAGE, re.M):
        labels = set(re.findall(r"\w+", text))
        if kind == "histogram":
            found |= {f"{name}_bucket": {*labels, "le"}, f"{name}_sum": labels, f"{name}_count": labels}
        else:
            found[name] = labels
    # those that are recorded of many brokers
    found["kafka_controller_partition_power_loss_exposure_records"] = {"topic", "partition"}
    found["kafka_coordinator_group_lag_records"] = {"group", "topic", "partition"}
    return found


DOCUMENTED = documented()


def selectors(expression: str) -> Iterator[tuple[str, set[str]]]:
    """(series, labels that are matched) of an expression."""
    unquoted = re.sub(r'"[^"]*"', '""', expression)
    for name, matchers in re.findall(r"\b((?:kafka|holdfast|process)_\w+|up)\b(?:\{([^}]*)\})?", unquoted):
        yield name, set(re.findall(r"(\w+)\s*[=!]", matchers))


def grouped(expression: str) -> set[str]:
    """Labels that an expression groups by."""
    return {
        label for group in re.findall(r"\bby \(([^)]*)\)", expression) for label in re.findall(r"\w+", group)
    }


def problems(expression: str, legend: str = "") -> list[str]:
    """What the expression asks for and no node has."""
    found = []
    known = set(ADDED)
    for name, matched in selectors(expression):
        labels = DOCUMENTED.get(name)
        if labels is None:
            found.append(f"{name} is no metric of docs/metrics.md")
            continue
        known |= labels
        found += [f"{name} has no label {label}" for label in sorted(matched - labels - ADDED)]
    used = grouped(expression) | set(re.findall(r"\{\{(\w+)\}\}", legend))
    return found + [f"nothing here has a label {label}" for label in sorted(used - known)]


def rules(path: Path) -> list[tuple[str, str, str]]:
    """(alert or record, name, expression), in order."""
    return re.findall(r"^ +- (alert|record): (\w+)\n +expr: (.*)$", path.read_text(), re.M)


def dashboard_queries(document: Any) -> Iterator[tuple[str, str]]:
    """(expression, legend) of everything that a dashboard's JSON asks."""
    if isinstance(document, dict):
        if "expr" in document:
            yield document["expr"], document.get("legendFormat", "")
        for value in document.values():
            yield from dashboard_queries(value)
    elif isinstance(document, list):
        for value in document:
            yield from dashboard_queries(value)


def test_the_check_finds_what_is_not_there() -> None:
    assert problems("sum(kafka_server_partitions)") == []
    assert problems("kafka_server_partition") == ["kafka_server_partition is no metric of docs/metrics.md"]
    assert problems("kafka_server_request_seconds{}") != [], "of a histogram only the parts exist"
    assert problems('kafka_log_flushes_total{why="x"}') == ["kafka_log_flushes_total has no label why"]
    assert problems("sum by (topic) (kafka_server_partitions)") == ["nothing here has a label topic"]
    assert problems("kafka_raft_current_epoch", "{{node}}") == ["nothing here has a label node"]


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_every_panel_asks_for_what_nodes_print(board: Board) -> None:
    queries = list(dashboard_queries(json.loads((FOLDER / f"{board.uid}.json").read_text())))
    assert len(queries) >= sum(len(panel.queries) for _, panels in board.rows for panel in panels)
    assert [problem for query in queries for problem in problems(*query)] == []


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_the_dashboards_are_those_of_the_table(board: Board) -> None:
    """`python -m holdfast.tools.dashboards` writes them."""
    assert (FOLDER / f"{board.uid}.json").read_text() == built(board)


@pytest.mark.parametrize("path", RULES, ids=lambda path: path.name)
def test_every_rule_asks_for_what_nodes_print(path: Path) -> None:
    found = rules(path)
    assert len(found) == path.read_text().count("expr:"), "an expression stands in one line, behind its name"
    assert [problem for _, _, expression in found for problem in problems(expression)] == []
    assert len({name for _, name, _ in found}) == len(found)


def test_for_every_alert_the_page_says_what_to_do() -> None:
    alerts = [name for path in RULES for kind, name, _ in rules(path) if kind == "alert"]
    advice = PAGE.partition("## Alerts")[2]
    assert re.findall(r"^\| (\w+) \| \S", advice, re.M)[1:] == alerts


def alerts_tested(*, is_firing: bool) -> set[str]:
    """Alerts that an example history lets fire, or looks at while they do not."""
    text = (ROOT / "docker" / "prometheus" / "holdfast.test.yml").read_text()
    blocks = re.split(r"^ +- (?=\{?alertname:)", text, flags=re.M)[1:]
    return {
        re.match(r"\{?alertname: (\w+)", block)[1]  # type: ignore[index]
        for block in blocks
        if ("exp_alerts" in block) == is_firing
    }


def test_every_alert_fires_in_an_example_history() -> None:
    (path,) = [path for path in RULES if path.name == "holdfast.rules.yml"]
    assert {name for kind, name, _ in rules(path) if kind == "alert"} == alerts_tested(is_firing=True)
    assert alerts_tested(is_firing=False) <= alerts_tested(is_firing=True)


def test_one_of_a_kind_is_no_plural() -> None:
    for path in RULES:
        for summary in re.findall(r"summary: (.*)", path.read_text()):
            assert not re.search(r"(?<!else \}\})\{\{ \$value \}\} [a-z]+s\b", summary), summary


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_every_panel_says_what_its_metrics_are(board: Board) -> None:
    for _, panels in board.rows:
        for panel in panels:
            assert about(panel).startswith("`"), panel.title


def test_what_can_cost_data_is_on_the_first_dashboard() -> None:
    """Unclean recovery, ELR, leaderless partitions, log dirs: what KIP-966 is about."""
    shown = (FOLDER / "holdfast-durability.json").read_text()
    for name in (
        "kafka_controller_offline_partitions",
        "kafka_controller_unclean_recovery_partitions_count",
        "kafka_controller_unclean_recovery_finished_total",
        "kafka_controller_manual_leader_election_required_partition_count",
        "kafka_controller_global_under_min_isr_partition_count",
        "kafka_controller_partition_electable_leaders",
        "kafka_controller_partition_replica_role",
        "kafka_log_directory_offline",
    ):
        assert name in shown
