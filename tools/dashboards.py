"""`python -m holdfast.tools.dashboards` writes docker/grafana/dashboards, Grafana's pages, from their table.

Owns looks and layout; the JSON is Grafana's own SDK's, which only developers have.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from grafana_foundation_sdk.builders import common as common_builder
from grafana_foundation_sdk.builders import (
    dashboard,
    heatmap,
    prometheus,
    stat,
    statushistory,
    table,
    timeseries,
)
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import (
    BigValueColorMode,
    GraphDrawStyle,
    LegendDisplayMode,
    LegendPlacement,
    StackingMode,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DataSourceRef,
    Threshold,
    ThresholdsMode,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from holdfast.tools.dashboard_panels import BOARDS, UNCLEAN, Board, Panel

_PAGE = Path(__file__).resolve().parent.parent / "docs" / "metrics.md"
FOLDER = Path(__file__).resolve().parent.parent / "docker" / "grafana" / "dashboards"
_SOURCE = DataSourceRef(type_val="prometheus", uid="${source}")


class DashboardKind(NamedTuple):
    """How a kind of panel looks; a dashboard is 24 wide."""

    make: Callable[[], Any]
    width: int
    height: int


KINDS = {
    "stat": DashboardKind(lambda: stat.Panel().color_mode(BigValueColorMode.BACKGROUND), 4, 4),
    "lines": DashboardKind(lambda: timeseries.Panel().line_width(1).fill_opacity(10), 8, 7),
    "bars": DashboardKind(
        lambda: (
            timeseries.Panel()
            .draw_style(GraphDrawStyle.BARS)
            .fill_opacity(80)
            .stacking(common_builder.StackingConfig().mode(StackingMode.NORMAL))
        ),
        8,
        7,
    ),
    "history": DashboardKind(lambda: statushistory.Panel().row_height(0.9), 24, 9),
    "table": DashboardKind(table.Panel, 8, 7),
    "heat": DashboardKind(heatmap.Panel, 8, 7),
}
#: Events that are drawn over all graphs: (name, expression, colour).
_EVENTS = (
    (
        "unclean elections",
        f"sum(increase(kafka_controller_leader_elections_total{{{UNCLEAN}}}[$__rate_interval])) > 0",
        "red",
    ),
    (
        "unclean shutdowns",
        "sum(increase(kafka_controller_unclean_shutdown_registrations_total[$__rate_interval])) > 0",
        "orange",
    ),
)
#: Colours of replica_role, from its value on.
_ROLE_COLOURS = (
    (None, "dark-red"),
    (1.0, "red"),
    (2.0, "orange"),
    (3.0, "yellow"),
    (4.0, "light-blue"),
    (5.0, "green"),
    (6.0, "dark-green"),
)


def built(board: Board) -> str:
    """The dashboard's JSON."""
    builder = (
        dashboard.Dashboard(board.title)
        .uid(board.uid)
        .tags(["holdfast"])
        .time("now-30m", "now")
        .refresh("5s")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .with_variable(dashboard.DatasourceVariable("source").type("prometheus"))
        .with_variable(
            dashboard.QueryVariable("topic")
            .datasource(_SOURCE)
            .query("label_values(kafka_controller_partition_leader, topic)")
            .multi(True)
            .include_all(True)
        )
    )
    for name, expression, colour in _EVENTS:
        event = dashboard.AnnotationQuery().name(name).expr(expression).icon_color(colour).enable(True)
        builder = builder.annotation(event.datasource(_SOURCE))
    for title, panels in board.rows:
        builder = builder.with_row(dashboard.Row(title))
        for panel in panels:
            builder = builder.with_panel(_panel(panel))
    return JSONEncoder(sort_keys=True, indent=2).encode(builder.build()) + "\n"


def _panel(panel: Panel) -> Any:
    kind = KINDS[panel.kind]
    builder = kind.make().title(panel.title).datasource(_SOURCE).unit(panel.unit)
    builder = builder.description(about(panel))
    builder = builder.span(kind.width).height(kind.height)
    for number, (expression, legend) in enumerate(panel.queries):
        query = prometheus.Dataquery().expr(expression).legend_format(legend).ref_id(chr(ord("A") + number))
        if panel.kind == "table":
            query = query.instant().format(PromQueryFormat.TABLE)
        elif panel.kind == "heat":
            query = query.format(PromQueryFormat.HEATMAP)
        builder = builder.with_target(query)
    if panel.kind == "stat":
        builder = builder.thresholds(_thresholds(((None, "green"), (panel.red_from, "red"))))
    if panel.kind == "history":
        builder = builder.thresholds(_thresholds(_ROLE_COLOURS))
    if panel.kind in ("lines", "bars"):
        legend_options = common_builder.VizLegendOptions().show_legend(True)
        builder = builder.legend(
            legend_options.display_mode(LegendDisplayMode.LIST).placement(LegendPlacement.BOTTOM)
        )
    return builder


def about(panel: Panel) -> str:
    """What is shown: what docs/metrics.md says of each of its metrics, as Markdown."""
    said = []
    for expression, _ in panel.queries:
        for word in re.findall(
            r"\b(?:kafka|holdfast|process)_\w+|\bup\b", re.sub(r'"[^"]*"', "", expression)
        ):
            name = word if word in _ABOUT else re.sub(r"_(bucket|sum|count)$", "", word)
            said.append(f"`{name}`: {_ABOUT[name]}")
    return "\n\n".join(dict.fromkeys(said))


def _documented() -> dict[str, str]:
    """{metric: what it is}, of the tables."""
    rows = re.findall(
        r"^\| (\w+) \| (?:gauge|counter|histogram) \| [^|]*\| ([^|]*) \|$", _PAGE.read_text(), re.M
    )
    return {
        **dict(rows),
        "up": "1 while Prometheus gets an answer",
        "kafka_controller_partition_power_loss_exposure_records": "acknowledged, and flushed by no broker",
        "kafka_coordinator_group_lag_records": "committed records that the group has not read",
    }


_ABOUT = _documented()


def _thresholds(steps: tuple[tuple[float | None, str], ...]) -> dashboard.ThresholdsConfig:
    """Colours from a value on; the first one from everywhere, a later None never."""
    wanted = [step for number, step in enumerate(steps) if number == 0 or step[0] is not None]
    return (
        dashboard.ThresholdsConfig()
        .mode(ThresholdsMode.ABSOLUTE)
        .steps([Threshold(value=value, color=colour) for value, colour in wanted])
    )


def main() -> None:
    """Write all of them."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for board in BOARDS:
        (FOLDER / f"{board.uid}.json").write_text(built(board), encoding="utf-8")
        print(f"wrote {FOLDER / board.uid}.json")


if __name__ == "__main__":
    main()
