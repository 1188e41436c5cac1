"""The history of a simulated run, as of a real one: its rows are drawn by the same report.

Faults are read from the trace, decisions and ledgers from what a `Chronicle` has heard. Times are simulated.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from holdfast.cli.inspect.history_rows import metadata_rows
from holdfast.cli.inspect.partition_story import LoggedRecord, ReadLog
from holdfast.report.history import Row
from holdfast.report.load import load_rows_of
from holdfast.sim.machine.loop import START_NS

if TYPE_CHECKING:
    from holdfast.sim.campaign.recording import Recording
    from holdfast.sim.checks.observe.chronicle import Chronicle

#: what clients are called in the trace; all others are nodes
_BROKER, _CONTROLLER = "b", "c"
#: of the trace: (fault, what it did to the node in words)
_ENDS = {"kill": "is killed", "stop": "is stopped cleanly", "power": "loses its power"}
_OF_DISKS = {
    "hang": "its disk hangs for", "slow": "each write takes longer by", "diskfault": "its disk refuses",
    "flip": "a bit flips in", "dirfault": "its log dir fails:", "restore": "its disk is put back",
    "clock": "its clock is", "lost": "its disk is lost:",
}  # fmt: skip


def story_of(recording: "Recording", chronicle: "Chronicle") -> list[Row]:
    """All rows, the first that of the run."""
    result = recording.result
    shape = result.shape
    settings = {"brokers": shape.brokers, "voters": shape.voters, "min ISR": shape.min_isr}
    run: Row = {
        "kind": "run", "t_ms": 0, "what": "holdfast sim run", "seed": result.seed,
        "started": "in simulated time", "wall_ms": 0, "mono_ns": START_NS, "settings": settings,
    }  # fmt: skip
    faults = fault_rows(recording.events)
    committed = [LoggedRecord(offset, t_ms, record) for t_ms, offset, record in chronicle.records]
    end_ms = result.simulated_seconds * 1000
    rows: list[Row] = [
        *faults,
        *({"kind": "controller", "t_ms": t_ms, "controller": node} for t_ms, node in chronicle.controllers),
        *metadata_rows(ReadLog(committed), 0),
        *load_rows_of(chronicle.ledgers(), START_NS),
        {"kind": "verdict", "t_ms": end_ms, **_verdict(recording, len(faults))},
    ]
    return [run, *sorted(rows, key=lambda row: row["t_ms"])]


def _verdict(recording: "Recording", faults: int) -> Row:
    result = recording.result
    violation = result.violation
    says = (
        f"Every property held: {result.acknowledged:,} records acknowledged, {faults:,} faults"
        if violation is None
        else f"A property was violated: {violation}"
    )
    return {
        "judge": "the simulator", "says": says, "exit_code": 0 if violation is None else 1,
        "counts": {f"allowed: {name}": number for name, number in result.allowed.items()},
        "facts": {"sent": result.sent, "acked": result.acknowledged, "served": result.records,
                  "changes": result.changes},
        "samples": {}, "reasons": [],
    }  # fmt: skip


def fault_rows(events: Iterable[str]) -> list[Row]:
    """What befell nodes and links, each with its end, out of the lines of a trace."""
    found = _Faults()
    for event in events:
        ns, kind, *words = event.split(" ", 2)
        found.take((int(ns) - START_NS) / 1e6, kind, words[0] if words else "")
    return found.rows()


class _Faults:
    """Those that last are kept by node until they end."""

    def __init__(self) -> None:
        self._done: list[Row] = []
        self._down: dict[str, Row] = {}
        self._silent: dict[str, Row] = {}
        self._cut: list[Row] = []

    def take(self, t_ms: float, kind: str, text: str) -> None:
        node = text.partition(" ")[0].partition(".")[0]
        match kind:
            case "kill" | "stop" | "power" if _is_node(node):
                if node not in self._down:
                    self._down[node] = _row(t_ms, kind, node, f"{_full(node)} {_ENDS[kind]}")
            case "boot":
                self._end(self._down, node, t_ms)
                self._end(self._silent, node, t_ms)
            case "pause" if _is_node(node):
                self._silent[node] = _row(t_ms, kind, node, f"{_full(node)} is paused")
            case "resume":
                self._end(self._silent, node, t_ms)
            case "cut":
                self._cut.append(_row(t_ms, kind, *_parted(text)))
            case "mended" | "heal":
                self._done += ({**row, "until_ms": t_ms} for row in self._cut)
                self._cut.clear()
            case _ if kind in _OF_DISKS and _is_node(node):
                rest = text.partition(" ")[2]
                until = t_ms + float(rest.partition(" ")[0]) if kind == "hang" else t_ms
                words = f"{_full(node)}: {_OF_DISKS[kind]} {rest}".rstrip()
                self._done.append({**_row(t_ms, kind, node, words), "until_ms": until})

    def rows(self) -> list[Row]:
        return [*self._done, *self._down.values(), *self._silent.values(), *self._cut]

    def _end(self, open_faults: dict[str, Row], node: str, t_ms: float) -> None:
        row = open_faults.pop(node, None)
        if row is not None:
            self._done.append({**row, "until_ms": t_ms})


def _row(t_ms: float, fault: str, target: str, text: str) -> Row:
    return {
        "kind": "fault", "t_ms": t_ms, "until_ms": None, "fault": fault, "target": _full(target),
        "text": text,
    }  # fmt: skip


def _parted(text: str) -> tuple[str, str]:
    """The node that is cut off most, and the nodes on both sides in words."""
    way = "<->" if " <-> " in text else "->"
    one, _, other = text.partition(f" {way} ")
    sides = [[name for name in side.split() if _is_node(name)] for side in (one, other)]
    smaller = min((side for side in sides if side), key=len, default=[one.split()[0]])
    words = f" {way} ".join(", ".join(map(_full, side)) or "clients" for side in sides)
    return smaller[0], f"nothing passes: {words}"


def _is_node(name: str) -> bool:
    return name[:1] in (_BROKER, _CONTROLLER) and name[1:].isdigit()


def _full(name: str) -> str:
    """`b2` as real runs call it."""
    kinds = {_BROKER: "broker", _CONTROLLER: "controller"}
    return f"{kinds[name[0]]}-{name[1:]}" if _is_node(name) else name
