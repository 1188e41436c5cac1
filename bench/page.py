"""The page of a benchmark, quick or whole: pictures next to the machine's own limits. It needs no network."""

from collections.abc import Mapping, Sequence
from html import escape
from itertools import cycle
from typing import Any

import plotly.graph_objects as go

from holdfast.bench.failover import WAYS, name_of
from holdfast.bench.report import Answer

#: Readable on a light and on a dark page, as in report.picture.
_INK, _GRID = "#7c858f", "rgba(124,133,143,0.25)"
_GOOD, _SLOW, _BAD, _LIMIT = "#2a9d6f", "#c9822b", "#d1495b", "#8a94a0"
#: of lines that are alike
_LINES = ((_GOOD, "solid"), (_SLOW, "dash"), (_BAD, "dot"), (_LIMIT, "longdash"))
_STYLE = """
:root { color-scheme: light dark; --page:#fbfaf7; --ink:#1d2329; --soft:#5d6670; --line:#d5d8dc }
@media (prefers-color-scheme: dark) {
  :root { --page:#14181c; --ink:#e6e9ec; --soft:#a0a9b2; --line:#39424b }
}
body { margin:0; background:var(--page); color:var(--ink); font:15px/1.5 system-ui,sans-serif }
main { max-width:1100px; margin:0 auto; padding:20px } h1 { font-size:26px; line-height:1.25; margin:0 0 4px }
h2 { font-size:18px; margin:32px 0 0 } .soft { color:var(--soft) } table { border-collapse:collapse }
.wide { overflow-x:auto } pre { font-size:12px; line-height:1.4 }
td { padding:4px 16px 4px 0; border-bottom:1px solid var(--line); vertical-align:top }
"""


#: (title, a sentence below it, the picture)
_Pictures = Sequence[tuple[str, str, go.Figure]]
_WAITS = (
    "The longest time between two acknowledgements around the change of leaders, each partition a point; "
    "of a controller from its end to the next change."
)
_COST = "Some partitions are written to; the others only have to get leaders as well."
_FAILOVER = (
    "The longest time between two acknowledgements around a <code>kill -9</code> of a leader, each partition "
    "a point."
)


def page(data: Mapping[str, Any], results: list[tuple[str, str]]) -> str:
    """`data` as `bench.quick` measures it, `results` as it says them."""
    lines = "".join(f"<tr><td>{escape(name)}</td><td>{escape(text)}</td></tr>" for name, text in results)
    pictures = (
        ("Megabytes a second", "Next to what the same machine does without a cluster.", _throughput(data)),
        ("Latency over load", "From when a record should have left, so a stall hides nothing.", _load(data)),
        ("Failover", _FAILOVER, _failover({"kill -9": data["failover"]["waits_ms"]})),
        ("Growth with partitions", "Three replicas each, on three brokers.", _growth(data)),
    )
    return _page(
        _headline(data["produce"]["mb_s"], data["failover"]["p50_ms"]),
        data["machine"],
        f"One run of each, {data['seconds']:.0f} s in all: hints, no medians. "
        f"Records of {data['settings']['record_bytes']} bytes.",
        f"<table>{lines}</table>",
        pictures,
    )


def page_of_all(answers: Mapping[str, Answer]) -> str:
    """`answers` of `produce`, `consume`, `failover` and `recovery`."""
    produced, (failover,) = answers["produce"].data, answers["failover"].data["cells"]
    runs = produced["runs"]
    best = max(
        (
            found["mb_s"]["median"]
            for block in produced["sizes"].values()
            for found in block["throughput"].values()
        ),
    )
    pictures = (
        (
            "Megabytes a second",
            "Next to what the machine does without a cluster; a line is from the lowest to the highest run.",
            _all_throughput(produced, answers["consume"].data),
        ),
        (
            "Latency",
            "Records one at a time, and paced below the highest rate, from when each should have left.",
            _all_latency(produced),
        ),
        ("Failover", _FAILOVER, _failover({"kill -9": failover["waits_ms"]})),
        (
            "After a power cut of all nodes",
            f"{answers['recovery'].data['partitions']:,} partitions get leaders by a comparison of logs.",
            _recovery(answers["recovery"].data),
        ),
    )
    texts = "".join(
        f'<div class="wide"><pre>{escape(answer.text)}</pre></div>' for answer in answers.values()
    )
    return _page(
        _headline(best, failover["wait"] and failover["wait"]["p50_ms"]),
        produced["machine"],
        f"Medians of {runs} run{'s' if runs > 1 else ''}.",
        "",
        pictures,
        f"<h2>As printed</h2>{texts}",
    )


