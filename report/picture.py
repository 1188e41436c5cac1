"""The picture of one run: rates, latencies, brokers and leaders over time. Only user of plotly."""

from collections import defaultdict
from collections.abc import Container, Iterable, Sequence
from textwrap import wrap
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from holdfast.report.history import Row

#: Classes of a verdict that may occur; all others are anomalies.
ALLOWED = ("recovered", "lost_weakly_acked", "reordered_unacked")
#: Characters of a line of a story.
_HOVER = 110
#: Partitions that have a lane of their own: those with anomalies, then those that changed most.
LANES_MAX = 24
#: Readable on a light and on a dark page.
_INK, _GRID = "#7c858f", "rgba(124,133,143,0.25)"
_GOOD, _SLOW, _BAD = "#2a9d6f", "#c9822b", "#d1495b"
#: Of leaders, by broker; also told apart by the number in the bar.
_BROKERS = ("#3d7ea6", "#8d6a9f", "#5b8e3e", "#b5803a", "#4f9a94", "#a65e6e", "#6d6fb3", "#8a8a3c")
_STATES = {
    "registered": ("#9aa5b1", "/"),
    "online": (_GOOD, ""),
    "stopping": (_SLOW, "\\"),
    "fenced": (_BAD, "x"),
    "gone": ("#555555", "."),
}


def figure(rows: Sequence[Row]) -> go.Figure:
    """Four bands on one axis of seconds; what has no rows is left out."""
    # not the verdict's time: Spark takes longer than many a run
    drawn = [row for row in rows if row["kind"] in ("load", "fault", "broker", "controller", "partition")]
    end_s = max((row.get("until_ms") or row["t_ms"] for row in drawn), default=0) / 1000
    loads = [row for row in rows if row["kind"] == "load"]
    nodes = _node_bars(rows, end_s)
    anomalies = _anomalies(rows, end_s)
    partitions = _partition_bars(rows, end_s, {mark["lane"] for mark in anomalies})
    bands: list[tuple[str, float]] = []
    if loads:
        bands += [("Acknowledged records per second", 200.0), ("Latency, ms", 170.0)]
    node_lanes = list(dict.fromkeys(bar["lane"] for bar in nodes))
    partition_lanes = list(dict.fromkeys(bar["lane"] for bar in partitions))
    if nodes:
        bands.append(("Brokers and active controller", 40.0 + 26 * len(node_lanes)))
    if partitions:
        bands.append(("Leader of each partition", 40.0 + 22 * len(partition_lanes)))
    made = make_subplots(
        rows=max(1, len(bands)),
        cols=1,
        shared_xaxes=True,
        vertical_spacing=0.05,
        row_heights=[height for _, height in bands] or None,
        subplot_titles=[title for title, _ in bands] or None,
    )
    number = 1
    if loads:
        _add_load(made, loads)
        number = 3
    if nodes:
        _add_bars(made, nodes, node_lanes, number)
        _add_faults(made, rows, number)
        number += 1
    if partitions:
        _add_bars(made, partitions, partition_lanes, number)
        _add_anomalies(made, [mark for mark in anomalies if mark["lane"] in partition_lanes], number)
    for row in rows:
        if row["kind"] == "fault" and loads:
            _add_band(made, row, end_s)
    _dress(made, sum(height for _, height in bands), end_s)
    return made


def _add_load(made: go.Figure, loads: Sequence[Row]) -> None:
    middle = [(row["t_ms"] + row["until_ms"]) / 2000 for row in loads]
    seconds = [(row["until_ms"] - row["t_ms"]) / 1000 for row in loads]
    rate = [row["acked"] / length for row, length in zip(loads, seconds, strict=True)]
    made.add_scatter(
        x=middle, y=rate, name="acknowledged", mode="lines", line={"color": _GOOD, "width": 1.5},
        fill="tozeroy", hovertemplate="%{y:,.0f} records/s at %{x:.1f} s<extra></extra>", row=1, col=1,
    )  # fmt: skip
    failed = [row["failed"] / length for row, length in zip(loads, seconds, strict=True)]
    if any(failed):
        made.add_scatter(
            x=middle, y=failed, name="not acknowledged", mode="lines", line={"color": _BAD, "dash": "dot"},
            hovertemplate="%{y:,.0f} given up/s at %{x:.1f} s<extra></extra>", row=1, col=1,
        )  # fmt: skip
    for key, name, color, dash in (
        ("max_ms", "longest", _BAD, "dot"),
        ("p99_ms", "p99", _SLOW, "dash"),
        ("p50_ms", "p50", _GOOD, "solid"),
    ):
        made.add_scatter(
            x=middle, y=[row[key] for row in loads], name=name, mode="lines",
            line={"color": color, "dash": dash, "width": 1.5}, connectgaps=False,
            hovertemplate=f"{name} %{{y:,.1f}} ms at %{{x:.1f}} s<extra></extra>", row=2, col=1,
        )  # fmt: skip
    made.update_yaxes(type="log", row=2, col=1)


