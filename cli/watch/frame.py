"""One frame of `holdfast watch`, drawn with rich. Each set has a letter: colour says nothing alone."""

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from holdfast.cli.watch.state import BoardState, Groups, Row, name_of, set_of

#: what is drawn beside partitions and decisions: sentence, facts, heads, legend, empty lines
_FRAME_LINES = 12
_DECISIONS_MAX = 5
_GROUPS_MAX = 5
_MOODS = {"good": "bold green", "warn": "bold yellow", "bad": "bold red"}
_STATES = {
    "leaderless": "no leader",
    "needs_recovery": "needs recovery",
    "under_min_isr": "below min ISR",
    "under_replicated": "under-replicated",
    "elr_in_use": "ELR in use",
    "recovering": "recovering",
    "reassigning": "reassigning",
    "offline_replicas": "offline replicas",
}
_BROKERS = {"online": "green", "stopping": "yellow", "fenced": "red"}
_SETS = {"L": "bold green", "I": "green", "E": "yellow", "?": "magenta", "o": "dim", "": ""}
_LEGEND = "L leader  I in the ISR  E eligible (ELR)  ? last known ELR  o out of sync  / offline"


def frame(
    state: BoardState, source: str, lines_max: int, trouble: str = "", groups: Groups | None = None
) -> RenderableType:
    """What `source` has said so far. `lines_max`: of the terminal; `trouble`: why it may be old."""
    mood, sentence = state.sentence()
    parts: list[RenderableType] = [Text(sentence, _MOODS[mood])]
    if trouble:
        parts.append(_plain(f"This node does not answer, so this is its last word: {trouble}", "bold red"))
    if state.cluster is None:
        return Group(*parts, Text(f"asking {source}", "dim"))
    parts += [_plain(_facts(state.cluster, source), "dim"), Text(), _brokers(state), Text()]
    decisions = state.decisions[:_DECISIONS_MAX]
    shown_groups = groups.rows[:_GROUPS_MAX] if groups else []
    taken = len(state.cluster["brokers"]) + len(decisions) + (len(shown_groups) + 3 if shown_groups else 0)
    room = max(3, lines_max - _FRAME_LINES - taken)
    rows = state.worst_first()
    parts.append(_partitions(state.cluster, rows[:room]))
    if len(rows) > room:
        parts.append(Text(f"worst {room} of {len(rows)} partitions", "dim"))
    parts += [Text(_LEGEND, "dim"), Text()]
    if groups and shown_groups:
        parts.append(_groups(shown_groups))
        if groups.count > len(shown_groups):
            parts.append(Text(f"most lag: {len(shown_groups)} of {groups.count} groups", "dim"))
        parts.append(Text())
    if state.is_from_the_active_controller:
        parts.append(Text("Last decisions" if decisions else "No decision yet", "bold"))
        parts += [Text(_decision(row)) for row in decisions]
    else:
        parts.append(Text("The active controller knows the reasons of the latest changes: watch it", "dim"))
    return Group(*parts)


def _facts(cluster: Row, source: str) -> str:
    quorum, node = cluster["quorum"], cluster["node"]
    leader = quorum["leader_id"]
    active = (
        "no active controller is known here"
        if leader is None
        else f"active controller {leader}, epoch {quorum['epoch']}"
    )
    return (
        f"{active} · {node['role']} {node['id']} at {source} answers ({node['state']}) · "
        f"metadata offset {cluster['metadata_offset']} · cluster {cluster['cluster_id']}"
    )


def _table(*heads: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for head in heads:
        table.add_column(head, overflow="fold")
    return table


def _brokers(state: BoardState) -> Table:
    assert state.cluster is not None
    table = _table("BROKER", "RACK", "STATE", "REGISTERED", "EPOCH", "LEADS", "REPLICAS", "OFFLINE")
    leads, holds = state.leaderships(), state.replicas()
    for row in state.cluster["brokers"]:
        table.add_row(
            str(row["id"]), _plain(row["rack"] or "-"), Text(row["state"], _BROKERS.get(row["state"], "")),
            row["registered"], str(row["epoch"]), str(leads[row["id"]]), str(holds[row["id"]]),
            str(row["offline_replicas"]),
        )  # fmt: skip
    return table


def _partitions(cluster: Row, rows: list[Row]) -> Table:
    ids = sorted({row["id"] for row in cluster["brokers"]} | {one for row in rows for one in row["replicas"]})
    table = _table("PARTITION", *map(str, ids), "LEADS NEXT", "WRITES", "ONLINE", "LOSSY", "STATE")
    for row in rows:
        cells: list[Any] = [name_of(row)]
        for broker in ids:
            letter = set_of(row, broker)
            is_offline = broker in row["offline_replicas"]
            cells.append(Text(letter + ("/" if letter and is_offline else ""), _SETS[letter]))
        cells.append(_next(row["next_leader"]))
        for kind in ("writes", "online", "lossy"):
            left = row["headroom"][kind]
            style = "red" if left < 0 else "yellow" if left == 0 else ""
            cells.append(Text(f"{-left} short" if left < 0 else str(left), style))
        cells.append(", ".join(_STATES.get(one, one) for one in row["states"]) or "ok")
        table.add_row(*cells)
    return table


def _groups(rows: list[Row]) -> Table:
    table = _table("GROUP", "STATE", "MEMBERS", "LAG", "MOST OF IT IN")
    for row in rows:
        lag, without = str(row["lag"]), "none"
        if row["unknown"]:
            lag = "unknown" if row["unknown"] == row["partitions"] else f"{lag} or more"
            without = "unknown"
        worst = ", ".join(f"{name}: {behind}" for name, behind in row["worst"]) or without
        table.add_row(*map(_plain, (row["group"], row["state"], row["members"], lag, worst)))
    return table


def _plain(value: Any, style: str = "") -> Text:
    """What others have chosen, on one line: no markup, and nothing that the terminal would obey."""
    text = "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in str(value))
    return Text(text, style)


def _next(following: Row | None) -> str:
    if following is None:
        return "ask a controller"
    if following["leader"] is not None:
        return str(following["leader"])
    waits_for = following["waits_for"]
    return f"waits for {', '.join(map(str, waits_for))}" if waits_for else "needs recovery"


def _decision(row: Row) -> str:
    parts = []
    for word, key in (("leader", "leader"), ("ISR", "isr"), ("ELR", "elr")):
        before, after = row[key]
        if before != after:
            parts.append(f"{word} {_value(before)} → {_value(after)}")
    rule = f" (elected: {row['elected_by']})" if row["elected_by"] else ""
    changes = "; ".join(parts) or "no change of sets"
    return f"{row['topic']}-{row['partition']}: {changes}, because {row['cause']}{rule}"


def _value(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)