def page_of_failover(answer: Answer) -> str:
    """`answer` of `bench.failover`; of what has failed the page says so."""
    cells = answer.data["cells"]
    measured = [cell for cell in cells if cell["waits_ms"]]
    pictures = []
    for others in sorted({cell["others"] for cell in measured}):
        waits = {WAYS[cell["way"]]: cell["waits_ms"] for cell in measured if cell["others"] == others}
        beside = f", beside {others:,} other partitions" if others else ""
        pictures.append((f"Time without an answer{beside}", _WAITS, _failover(waits)))
    if len(pictures) > 1:
        pictures.insert(0, ("What an election costs", _COST, _over_others(measured)))
    names = {id(cell): name_of(cell["way"], cell["others"]) for cell in cells}
    failed = "".join(
        f"<p>{escape(names[id(cell)])} has failed after {len(cell['waits_ms'])} waits: "
        f"{escape(cell['error'])}</p>"
        for cell in cells
        if cell["error"] is not None
    )
    title = "; ".join(f"{names[id(cell)]}: {cell['wait']['p50_ms']:.0f} ms" for cell in measured)
    how = f"Each way {answer.data['times']} times, {answer.data['seconds']:.0f} s in all; medians above."
    return _page(
        title or "nothing was measured",
        answer.data["machine"],
        how,
        failed,
        pictures,
        f'<h2>As printed</h2><div class="wide"><pre>{escape(answer.text)}</pre></div>',
    )


def _headline(mb_s: float, back_ms: float | None) -> str:
    back = "nothing back" if back_ms is None else f"back {back_ms:.0f} ms"
    return f"{mb_s:.0f} MB/s acknowledged by all replicas, {back} after a kill"