def _add_band(made: go.Figure, row: Row, end_s: float) -> None:
    until = row.get("until_ms")
    for number in (1, 2):
        made.add_vrect(
            x0=row["t_ms"] / 1000, x1=end_s if until is None else until / 1000,
            fillcolor=_BAD, opacity=0.12, line={"width": 1, "color": _BAD}, layer="below", row=number, col=1,
        )  # fmt: skip


def _add_faults(made: go.Figure, rows: Sequence[Row], number: int) -> None:
    faults = [row for row in rows if row["kind"] == "fault"]
    if not faults:
        return
    made.add_scatter(
        x=[row["t_ms"] / 1000 for row in faults], y=[_node_lane(row["target"]) for row in faults],
        mode="markers", name="fault",
        marker={"symbol": "x", "size": 11, "color": _BAD, "line": {"width": 1, "color": "white"}},
        text=[row["text"] for row in faults], hovertemplate="%{text} at %{x:.1f} s<extra></extra>",
        row=number, col=1,
    )  # fmt: skip


def _anomalies(rows: Iterable[Row], end_s: float) -> list[dict[str, Any]]:
    """What breaks a rule, at the time at which its send was answered, else at the end: there it was found."""
    marks = []
    for row in rows:
        for name, samples in row["samples"].items() if row["kind"] == "verdict" else ():
            for sample in samples if name not in ALLOWED else ():
                if sample.get("topic") is None or sample.get("partition") is None:
                    continue
                t_ms = sample.get("t_ms")
                told = [str(sample[key]) for key in ("detail", "story") if sample.get(key)]
                head = f"{name}: {sample['topic']}-{sample['partition']} offset {sample.get('offset')}"
                marks.append(
                    {
                        "lane": f"{sample['topic']}-{sample['partition']}",
                        "at": end_s if t_ms is None else min(max(0.0, t_ms / 1000), end_s),
                        "hover": "<br>".join([head, *(line for text in told for line in wrap(text, _HOVER))]),
                    }
                )
    return marks


def _add_anomalies(made: go.Figure, marks: Sequence[dict[str, Any]], number: int) -> None:
    if not marks:
        return
    made.add_scatter(
        x=[mark["at"] for mark in marks], y=[mark["lane"] for mark in marks], mode="markers", name="anomaly",
        marker={"symbol": "diamond", "size": 11, "color": _BAD, "line": {"width": 1.5, "color": "white"}},
        text=[mark["hover"] for mark in marks], hovertemplate="%{text}<br>at %{x:.2f} s<extra></extra>",
        row=number, col=1,
    )  # fmt: skip


def _add_bars(made: go.Figure, bars: Sequence[dict[str, Any]], lanes: Sequence[str], number: int) -> None:
    made.add_bar(
        orientation="h", y=[bar["lane"] for bar in bars], base=[bar["from"] for bar in bars],
        x=[bar["to"] - bar["from"] for bar in bars], text=[bar["text"] for bar in bars],
        textposition="inside", insidetextanchor="middle", textangle=0,
        textfont={"color": "white", "size": 11}, showlegend=False,
        marker={
            "color": [bar["color"] for bar in bars],
            "pattern": {"shape": [bar["pattern"] for bar in bars], "fgopacity": 0.5},
            "line": {"width": 0.5, "color": "white"},
        },
        customdata=[bar["hover"] for bar in bars], hovertemplate="%{customdata}<extra></extra>",
        row=number, col=1,
    )  # fmt: skip
    made.update_yaxes(
        categoryorder="array", categoryarray=list(reversed(lanes)), type="category", row=number, col=1
    )


