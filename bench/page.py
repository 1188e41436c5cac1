"""The page of a quick benchmark: pictures next to the machine's own limits. Opens without a network."""

from collections.abc import Mapping
from html import escape
from typing import Any

import plotly.graph_objects as go

#: Readable on a light and on a dark page, as in report.picture.
_INK, _GRID = "#7c858f", "rgba(124,133,143,0.25)"
_GOOD, _SLOW, _BAD, _LIMIT = "#2a9d6f", "#c9822b", "#d1495b", "#8a94a0"
_STYLE = """
:root { color-scheme: light dark; --page:#fbfaf7; --ink:#1d2329; --soft:#5d6670; --line:#d5d8dc }
@media (prefers-color-scheme: dark) {
  :root { --page:#14181c; --ink:#e6e9ec; --soft:#a0a9b2; --line:#39424b }
}
body { margin:0; background:var(--page); color:var(--ink); font:15px/1.5 system-ui,sans-serif }
main { max-width:1100px; margin:0 auto; padding:20px } h1 { font-size:26px; line-height:1.25; margin:0 0 4px }
h2 { font-size:18px; margin:32px 0 0 } .soft { color:var(--soft) } table { border-collapse:collapse }
td { padding:4px 16px 4px 0; border-bottom:1px solid var(--line); vertical-align:top }
"""


def page(data: Mapping[str, Any], results: list[tuple[str, str]]) -> str:
    """`data` as `bench.quick` measures it, `results` as it says them."""
    machine, produced = data["machine"], data["produce"]
    lines = "".join(f"<tr><td>{escape(name)}</td><td>{escape(text)}</td></tr>" for name, text in results)
    pictures = (
        ("Megabytes a second", "Next to what the same machine does without a cluster.", _throughput(data)),
        ("Latency over load", "From when a record should have left, so a stall hides nothing.", _load(data)),
        (
            "Failover",
            "From <code>kill -9</code> of a leader to the next acknowledged write, each partition a point.",
            _failover(data),
        ),
        ("Growth with partitions", "Three replicas each, on three brokers.", _growth(data)),
    )
    drawn = "".join(
        f"<h2>{title}</h2><p class=soft>{text}</p>{_html(picture, is_first=number == 0)}"
        for number, (title, text, picture) in enumerate(pictures)
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Holdfast: benchmark</title><style>{_STYLE}</style></head><body><main>"
        f"<h1>{produced['mb_s']:.0f} MB/s acknowledged by all replicas, back "
        f"{data['failover']['p50_ms']:.0f} ms after a kill</h1>"
        f'<p class="soft">{machine["cpus"]} x {escape(str(machine["cpu_model"]))}, '
        f"{escape(str(machine['system']))}, Python {machine['python']}, load {machine['load_average']:.1f} "
        f"at the start. One run of each, {data['seconds']:.0f} s in all: hints, no medians. Three replicas, "
        f"acks=all, min.insync.replicas 2, records of {data['settings']['record_bytes']} bytes.</p>"
        f"<table>{lines}</table>{drawn}</main></body></html>"
    )


def _throughput(data: Mapping[str, Any]) -> go.Figure:
    limits = data["limits"]
    bars = (
        ("read, one consumer", data["consume"]["mb_s"], _GOOD),
        ("produced, one producer", data["produce"]["mb_s"], _GOOD),
        ("raw echo over loopback", limits["echo_mb_s"], _LIMIT),
        ("raw append, three copies", limits["append_mb_s"], _LIMIT),
    )
    made = go.Figure()
    made.add_bar(
        orientation="h", y=[name for name, _, _ in bars], x=[value for _, value, _ in bars],
        marker={"color": [color for _, _, color in bars]}, text=[f"{value:,.0f}" for _, value, _ in bars],
        textposition="auto", hovertemplate="%{y}: %{x:,.0f} MB/s<extra></extra>",
    )  # fmt: skip
    return _dressed(made, "MB/s", "", height=260)


def _load(data: Mapping[str, Any]) -> go.Figure:
    made = go.Figure()
    rates = [row["records_per_s"] for row in data["load"]]
    for key, name, color, dash in (
        ("p50_ms", "p50", _GOOD, "solid"),
        ("p99_ms", "p99", _SLOW, "dash"),
        ("p999_ms", "p99.9", _BAD, "dot"),
    ):
        made.add_scatter(
            x=rates, y=[row[key] for row in data["load"]], name=name, mode="lines+markers",
            line={"color": color, "dash": dash},
            hovertemplate=f"{name} %{{y:,.2f}} ms at %{{x:,.0f}} records/s<extra></extra>",
        )  # fmt: skip
    echo_ms = data["limits"]["echo_p50_ms"]
    made.add_scatter(
        x=[min(rates), max(rates)], y=[echo_ms, echo_ms], name="raw echo of one record, p50",
        mode="lines", line={"color": _LIMIT, "dash": "longdash"}, hoverinfo="skip",
    )  # fmt: skip
    made.update_yaxes(type="log")
    return _dressed(made, "records/s", "ms")


def _failover(data: Mapping[str, Any]) -> go.Figure:
    waits = sorted(data["failover"]["waits_ms"])
    made = go.Figure()
    made.add_scatter(
        x=waits, y=[(number + 1) / len(waits) for number in range(len(waits))], mode="lines+markers",
        line={"color": _GOOD, "shape": "hv"}, hovertemplate="%{y:.0%} within %{x:.0f} ms<extra></extra>",
    )  # fmt: skip
    made.update_yaxes(tickformat=".0%", range=[0, 1.05])
    made.update_xaxes(rangemode="tozero")
    return _dressed(made, "ms", "partitions", height=300)


def _growth(data: Mapping[str, Any]) -> go.Figure:
    made = go.Figure()
    counts = [row["partitions"] for row in data["partitions"]]
    for key, name, color, dash in (
        ("created_s", "created, in the metadata", _GOOD, "solid"),
        ("written_s", "a record in each", _SLOW, "dash"),
    ):
        made.add_scatter(
            x=counts, y=[row[key] for row in data["partitions"]], name=name, mode="lines+markers",
            line={"color": color, "dash": dash},
            hovertemplate=f"{name} after %{{y:.2f}} s, %{{x}} partitions<extra></extra>",
        )  # fmt: skip
    made.update_yaxes(rangemode="tozero")
    made.update_xaxes(rangemode="tozero")
    return _dressed(made, "partitions", "s")


def _dressed(made: go.Figure, x: str, y: str, height: int = 340) -> go.Figure:
    made.update_layout(
        height=height, margin={"l": 60, "r": 12, "t": 20, "b": 50}, font={"color": _INK, "size": 12},
        paper_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)",
        legend={"orientation": "h", "y": 1.12, "x": 0},
    )  # fmt: skip
    made.update_xaxes(title_text=x, gridcolor=_GRID, zerolinecolor=_GRID, automargin=True)
    made.update_yaxes(title_text=y, gridcolor=_GRID, zerolinecolor=_GRID, automargin=True)
    return made


def _html(made: go.Figure, *, is_first: bool) -> str:
    config = {"responsive": True, "displayModeBar": False}
    return str(made.to_html(full_html=False, include_plotlyjs=is_first, config=config))