def _page(
    title: str, machine: Mapping[str, Any], how: str, top: str, pictures: _Pictures, bottom: str = ""
) -> str:
    drawn = "".join(
        f"<h2>{name}</h2><p class=soft>{text}</p>{_html(picture, is_first=number == 0)}"
        for number, (name, text, picture) in enumerate(pictures)
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Holdfast: benchmark</title><style>{_STYLE}</style></head><body><main>"
        f"<h1>{escape(title)}</h1>"
        f'<p class="soft">{machine["cpus"]} x {escape(str(machine["cpu_model"]))}, '
        f"{escape(str(machine['system']))}, Python {machine['python']}, load {machine['load_average']:.1f} "
        f"at the start. {how} Three replicas, acks=all, min.insync.replicas 2.</p>"
        f"{top}{drawn}{bottom}</main></body></html>"
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


def _failover(waits_ms: Mapping[str, Sequence[float]]) -> go.Figure:
    """Which share of the waits of each name ended within how long."""
    made = go.Figure()
    for (name, found), (color, dash) in zip(waits_ms.items(), cycle(_LINES), strict=False):
        waits = sorted(found)
        made.add_scatter(
            x=waits, y=[(number + 1) / len(waits) for number in range(len(waits))], mode="lines+markers",
            line={"color": color, "dash": dash, "shape": "hv"}, name=name,
            hovertemplate="%{y:.0%} within %{x:.0f} ms<extra></extra>",
        )  # fmt: skip
    made.update_yaxes(tickformat=".0%", range=[0, 1.05])
    if len(waits_ms) > 1:
        made.update_xaxes(type="log")  # a silent leader takes seconds, the others some tens of ms
    else:
        made.update_xaxes(rangemode="tozero")
    return _dressed(made, "ms", "waits", height=300)


def _over_others(cells: Sequence[Mapping[str, Any]]) -> go.Figure:
    """Percentiles over the number of other partitions, of each way."""
    made = go.Figure()
    for way in dict.fromkeys(cell["way"] for cell in cells):
        rows = sorted((cell for cell in cells if cell["way"] == way), key=lambda cell: int(cell["others"]))
        for key, name, color, dash in (
            ("p50_ms", "p50", _GOOD, "solid"),
            ("p99_ms", "p99", _SLOW, "dash"),
            ("max_ms", "most", _BAD, "dot"),
        ):
            made.add_scatter(
                x=[row["others"] for row in rows], y=[row["wait"][key] for row in rows],
                name=f"{WAYS[way]}, {name}", mode="lines+markers", line={"color": color, "dash": dash},
                hovertemplate=f"{name} %{{y:.0f}} ms beside %{{x}} partitions<extra></extra>",
            )  # fmt: skip
    made.update_xaxes(rangemode="tozero")
    made.update_yaxes(rangemode="tozero")
    return _dressed(made, "other partitions", "ms")


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


def _all_throughput(produced: Mapping[str, Any], consumed: Mapping[str, Any]) -> go.Figure:
    bars: list[tuple[str, Mapping[str, float], str]] = []
    for size, block in produced["sizes"].items():
        read = consumed["sizes"].get(size, {"consumers": {}})
        for name, found in reversed(read["consumers"].items()):
            bars.append((f"{size} B read, {name}", found["mb_s"], _GOOD))
        for count, found in reversed(block["throughput"].items()):
            bars.append((f"{size} B produced by {count}", found["mb_s"], _GOOD))
        bars.append((f"{size} B raw echo", block["limits"]["echo_mb_s"], _LIMIT))
        bars.append((f"{size} B raw append, three copies", block["limits"]["append_mb_s"], _LIMIT))
    return _spans(bars, "MB/s", "{:,.0f}")


def _all_latency(produced: Mapping[str, Any]) -> go.Figure:
    rows: list[tuple[str, Mapping[str, Any]]] = []
    for size, block in produced["sizes"].items():
        if "one_by_one" in block:
            rows.append((f"{size} B one at a time", block["one_by_one"]["latency"]))
        for count, found in block["throughput"].items():
            rows.append((f"{size} B, {count} at {found['paced_mb_s']:.0f} MB/s", found["paced_latency"]))
    made = go.Figure()
    for key, name, color, symbol in (
        ("p50_ms", "p50", _GOOD, "circle"),
        ("p99_ms", "p99", _SLOW, "diamond"),
        ("p999_ms", "p99.9", _BAD, "x"),
    ):
        made.add_scatter(
            y=[row for row, _ in rows], x=[found[key]["median"] for _, found in rows], name=name,
            mode="markers", marker={"color": color, "symbol": symbol, "size": 11},
            hovertemplate=f"%{{y}}: {name} %{{x:,.2f}} ms<extra></extra>",
        )  # fmt: skip
    echoes = [block["limits"]["echo_p50_ms"]["median"] for block in produced["sizes"].values()]
    made.add_scatter(
        x=[min(echoes)] * 2, y=[rows[0][0], rows[-1][0]], name="raw echo, p50", mode="lines",
        line={"color": _LIMIT, "dash": "longdash"}, hoverinfo="skip",
    )  # fmt: skip
    made.update_xaxes(type="log")
    return _dressed(made, "ms", "", height=120 + 36 * len(rows))


def _recovery(data: Mapping[str, Any]) -> go.Figure:
    steps = (
        ("to the last leader", "to_leaders_s"),
        ("to all brokers unfenced", "to_unfenced_s"),
        ("logs opened and recovered", "logs_s"),
        ("processes started to the last registration", "to_registration_s"),
    )
    return _spans([(name, data[key], _GOOD) for name, key in steps], "s", "{:,.2f}")


def _spans(bars: Sequence[tuple[str, Mapping[str, float], str]], unit: str, digits: str) -> go.Figure:
    """Medians, with a line from the lowest to the highest run."""
    made = go.Figure()
    medians = [found["median"] for _, found, _ in bars]
    made.add_bar(
        orientation="h", y=[name for name, _, _ in bars], x=medians,
        marker={"color": [color for _, _, color in bars]}, text=[digits.format(value) for value in medians],
        textposition="inside", insidetextanchor="start",
        error_x={
            "type": "data", "symmetric": False, "color": _INK,
            "array": [found["high"] - found["median"] for _, found, _ in bars],
            "arrayminus": [found["median"] - found["low"] for _, found, _ in bars],
        },
        hovertemplate=f"%{{y}}: %{{x:,.2f}} {unit}<extra></extra>",
    )  # fmt: skip
    return _dressed(made, unit, "", height=100 + 30 * len(bars))


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