def _node_lane(target: str) -> str:
    first = target.split(",")[0].strip()
    return "controller" if first.startswith("controller") else first


def _node_bars(rows: Iterable[Row], end_s: float) -> list[dict[str, Any]]:
    """What each broker was for the controllers, and who the active controller was."""
    spans: dict[str, list[tuple[float, str, str]]] = defaultdict(list)
    for row in rows:
        if row["kind"] == "broker":
            spans[f"broker-{row['broker']}"].append((max(0.0, row["t_ms"] / 1000), row["state"], row["text"]))
    bars = []
    for lane in sorted(spans):
        for (start, state, text), (stop, _, _) in _pairs(spans[lane], end_s):
            color, pattern = _STATES[state]
            bars.append(_bar(lane, start, stop, state, color, pattern, f"{lane}: {text}"))
    controllers = [
        (max(0.0, row["t_ms"] / 1000), str(row["controller"]), "")
        for row in rows
        if row["kind"] == "controller"
    ]
    for (start, controller, _), (stop, _, _) in _pairs(controllers, end_s):
        hover = f"controller {controller} is active"
        bars.append(_bar("controller", start, stop, controller, "#5f6b78", "", hover))
    return bars


def _partition_bars(rows: Iterable[Row], end_s: float, wanted: Container[str]) -> list[dict[str, Any]]:
    """`wanted`: lanes that are shown before others."""
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row["kind"] == "partition":
            found[f"{row['topic']}-{row['partition']}"].append(row)
    most = sorted(found, key=lambda name: (name not in wanted, -len(found[name]), name))[:LANES_MAX]
    bars = []
    for lane in sorted(most, key=_natural):
        spans = [(max(0.0, row["t_ms"] / 1000), row, "") for row in found[lane]]
        for (start, row, _), (stop, _, _) in _pairs(spans, end_s):
            leader = row["leader"]
            is_short = len(row["isr"]) < row["min_isr"]
            color = _BAD if leader is None else _BROKERS[leader % len(_BROKERS)]
            text = "none" if leader is None else str(leader)
            bars.append(
                _bar(
                    lane,
                    start,
                    stop,
                    text,
                    color,
                    "x" if leader is None else "/" if is_short else "",
                    _sets(lane, row),
                )
            )
    return bars


def _sets(lane: str, row: Row) -> str:
    def ids(name: str) -> str:
        return ", ".join(map(str, row[name])) or "none"

    leader = "no leader" if row["leader"] is None else f"leader {row['leader']}"
    return (
        f"{lane}: {leader}, epoch {row['leader_epoch']}<br>ISR {ids('isr')} (min {row['min_isr']})"
        f"<br>ELR {ids('elr')}<br>last known ELR {ids('last_known_elr')}"
    )


def _bar(
    lane: str, start: float, stop: float, text: str, color: str, pattern: str, hover: str
) -> dict[str, Any]:
    words = f"{hover}<br>from {start:.2f} s to {stop:.2f} s"
    return {
        "lane": lane, "from": start, "to": stop, "text": text, "color": color, "pattern": pattern,
        "hover": words,
    }  # fmt: skip


def _pairs(spans: list[Any], end_s: float) -> list[tuple[Any, Any]]:
    """Each with the next one, the last with the end; those of no length are left out."""
    if not spans:
        return []
    pairs = zip(spans, [*spans[1:], (max(end_s, spans[-1][0]), None, "")], strict=True)
    return [(one, following) for one, following in pairs if following[0] > one[0]]


def _natural(name: str) -> tuple[str, int]:
    topic, _, index = name.rpartition("-")
    return topic, int(index)


def _dress(made: go.Figure, height: float, end_s: float) -> None:
    made.update_layout(
        height=height + 120, margin={"l": 90, "r": 12, "t": 40, "b": 40}, barmode="overlay", bargap=0.25,
        paper_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)", font={"color": _INK, "size": 12},
        legend={"orientation": "h", "y": -0.06, "x": 0}, hoverlabel={"align": "left"}, dragmode="zoom",
    )  # fmt: skip
    made.update_xaxes(gridcolor=_GRID, zerolinecolor=_GRID, range=[0, max(end_s, 0.001)])
    made.update_yaxes(gridcolor=_GRID, zerolinecolor=_GRID, fixedrange=True)
    made.update_xaxes(title_text="seconds since the run began", row=len(made._grid_ref), col=1)
